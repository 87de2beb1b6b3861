"""Generate the users' page on configuration files, `docs/configuration.md`, from the key tables.

    python -m et_sim.machine.reference_page docs/configuration.md

Not here: the tables themselves (`tables`); a test keeps the committed page equal to this one's output.
"""

from __future__ import annotations

import sys
from pathlib import Path
from textwrap import fill

from et_sim.machine.accuracy import DEFAULTS, EXCHANGES, OPERATIONS
from et_sim.machine.checks import show
from et_sim.machine.compute_tables import (
    LEVEL_OF_MEMORY_KEYS,
    OPERATOR_TABLE_KEYS,
    ROOFLINE_KEYS,
    RULE_KEYS,
    SYSTOLIC_KEYS,
    WHERE_KEYS,
)
from et_sim.machine.credit_tables import CREDIT_KEYS
from et_sim.machine.keys import Key, Kind
from et_sim.machine.library_tables import LIBRARY_KEYS
from et_sim.machine.loggops_file import LOGGOPS_KEYS
from et_sim.machine.object_tables import ACCURACY_KEYS, COSTS_KEYS, OVERLAP_KEYS, STREAM_KEYS, TERM_KEYS
from et_sim.machine.packet_keys import MARKING_KEYS, PACKET_KEYS, TCP_KEYS
from et_sim.machine.pool_tables import STAGE_KEYS
from et_sim.machine.protocol_tables import PROTOCOL_KEYS
from et_sim.machine.tables import MEMORY_KEYS, NETWORK_KEYS, SYSTEM_KEYS
from et_sim.machine.uneven_tables import IN_NETWORK_KEYS, LINK_KEYS, STRAGGLER_KEYS, TIME_FACTOR_KEYS
from et_sim.machine.unused_keys import UNUSED_KEYS
from et_sim.machine.version_1 import LEVEL_KEYS, SYSTEM_1_KEYS

WIDTH = 110  # of lines of text
_OPENING = """\
# Configuration files

<!-- Generated from the key tables: python -m et_sim.machine.reference_page docs/configuration.md -->

A machine is described by two files, and by two more where they are needed. They are the files of
ASTRA-sim 2.x and can be used unchanged, as can [those of ASTRA-sim 1.0](#files-of-astra-sim-10).

| file | option | format | says |
|---|---|---|---|
| network | `--network` | YAML | how the NPUs are connected |
| system | `--system` | JSON | what an NPU does, and how collectives run |
| memory | `--memory` (optional) | JSON | where remote memory lives |
| groups | `--groups` (optional) | JSON | which ranks form communicator groups |

From Python, each can be a path or a dict with the same keys.

"The reference" below is ASTRA-sim 2.x. Where et-sim reads a file differently, the row says so, and the run
records it: warnings and every default taken are in `run.json`.

Rules for all files:

- A key that is not known, or is given twice, is an error. ASTRA-sim says nothing.
- A value of the wrong type or out of range is an error that names file, key, value and what is allowed.
- Where an integer is wanted, `4.0` is taken as 4. `1.9` is cut to 1 with a warning, as ASTRA-sim does
  without one, except for `npus_count`, where it is an error.
- Integers are at most 2^53, the range in which a time stays exact.
- GB is 10^9 bytes in the system and memory files. In the network file, a bare bandwidth is in units of
  2^30 bytes per second although ASTRA-sim calls it GB/s; write a unit to be sure.
"""

_NETWORK = """
## Network file

```yaml
topology: [ Ring, Switch ]
npus_count: [ 4, 2 ]
bandwidth: [ 50.0, 25.0 ]
latency: [ 500.0, 1000.0 ]
```

Four lists with one entry per dimension, innermost first; they are required. This example has 4 x 2 = 8
NPUs; rank 6 has coordinate 2 in dimension 0 and coordinate 1 in dimension 1. Bandwidths and latencies may be
written with units: `bandwidth: [ 50GiB/s, 200Gbps ]`, `latency: [ 500ns, 1us ]`. A network file may also
describe [a graph](networks.md), or give [the constants of LogGOPS](#loggops).
"""

_LINKS = """
Each entry of `links` is about one link, in one direction:
"""

