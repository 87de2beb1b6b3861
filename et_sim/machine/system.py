"""The system, declared: how an NPU computes, reduces, sends, and which collective algorithms it runs.

Each field with a key is that key of the system file. Not here: rules that need more than one key
(`system_file`), and the objects of models (`compute_rules`), libraries (`collective_library`) and accuracy.
"""

from __future__ import annotations

from dataclasses import field
from enum import StrEnum
from typing import Any

from et_sim.basics.quick_dataclass import quick_dataclass
from et_sim.collectives.names import parse_name, spellings
from et_sim.documents.keys import Key, Kind, Slot, inline, key, nearest, show
from et_sim.documents.kinds import (
    choice,
    flag,
    integer,
    number,
    section,
    sections,
    switch,
    text,
    time,
)
from et_sim.machine.accuracy import ACCURACY_KEYS, Accuracy
from et_sim.machine.collective_library import Library
from et_sim.machine.compute_rules import COMPUTE, ComputeRule
from et_sim.machine.corrections import DEFAULT, Behaviour, behaviour_of
from et_sim.machine.roofline import ANY, RooflineDevice
from et_sim.machine.system_parts import (
    NOT_KNOWN,
    Costs,
    LocalMemory,
    Overlap,
    SharedBus,
    SlowedWork,
    Straggler,
    Stream,
    TimeFactors,
    on_the_bus,
)

COLLECTIVES = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all")
MOST = 2**31 - 1  # of what the engine counts in 32 bits
MOST_CHUNKS = 1_000_000
MOST_QUEUES = (1 << 15) - 1  # a dimension's are numbered in 16 bits
MOST_STREAMS = 64
ALGORITHMS = spellings()
_UNINITIALISED = "the reference would read uninitialised memory"


class StreamPolicy(StrEnum):
    """Which collective goes first when several wait for the same queue."""

    LIFO = "LIFO"
    FIFO = "FIFO"
    EXPLICIT = "EXPLICIT"


class AllReducePlan(StrEnum):
    """How an all-reduce crosses several dimensions."""

    BASELINE = "baseline"
    LOCAL_BW_AWARE = "localBWAware"


class DimensionOrder(StrEnum):
    """In which order the chunks of a collective visit the dimensions."""

    ASCENDING = "ascending"
    ROUND_ROBIN = "roundRobin"
    OFFLINE_GREEDY = "offlineGreedy"
    OFFLINE_GREEDY_FLEX = "offlineGreedyFlex"
    ONLINE_GREEDY = "onlineGreedy"


class QueueOrder(StrEnum):
    """Which chunk of a reduce-scatter or all-gather phase waits in front of which."""

    FIFO = "FIFO"
    RG = "RG"
    SMALLEST_FIRST = "smallestFirst"
    LESS_REMAINING_PHASE_FIRST = "lessRemainingPhaseFirst"


def _algorithms(slot: Slot, value: Any) -> tuple[str, ...]:
    name = slot.key.name
    if isinstance(value, str):
        hint = f'write it as a list: "{name}": ["{value}"];'
        raise slot.refusal(value, why="one name instead of a list", hint=hint)
    if not isinstance(value, list):
        raise slot.refusal(value)
    if not value:
        raise slot.refusal(value, why="no dimension would take part", hint="leave the key out, or")
    names = []
    for index, algorithm in enumerate(value):
        normal = parse_name(algorithm) if isinstance(algorithm, str) else None
        if normal is None:
            known = [choice for choice in ALGORITHMS if "<" not in choice]
            hint = nearest(algorithm, known) if isinstance(algorithm, str) else ""
            allowed = f"allowed: {', '.join(ALGORITHMS)}, W an integer >= 1"
            cause = f'key "{name}" index {index} is {show(algorithm)}, which is no algorithm'
            raise slot.section.fault(cause, f"{hint} {allowed}".strip(), key=name)
        names.append(str(normal))
    return tuple(names)


def _prefix(slot: Slot, value: Any) -> str:
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], str) and value[0]:
        return value[0]
    raise slot.refusal(value)


