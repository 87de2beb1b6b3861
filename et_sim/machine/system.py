"""The system, declared: computation, reductions, messages and collective algorithms of an NPU.

Each field with a key is that key of the system file.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from et_sim.collectives.names import parse_name, spellings
from et_sim.documents.keys import Key, Slot, ValueKind, inline, key, nearest, show
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
from et_sim.machine.compute_rules import COMPUTE, ComputeRule
from et_sim.machine.corrections import DEFAULT, Behaviour, behaviour_of
from et_sim.machine.datatypes import ANY
from et_sim.machine.gpu_failures import GpuFailure
from et_sim.machine.system_parts import (
    NOT_KNOWN,
    Costs,
    LimitedWork,
    LocalMemory,
    Overlap,
    SharedBus,
    SlowedWork,
    Straggler,
    TimeFactors,
    on_the_bus,
)
from et_sim.machine.variation import Variation

if TYPE_CHECKING:
    from et_sim.machine.collective_library import Library
    from et_sim.machine.roofline import RooflineDevice

COLLECTIVES = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all")
MOST = 2**31 - 1  # largest number that the engine counts in 32 bits
MOST_CHUNKS = 1_000_000
MOST_QUEUES = (1 << 15) - 1  # queues of a dimension are numbered in 16 bits
MOST_STREAMS = 64
MOST_VARIATIONS = 64
ALGORITHMS = spellings()
_UNINITIALISED = "the reference reads uninitialised memory"


class StreamPolicy(StrEnum):
    """The order of collectives that wait for the same queue."""

    LIFO = "LIFO"
    FIFO = "FIFO"
    EXPLICIT = "EXPLICIT"


class AllReducePlan(StrEnum):
    """The way of an all-reduce across several dimensions."""

    BASELINE = "baseline"
    LOCAL_BW_AWARE = "localBWAware"


class DimensionOrder(StrEnum):
    """The order in which the chunks of a collective visit the dimensions."""

    ASCENDING = "ascending"
    ROUND_ROBIN = "roundRobin"
    OFFLINE_GREEDY = "offlineGreedy"
    OFFLINE_GREEDY_FLEX = "offlineGreedyFlex"
    ONLINE_GREEDY = "onlineGreedy"


class QueueOrder(StrEnum):
    """The order in which chunks of a reduce-scatter or all-gather phase wait."""

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
        raise slot.refusal(value, why="the list is empty", hint="leave the key out, or")
    names = []
    for index, algorithm in enumerate(value):
        normal = parse_name(algorithm) if isinstance(algorithm, str) else None
        if normal is None:
            known = [choice for choice in ALGORITHMS if "<" not in choice]
            hint = nearest(algorithm, known) if isinstance(algorithm, str) else ""
            allowed = f"allowed: {', '.join(ALGORITHMS)}, W an integer >= 1"
            cause = f'key "{name}" index {index} is {show(algorithm)}, which is not an algorithm'
            raise slot.section.fault(cause, f"{hint} {allowed}".strip(), key=name)
        names.append(str(normal))
    return tuple(names)


def _prefix(slot: Slot, value: Any) -> str:
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], str) and value[0]:
        return value[0]
    raise slot.refusal(value)


def _rings(slot: Slot, value: Any) -> tuple[tuple[tuple[int, ...], ...], ...]:
    """Read the orders of NPUs around rings, by dimension."""
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
            cause = f'key "{name}" names {show(correction)}, which is not a correction'
            raise slot.section.fault(cause, nearest(correction, known) or f"known: {', '.join(known)}")
        if not isinstance(on, bool):
            cause = f'key "{name}" sets "{correction}" to {show(on)}'
            raise slot.section.fault(cause, "allowed: true or false")
    return value


ALGORITHM_LIST = ValueKind(
    "list of algorithms",
    lambda _: f'a list such as ["ring"], one name per network dimension, each among {", ".join(ALGORITHMS)}',
    _algorithms,
)
PREFIX = ValueKind(
    "list of one path",
    lambda _: 'a list with exactly one trace prefix, such as ["custom/all_reduce"]',
    _prefix,
)
RINGS = ValueKind(
    "list of rings per dimension",
    lambda _: (
        "a list per network dimension, of lists that name each NPU of the dimension once, "
        "such as [[[0, 1, 2, 3], [0, 2, 1, 3]]]"
    ),
    _rings,
)
NAMED_SWITCHES = ValueKind(
    "named switches",
    lambda _: 'an object such as {"eager-sends": true}, with names from the table of corrections',
    _named_switches,
)


def _implementation(collective: str) -> Any:
    """Declare the list of algorithms of a type of collective."""
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


class Implementations(Struct, frozen=True):
    """Algorithm names per collective type, one per dimension; None: not configured."""

    all_reduce: tuple[str, ...] | None = _implementation("all-reduce")
    all_gather: tuple[str, ...] | None = _implementation("all-gather")
    reduce_scatter: tuple[str, ...] | None = _implementation("reduce-scatter")
    all_to_all: tuple[str, ...] | None = _implementation("all-to-all")
    broadcast: tuple[str, ...] | None = choice(  # without: a tree
        "Algorithm of broadcasts: a `tree` of their members, or `inNetwork`, by "
        "[switches that reduce](network-features.md#switches-that-reduce), if these reach all members.",
        None,
        name="broadcast-implementation",
        reference="Not known there; without the key: `tree`.",
        choices=("tree", "inNetwork"),
        becomes=lambda word: (word,),
    )


class System(Struct, frozen=True):
    """The 2.x system file, validated, with the command-line-only options as fields."""

    splits: int = integer(
        "Number of chunks that each collective is cut into.",
        1,
        stated=True,
        name="preferred-dataset-splits",
        reference="Missing or 0: division by zero at the first collective.",
        default_reason="the reference divides by zero at the first collective",
        minimum=1,
        minimum_reason="a collective is cut into at least one chunk",
        maximum=MOST_CHUNKS,
    )
    implementations: Implementations = inline(Implementations)
    active_chunks: int = integer(
        "Number of chunks that may be in progress in a dimension at once, shared by its queues "
        "(rounded up per queue).",
        1,
        stated=True,
        name="active-chunks-per-dimension",
        reference="0: no collective starts, and the run ends silently.",
        minimum=1,
        minimum_reason="without chunks, no collective starts",
        maximum=MOST,
    )
    policy: StreamPolicy = choice(
        "Order of collectives that wait for the same queue.",
        StreamPolicy.LIFO,
        stated=True,
        name="scheduling-policy",
        reference="Missing: uninitialised memory.",
        default_reason=_UNINITIALISED,
        choices=StreamPolicy,
    )
    all_reduce_plan: AllReducePlan = choice(
        "The way of an all-reduce across several dimensions: `baseline` runs a full all-reduce in each; "
        "`localBWAware` runs reduce-scatter inwards to outwards, all-reduce in the last, all-gather back.",
        AllReducePlan.LOCAL_BW_AWARE,
        stated=True,
        name="collective-optimization",
        reference="Missing: uninitialised memory, possibly different on each rank.",
        default_reason=_UNINITIALISED,
        choices=AllReducePlan,
    )
    rings: tuple[tuple[tuple[int, ...], ...], ...] = key(  # by dimension
        RINGS,
        "Order in which rings visit the NPUs of a dimension; chunks take turns among the rings of a "
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
        "Number of queues of each dimension; collectives are spread over them.",
        1,
        stated=True,
        name="num-queues-per-dim",
        reference="A command-line option there (`--num-queues-per-dim`).",
        minimum=1,
        minimum_reason="without queues, no collective starts",
        maximum=MOST_QUEUES,
    )
    endpoint_delay_ns: int = integer(  # already scaled by injection-scale if the file has the key
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
    host_ns: float = time(  # of a launch; 0: kernels never wait for the host
        "Time that the host takes to launch a kernel or collective: one after the other, in the order of the "
        "trace, and without waiting for the device, on ranks whose traces have no [host](compute.md#hosts) "
        "of their own. Without the key: 0.",
        0.0,
        name="host-time",
        reference=NOT_KNOWN,
    )
    replay_recorded: bool = switch(
        "Kernels that a profiler recorded on a stream of a device (attribute `stream`, and a duration) take "
        "their recorded time and ignore `compute`, which times all other kernels. It is on for machines by "
        "name; `--retime` switches it off.",
        False,
        name="replay-recorded-kernels",
        reference=NOT_KNOWN,
    )
    track_local_mem: bool = switch(
        "Track the tensors that are alive, and the peak memory of each NPU.", False, stated=True
    )
    compute: tuple[ComputeRule, ...] = key(  # precedes the roofline and the recorded times
        COMPUTE,
        "The timing of kernels: a model, or a list of [rules](compute.md), of which a kernel takes the first "
        "that it matches; other kernels are timed by the keys above.",
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
        "Factors of recorded or modelled times, by kind of work; see [what if](what-if.md).",
        (),
        reference=NOT_KNOWN,
        of=TimeFactors,
    )
    failures: tuple[GpuFailure, ...] = sections(
        "GPUs that [fail or slow down during the run](failures.md#gpus).",
        (),
        reference=NOT_KNOWN,
        of=GpuFailure,
    )
    variation: tuple[Variation, ...] = sections(
        "Random factors of times, which runs with `--samples` draw; see [variation](variation.md).",
        (),
        reference=NOT_KNOWN,
        of=Variation,
        most=MOST_VARIATIONS,
    )
    streams: tuple[LimitedWork, ...] = sections(
        "Streams that run concurrently on an NPU; see [streams](streams.md). A node runs on the first entry "
        "that it matches, and otherwise as without the key.",
        (),
        reference=NOT_KNOWN,
        of=LimitedWork,
        most=MOST_STREAMS,
    )
    overlap: tuple[SlowedWork, ...] = section(
        "Slowdown of computation by communication of the same NPU, which shares memory and cores; see "
        "[streams](streams.md#what-runs-side-by-side-slows-down).",
        (),
        reference=NOT_KNOWN,
        of=Overlap,
        becomes=Overlap.slowed,
    )
    costs: Costs | None = section(  # None: power and price are not known
        "Power and price of an NPU; with it, the summary has the energy and price of the run "
        "([energy and price](machines.md#energy-and-price)).",
        None,
        reference=NOT_KNOWN,
        of=Costs,
        records_defaults=False,
        becomes=lambda costs: None if costs == Costs() else costs,
    )
    accuracy: Accuracy | None = section(  # None: not stated
        "Uncertainty of the times of a machine that stands for a real one; with it, the summary has "
        "[a band](output.md#how-far-it-may-be-off).",
        None,
        reference=NOT_KNOWN,
        choices=tuple(key.name for key in ACCURACY_KEYS),
    )
    dimension_order: DimensionOrder = DimensionOrder.ASCENDING
    queue_order: QueueOrder = QueueOrder.FIFO
    replay_communication: bool = False  # ranks run independently of each other
    shared_bus: SharedBus | None = None
    custom_implementations: dict[str, str] = field(default_factory=dict)  # type key -> trace prefix
    local_memory: LocalMemory | None = None  # None: unlimited
    boost_mode: bool = False  # breaks ties as ASTRA-sim 1.0 in this mode
    library: Library | None = None  # chooses collectives, in place of `implementations`
    gap_denominator: float = 16.0  # Themis keeps the usual order for less than this part of a chunk
    behaviour: Behaviour = field(default_factory=lambda: behaviour_of(DEFAULT))


class LayerSettings(Struct, frozen=True):
    """Options of ASTRA-sim 1.0 for layer files, without effect on traces."""

    passes: int = integer(
        "Number of passes through a layer file.", 1, name="num-passes", reference=NOT_KNOWN, minimum=1
    )
    compute_scale: float = number("Multiplies the computations of a layer file.", 1.0, reference=NOT_KNOWN)
    comm_scale: float = number("Multiplies the bytes of a layer file.", 1.0, reference=NOT_KNOWN)


def powered_devices(system: System) -> list[RooflineDevice]:
    """Return the devices of the rules that state their power."""
    return [device for device in _devices(system) if device.power is not None]


def _devices(system: System) -> Iterator[RooflineDevice]:
    """Yield the devices of the rules."""
    if not system.compute:
        return
    from et_sim.machine.roofline import RooflineDevice

    for rule in system.compute:
        if isinstance(rule.settings, RooflineDevice):
            yield rule.settings


def peaks_of(system: System) -> dict[str, float]:
    """Return peaks in 10^12 operations per second, without datatypes for which rules differ."""
    peaks_found: dict[str, set[float]] = {}
    for device in _devices(system):
        for datatype, peak in device.peaks.items():
            peaks_found.setdefault(datatype, set()).add(peak)
    if system.roofline and system.peak_perf and not peaks_found:
        peaks_found[ANY] = {system.peak_perf}
    return {datatype: peaks.pop() for datatype, peaks in sorted(peaks_found.items()) if len(peaks) == 1}