_REDUCERS = """
Each entry of `in-network` is about the switches of one dimension:
"""

_PROTOCOL = """
`protocol` is for the flow and packet models: the others refuse it. Of what a preset says, single keys may
differ. Without the key, messages on the flow model are as large as their payload, and links carry nothing
else; the packet model takes the preset `datacenter`:
"""

_PACKETS = """
Further keys of `protocol` matter to the packet model alone; what they are by default, the preset says:
"""

_TCP = """
### TCP

Keys of `tcp`, which makes a protocol TCP; without one of the presets for it, packets are as large as those of
the protocol. What the keys are by default, the preset says:
"""

_MARKING = """
Each entry of `marking`:
"""

_LOGGOPS = """
### LogGOPS

```yaml
loggops: { npus: 8, L: 2500, o: 1500, g: 1000, G: 6, O: 0, S: 65535 }
```

A network file with the one key `loggops` is for `--network-model loggops`, and for no other; see
[networks](networks.md#loggops):
"""

_CREDITS = """
`credits` is for the packet model alone, in place of `protocol`. Without the key, nothing is known of flits:
"""

_STRAGGLERS = """
Each entry of `stragglers` has at least one of `compute`, `delay` and `jitter`:
"""

_COMPUTE = """
The key `compute` is an object that describes a model, or a list of such [rules](compute.md). Each has:
"""

_WHERE = """
The keys of `where`, all of which must hold:
"""

_ROOFLINE = """
The model `roofline` also has these:
"""

_LEVELS_OF_MEMORY = """
Each entry of `memory` there:
"""

_SYSTOLIC = """
The model `systolic` also has these. Sizes are counted in words of a byte, as SCALE-Sim does:
"""

_OPERATOR_TABLE = """
The model `table` also has these, and `replay` has none:
"""

_TIME_FACTORS = """
Each entry of `time-factors` has at least one factor. It is 0.5 for what is to take half of the time, and 0
for none:
"""

_STREAMS = """
Each entry of `streams` says which work takes turns among itself, and how much of it is under way at a time:
"""

_OVERLAP = """
The object `overlap` says how much longer work takes beside communication of the same NPU:
"""

_LIBRARY = """
### The collective library

The object `library` says which collective library runs, and on what
([what it does](collectives.md#collective-libraries)); a name alone stands for an object with that name.
All keys of `calibration` are factors of the library's own model of cost, but `copy` and `nvls-copy` (GB/s; 0:
left out), `start-simple` and `pairs-step` (microseconds):
"""

_COSTS = """
The object `costs` says what one NPU draws, and what it is let for; the summary then says what the run
takes of both:
"""

_ACCURACY = """
The object `accuracy` says how far times may be off, of a machine that stands for a real one; it may be
empty. Besides these keys, kinds of operations and of communication may have entries: {operations};
{exchanges}. What an entry leaves out, and what has none, is as known of such classes at large:
"""

_TERMS = """
Each entry of `accuracy`:
"""

_SYSTEM = """
## System file

```json
{
    "scheduling-policy": "LIFO",
    "endpoint-delay": 10,
    "active-chunks-per-dimension": 1,
    "preferred-dataset-splits": 4,
    "all-reduce-implementation": ["ring", "direct"],
    "all-gather-implementation": ["ring", "direct"],
    "reduce-scatter-implementation": ["ring", "direct"],
    "all-to-all-implementation": ["direct", "direct"],
    "collective-optimization": "localBWAware",
    "local-mem-bw": 1600
}
```

Algorithm names: `ring`, `direct`, `direct<W>` with a window of W messages (`direct4`), `halvingDoubling`,
`doubleBinaryTree`, `inNetwork`, which leaves the work to [switches](networks.md#switches-that-reduce), and
`oneRing`, `oneDirect`, `oneDirect<W>`, `oneHalvingDoubling`, which take all NPUs as one dimension.
A list with more entries than the network has dimensions is an error. With fewer, the
remaining dimensions are not used by that collective, and a warning says so; in the corrected profile, a
collective of all NPUs is then refused, unless its node says which dimensions take part. A collective that
a workload uses needs its list or a custom one.

On/off keys take 1 or true, 0 or false. For `roofline-enabled`, `replay-only`, `track-local-mem` and
`trace-enabled`, ASTRA-sim takes JSON `false` for on; et-sim takes it for off and warns. Write 0 to be
understood alike by both.
"""