def _rings(slot: Slot, value: Any) -> tuple[tuple[tuple[int, ...], ...], ...]:
    """By dimension, the orders of its NPUs around rings."""
    if not isinstance(value, list) or not any(value):
        raise slot.refusal(value)
    for dimension, rings in enumerate(value):
        if not isinstance(rings, list):
            raise slot.refusal(rings, index=dimension)
        for ring in rings:
            if not (isinstance(ring, list) and all(type(npu) is int for npu in ring)):
                raise slot.refusal(ring, index=dimension)
            if sorted(ring) != list(range(len(ring))):
                why = f"it does not name each NPU from 0 to {len(ring) - 1} once"
                raise slot.refusal(ring, why=why, index=dimension)
    return tuple(tuple(tuple(ring) for ring in rings) for rings in value)


def _named_switches(slot: Slot, value: Any) -> dict[str, bool]:
    if not isinstance(value, dict):
        raise slot.refusal(value)
    name, known = slot.key.name, slot.key.words
    for correction, on in value.items():
        if correction not in known:
            cause = f'key "{name}" names {show(correction)}, which is not among the corrections'
            raise slot.section.fault(cause, nearest(correction, known) or f"known: {', '.join(known)}")
        if not isinstance(on, bool):
            cause = f'key "{name}" sets "{correction}" to {show(on)}'
            raise slot.section.fault(cause, "allowed: true or false")
    return value


ALGORITHM_LIST = Kind(
    "list of algorithms",
    lambda _: f'a list such as ["ring"], one name per network dimension, each among {", ".join(ALGORITHMS)}',
    _algorithms,
)
PREFIX = Kind(
    "list of one path",
    lambda _: 'a list with exactly one trace prefix, such as ["custom/all_reduce"]',
    _prefix,
)
RINGS = Kind(
    "list of rings per dimension",
    lambda _: (
        "a list per network dimension, of lists that name each NPU of the dimension once, "
        "such as [[[0, 1, 2, 3], [0, 2, 1, 3]]]"
    ),
    _rings,
)
NAMED_SWITCHES = Kind(
    "named switches",
    lambda _: 'an object such as {"eager-sends": true}, with names from the table of corrections',
    _named_switches,
)


def _implementation(collective: str) -> Any:
    """The list of algorithms of a type of collective."""
    return key(
        ALGORITHM_LIST,
        f"The algorithm of {collective} in each network dimension, innermost first. "
        "A `one...` name spans all NPUs as one dimension.",
        None,
        name=f"{collective}-implementation",
        reference="A missing list fails only when such a collective is issued; too long a list aborts; "
        "`direct` with a window of 0 hangs.",
    )


CUSTOM_KEYS = tuple(
    Key(
        f"{collective}-implementation-custom",
        PREFIX,
        f"Run {collective} from the traces `PREFIX.<position>.et` instead of a named algorithm. "
        "Paths are relative to the working folder.",
        "Completes only with `preferred-dataset-splits` 1.",
    )
    for collective in COLLECTIVES
)


@quick_dataclass(frozen=True)
class Implementations:
    """Algorithm names per collective type, one per dimension; None: not configured."""

    all_reduce: tuple[str, ...] | None = _implementation("all-reduce")
    all_gather: tuple[str, ...] | None = _implementation("all-gather")
    reduce_scatter: tuple[str, ...] | None = _implementation("reduce-scatter")
    all_to_all: tuple[str, ...] | None = _implementation("all-to-all")
    broadcast: tuple[str, ...] | None = choice(  # without: a tree
        "How broadcasts are done: over a `tree` of their members, or `inNetwork`, by "
        "[switches that reduce](network-features.md#switches-that-reduce), where these reach all members.",
        None,
        name="broadcast-implementation",
        reference="Not known there; without the key: `tree`.",
        choices=("tree", "inNetwork"),
        becomes=lambda word: (word,),
    )


