"""Texts of the pages on configuration files: introductions to tables of keys, each with an example."""

from __future__ import annotations

OPENING = """\
# Configuration files

{generated}

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

NETWORK = """
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

LINKS = """
Each entry of `links` describes one link, in one direction:
"""

REDUCERS = """
Each entry of `in-network` describes the switches of one dimension:
"""

PROTOCOL = """
`protocol` is for the flow and packet models: the others refuse it. Single keys override those of a preset.
Without the key, messages on the flow model are as large as their payload, and links carry nothing else; the
packet model takes the preset `datacenter`:
"""

PACKETS = """
Further keys of `protocol` matter only to the packet model; their defaults are those of the preset:
"""

TCP = """
### TCP

Keys of `tcp`, which makes a protocol TCP; without one of its presets, packets have the protocol's size. The
defaults of the keys are those of the preset:
"""

MARKING = """
Each entry of `marking`:
"""

LOGGOPS = """
### LogGOPS

```yaml
loggops: { npus: 8, L: 2500, o: 1500, g: 1000, G: 6, O: 0, S: 65535 }
```

A network file with the one key `loggops` is for `--network-model loggops`, and for no other; see
[networks](network-models.md#loggops):
"""

CREDITS = """
`credits` is only for the packet model, in place of `protocol`. Without the key, there are no flits:
"""

GRAPH = """
### Graphs

A network file that describes [a graph](networks.md) has these keys:
"""

GRAPH_LINKS = """
Each entry of `links` of a graph:
"""

OVERRIDES = """
Each entry of `overrides` selects links, and changes their figures:
"""

FAILURES = """
Each entry of `failures` names one part that [fails during the run](failures.md), and `at` or `rate`:
"""

FAILURES_OF_GPUS = """
Each entry of `failures` names GPUs or nodes that [fail or slow down during the run](failures.md#gpus):
"""

RECOVERY = """
`recovery` has the time-outs of senders whose path is dead, and their fail-over:
"""

REDUCTIONS = """
Each entry of `in-network` of a graph describes the switches of a tier, or those with a name:
"""

GENERATORS = """
All [generators](networks.md#generators) but `nested` take these keys:
"""

STRAGGLERS = """
Each entry of `stragglers` has at least one of `compute`, `delay` and `jitter`:
"""

COMPUTE = """
The key `compute` is an object that describes a model, or a list of such [rules](compute.md). Each has:
"""

WHERE = """
The keys of `where`, all of which must hold:
"""

KINDS = """
Each entry of `kinds` there:
"""

LEVELS_OF_MEMORY = """
Each entry of `memory` there:
"""

TIME_FACTORS = """
Each entry of `time-factors` has at least one factor: 0.5 halves a time, and 0 removes it:
"""

VARIATION = """
Each entry of `variation` describes random factors of the times of one kind of work
([variation](variation.md)); entries of the same kind multiply each other:
"""

MIXTURES = """
Each entry of `parts` there:
"""

STREAMS = """
Each entry of `streams` selects work that shares a stream, and limits how much of it runs at a time:
"""

OVERLAP = """
The object `overlap` has the factors by which work slows down beside communication of the same NPU:
"""

LIBRARY = """
### The collective library

The object `library` names the [collective library](collectives.md#collective-libraries) and its hardware; a
bare name stands for an object with that name. All keys of `calibration` are factors of the library's own
cost model, except `copy` and `nvls-copy` (GB/s; 0: left out), `start-simple` and `pairs-step`
(microseconds):
"""

COSTS = """
The object `costs` states the power and the rent of one NPU; the summary then has the energy and the price of
the run:
"""

ACCURACY = """
The object `accuracy` states the errors of times, for a machine that stands for a real one; it may be empty.
Besides these keys, kinds of operations and of communication may have entries: {operations};
{exchanges}. Missing keys and missing entries take the defaults of their class:
"""

TERMS = """
Each entry of `accuracy`:
"""

SYSTEM = """
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

MEMORY = """
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

STAGES = """
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

VERSION_1 = """
## Files of ASTRA-sim 1.0

The network is a JSON file, the system a text file of `key: value` words, in which lists are joined by
`_` (`ring_ring`). Their content identifies them; the system file (or, in a dict, `"profile": "astra-1.0"`)
chooses the [profile](profiles.md) `astra-1.0`, and the network file the formula for the time of a message.
See [running what ASTRA-sim 1.0 ran](astra-1.0.md).

### Network
"""

SYSTEM_1 = """
### System

The last keys were options of the command line; `units-count`, `links-count`, `link-bandwidth` and
`link-latency` may be here as well (`units-count: 4_4_4`), and then replace the network's.
"""


JOBS = """
## Job file

The keys of each job in the list `jobs` of a [job file](jobs.md):
"""

MANIFEST = """
## Workload manifest

The keys of a [manifest](workloads.md), which describes ranks and their traces:
"""

TEMPLATES = """
Each entry of `templates`:
"""

RULES = """
Each rule in `groups`:
"""

STEP = """
The object `step` describes the work of all ranks together:
"""

MADE_FOR = """
The object `software` names the [software](software.md) of the job, and the figures that runs use:
"""

MADE_BY = """
The object `made` holds the origin of a workload whose software is [assumed](software.md):
"""

ATTENTION_KERNELS = """
Each entry of `attention-kernels`; its name may end a [shape](compute.md#shapes) of attention:
"""

SOFTWARE = """
## Software

The keys of a [description of software](software.md), besides `like`, which names the description that it
changes:
"""

PARTS_OF_DESCRIPTION = """
The keys of `{name}`:
"""

ENGINE = """
## Engine

The keys of a [description of an engine](engines.md), besides `like`, which names the description that it
changes:
"""

GOODPUT = """
## Long job

The keys of the file of [et-sim goodput](goodput.md):
"""

FAILURES_OF_JOB = """
The keys of `failures`:
"""

PARTS = """
Each entry of `parts`:
"""

EARLY = """
The keys of `early`:
"""

RECOVERY_OF_JOB = """
The keys of `recovery`, in the order of a restart:
"""

CHECKPOINTS = """
The keys of `checkpoints`:
"""

COPIES = """
The keys of `memory`, of checkpoints:
"""

SPARES = """
The keys of `spares`:
"""

MAINTENANCE = """
The keys of `maintenance`:
"""

SWEEP = """
## Sweep

The keys of a [sweep](sweeps.md):
"""

BASE = """
The keys of `base`; each file may be an object with its keys instead:
"""

MONTHS = """
The keys of `goodput`, in `base`:
"""

AXES = """
Each entry of `axes` that is not a list:
"""

RANGE = """
The keys of its `range`:
"""

SAMPLE = """
The keys of `sample`:
"""

SEARCH = """
The keys of `search`, the goal of a [search](search.md):
"""

MADE = """
A workload of `base` may be generated. With `make: llm`:
"""

MICROBENCHMARK = """
With `make` and the name of a collective:
"""

SERVED = """
With `make: serving`, which serves requests as `et-sim serve` does:
"""

PLAN = """
The keys of `plan` are options of `et-sim make llm`:
"""
