"""Every key of the system, network and memory files, declared once.

`checks` validates with these tables and `reference_page` prints them for users. Not here: the keys of
entries about single ranks and links (`uneven_tables`), how a value is checked, and rules that need more than
one key (`system_file`, `network_file`, `memory_file`).
"""

from __future__ import annotations

from et_sim.machine.compute_tables import COMPUTE_KEY
from et_sim.machine.corrections import Correction
from et_sim.machine.credit_tables import CREDITS_KEY
from et_sim.machine.keys import Key, Kind
from et_sim.machine.library_tables import LIBRARY_KEY
from et_sim.machine.model import (
    AllReducePlan,
    DimensionOrder,
    MemoryKind,
    QueueOrder,
    Shape,
    StreamPolicy,
    WhenFull,
)
from et_sim.machine.object_tables import ACCURACY_KEY, COSTS_KEY, OVERLAP_KEY, STREAMS_KEY
from et_sim.machine.pool_tables import POOL_KEYS
from et_sim.machine.profiles import Profile
from et_sim.machine.protocol_tables import PROTOCOL_KEY
from et_sim.machine.uneven_tables import IN_NETWORK_KEY, LINKS_KEY, STRAGGLERS_KEY, TIME_FACTORS_KEY
from et_sim.machine.unused_keys import OPTIONAL_LAYER_KEYS

COLLECTIVES = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all")

MOST = 2**31 - 1  # of what the engine counts in 32 bits
MOST_CHUNKS = 1_000_000

_UNREAD = "the reference accepts this key and does not read it, and neither does et-sim in this version"
_UNINITIALISED = "the reference would read uninitialised memory"


def _implementation(collective: str) -> tuple[Key, Key]:
    """The native and the custom algorithm list of one collective type."""
    return (
        Key(
            f"{collective}-implementation",
            Kind.ALGORITHMS,
            f"The algorithm of {collective} in each network dimension, innermost first. "
            "A `one...` name spans all NPUs as one dimension.",
            "A missing list fails only when such a collective is issued; too long a list aborts; "
            "`direct` with a window of 0 hangs.",
        ),
        Key(
            f"{collective}-implementation-custom",
            Kind.PREFIX,
            f"Run {collective} from the traces `PREFIX.<position>.et` instead of a named algorithm. "
            "Paths are relative to the working folder.",
            "Completes only with `preferred-dataset-splits` 1.",
        ),
    )


_PROFILE_KEYS = (
    Key(
        "profile",
        Kind.CHOICE,
        "`reference` gives the reference's times, defects included; `corrected` mends them "
        "(see [profiles](profiles.md)). Without the key: that of the workload, if its manifest names one, "
        "else `reference`.",
        "Not known there.",
        choices=tuple(profile.value for profile in Profile),
    ),
    Key(
        "corrections",
        Kind.SWITCHES,
        "Switches single corrections on or off, whatever the profile.",
        "Not known there.",
        choices=tuple(correction.value for correction in Correction),
    ),
)

