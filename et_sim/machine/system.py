"""The system, declared: how an NPU computes, reduces, sends, and which collective algorithms it runs.

Each field with a key is that key of the system file. Not here: rules that need more than one key
(`system_file`), and the objects of models (`compute_object`), libraries (`library`) and accuracy.
"""

# ruff: noqa: RUF009 - the calls declare fields, like dataclasses.field
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from fractions import Fraction
from functools import partial
from typing import Any, ClassVar

from et_sim.collectives.names import parse_name, spellings
from et_sim.documents.keys import Key, Kind, Remarks, Section, Slot, inline, key, nearest, show
from et_sim.documents.kinds import (
    NUMBER,
    choice,
    choices,
    count,
    flag,
    integer,
    number,
    ranks,
    section,
    sections,
    size,
    switch,
    text,
    time,
)
from et_sim.machine.accuracy import Accuracy
from et_sim.machine.accuracy_object import ACCURACY_KEYS
from et_sim.machine.compute_object import COMPUTE
from et_sim.machine.compute_rules import ComputeRule
from et_sim.machine.library import Library
from et_sim.machine.profiles import DEFAULT, Behaviour, behaviour_of
from et_sim.machine.roofline import ANY, RooflineDevice

COLLECTIVES = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all")
MOST = 2**31 - 1  # of what the engine counts in 32 bits
MOST_CHUNKS = 1_000_000
MOST_STREAMS = 64
MOST_SLOWED = 10
MOST_COST = 1_000_000_000
DECIMALS = 1000
ALGORITHMS = spellings()
_UNINITIALISED = "the reference would read uninitialised memory"
_NOT_KNOWN = "Not known there."
_BUS = "model-shared-bus"
_RANKS = 'Which ranks: `"3,8-11"`, `"0-14/2"` for every second one, or `"all"`.'
_NAME = '`*` stands for any text: `"*gemm*"`.'

on_the_bus = partial(integer, stated=True, unit="ns", needs=_BUS)
cost = partial(number, maximum=MOST_COST)


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


@dataclass(frozen=True, slots=True)
class SharedBus:
    """LogGP parameters of the shared memory bus."""

    latency: int = on_the_bus("Bus latency.", 0, name="L")
    overhead: int = on_the_bus("Bus overhead per transfer.", 0, name="o")
    gap: int = on_the_bus("Bus gap between transfers.", 0, name="g")
    gap_per_byte: float = number(
        "Bus gap per byte.",
        0.0,
        name="G",
        reference="Held in single precision.",
        stated=True,
        unit="ns per byte",
        needs=_BUS,
    )


@dataclass(frozen=True, slots=True)
class Straggler:
    """Ranks that are slower than their traces and the machine would have them, and by how much."""

    ranks: tuple[range, ...] | None = ranks(_RANKS, required=True)  # None: all
    compute: float = number(
        "Multiplies the durations of compute nodes, replayed or modelled.", 1.0, above_minimum=True
    )
    delay_ns: int = time(
        "By how much the ranks start late; with `node`, by how much that node takes longer.", 0
    )
    node: int | None = count("The id of the node that `delay` is for.", None, needs="delay")
    jitter: float = number(
        "Multiplies the duration of every compute node by a factor of its own, drawn uniformly from 1 minus "
        "this to 1 plus this.",
        0.0,
        below=1,
    )
    seed: int = count("Another seed draws other factors. Without the key: 0.", 0, needs="jitter")

    @staticmethod
    def complete(given: Mapping[str, Any], section: Section, _: Remarks) -> dict[str, Any]:
        """Delays are whole."""
        delay = given.get("delay", 0)
        if delay != int(delay):
            raise section.fault(
                f'key "delay" is {delay} ns, which is no whole number of nanoseconds',
                "delays are in whole nanoseconds",
            )
        return {"delay": int(delay)}

    def check(self, given: Mapping[str, Any], section: Section, _: Remarks) -> None:
        """Refuse an entry without effect."""
        if not {"compute", "delay", "jitter"} & given.keys():
            raise section.fault(
                "the entry says nothing about its ranks", "give at least one of compute, delay, jitter"
            )


class WorkKind(StrEnum):
    """What a node of a trace stands for, as time factors tell it."""

    KERNELS = "kernels"
    COPIES = "copies"
    OPERATORS = "operators"
    LAUNCHES = "launches"
    GAPS = "gaps"
    COMMUNICATION = "communication"