_MEMORY = """
## Memory file

```json
{
    "memory-type": "MEMORY_POOL",
    "remote-mem-latency": 100,
    "remote-mem-bw": 512
}
```

Without this file there is no remote memory (`NO_MEMORY_EXPANSION`). A transfer takes the latency plus its
bytes divided by the bandwidth, cut to whole nanoseconds. With `PER_NODE_MEMORY_EXPANSION`, `num-nodes` times
`num-npus-per-node` must be at least the number of NPUs.

A `HIERARCHICAL_POOL` has `chunk` and `stages` in place of these figures. What it does is told in
[Remote memory](memory.md).
"""

_STAGES = """
Entries of `stages`:
"""

GROUPS = """
## Groups file

```json
{
    "1": [0, 1, 2, 3],
    "2": [4, 5, 6, 7]
}
```

The key is the group's name, a number or any other text, in quotes; the value lists the group's ranks.
Their order is that of the ring; in the corrected profile it is
[the machine's](collectives.md#groups-on-a-part-of-the-machine). 0 always means all ranks and cannot be
defined. Ranks must exist and differ; an empty group is an error.

`--groups empty` means no groups, as in ASTRA-sim, unless a file of that name exists. ASTRA-sim ignores every
path that contains "empty"; et-sim reads it.
"""

_VERSION_1 = """
## Files of ASTRA-sim 1.0

The network is a JSON file, the system a text file of `key: value` words, in which lists are joined by
`_` (`ring_ring`). What they are is seen from their content; the system file (or, in a dict,
`"profile": "astra-1.0"`) chooses the [profile](profiles.md) `astra-1.0`, the network file how the time of a
message is counted. See [running what ASTRA-sim 1.0 ran](astra-1.0.md).

### Network
"""

_SYSTEM_1 = """
### System

The last keys were options of the command line; `units-count`, `links-count`, `link-bandwidth` and
`link-latency` may stand here, too (`units-count: 4_4_4`), and then replace the network's.
"""


# An example of each file, for whoever explains its keys elsewhere.
EXAMPLES = {"network": _NETWORK, "system": _SYSTEM, "memory": _MEMORY}


def configuration_page() -> str:
    """The whole page as Markdown."""
    effective = tuple(key for key in SYSTEM_KEYS if not key.ignored)
    ignored = tuple(key for key in (*SYSTEM_KEYS, *MEMORY_KEYS) if key.ignored)
    memory = tuple(key for key in MEMORY_KEYS if not key.ignored)
    parts = [_OPENING, _NETWORK, _table(NETWORK_KEYS), _LINKS, _entry_table(LINK_KEYS)]
    parts += [_PROTOCOL, _entry_table(PROTOCOL_KEYS), _PACKETS, _entry_table(PACKET_KEYS)]
    parts += [_MARKING, _entry_table(MARKING_KEYS)]
    parts += [_CREDITS, _entry_table(CREDIT_KEYS)]
    parts += [_REDUCERS, _entry_table(IN_NETWORK_KEYS), _TCP, _entry_table(TCP_KEYS)]
    parts += [_LOGGOPS, _defaults_table(LOGGOPS_KEYS)]
    parts += [_SYSTEM, _table(effective), _COMPUTE, _entry_table(RULE_KEYS)]
    parts += [_WHERE, _entry_table(WHERE_KEYS), _ROOFLINE, _defaults_table(ROOFLINE_KEYS)]
    parts += [_LEVELS_OF_MEMORY, _entry_table(LEVEL_OF_MEMORY_KEYS)]
    parts += [_OPERATOR_TABLE, _defaults_table(OPERATOR_TABLE_KEYS)]
    parts += [_SYSTOLIC, _defaults_table(SYSTOLIC_KEYS)]
    parts += [_STRAGGLERS, _entry_table(STRAGGLER_KEYS)]
    parts += [_TIME_FACTORS, _entry_table(TIME_FACTOR_KEYS)]
    parts += [_STREAMS, _defaults_table(STREAM_KEYS), _OVERLAP, _entry_table(OVERLAP_KEYS)]
    parts += [_LIBRARY, _defaults_table(LIBRARY_KEYS)]
    parts += [_COSTS, _defaults_table(COSTS_KEYS)]
    parts += [_accuracy(), _accuracy_table(), _TERMS, _entry_table(TERM_KEYS)]
    parts += [_MEMORY, _table(memory), _STAGES, _entry_table(STAGE_KEYS), GROUPS, _ignored_table(ignored)]
    parts += [_VERSION_1, _entry_table(LEVEL_KEYS), _SYSTEM_1, _defaults_table(SYSTEM_1_KEYS)]
    return "\n".join(part.strip("\n") + "\n" for part in parts)