_COLLECTIVE_KEYS = (
    Key(
        "preferred-dataset-splits",
        Kind.INTEGER,
        "Into how many chunks each collective is cut.",
        "Missing or 0: division by zero at the first collective.",
        default=1,
        default_reason="the reference would divide by zero at the first collective",
        field="splits",
        minimum=1,
        minimum_reason="a collective is cut into at least one chunk",
        maximum=MOST_CHUNKS,
    ),
    Key(
        "active-chunks-per-dimension",
        Kind.INTEGER,
        "How many chunks may be in progress in a dimension at once, shared by its queues "
        "(rounded up per queue).",
        "0: nothing ever starts, and the run ends silently.",
        default=1,
        field="active_chunks",
        minimum=1,
        minimum_reason="no chunk would ever start",
        maximum=MOST,
    ),
    Key(
        "scheduling-policy",
        Kind.CHOICE,
        "Which collective goes first when several wait for the same queue.",
        "Missing: uninitialised memory.",
        default=StreamPolicy.LIFO.value,
        default_reason=_UNINITIALISED,
        field="policy",
        choices=tuple(policy.value for policy in StreamPolicy),
    ),
    Key(
        "collective-optimization",
        Kind.CHOICE,
        "How an all-reduce crosses several dimensions: `baseline` does a full all-reduce in each; "
        "`localBWAware` does reduce-scatter inwards to outwards, all-reduce in the last, all-gather back.",
        "Missing: uninitialised memory, possibly different on each rank.",
        default=AllReducePlan.LOCAL_BW_AWARE.value,
        default_reason=_UNINITIALISED,
        field="all_reduce_plan",
        choices=tuple(plan.value for plan in AllReducePlan),
    ),
    *(key for collective in COLLECTIVES for key in _implementation(collective)),
    Key(
        "rings",
        Kind.RINGS,
        "In which order rings visit the NPUs of a dimension; chunks take turns among the rings of a "
        "dimension ([several rings](collectives.md#several-rings)). Without the key, or with an empty list "
        "for a dimension, there is one ring, in ascending order.",
        "Not known there.",
    ),
    Key(
        "broadcast-implementation",
        Kind.CHOICE,
        "How broadcasts are done: over a `tree` of their members, or `inNetwork`, by "
        "[switches that reduce](networks.md#switches-that-reduce), where these reach all members.",
        "Not known there; without the key: `tree`.",
        choices=("tree", "inNetwork"),
    ),
    Key(
        "per-node-custom-implementation",
        Kind.TEXT,
        "A YAML file that maps node ids of the workload to custom-collective trace prefixes.",
        field="per_node_implementation",
    ),
    Key(
        "inter-dimension-scheduling",
        Kind.TEXT,
        "In which order chunks visit the dimensions: `ascending` (also called `baseline`); `roundRobin`, "
        "turned by one place from chunk to chunk; `offlineGreedy` (Themis), the least loaded dimension "
        "first; `offlineGreedyFlex`, which also chooses the size of chunks; `onlineGreedy`, ascending, but "
        "an all-reduce scatters and gathers in the last dimension, too. Groups that are a part of the system "
        "go by the same order with the correction `groups-by-dimension`.",
        "Not read in 2.x; a setting of 1.x.",
        choices=(*(order.value for order in DimensionOrder), "baseline"),
        correction=Correction.DIMENSION_SCHEDULERS.value,
    ),
    Key(
        "intra-dimension-scheduling",
        Kind.TEXT,
        "In which order chunks wait for a reduce-scatter or all-gather in a dimension: `FIFO`, by "
        "`scheduling-policy` and then as they come; `RG`, the two kinds in turn; `smallestFirst`; "
        "`lessRemainingPhaseFirst`.",
        "Not read in 2.x; a setting of 1.x.",
        choices=tuple(order.value for order in QueueOrder),
        correction=Correction.DIMENSION_SCHEDULERS.value,
    ),
    Key(
        "num-queues-per-dim",
        Kind.INTEGER,
        "How many queues each dimension has; collectives are spread over them.",
        "A command-line option there (`--num-queues-per-dim`).",
        default=1,
        field="queues_per_dim",
        minimum=1,
        minimum_reason="no collective would ever start",
        maximum=MOST_CHUNKS,
    ),
)

_ENDPOINT_KEYS = (
    Key(
        "endpoint-delay",
        Kind.INTEGER,
        "Time that an NPU spends on every message of a collective.",
        "Multiplied by the injection scale and cut to an integer only if the key is present.",
        default=10,
        field="endpoint_delay_ns",
        unit="ns",
    ),
    Key(
        "injection-scale",
        Kind.NUMBER,
        "Multiplies `endpoint-delay`, if that key is given.",
        "A command-line option there (`--injection-scale`).",
        default=1.0,
        above_minimum=True,
    ),
    Key(
        "rendezvous-protocol",
        Kind.FLAG,
        "Every message waits for an 8 KiB control message from its receiver.",
        "A command-line option there (`--rendezvous-protocol`); messages of 2 GiB and more go wrong.",
        default=False,
        field="rendezvous",
    ),
    Key(
        "model-shared-bus",
        Kind.FLAG,
        "Replace the endpoint delay by a LogGP model of the bus between NPU and memory.",
        "On only for exactly 1 or true.",
        default=False,
    ),
    Key("L", Kind.INTEGER, "Bus latency.", default=0, unit="ns", needs="model-shared-bus"),
    Key("o", Kind.INTEGER, "Bus overhead per transfer.", default=0, unit="ns", needs="model-shared-bus"),
    Key("g", Kind.INTEGER, "Bus gap between transfers.", default=0, unit="ns", needs="model-shared-bus"),
    Key(
        "G",
        Kind.NUMBER,
        "Bus gap per byte.",
        "Held in single precision.",
        default=0.0,
        unit="ns per byte",
        needs="model-shared-bus",
    ),
    Key(
        "local-reduction-delay",
        Kind.INTEGER,
        "Time to reduce 100 bytes on the shared bus (on top of a fixed 50 ns).",
        default=1,
        field="local_reduction_delay",
        unit="ns",
        needs="model-shared-bus",
    ),
)