@dataclass(frozen=True, slots=True)
class TimeFactors:
    """What the durations of nodes are multiplied by, by kind of work."""

    more_keys: ClassVar[tuple[Key, ...]] = tuple(
        Key(kind.value, NUMBER, f"Multiplies the time of {work}.")
        for kind, work in (
            (WorkKind.KERNELS, "kernels of devices, recorded or modelled"),
            (WorkKind.COPIES, "copies to, from and between devices, and fills of their memory"),
            (WorkKind.OPERATORS, "what the host does, but for launches: operators, and what is left of them"),
            (WorkKind.LAUNCHES, "calls of the device's runtime that launch work or wait for it"),
            (
                WorkKind.GAPS,
                "time between two things of a thread or stream that a recording does not explain",
            ),
            (
                WorkKind.COMMUNICATION,
                "sends, receives and collectives that take their recorded time, as with `replay-only`; what "
                "is simulated takes what the network takes",
            ),
        )
    )
    ranks: tuple[range, ...] | None = ranks(f"{_RANKS} Without the key: all.", None)  # None: all
    name: str | None = text(f"Only nodes with this name; {_NAME} Without the key: any name.", None)
    factors: Mapping[WorkKind, float] = field(default_factory=dict)
    place: str = ""  # of the entry, for messages

    @staticmethod
    def complete(given: Mapping[str, Any], section: Section, _: Remarks) -> dict[str, Any]:
        """The factors by kind of work."""
        factors = {kind: given[kind.value] for kind in WorkKind if kind.value in given}
        if not factors:
            raise section.fault("the entry gives no factor", f"give at least one of {', '.join(WorkKind)}")
        return {"factors": factors}


class StreamWork(StrEnum):
    """What streams take."""

    KERNELS = "kernels"
    COPIES = "copies"
    HOST = "host"
    SENDS = "sends"
    COLLECTIVES = "collectives"
    LOADS = "loads"
    STORES = "stores"


@dataclass(frozen=True, slots=True)
class Stream:
    """Work of an NPU that takes turns among itself, so many at a time."""

    name: str = text("What the stream is called.", required=True)
    takes: frozenset[StreamWork] = choices(
        "Which work it takes: `kernels` and `copies` of the device, `host` work, `sends`, `collectives`, "
        "`loads` from and `stores` to remote memory.",
        choices=StreamWork,
        becomes=frozenset,
        required=True,
    )
    at_a_time: int = count(
        "How much of it is under way at a time.",
        1,
        stated=True,
        minimum=1,
        minimum_reason="nothing on the stream would ever start",
        maximum=1_000_000,
    )
    nodes: str | None = text(f"Only nodes with this name; {_NAME}", None)
    group: str | None = text("Only collectives of this communicator group; `all` is every rank.", None)
    recorded: int | None = count(
        "Only nodes whose trace records this number in the attribute `stream`.", None, name="stream"
    )
    place: str = ""  # of the entry, for messages

    def check(self, _: Mapping[str, Any], section: Section, __: Remarks) -> None:
        """Refuse a group without collectives."""
        if self.group is not None and StreamWork.COLLECTIVES not in self.takes:
            raise section.fault(
                'key "group" has no effect: the entry takes no collectives',
                'add "collectives" to "takes", or leave "group" out',
            )


@dataclass(frozen=True, slots=True)
class SlowedWork:
    """Work of an NPU that takes longer while it sends, or is in a collective."""

    work: StreamWork
    factor: Fraction  # above 1
    place: str = ""  # for messages


_slowed = partial(number, default=1.0, minimum=1, maximum=MOST_SLOWED)
_WHILE = (
    "take while a send or collective of the same NPU is under way, and as long as it is; at most three "
    "decimals. Without the key: no longer."
)


@dataclass(frozen=True, slots=True)
class Overlap:
    """How many times longer work takes beside communication."""

    kernels: float = _slowed(f"How many times longer kernels {_WHILE}")
    copies: float = _slowed(f"How many times longer copies to, from and between devices {_WHILE}")
    place: str = ""

    def check(self, given: Mapping[str, Any], section: Section, _: Remarks) -> None:
        """Refuse what cannot be counted exactly."""
        for name, factor in given.items():
            if (Fraction(str(factor)) * DECIMALS).denominator != 1:
                cause = f'key "{name}" is {factor}, with more than three decimals'
                raise section.fault(cause, "round it: work is counted exactly")

    def slowed(self) -> tuple[SlowedWork, ...]:
        """The work that takes longer; factors of 1 change nothing."""
        both = ((StreamWork.KERNELS, self.kernels), (StreamWork.COPIES, self.copies))
        return tuple(
            SlowedWork(work, Fraction(str(factor)), self.place) for work, factor in both if factor > 1
        )