def _table(keys: tuple[Key, ...]) -> str:
    rows = [
        _row("key", "unit", "default", "allowed", "meaning", "in the reference"),
        "|---|---|---|---|---|---|",
    ]
    for key in keys:
        needs = f" Only with `{key.needs}`." if key.needs else ""
        if key.correction:
            needs = f" Only with the correction `{key.correction}`."
        cells = (f"`{key.name}`", key.unit or "-", _default(key), _allowed(key), key.meaning + needs)
        rows.append(_row(*cells, key.reference or "the same"))
    return "\n".join(rows)


def _defaults_table(keys: tuple[Key, ...]) -> str:
    """Keys that no other version is compared with."""
    rows = [_row("key", "unit", "default", "allowed", "meaning"), "|---|---|---|---|---|"]
    for key in keys:
        needs = f" Only with `{key.needs}`." if key.needs else ""
        cells = (key.unit or "-", _default(key), _allowed(key), key.meaning + needs)
        rows.append(_row(f"`{key.name}`", *cells))
    return "\n".join(rows)


def _entry_table(keys: tuple[Key, ...]) -> str:
    """Keys of the entries of a list, which the reference does not know."""
    rows = [_row("key", "unit", "allowed", "meaning"), "|---|---|---|---|"]
    for key in keys:
        needs = f" Only with `{key.needs}`." if key.needs else ""
        needs += " Required." if key.required else ""
        rows.append(_row(f"`{key.name}`", key.unit or "-", _allowed(key), key.meaning + needs))
    return "\n".join(rows)


def _accuracy() -> str:
    names = {"operations": OPERATIONS, "exchanges": EXCHANGES}
    said = {what: ", ".join(f"`{name}`" for name in some) for what, some in names.items()}
    return "\n" + fill(_ACCURACY.format(**said).strip(), WIDTH) + "\n"


def _accuracy_table() -> str:
    rows = [_row("key", "basis", "random", "common", "what it is of"), "|---|---|---|---|---|"]
    for key in ACCURACY_KEYS:
        known = DEFAULTS.get(key.name)
        figures = ("-",) * 3 if known is None else (known.basis, f"{known.random:g}", f"{known.common:g}")
        rows.append(_row(f"`{key.name}`", *figures, key.meaning))
    return "\n".join(rows)


def _ignored_table(keys: tuple[Key, ...]) -> str:
    heading = "## Keys without effect\n\nAccepted so that existing files can be used, each with a warning.\n"
    rows = [_row("key", "meaning", "in the reference"), "|---|---|---|"]
    rows += [_row(f"`{key.name}`", key.meaning, key.reference) for key in keys]
    others = ["| key | why |", "|---|---|", *(_row(f"`{name}`", why) for name, why in UNUSED_KEYS.items())]
    between = (
        "\n\nSo are keys of other versions, and keys in the wrong file, each with a warning that it:\n\n"
    )
    return heading + "\n" + "\n".join(rows) + between + "\n".join(others)


def _default(key: Key) -> str:
    if key.required:
        return "required"
    return "none" if key.default is None else f"`{show(key.default)}`"


def _allowed(key: Key) -> str:
    """The allowed values without what stands elsewhere: the unit in its column, the names above the table."""
    if key.kind is Kind.ALGORITHMS:
        return "a list of algorithm names"
    return key.allowed.replace(f", in {key.unit}", "") if key.unit else key.allowed


def _row(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(configuration_page(), encoding="utf-8")
