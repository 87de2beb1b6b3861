"""Generator of the users' pages on configuration files, `docs/configuration*.md`, from the declared keys.

    python -m et_sim.reference_page docs

A test keeps the committed pages equal to the output of this module.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import fill

from msgspec import Struct

from et_sim.basics.lazy_names import loaded
from et_sim.documents.keys import Key, keys_of, show
from et_sim.documents.keys_without_effect import UNUSED_KEYS
from et_sim.jobs.job_file import JobEntry
from et_sim.machine.accuracy import ACCURACY_KEYS, DEFAULTS, EXCHANGES, OPERATIONS, TERM_KEYS
from et_sim.machine.collective_library_keys import LIBRARY_KEYS
from et_sim.machine.compute_rules import MODELS, RULE_KEYS, Where
from et_sim.machine.kernel_kinds import KernelKind
from et_sim.machine.network_file import IN_NETWORK_KEYS, LINK_KEYS, NETWORK_KEYS
from et_sim.machine.protocol_presets import PACKET_KEYS, PROTOCOL_KEYS, TCP_KEYS
from et_sim.machine.remote_memory import MEMORY_KEYS, PoolStage
from et_sim.machine.roofline import AttentionKernel, MemoryLevel
from et_sim.machine.system import ALGORITHM_LIST
from et_sim.machine.system_file import SYSTEM_KEYS
from et_sim.machine.system_parts import Costs, Overlap, Straggler, Stream, TimeFactors
from et_sim.machine.topology.generators import GENERATORS
from et_sim.machine.topology.graph_file import GraphFile, Override, Reduction
from et_sim.machine.topology.keys import Common
from et_sim.machine.topology.listed import ListedLink
from et_sim.machine.transports import Credits, LogGops, Marking
from et_sim.machine.version_1 import LEVEL_KEYS, SYSTEM_1_KEYS
from et_sim.sweeps.axes import Range
from et_sim.sweeps.recipes import plan_keys, recipe_keys
from et_sim.sweeps.spec import AxisSpec, BaseSpec, SampleSpec, SearchSpec, SweepSpec
from et_sim.trace.group_rule import GroupRule
from et_sim.trace.manifest import Manifest, Template
from et_sim.trace.workload import MadeFor, Step
from et_sim.workloads.software.description import (
    BothWays,
    Casts,
    ElementWise,
    ExpertKernels,
    Host,
    Optimizer,
    Pass,
    PlanDefaults,
    Shares,
    Software,
)

WIDTH = 110  # of lines of text
_GENERATED = "<!-- Generated from the declared keys: python -m et_sim.reference_page docs -->"
MAIN_PAGE = "configuration.md"
PAGES = {  # titles of further pages, and their sections
    "configuration-network.md": ("Keys of network files", ("Network file",)),
    "configuration-system.md": ("Keys of system files", ("System file",)),
    "configuration-workload.md": (
        "Keys of manifests, software and job files",
        ("Workload manifest", "Software", "Job file"),
    ),
    "configuration-sweep.md": ("Keys of sweeps and searches", ("Sweep",)),
}
_OPENING = f"""\
# Configuration files

{_GENERATED}