_COMPUTE_KEYS = (
    Key(
        "local-mem-bw",
        Kind.NUMBER,
        "Bandwidth of an NPU's own memory: paces reductions and the roofline.",
        "Missing or 0: infinity becomes 0 when it is turned into an integer.",
        default=0.0,
        default_reason="reductions take no time",
        field="local_mem_bw",
        unit="GB/s (10^9 bytes)",
    ),
    Key(
        "peak-perf",
        Kind.NUMBER,
        "Peak compute rate of an NPU, for the roofline.",
        "Missing or 0: computation takes 0 ns.",
        default=0.0,
        field="peak_perf",
        unit="TFLOPS",
        needs="roofline-enabled",
    ),
    Key(
        "roofline-enabled",
        Kind.SWITCH,
        "Compute durations from operations and bytes instead of replaying the recorded ones; a kernel that "
        "lacks either (`num_ops`, `tensor_size`) keeps its recorded time, and is counted.",
        default=False,
        field="roofline",
    ),
    Key(
        "replay-only",
        Kind.SWITCH,
        "Every node takes its recorded duration, communication included.",
        default=False,
        field="replay_only",
    ),
    Key(
        "host-time",
        Kind.TIME,
        "Time that the host takes to launch a kernel or collective: one after the other, in the order of the "
        "trace, and without waiting for the device, on ranks whose traces have no [host](compute.md#hosts) "
        "of their own. Without the key: none.",
        "Not known there.",
        unit="ns",
    ),
    Key(
        "replay-recorded-kernels",
        Kind.SWITCH,
        "Kernels that a profiler recorded on a stream of a device (attribute `stream`, and a duration) take "
        "that time, whatever `compute` says; all other kernels are timed by it. Machines by name have it on, "
        "and `--retime` switches it off.",
        "Not known there.",
    ),
    Key(
        "track-local-mem",
        Kind.SWITCH,
        "Track which tensors are alive, and the peak memory of each NPU.",
        default=False,
        field="track_local_mem",
    ),
)

_CAPACITY_KEYS = (
    Key(
        "local-mem-capacity",
        Kind.SIZE,
        "How much memory of its own an NPU has; then what its tensors need is tracked, and held against it "
        "([local memory](memory.md#local-memory)).",
        "Not known there.",
        unit="bytes",
        minimum=1,
    ),
    Key(
        "when-full",
        Kind.CHOICE,
        "What becomes of a run that needs more: `stop` ends it there, `report` says it, and goes on; with "
        "`spill`, tensors wait in [remote memory](memory.md#spilling). Without the key: `stop`.",
        "Not known there.",
        choices=tuple(one.value for one in WhenFull),
    ),
)

_IGNORED_KEYS = (
    Key(
        "local-mem-trace-filename",
        Kind.TEXT,
        "No effect: what `track-local-mem` finds is in `memory.arrow`, in the run's directory.",
        "Start of the names of the memory trace files.",
        ignored="names nothing here: what is tracked is in memory.arrow, in the run's directory",
    ),
    Key(
        "trace-enabled",
        Kind.SWITCH,
        "No effect: a timeline is always written.",
        "Adds issue and completion lines to the log.",
        ignored="a timeline is always written, so this key changes nothing",
    ),
    Key("boost-mode", Kind.FLAG, "No effect.", "Not read in 2.x; a setting of 1.x.", ignored=_UNREAD),
    Key("seprate-log", Kind.FLAG, "No effect (the spelling is 1.x's).", "Not read in 2.x.", ignored=_UNREAD),
    Key(
        "gap-denominator", Kind.NUMBER, "No effect.", "Not read in 2.x; tuned Themis in 1.x.", ignored=_UNREAD
    ),
    Key(
        "direct-collective-window",
        Kind.NUMBER,
        "No effect: write the window behind the name, as in `direct4`.",
        "Not read in 2.x, refused by 1.x.",
        ignored=f'{_UNREAD}; write the window behind the algorithm name, as in "direct4"',
    ),
    Key(
        "comm-scale",
        Kind.NUMBER,
        "No effect.",
        "A command-line option there, without effect.",
        ignored="the reference takes this option without any effect, and so does et-sim in this version",
    ),
    Key(
        "compute-scale",
        Kind.NUMBER,
        "No effect.",
        "A command-line option there, never read.",
        ignored="the reference takes this option without any effect, and so does et-sim in this version",
    ),
    Key(
        "logging-configuration",
        Kind.TEXT,
        "No effect: et-sim writes no log files.",
        "A command-line option there.",
        ignored="et-sim writes no log files, so this key changes nothing",
    ),
    Key(
        "logging-folder",
        Kind.TEXT,
        "No effect: et-sim writes no log files.",
        "A command-line option there.",
        ignored="et-sim writes no log files, so this key changes nothing",
    ),
)