@dataclass(frozen=True, slots=True)
class Costs:
    """What one NPU costs while a run goes on; None: not known."""

    busy_watts: float | None = cost(
        "What an NPU draws while it computes: while a kernel or copy runs.", None, unit="watts"
    )
    idle_watts: float | None = cost(
        "What it draws the rest of the time: while it communicates or waits, and until the last rank is "
        "done. Given together with `busy-watts`.",
        None,
        unit="watts",
    )
    network_watts: float = cost(
        "What an NPU's links, and its share of switches, draw all the time, whether bytes move or not.",
        0,
        stated=True,
        unit="watts",
    )
    price_per_hour: float | None = cost(
        "The price of an NPU for an hour, with all that is charged with it.", None
    )
    currency: str = text("What the price is in.", "USD", stated=True, needs="price-per-hour")

    def check(self, given: Mapping[str, Any], section: Section, _: Remarks) -> None:
        """Refuse energies that would leave a part out."""
        named = [name for name in ("busy-watts", "idle-watts", "network-watts") if name in given]
        missing = next((name for name in ("busy-watts", "idle-watts") if name not in given), "")
        if named and missing:
            raise section.fault(
                f'key "{named[0]}" without "{missing}": the energy of a run would leave a part out',
                'give "busy-watts" and "idle-watts", or neither',
            )
        if (self.busy_watts or 0) < (self.idle_watts or 0):
            raise section.fault(
                f'"busy-watts" {self.busy_watts:g} is below "idle-watts" {self.idle_watts:g}', "exchange them"
            )

    def as_dict(self) -> dict[str, Any]:
        """As a run's manifest has it."""
        return asdict(self)


class WhenFull(StrEnum):
    """What becomes of a run in which tensors need more local memory than there is."""

    STOP = "stop"
    REPORT = "report"
    SPILL = "spill"


CAPACITY, TRACKS = "local-mem-capacity", "track-local-mem"


@dataclass(frozen=True, slots=True)
class LocalMemory:
    """What an NPU has of its own."""

    capacity_bytes: int = size(
        "How much memory of its own an NPU has; then what its tensors need is tracked, and held against it "
        "([local memory](memory.md#local-memory)).",
        None,
        name=CAPACITY,
        reference=_NOT_KNOWN,
        minimum=1,
    )
    when_full: WhenFull = choice(
        "What becomes of a run that needs more: `stop` ends it there, `report` says it, and goes on; with "
        "`spill`, tensors wait in [remote memory](memory.md#spilling). Without the key: `stop`.",
        WhenFull.STOP,
        reference=_NOT_KNOWN,
        choices=WhenFull,
        needs=CAPACITY,
    )
    place: str = ""  # for messages


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


@dataclass(frozen=True, slots=True)
class Implementations:
    """Algorithm names per collective type, one per dimension; None: not configured."""

    all_reduce: tuple[str, ...] | None = _implementation("all-reduce")
    all_gather: tuple[str, ...] | None = _implementation("all-gather")
    reduce_scatter: tuple[str, ...] | None = _implementation("reduce-scatter")
    all_to_all: tuple[str, ...] | None = _implementation("all-to-all")
    broadcast: tuple[str, ...] | None = choice(  # without: a tree
        "How broadcasts are done: over a `tree` of their members, or `inNetwork`, by "
        "[switches that reduce](networks.md#switches-that-reduce), where these reach all members.",
        None,
        name="broadcast-implementation",
        reference="Not known there; without the key: `tree`.",
        choices=("tree", "inNetwork"),
        becomes=lambda word: (word,),
    )