A machine is described by two files, and by two more where they are needed. They are the files of
ASTRA-sim 2.x and can be used unchanged, as can [those of ASTRA-sim 1.0](#files-of-astra-sim-10). A
[manifest](#workload-manifest) may describe the workload, a [job file](#job-file) several workloads on one
machine, and a [sweep](#sweep) many runs.

| file | option | format | content |
|---|---|---|---|
| [network](#network-file) | `--network` | YAML | the connections of the NPUs |
| [system](#system-file) | `--system` | JSON | the NPUs, and the algorithms of collectives |
| [memory](#memory-file) | `--memory` (optional) | JSON | the remote memory |
| [groups](#groups-file) | `--groups` (optional) | JSON | the communicator groups |

From Python, each can be a path or a dict with the same keys.

"The reference" below is ASTRA-sim 2.x. If et-sim reads a key differently, the row states the difference, and
the run records it: warnings and every default taken are in `run.json`.

Rules for all files:

- An unknown key, or a key that is given twice, is an error. ASTRA-sim ignores it silently.
- A value of the wrong type or out of range is an error that names file, key, value and the allowed values.
- For an integer, `4.0` is read as 4. `1.9` is cut to 1 with a warning (ASTRA-sim cuts it silently); for
  `npus_count` it is an error.
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
Each entry of `links` describes one link, in one direction:
"""

_REDUCERS = """
Each entry of `in-network` describes the switches of one dimension:
"""

_PROTOCOL = """
`protocol` is for the flow and packet models: the others refuse it. Single keys override those of a preset.
Without the key, messages on the flow model are as large as their payload, and links carry nothing else; the
packet model takes the preset `datacenter`:
"""

_PACKETS = """
Further keys of `protocol` matter only to the packet model; their defaults are those of the preset:
"""

_TCP = """
### TCP

Keys of `tcp`, which makes a protocol TCP; without one of its presets, packets have the protocol's size. The
defaults of the keys are those of the preset:
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
[networks](network-models.md#loggops):
"""

_CREDITS = """
`credits` is only for the packet model, in place of `protocol`. Without the key, there are no flits:
"""

_GRAPH = """
### Graphs

A network file that describes [a graph](networks.md) has these keys:
"""

_GRAPH_LINKS = """
Each entry of `links` of a graph:
"""

_OVERRIDES = """
Each entry of `overrides` selects links, and changes their figures:
"""

_REDUCTIONS = """
Each entry of `in-network` of a graph describes the switches of a tier, or those with a name:
"""

_GENERATORS = """
All [generators](networks.md#generators) but `nested` take these keys:
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

_KINDS = """
Each entry of `kinds` there:
"""

_LEVELS_OF_MEMORY = """
Each entry of `memory` there:
"""

_TIME_FACTORS = """
Each entry of `time-factors` has at least one factor: 0.5 halves a time, and 0 removes it:
"""

_STREAMS = """
Each entry of `streams` selects work that shares a stream, and limits how much of it runs at a time:
"""

_OVERLAP = """
The object `overlap` has the factors by which work slows down beside communication of the same NPU:
"""

_LIBRARY = """
### The collective library

The object `library` names the [collective library](collectives.md#collective-libraries) and its hardware; a
bare name stands for an object with that name. All keys of `calibration` are factors of the library's own
cost model, except `copy` and `nvls-copy` (GB/s; 0: left out), `start-simple` and `pairs-step`
(microseconds):
"""

_COSTS = """
The object `costs` states the power and the rent of one NPU; the summary then has the energy and the price of
the run:
"""

_ACCURACY = """
The object `accuracy` states the errors of times, for a machine that stands for a real one; it may be empty.
Besides these keys, kinds of operations and of communication may have entries: {operations};
{exchanges}. Missing keys and missing entries take the defaults of their class:
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
`doubleBinaryTree`, `inNetwork` (reductions in [switches](network-features.md#switches-that-reduce)), and
`oneRing`, `oneDirect`, `oneDirect<W>`, `oneHalvingDoubling`, which take all NPUs as one dimension.
A list with more entries than the network has dimensions is an error. With fewer, the
remaining dimensions are not used by that collective, with a warning; in the corrected profile, a
collective of all NPUs is then refused, unless its node selects the dimensions. A collective that
a workload uses needs its list or a custom one.

On/off keys take 1 or true, 0 or false. For `roofline-enabled`, `replay-only`, `track-local-mem` and
`trace-enabled`, ASTRA-sim reads JSON `false` as on; et-sim reads it as off and warns. Both read 0 as off.
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

A `HIERARCHICAL_POOL` has `chunk` and `stages` in place of these figures; see [remote memory](memory.md).
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
`_` (`ring_ring`). Their content identifies them; the system file (or, in a dict, `"profile": "astra-1.0"`)
chooses the [profile](profiles.md) `astra-1.0`, and the network file the formula for the time of a message.
See [running what ASTRA-sim 1.0 ran](astra-1.0.md).

### Network
"""

_SYSTEM_1 = """
### System

The last keys were options of the command line; `units-count`, `links-count`, `link-bandwidth` and
`link-latency` may be here as well (`units-count: 4_4_4`), and then replace the network's.
"""


_JOBS = """
## Job file

The keys of each job in the list `jobs` of a [job file](jobs.md):
"""

_MANIFEST = """
## Workload manifest

The keys of a [manifest](workloads.md), which describes ranks and their traces:
"""

_TEMPLATES = """
Each entry of `templates`:
"""

_RULES = """
Each rule in `groups`:
"""

_STEP = """
The object `step` describes the work of all ranks together:
"""

_MADE_FOR = """
The object `software` names the [software](software.md) of the job, and the figures that runs use:
"""

_ATTENTION_KERNELS = """
Each entry of `attention-kernels`; its name may end a [shape](compute.md#shapes) of attention:
"""

_SOFTWARE = """
## Software

The keys of a [description of software](software.md), besides `like`, which names the description that it
changes:
"""

_SOFTWARE_PARTS = """
The keys of `{name}`:
"""

_SWEEP = """
## Sweep

The keys of a [sweep](sweeps.md):
"""

_BASE = """
The keys of `base`; each file may be an object with its keys instead:
"""

_AXES = """
Each entry of `axes` that is not a list:
"""

_RANGE = """
The keys of its `range`:
"""

_SAMPLE = """
The keys of `sample`:
"""

_SEARCH = """
The keys of `search`, the goal of a [search](search.md):
"""

_MADE = """
A workload of `base` may be generated. With `make: llm`:
"""

_MICROBENCHMARK = """
With `make` and the name of a collective:
"""

_PLAN = """
The keys of `plan` are options of `et-sim make llm`:
"""

WHOLE = ("unit", "default", "allowed", "meaning", "in the reference")
DEFAULTED = WHOLE[:-1]  # for keys without a counterpart in the reference
ENTRY = ("unit", "allowed", "meaning")
ERRORS = ("basis", "random", "common", "class")


class KeyTable(Struct, frozen=True):
    """The keys of a file, or of an object in it, with an introduction."""

    name: str
    text: str  # for a file, with an example
    keys: tuple[Key, ...]
    columns: tuple[str, ...] = ENTRY


def configuration_text() -> str:
    """Return all keys of all files as Markdown."""
    parts = [_OPENING]
    for table in TABLES:
        in_effect = tuple(key for key in table.keys if not key.ignored)
        parts += [table.text, _table(in_effect, table.columns)]
    return "\n".join(part.strip("\n") + "\n" for part in parts)


def configuration_pages() -> dict[str, str]:
    """Return the text of each page by the name of its file."""
    of_section = {section: page for page, (_, sections) in PAGES.items() for section in sections}
    below = f"{_GENERATED}\n\n[Configuration files]({MAIN_PAGE}) has the rules of all files."
    opening = {page: f"# {title}\n\n{below}\n\n" for page, (title, _) in PAGES.items()}
    pages = {MAIN_PAGE: "", **opening}
    place: dict[str, str] = {}
    for section in re.split(r"^(?=## )", configuration_text(), flags=re.MULTILINE):
        page = of_section.get(section.partition("\n")[0].removeprefix("## "), MAIN_PAGE)
        pages[page] += section
        place |= dict.fromkeys(map(_anchor, re.findall(r"^#+ (.*)$", section, re.MULTILINE)), page)

    def moved(name: str, text: str) -> str:
        return re.sub(
            r"\]\(#([\w-]+)\)",
            lambda link: link[0] if place[link[1]] == name else f"]({place[link[1]]}#{link[1]})",
            text,
        )

    return {name: f"{moved(name, text).strip()}\n" for name, text in pages.items()}


def _anchor(heading: str) -> str:
    """Return the name of a heading in links."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def _table(keys: tuple[Key, ...], columns: tuple[str, ...]) -> str:
    rows = [_row("key", *columns), "|" + "---|" * (len(columns) + 1)]
    for key in keys:
        cells = _cells(key, is_entry=columns == ENTRY)
        rows.append(_row(f"`{key.name}`", *(cells[column] for column in columns)))
    return "\n".join(rows)


def _cells(key: Key, *, is_entry: bool) -> dict[str, str]:
    """Return the cells of a key; without a column of defaults, the meaning marks required keys."""
    needs = f" Only with `{key.needs}`." if key.needs else ""
    if key.correction:
        needs = f" Only with the correction `{key.correction}`."
    default = "none" if key.default is None else f"`{show(key.default)}`"
    # The unit has its own column, and the names of algorithms are above the table.
    allowed = key.allowed.replace(f", in {key.unit}", "") if key.unit else key.allowed
    known = DEFAULTS.get(key.name)
    return {
        "unit": key.unit or "-",
        "default": "required" if key.required else default,
        "allowed": "a list of algorithm names" if key.kind is ALGORITHM_LIST else allowed,
        "meaning": key.meaning + needs + (" Required." if key.required and is_entry else ""),
        "in the reference": key.reference or "the same",
        "class": key.meaning,
        "basis": known.basis if known else "-",
        "random": f"{known.random:g}" if known else "-",
        "common": f"{known.common:g}" if known else "-",
    }


def _accuracy() -> str:
    names = {"operations": OPERATIONS, "exchanges": EXCHANGES}
    texts = {class_name: ", ".join(f"`{name}`" for name in members) for class_name, members in names.items()}
    return "\n" + fill(_ACCURACY.format(**texts).strip(), WIDTH) + "\n"


def _ignored_table() -> str:
    keys = [key for key in (*SYSTEM_KEYS, *MEMORY_KEYS) if key.ignored]
    heading = "## Keys without effect\n\nAccepted so that existing files can be used, each with a warning.\n"
    rows = [_row("key", "meaning", "in the reference"), "|---|---|---|"]
    rows += [_row(f"`{key.name}`", key.meaning, key.reference) for key in keys]
    others = ["| key | why |", "|---|---|", *(_row(f"`{name}`", why) for name, why in UNUSED_KEYS.items())]
    between = (
        "\n\nSo are keys of other versions, and keys in the wrong file, each with a warning that the key:\n\n"
    )
    return heading + "\n" + "\n".join(rows) + between + "\n".join(others)


def _row(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _of_model(name: str) -> KeyTable:
    """Return the further keys of a model's rules, with the note of its settings."""
    settings = loaded(MODELS[name])
    note = getattr(settings, "note", "")
    text = f"\nThe model `{name}` also has these{note and f'. {note}'}:\n"
    return KeyTable(f"model {name}{_IN_SYSTEM}", text, keys_of(settings), DEFAULTED)


def _generators() -> Iterator[KeyTable]:
    """Yield the keys of each generator besides the common ones."""
    common = {key.name for key in keys_of(Common)}
    for of in dict.fromkeys(GENERATORS.values()):
        names = " and ".join(f"`{name}`" for name, made in GENERATORS.items() if made is of)
        keys = tuple(key for key in keys_of(of) if key.name not in common)
        if keys:
            text = f"\n{names}: {of.__doc__.partition(chr(10))[0]}\n"
            yield KeyTable(f"generator {names.replace('`', '')}{_IN_NETWORK}", text, keys)


def _software_parts() -> Iterator[KeyTable]:
    """Yield the tables of objects in a description of software."""
    objects = {
        "plan": PlanDefaults,
        "element-wise": ElementWise,
        "a part of element-wise": BothWays,
        "forward, backward, dropout, after-gather and before-reduce": Pass,
        "casts": Casts,
        "experts": ExpertKernels,
        "shares": Shares,
        "optimizer": Optimizer,
        "host": Host,
    }
    for name, of in objects.items():
        keys = keys_of(of)
        columns = DEFAULTED if any(key.default is not None for key in keys) else ENTRY
        yield KeyTable(f"{name}, in the software", _SOFTWARE_PARTS.format(name=name), keys, columns)


SYSTEM, NETWORK, MEMORY = "system file", "network file", "memory file"
_IN_SYSTEM, _IN_NETWORK, _IN_MEMORY = (f", in the {file}" for file in (SYSTEM, NETWORK, MEMORY))
TABLES = (
    KeyTable(NETWORK, _NETWORK, NETWORK_KEYS, WHOLE),
    KeyTable(f"entry of links{_IN_NETWORK}", _LINKS, LINK_KEYS),
    KeyTable(f"protocol{_IN_NETWORK}", _PROTOCOL, PROTOCOL_KEYS),
    KeyTable(f"protocol{_IN_NETWORK}", _PACKETS, PACKET_KEYS),
    KeyTable(f"entry of marking{_IN_NETWORK}", _MARKING, keys_of(Marking)),
    KeyTable(f"credits{_IN_NETWORK}", _CREDITS, keys_of(Credits)),
    KeyTable(f"entry of in-network{_IN_NETWORK}", _REDUCERS, IN_NETWORK_KEYS),
    KeyTable(f"tcp of the protocol{_IN_NETWORK}", _TCP, TCP_KEYS),
    KeyTable(f"loggops{_IN_NETWORK}", _LOGGOPS, keys_of(LogGops), DEFAULTED),
    KeyTable("network file of a graph", _GRAPH, keys_of(GraphFile)),
    KeyTable(f"entry of links of a graph{_IN_NETWORK}", _GRAPH_LINKS, keys_of(ListedLink)),
    KeyTable(f"entry of overrides{_IN_NETWORK}", _OVERRIDES, keys_of(Override)),
    KeyTable(f"entry of in-network of a graph{_IN_NETWORK}", _REDUCTIONS, keys_of(Reduction)),
    KeyTable(f"generators{_IN_NETWORK}", _GENERATORS, keys_of(Common)),
    *_generators(),
    KeyTable(SYSTEM, _SYSTEM, SYSTEM_KEYS, WHOLE),
    KeyTable(f"compute{_IN_SYSTEM}", _COMPUTE, RULE_KEYS),
    KeyTable(f"where of compute{_IN_SYSTEM}", _WHERE, keys_of(Where)),
    *(_of_model(name) for name in reversed([*MODELS]) if keys_of(loaded(MODELS[name]))),
    KeyTable(f"entry of memory, of roofline{_IN_SYSTEM}", _LEVELS_OF_MEMORY, keys_of(MemoryLevel)),
    KeyTable(
        f"entry of attention-kernels, of roofline{_IN_SYSTEM}", _ATTENTION_KERNELS, keys_of(AttentionKernel)
    ),
    KeyTable(f"entry of kinds, of roofline{_IN_SYSTEM}", _KINDS, keys_of(KernelKind)),
    KeyTable(f"entry of stragglers{_IN_SYSTEM}", _STRAGGLERS, keys_of(Straggler)),
    KeyTable(f"entry of time-factors{_IN_SYSTEM}", _TIME_FACTORS, keys_of(TimeFactors)),
    KeyTable(f"entry of streams{_IN_SYSTEM}", _STREAMS, keys_of(Stream), DEFAULTED),
    KeyTable(f"overlap{_IN_SYSTEM}", _OVERLAP, keys_of(Overlap)),
    KeyTable(f"library{_IN_SYSTEM}", _LIBRARY, LIBRARY_KEYS, DEFAULTED),
    KeyTable(f"costs{_IN_SYSTEM}", _COSTS, keys_of(Costs), DEFAULTED),
    KeyTable(f"accuracy{_IN_SYSTEM}", _accuracy(), ACCURACY_KEYS, ERRORS),
    KeyTable(f"entry of accuracy{_IN_SYSTEM}", _TERMS, TERM_KEYS),
    KeyTable(MEMORY, _MEMORY, MEMORY_KEYS, WHOLE),
    KeyTable(f"entry of stages{_IN_MEMORY}", _STAGES, keys_of(PoolStage)),
    KeyTable("network file of ASTRA-sim 1.0", f"{GROUPS}\n{_ignored_table()}\n{_VERSION_1}", LEVEL_KEYS),
    KeyTable("system file of ASTRA-sim 1.0", _SYSTEM_1, SYSTEM_1_KEYS, DEFAULTED),
    KeyTable("manifest", _MANIFEST, keys_of(Manifest)),
    KeyTable("entry of templates, in the manifest", _TEMPLATES, keys_of(Template)),
    KeyTable("rule of groups, in the manifest", _RULES, keys_of(GroupRule)),
    KeyTable("step, in the manifest", _STEP, keys_of(Step)),
    KeyTable("software, in the manifest", _MADE_FOR, keys_of(MadeFor)),
    KeyTable("software", _SOFTWARE, keys_of(Software), DEFAULTED),
    *_software_parts(),
    KeyTable("entry of jobs, in the job file", _JOBS, keys_of(JobEntry)),
    KeyTable("sweep", _SWEEP, keys_of(SweepSpec)),
    KeyTable("base of a sweep", _BASE, keys_of(BaseSpec)),
    KeyTable("axis of a sweep", _AXES, keys_of(AxisSpec)),
    KeyTable("range of a sweep", _RANGE, keys_of(Range)),
    KeyTable("sample of a sweep", _SAMPLE, keys_of(SampleSpec)),
    KeyTable("search", _SEARCH, keys_of(SearchSpec)),
    KeyTable("workload of a sweep", _MADE, recipe_keys({"make": "llm"})),
    KeyTable("workload of a sweep", _MICROBENCHMARK, recipe_keys({"make": "all_reduce"})),
    KeyTable("plan of a sweep", _PLAN, plan_keys()),
)


if __name__ == "__main__":
    for page_name, page_text in configuration_pages().items():
        (Path(sys.argv[1]) / page_name).write_text(page_text, encoding="utf-8")