SYSTEM_KEYS = (
    *_PROFILE_KEYS,
    *_COLLECTIVE_KEYS,
    *_ENDPOINT_KEYS,
    *_COMPUTE_KEYS,
    *_CAPACITY_KEYS,
    LIBRARY_KEY,
    COMPUTE_KEY,
    STRAGGLERS_KEY,
    TIME_FACTORS_KEY,
    STREAMS_KEY,
    OVERLAP_KEY,
    COSTS_KEY,
    ACCURACY_KEY,
    *OPTIONAL_LAYER_KEYS,
    *_IGNORED_KEYS,
)

DIMENSION_KEYS = (
    Key(
        "topology",
        Kind.CHOICE,
        "How the NPUs of each dimension are wired, innermost dimension first.",
        choices=tuple(shape.value for shape in Shape),
        required=True,
    ),
    Key(
        "npus_count",
        Kind.COUNT,
        "NPUs in each dimension; rank ids count dimension 0 fastest.",
        "1 is refused there; here such a dimension is legal and never takes part.",
        minimum=1,
        required=True,
    ),
    Key(
        "bandwidth",
        Kind.BANDWIDTH,
        "Bandwidth of one link: to each ring neighbour, to each peer, or to the switch. "
        "A bare number is in GiB/s.",
        "Called GB/s there, but multiplied by 2^30.",
        unit="GiB/s (2^30 bytes)",
        above_minimum=True,
        required=True,
    ),
    Key(
        "latency",
        Kind.TIME,
        "Latency of one hop; fractions count. A bare number is in ns.",
        unit="ns",
        required=True,
    ),
)

NETWORK_KEYS = (*DIMENSION_KEYS, LINKS_KEY, IN_NETWORK_KEY, PROTOCOL_KEY, CREDITS_KEY)

MEMORY_KEYS = (
    Key(
        "memory-type",
        Kind.CHOICE,
        "Where remote memory lives: nowhere, one per NPU, one per node, or one pool for all, whose NPUs "
        "take turns; or a pool behind stages.",
        "Missing: uninitialised memory.",
        choices=tuple(kind.value for kind in MemoryKind),
        required=True,
    ),
    Key(
        "remote-mem-latency",
        Kind.INTEGER,
        "Time before a transfer starts.",
        default=0,
        field="latency_ns",
        unit="ns",
    ),
    Key(
        "remote-mem-bw",
        Kind.INTEGER,
        "Bandwidth of one remote memory.",
        "Fractions are cut off, so 0.5 is 0; with 0 a transfer takes only the latency.",
        default=0,
        field="bandwidth",
        unit="GB/s (10^9 bytes)",
    ),
    Key(
        "num-nodes",
        Kind.INTEGER,
        "How many nodes there are; required by PER_NODE_MEMORY_EXPANSION.",
        "Too few nodes, or none: a crash.",
        default=0,
        field="nodes",
        maximum=MOST,
    ),
    Key(
        "num-npus-per-node",
        Kind.INTEGER,
        "How many consecutive ranks share a node; required by PER_NODE_MEMORY_EXPANSION.",
        "0: a crash.",
        default=0,
        field="npus_per_node",
        maximum=MOST,
    ),
    *POOL_KEYS,
    Key(
        "local-mem-latency",
        Kind.NUMBER,
        "No effect.",
        "Not read; sample files of before September 2023 have it.",
        ignored=_UNREAD,
    ),
    Key(
        "local-mem-bw",
        Kind.NUMBER,
        "No effect here: give it in the system file.",
        "Not read; sample files of before September 2023 have it.",
        ignored=f"{_UNREAD}; give it in the system file",
    ),
)
