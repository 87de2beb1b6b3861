"""The system file: all its keys, and rules that need several of them."""

from __future__ import annotations

from typing import Any

from msgspec import structs
from msgspec.structs import replace

from et_sim.basics.errors import MachineError
from et_sim.basics.units import LONGEST_NS, exact_bytes, format_ns
from et_sim.collectives.names import spans_all
from et_sim.documents.keys import (
    Key,
    Remarks,
    Section,
    Slot,
    ValueKind,
    keys_of,
    made,
    note_defaults,
    read_keys,
)
from et_sim.documents.kinds import CHOICE, FLAG, NUMBER, SWITCH, TEXT
from et_sim.machine.accuracy import read_accuracy
from et_sim.machine.compute_rules import NAME as COMPUTE
from et_sim.machine.corrections import DEFAULT, Correction, Profile, behaviour_of
from et_sim.machine.power import POWER
from et_sim.machine.system import (
    COLLECTIVES,
    CUSTOM_KEYS,
    NAMED_SWITCHES,
    DimensionOrder,
    LayerSettings,
    QueueOrder,
    System,
    powered_devices,
)
from et_sim.machine.system_parts import (
    BUSY,
    CAPACITY,
    IDLE,
    LEAVES_OUT,
    NETWORK,
    RESERVED,
    TRACKS,
    Costs,
    LocalMemory,
    SharedBus,
)

LIBRARY = "library"
UNREAD_ORDER = (
    "the reference accepts this key and does not read it; it has an effect only with the correction "
    f'"{Correction.DIMENSION_SCHEDULERS}"'
)
_UNREAD = "neither the reference nor this version of et-sim reads this key"
_TAKEN = "the option has no effect in the reference, and none in this version of et-sim"
_NO_LOGS = "et-sim writes no log files, so this key has no effect"

PROFILE_KEYS = (
    Key(
        "profile",
        CHOICE,
        "`reference` gives the reference's times, defects included; `corrected` corrects them "
        "(see [profiles](profiles.md)). Without the key: the profile of the workload's manifest, if it has "
        "one, else `reference`.",
        "Not known there.",
        choices=Profile,
    ),
    Key(
        "corrections",
        NAMED_SWITCHES,
        "Switches single corrections on or off, in any profile.",
        "Not known there.",
        choices=tuple(Correction),
    ),
)
ORDER_KEYS = (
    Key(
        "inter-dimension-scheduling",
        TEXT,
        "Order in which chunks visit the dimensions: `ascending` (also called `baseline`); `roundRobin`, "
        "turned by one dimension from chunk to chunk; `offlineGreedy` (Themis), the least loaded dimension "
        "first; `offlineGreedyFlex`, which also chooses the size of chunks; `onlineGreedy`, ascending, but "
        "an all-reduce scatters and gathers in the last dimension, too. Groups that are a part of the system "
        "follow the same order with the correction `groups-by-dimension`.",
        "Not read in 2.x; a setting of 1.x.",
        choices=(*(order.value for order in DimensionOrder), "baseline"),
        correction=Correction.DIMENSION_SCHEDULERS.value,
    ),
    Key(
        "intra-dimension-scheduling",
        TEXT,
        "Order in which chunks wait for a reduce-scatter or all-gather in a dimension: `FIFO`, by "
        "`scheduling-policy` and then by arrival; `RG`, the two kinds in turn; `smallestFirst`; "
        "`lessRemainingPhaseFirst`.",
        "Not read in 2.x; a setting of 1.x.",
        choices=tuple(order.value for order in QueueOrder),
        correction=Correction.DIMENSION_SCHEDULERS.value,
    ),
)
_ENDPOINT_KEYS = (
    Key(
        "injection-scale",
        NUMBER,
        "Multiplies `endpoint-delay`, if that key is given.",
        "A command-line option there (`--injection-scale`).",
        default=1.0,
        above_minimum=True,
    ),
    Key(
        "model-shared-bus",
        FLAG,
        "Replace the endpoint delay by a LogGP model of the bus between NPU and memory.",
        "On only for exactly 1 or true.",
        default=False,
    ),
)
_IGNORED_KEYS = tuple(
    Key(name, kind, meaning, reference, ignored=why)
    for name, kind, meaning, reference, why in (
        (
            "local-mem-trace-filename",
            TEXT,
            "No effect: `track-local-mem` writes to `memory.arrow`, in the run's directory.",
            "Start of the names of the memory trace files.",
            "no effect here: tracked memory is in memory.arrow, in the run's directory",
        ),
        (
            "trace-enabled",
            SWITCH,
            "No effect: a timeline is always written.",
            "Adds issue and completion lines to the log.",
            "a timeline is always written, so this key has no effect",
        ),
        ("boost-mode", FLAG, "No effect.", "Not read in 2.x; a setting of 1.x.", _UNREAD),
        ("seprate-log", FLAG, "No effect (the spelling is 1.x's).", "Not read in 2.x.", _UNREAD),
        ("gap-denominator", NUMBER, "No effect.", "Not read in 2.x; tuned Themis in 1.x.", _UNREAD),
        (
            "direct-collective-window",
            NUMBER,
            "No effect: append the window to the name, as in `direct4`.",
            "Not read in 2.x, refused by 1.x.",
            f'{_UNREAD}; append the window to the algorithm name, as in "direct4"',
        ),
        ("comm-scale", NUMBER, "No effect.", "A command-line option there, without effect.", _TAKEN),
        ("compute-scale", NUMBER, "No effect.", "A command-line option there, never read.", _TAKEN),
        (
            "logging-configuration",
            TEXT,
            "No effect: et-sim writes no log files.",
            "A command-line option there.",
            _NO_LOGS,
        ),
        (
            "logging-folder",
            TEXT,
            "No effect: et-sim writes no log files.",
            "A command-line option there.",
            _NO_LOGS,
        ),
    )
)