@quick_dataclass(frozen=True)
class System:
    """The 2.x system file, validated, with the command-line-only options as fields."""

    splits: int = integer(
        "Into how many chunks each collective is cut.",
        1,
        stated=True,
        name="preferred-dataset-splits",
        reference="Missing or 0: division by zero at the first collective.",
        default_reason="the reference would divide by zero at the first collective",
        minimum=1,
        minimum_reason="a collective is cut into at least one chunk",
        maximum=MOST_CHUNKS,
    )
    implementations: Implementations = inline(Implementations)
    active_chunks: int = integer(
        "How many chunks may be in progress in a dimension at once, shared by its queues "
        "(rounded up per queue).",
        1,
        stated=True,
        name="active-chunks-per-dimension",
        reference="0: nothing ever starts, and the run ends silently.",
        minimum=1,
        minimum_reason="no chunk would ever start",
        maximum=MOST,
    )
    policy: StreamPolicy = choice(
        "Which collective goes first when several wait for the same queue.",
        StreamPolicy.LIFO,
        stated=True,
        name="scheduling-policy",
        reference="Missing: uninitialised memory.",
        default_reason=_UNINITIALISED,
        choices=StreamPolicy,
    )
    all_reduce_plan: AllReducePlan = choice(
        "How an all-reduce crosses several dimensions: `baseline` does a full all-reduce in each; "
        "`localBWAware` does reduce-scatter inwards to outwards, all-reduce in the last, all-gather back.",
        AllReducePlan.LOCAL_BW_AWARE,
        stated=True,
        name="collective-optimization",
        reference="Missing: uninitialised memory, possibly different on each rank.",
        default_reason=_UNINITIALISED,
        choices=AllReducePlan,
    )
    rings: tuple[tuple[tuple[int, ...], ...], ...] = key(  # by dimension
        RINGS,
        "In which order rings visit the NPUs of a dimension; chunks take turns among the rings of a "
        "dimension ([several rings](collectives.md#several-rings)). Without the key, or with an empty list "
        "for a dimension, there is one ring, in ascending order.",
        (),
        reference=NOT_KNOWN,
    )
    per_node_implementation: str | None = text(
        "A YAML file that maps node ids of the workload to custom-collective trace prefixes.",
        None,
        name="per-node-custom-implementation",
    )
    queues_per_dim: int = integer(
        "How many queues each dimension has; collectives are spread over them.",
        1,
        stated=True,
        name="num-queues-per-dim",
        reference="A command-line option there (`--num-queues-per-dim`).",
        minimum=1,
        minimum_reason="no collective would ever start",
        maximum=MOST_QUEUES,
    )
    endpoint_delay_ns: int = integer(  # already scaled by injection-scale where the file gave the key
        "Time that an NPU spends on every message of a collective.",
        10,
        stated=True,
        reference="Multiplied by the injection scale and cut to an integer only if the key is present.",
        unit="ns",
    )
    rendezvous: bool = flag(
        "Every message waits for an 8 KiB control message from its receiver.",
        False,
        stated=True,
        name="rendezvous-protocol",
        reference="A command-line option there (`--rendezvous-protocol`); messages of 2 GiB and more go "
        "wrong.",
    )
    local_reduction_delay: int = on_the_bus(
        "Time to reduce 100 bytes on the shared bus (on top of a fixed 50 ns).", 1
    )
    local_mem_bw: float = number(  # 0: reductions cost nothing
        "Bandwidth of an NPU's own memory: paces reductions and the roofline.",
        0.0,
        stated=True,
        reference="Missing or 0: infinity becomes 0 when it is turned into an integer.",
        default_reason="reductions take no time",
        unit="GB/s (10^9 bytes)",
    )
    peak_perf: float = number(
        "Peak compute rate of an NPU, for the roofline.",
        0.0,
        stated=True,
        reference="Missing or 0: computation takes 0 ns.",
        unit="TFLOPS",
        needs="roofline-enabled",
    )
    roofline: bool = switch(
        "Compute durations from operations and bytes instead of replaying the recorded ones; a kernel that "
        "lacks either (`num_ops`, `tensor_size`) keeps its recorded time, and is counted.",
        False,
        stated=True,
        name="roofline-enabled",
    )
    replay_only: bool = switch(
        "Every node takes its recorded duration, communication included.", False, stated=True
    )
    host_ns: float = time(  # of a launch; 0: kernels are there when the device is
        "Time that the host takes to launch a kernel or collective: one after the other, in the order of the "
        "trace, and without waiting for the device, on ranks whose traces have no [host](compute.md#hosts) "
        "of their own. Without the key: none.",
        0.0,
        name="host-time",
        reference=NOT_KNOWN,
    )
    replay_recorded: bool = switch(
        "Kernels that a profiler recorded on a stream of a device (attribute `stream`, and a duration) take "
        "that time, whatever `compute` says; all other kernels are timed by it. Machines by name have it on, "
        "and `--retime` switches it off.",
        False,
        name="replay-recorded-kernels",
        reference=NOT_KNOWN,
    )
    track_local_mem: bool = switch(
        "Track which tensors are alive, and the peak memory of each NPU.", False, stated=True
    )
    compute: tuple[ComputeRule, ...] = key(  # before the roofline and the recorded times
        COMPUTE,
        "What times kernels: a model, or [rules](compute.md) of which the first that a kernel matches holds; "
        "the rest is timed by the keys above.",
        (),
        reference=NOT_KNOWN,
    )
    stragglers: tuple[Straggler, ...] = sections(
        "Ranks that are slower than the others; see [uneven machines](uneven-machines.md).",
        (),
        reference=NOT_KNOWN,
        of=Straggler,
    )
    time_factors: tuple[TimeFactors, ...] = sections(
        "How much longer or shorter kinds of work take than recorded or modelled; see [what if](what-if.md).",
        (),
        reference=NOT_KNOWN,
        of=TimeFactors,
    )
    streams: tuple[Stream, ...] = sections(
        "What runs side by side on an NPU; see [streams](streams.md). Of the entries, the first that fits a "
        "node takes it; what none takes runs as without the key.",
        (),
        reference=NOT_KNOWN,
        of=Stream,
        most=MOST_STREAMS,
    )
    overlap: tuple[SlowedWork, ...] = section(
        "What computing loses to communication of the same NPU, with which it shares memory and cores; see "
        "[streams](streams.md#what-runs-side-by-side-slows-down).",
        (),
        reference=NOT_KNOWN,
        of=Overlap,
        becomes=Overlap.slowed,
    )
    costs: Costs | None = section(  # None: neither its power nor its price is known
        "What an NPU draws and what it is let for; then the summary says what the run takes of both "
        "([energy and price](machines.md#energy-and-price)).",
        None,
        reference=NOT_KNOWN,
        of=Costs,
        records_defaults=False,
        becomes=lambda costs: None if costs == Costs() else costs,
    )
    accuracy: Accuracy | None = section(  # None: nothing states how far it is from a real machine
        "How far times may be off, of a machine that stands for a real one; then the summary has "
        "[a band](output.md#how-far-it-may-be-off).",
        None,
        reference=NOT_KNOWN,
        choices=tuple(key.name for key in ACCURACY_KEYS),
    )
    dimension_order: DimensionOrder = DimensionOrder.ASCENDING
    queue_order: QueueOrder = QueueOrder.FIFO
    replay_communication: bool = False  # ranks run by themselves
    shared_bus: SharedBus | None = None
    custom_implementations: dict[str, str] = field(default_factory=dict)  # type key -> trace prefix
    local_memory: LocalMemory | None = None  # None: its capacity is not known
    boost_mode: bool = False  # decides ties as ASTRA-sim 1.0 does in this mode
    library: Library | None = None  # what chooses collectives, in place of `implementations`
    gap_denominator: float = 16.0  # Themis keeps the usual order for less than this part of a chunk
    behaviour: Behaviour = field(default_factory=lambda: behaviour_of(DEFAULT))