@dataclass(frozen=True, slots=True)
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
        reference=_NOT_KNOWN,
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
        maximum=MOST_CHUNKS,
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
        reference=_NOT_KNOWN,
    )
    replay_recorded: bool = switch(
        "Kernels that a profiler recorded on a stream of a device (attribute `stream`, and a duration) take "
        "that time, whatever `compute` says; all other kernels are timed by it. Machines by name have it on, "
        "and `--retime` switches it off.",
        False,
        name="replay-recorded-kernels",
        reference=_NOT_KNOWN,
    )
    track_local_mem: bool = switch(
        "Track which tensors are alive, and the peak memory of each NPU.", False, stated=True
    )
    compute: tuple[ComputeRule, ...] = key(  # before the roofline and the recorded times
        COMPUTE,
        "What times kernels: a model, or [rules](compute.md) of which the first that a kernel matches holds; "
        "the rest is timed by the keys above.",
        (),
        reference=_NOT_KNOWN,
    )
    stragglers: tuple[Straggler, ...] = sections(
        "Ranks that are slower than the others; see [uneven machines](uneven-machines.md).",
        (),
        reference=_NOT_KNOWN,
        of=Straggler,
    )
    time_factors: tuple[TimeFactors, ...] = sections(
        "How much longer or shorter kinds of work take than recorded or modelled; see [what if](what-if.md).",
        (),
        reference=_NOT_KNOWN,
        of=TimeFactors,
    )
    streams: tuple[Stream, ...] = sections(
        "What runs side by side on an NPU; see [streams](streams.md). Of the entries, the first that fits a "
        "node takes it; what none takes runs as without the key.",
        (),
        reference=_NOT_KNOWN,
        of=Stream,
        most=MOST_STREAMS,
    )
    overlap: tuple[SlowedWork, ...] = section(
        "What computing loses to communication of the same NPU, with which it shares memory and cores; see "
        "[streams](streams.md#what-runs-side-by-side-slows-down).",
        (),
        reference=_NOT_KNOWN,
        of=Overlap,
        becomes=Overlap.slowed,
    )
    costs: Costs | None = section(  # None: nobody says what it draws, nor its price
        "What an NPU draws and what it is let for; then the summary says what the run takes of both "
        "([energy and price](machines.md#energy-and-price)).",
        None,
        reference=_NOT_KNOWN,
        of=Costs,
        records_defaults=False,
        becomes=lambda costs: None if costs == Costs() else costs,
    )
    accuracy: Accuracy | None = section(  # None: nothing states how far it is from a real machine
        "How far times may be off, of a machine that stands for a real one; then the summary has "
        "[a band](output.md#how-far-it-may-be-off).",
        None,
        reference=_NOT_KNOWN,
        choices=tuple(key.name for key in ACCURACY_KEYS),
    )
    dimension_order: DimensionOrder = DimensionOrder.ASCENDING
    queue_order: QueueOrder = QueueOrder.FIFO
    replay_communication: bool = False  # ranks run by themselves
    shared_bus: SharedBus | None = None
    custom_implementations: dict[str, str] = field(default_factory=dict)  # type key -> trace prefix
    local_memory: LocalMemory | None = None  # None: nobody says how much there is
    boost_mode: bool = False  # decides ties as ASTRA-sim 1.0 does in this mode
    library: Library | None = None  # what chooses collectives, in place of `implementations`
    gap_denominator: float = 16.0  # Themis keeps the usual order for less than this part of a chunk
    behaviour: Behaviour = field(default_factory=lambda: behaviour_of(DEFAULT))


@dataclass(frozen=True, slots=True)
class LayerSettings:
    """How layer files are run: options of ASTRA-sim 1.0, without effect on traces."""

    passes: int = integer(
        "How often a layer file is run through.", 1, name="num-passes", reference=_NOT_KNOWN, minimum=1
    )
    compute_scale: float = number("Multiplies the computations of a layer file.", 1.0, reference=_NOT_KNOWN)
    comm_scale: float = number("Multiplies the bytes of a layer file.", 1.0, reference=_NOT_KNOWN)


def peaks_of(system: System) -> dict[str, float]:
    """In 10^12 operations per second; no datatype that rules for different kernels differ about."""
    found: dict[str, set[float]] = {}
    for rule in system.compute:
        if isinstance(rule.settings, RooflineDevice):
            for datatype, peak in rule.settings.peaks.items():
                found.setdefault(datatype, set()).add(peak)
    if system.roofline and system.peak_perf and not found:
        found[ANY] = {system.peak_perf}
    return {datatype: peaks.pop() for datatype, peaks in sorted(found.items()) if len(peaks) == 1}