def _name_or_object(slot: Slot, value: Any) -> dict[str, Any]:
    if isinstance(value, str | dict) and value:
        return {"name": value} if isinstance(value, str) else value
    raise slot.refusal(value)


_NAME_OR_OBJECT = ValueKind(
    "text or object",
    lambda key: f"a name, or an object with some of the keys {', '.join(key.words)}",
    _name_or_object,
)
# The names of `collective_library_keys.LIBRARY_KEYS`, which are imported where a system has a library.
_KEYS_OF_LIBRARY = (
    *("name", "gpu", "link", "link-speed", "cards", "rings", "choices", "cpu", "switch", "collnet"),
    *("algorithms", "protocols", "calibration", "buffers", "between", "occupies"),
    *("most-processors", "engine", "expert-exchange", "eager"),
)
LIBRARY_KEY = Key(
    LIBRARY,
    _NAME_OR_OBJECT,
    "The collective library, which then chooses algorithm, protocol and channels of every collective, and "
    "determines its time ([collective libraries](collectives.md#collective-libraries)). A "
    "`...-implementation` key overrides it for its collective.",
    "Not known there.",
    choices=_KEYS_OF_LIBRARY,
)

SYSTEM_KEYS = (
    *PROFILE_KEYS,
    *keys_of(System),
    *CUSTOM_KEYS,
    *ORDER_KEYS,
    *_ENDPOINT_KEYS,
    *keys_of(SharedBus),
    *keys_of(LocalMemory),
    LIBRARY_KEY,
    *keys_of(LayerSettings),
    *_IGNORED_KEYS,
)


def read_system(source: Section, remarks: Remarks) -> tuple[System, LayerSettings]:
    """Read the system of a source, and its settings for layer files."""
    given = read_keys(source, SYSTEM_KEYS, remarks)
    values = note_defaults(given, SYSTEM_KEYS, source, remarks)
    behaviour = behaviour_of(given.get("profile", DEFAULT), given.get("corrections"))
    if given.get("roofline-enabled") and any(rule.where is None for rule in given.get(COMPUTE, ())):
        raise source.fault(
            f'keys "{COMPUTE}" and "roofline-enabled" both time kernels',
            'leave one of them out, or limit "compute" by "where"',
        )
    memory = _local_memory(given, source)
    system = replace(
        made(System, given),
        endpoint_delay_ns=_endpoint_delay(given, values, source.place, remarks),
        shared_bus=made(SharedBus, given) if values["model-shared-bus"] else None,
        custom_implementations={
            name.replace("-", "_"): given[key.name]
            for name, key in zip(COLLECTIVES, CUSTOM_KEYS, strict=True)
            if key.name in given
        },
        local_memory=memory,
        accuracy=read_accuracy(given.get("accuracy"), source, remarks),
        behaviour=behaviour,
        **_orders(given, behaviour.corrections, source, remarks),
    )
    system = replace(system, costs=_costs(system, source))
    for collective in COLLECTIVES:
        names = getattr(system.implementations, collective.replace("-", "_")) or ()
        first = next((index for index, entry in enumerate(names) if spans_all(entry)), None)
        if first is not None and first + 1 < len(names):
            text = f"{names[first]} at index {first} spans all NPUs, so the entries after it are not used"
            remarks.warn(source.place, f"{collective}-implementation", text)
    _remark_on_roofline(system, source.place, remarks)
    is_tracked = system.track_local_mem or memory is not None
    return replace(system, track_local_mem=is_tracked), made(LayerSettings, given)