@quick_dataclass(frozen=True)
class LayerSettings:
    """How layer files are run: options of ASTRA-sim 1.0, without effect on traces."""

    passes: int = integer(
        "How often a layer file is run through.", 1, name="num-passes", reference=NOT_KNOWN, minimum=1
    )
    compute_scale: float = number("Multiplies the computations of a layer file.", 1.0, reference=NOT_KNOWN)
    comm_scale: float = number("Multiplies the bytes of a layer file.", 1.0, reference=NOT_KNOWN)


def powered_devices(system: System) -> list[RooflineDevice]:
    """Return the devices of the rules that say what they draw."""
    devices: list[RooflineDevice] = []
    for rule in system.compute:
        settings = rule.settings
        if isinstance(settings, RooflineDevice) and settings.power is not None:
            devices.append(settings)
    return devices


def peaks_of(system: System) -> dict[str, float]:
    """In 10^12 operations per second; no datatype that rules for different kernels differ about."""
    peaks_found: dict[str, set[float]] = {}
    for rule in system.compute:
        if isinstance(rule.settings, RooflineDevice):
            for datatype, peak in rule.settings.peaks.items():
                peaks_found.setdefault(datatype, set()).add(peak)
    if system.roofline and system.peak_perf and not peaks_found:
        peaks_found[ANY] = {system.peak_perf}
    return {datatype: peaks.pop() for datatype, peaks in sorted(peaks_found.items()) if len(peaks) == 1}
