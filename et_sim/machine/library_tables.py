"""Keys of the object `library`, of the system file.

Not here: reading them (`library_object`).
"""

from __future__ import annotations

from et_sim.machine.keys import Key, Kind
from et_sim.machine.library.calibration import CALIBRATION_KEYS
from et_sim.machine.library.candidates import ALL_GATHER, ALL_REDUCE, BROADCAST, REDUCE, REDUCE_SCATTER
from et_sim.machine.library.rules import ALGORITHMS, LIBRARIES, NETWORK_US, PROTOCOL_NAMES

NAME, NO_LIBRARY = "library", "none"
LOGGED_KINDS = (ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, BROADCAST, REDUCE)
GPUS = tuple(dict.fromkeys(gpu for rules in LIBRARIES.values() for gpu in rules.gpus))
MOST = 1_000_000

LIBRARY_KEYS = (
    Key(
        "name",
        Kind.CHOICE,
        "Which library chooses; `none`: the `...-implementation` keys do.",
        choices=(*LIBRARIES, NO_LIBRARY),
        required=True,
    ),
    Key(
        "gpu",
        Kind.CHOICE,
        "The generation of the GPUs. Without it, it follows from the bandwidth of dimension 0, if that is "
        "the NVLink of one of them.",
        choices=GPUS,
    ),
    Key("link", Kind.CHOICE, "What joins the GPUs of a node.", default="NVLink", choices=("NVLink", "PCI")),
    Key(
        "link-speed",
        Kind.RATE,
        "What the library takes all links of a GPU to its node for; as a rule, it counts four fifths of the "
        "bandwidth on a data sheet.",
        unit="GB/s",
        above_minimum=True,
        maximum=MOST,
    ),
    Key("switch", Kind.FLAG, "Whether a switch joins them that can reduce (NVSwitch).", default=True),
    Key("collnet", Kind.FLAG, "Whether the network's switches reduce (SHARP, by its plugin).", default=False),
    Key(
        "cards",
        Kind.COUNT,
        "Network cards of a node; without it, one for each NPU, or as many as they share (`npus-per-nic`).",
        minimum=1,
        maximum=MOST,
    ),
    Key("cpu", Kind.CHOICE, "Of the host.", default="intel", choices=tuple(NETWORK_US)),
    Key(
        "algorithms",
        Kind.CHOICES,
        "Only these are chosen from, as with NCCL_ALGO; all, where none of them can do what is asked.",
        choices=ALGORITHMS,
    ),
    Key(
        "protocols",
        Kind.CHOICES,
        "Only these are chosen from, as with NCCL_PROTO.",
        choices=tuple(PROTOCOL_NAMES.values()),
    ),
    Key(
        "rings",
        Kind.OBJECT,
        "Channels as the library itself says them (NCCL_DEBUG_SUBSYS=GRAPH): how many on one node and "
        "between nodes, and the GB/s of each.",
        choices=("on-a-node", "between-nodes"),
    ),
    Key(
        "choices",
        Kind.OBJECT,
        "What the library was seen to choose (NCCL_DEBUG_SUBSYS=TUNING), by collective: lists of the number "
        "of nodes, the bytes, the algorithm and the protocol. Between the sizes that are listed for a number "
        "of nodes, the next one below holds; outside, the library's own constants do.",
        choices=LOGGED_KINDS,
    ),
    Key(
        "occupies",
        Kind.FLAG,
        "Whether a collective of NCCL takes a processor (SM) for each of its channels from kernels that run "
        "beside it, where the machine says how many `processors` it has. `overlap` stands before it.",
        default=True,
    ),
    Key(
        "calibration",
        Kind.OBJECT,
        "Factors that were fitted to measured collectives; without, the library's own model says the time.",
        choices=CALIBRATION_KEYS,
    ),
)

LIBRARY_KEY = Key(
    NAME,
    Kind.TEXT_OR_OBJECT,
    "The collective library, which then chooses algorithm, protocol and channels of every collective, and "
    "says what it takes ([collective libraries](collectives.md#collective-libraries)). A "
    "`...-implementation` key stands before it for its collective.",
    "Not known there.",
    choices=tuple(key.name for key in LIBRARY_KEYS),
)