def _costs(system: System, source: Section) -> Costs | None:
    """Return the costs of an NPU; a device with a power model determines its power."""
    costs = system.costs
    section = source.entry("costs", {})
    powered = powered_devices(system)
    if powered:
        if costs is not None and costs.busy_watts is not None:
            raise section.fault(
                f'key "{BUSY}" and key "{POWER}" of "{COMPUTE}" both give the power of an NPU',
                f'leave out "{BUSY}" and "{IDLE}"',
            )
        busy = max(device.power_cap or 0.0 for device in powered)
        idle = max(device.power.idle_watts for device in powered if device.power)
        return replace(costs or Costs(), busy_watts=busy, idle_watts=idle)
    if costs is not None and costs.network_watts and costs.busy_watts is None:
        raise section.fault(
            f'key "{NETWORK}" without "{BUSY}": {LEAVES_OUT}', f'give "{BUSY}" and "{IDLE}", too'
        )
    return costs


def _local_memory(given: dict[str, Any], source: Section) -> LocalMemory | None:
    """Read the keys of the capacity; return None without a capacity."""
    if CAPACITY not in given:
        return None
    if not given.get(TRACKS, True):
        raise source.fault(
            f'key "{CAPACITY}" requires "{TRACKS}", which is off',
            f'leave one of them out: "{CAPACITY}" tracks them',
        )
    memory = made(LocalMemory, {**given, "place": source.place})
    if memory.reserved_bytes >= memory.total_bytes:
        raise source.fault(
            f'key "{RESERVED}" is {exact_bytes(memory.reserved_bytes)}, and "{CAPACITY}" is '
            f"{exact_bytes(memory.total_bytes)}: no memory is left for tensors",
            "correct one of them",
        )
    return memory


def _orders(
    given: dict[str, Any], corrections: frozenset[Correction], source: Section, remarks: Remarks
) -> dict[str, Any]:
    """Read the orders of dimensions and within them, if the correction is on."""
    orders: dict[str, Any] = {}
    for key, field, order in zip(
        ORDER_KEYS, ("dimension_order", "queue_order"), (DimensionOrder, QueueOrder), strict=True
    ):
        if key.name not in given:
            continue
        if Correction.DIMENSION_SCHEDULERS not in corrections:
            remarks.warn(source.place, key.name, UNREAD_ORDER)
            continue
        word = Slot(structs.replace(key, kind=CHOICE), source, remarks).value(given[key.name])
        orders[field] = DimensionOrder.ASCENDING if word == "baseline" else order(word)
    return orders


def _endpoint_delay(given: dict[str, Any], values: dict[str, Any], place: str, remarks: Remarks) -> int:
    """Return the endpoint delay in ns.

    The reference scales the delay only while reading the key, so its built-in 10 ns stays unscaled; published
    results depend on that. The delay is cut to an integer before and after, as there.
    """
    delay: int = values["endpoint-delay"]
    if "endpoint-delay" in given:
        return scaled_delay(delay, values["injection-scale"], place)
    if "injection-scale" in given:
        text = "no effect without endpoint-delay: the built-in delay is not scaled, as in the reference"
        remarks.warn(place, "injection-scale", text)
    return delay


def scaled_delay(delay: int, scale: float, place: str) -> int:
    """Return the endpoint delay times the injection scale, cut to whole nanoseconds."""
    if delay * scale > LONGEST_NS:
        raise MachineError(
            f'"endpoint-delay" {delay} times "injection-scale" {scale:g} is too long',
            place=place,
            remedy=f"allowed: at most {format_ns(LONGEST_NS)}",
        )
    return int(delay * float(scale))


def _remark_on_roofline(system: System, place: str, remarks: Remarks) -> None:
    if system.roofline:
        for name, figure in (("peak-perf", system.peak_perf), ("local-mem-bw", system.local_mem_bw)):
            if not figure:
                text = "0 while roofline-enabled is on: computation takes 0 ns, as in the reference"
                remarks.warn(place, name, text)
