"""The system file: how an NPU computes, reduces, sends, and which collective algorithms it runs.

Not here: rules that also need the network (`readers`).
"""

from __future__ import annotations

from typing import Any

from et_sim.basics.errors import MachineError
from et_sim.basics.units import LONGEST_NS, format_ns
from et_sim.collectives.names import spans_all
from et_sim.machine.checks import fill_defaults, nearest, read_keys, refusal
from et_sim.machine.compute_object import read_compute
from et_sim.machine.corrections import Correction
from et_sim.machine.keys import Remarks
from et_sim.machine.local_memory import read_local_memory
from et_sim.machine.model import (
    AllReducePlan,
    DimensionOrder,
    Implementations,
    LayerSettings,
    QueueOrder,
    SharedBus,
    StreamPolicy,
    System,
)
from et_sim.machine.objects import read_accuracy, read_costs, read_overlap, read_streams, read_time_factors
from et_sim.machine.profiles import DEFAULT, Profile, behaviour_of
from et_sim.machine.sources import Source
from et_sim.machine.stragglers import read_stragglers
from et_sim.machine.tables import COLLECTIVES, SYSTEM_KEYS
from et_sim.machine.unused_keys import layer_settings

INTER_DIMENSION, INTRA_DIMENSION = "inter-dimension-scheduling", "intra-dimension-scheduling"
UNREAD_ORDER = (
    "the reference accepts this key and does not read it; it has an effect only with the correction "
    f'"{Correction.DIMENSION_SCHEDULERS}"'
)


def read_system(source: Source, remarks: Remarks) -> tuple[System, LayerSettings]:
    """The system that the source describes, and how to run layer files."""
    given = read_keys(source, SYSTEM_KEYS, remarks)
    values = fill_defaults(given, SYSTEM_KEYS, source.place, remarks)
    fields = {key.field: values[key.name] for key in SYSTEM_KEYS if key.field and key.name in values}
    fields["policy"] = StreamPolicy(fields["policy"])
    fields["all_reduce_plan"] = AllReducePlan(fields["all_reduce_plan"])
    fields["endpoint_delay_ns"] = _endpoint_delay(given, values, source.place, remarks)
    fields["shared_bus"] = _shared_bus(values)
    fields["implementations"] = _implementations(given, source.place, remarks)
    fields["custom_implementations"] = _custom_implementations(given)
    fields["rings"] = given.get("rings", ())
    fields["replay_recorded"] = given.get("replay-recorded-kernels", False)
    fields["host_ns"] = given.get("host-time", 0.0)
    profile = Profile(given.get("profile", DEFAULT))
    fields["behaviour"] = behaviour = behaviour_of(profile, given.get("corrections"))
    fields["stragglers"] = read_stragglers(given.get("stragglers", []), source.place, remarks)
    fields["time_factors"] = read_time_factors(given.get("time-factors", []), source.place, remarks)
    fields["streams"] = read_streams(given.get("streams", []), source.place, remarks)
    fields["overlap"] = read_overlap(given.get("overlap", {}), source.place, remarks)
    fields["local_memory"] = read_local_memory(given, source.place)
    fields["costs"] = read_costs(given.get("costs", {}), source.place, remarks)
    fields["accuracy"] = read_accuracy(given, source.place, remarks)
    fields["track_local_mem"] |= fields["local_memory"] is not None
    fields |= _orders(given, behaviour.corrections, source.place, remarks)
    fields["compute"] = read_compute(given, source.place, remarks)
    _remark_on_roofline(values, source.place, remarks)
    return System(**fields), layer_settings(given)


def _orders(
    given: dict[str, Any], corrections: frozenset[Correction], place: str, remarks: Remarks
) -> dict[str, DimensionOrder | QueueOrder]:
    """The orders of dimensions and within them, where the correction lets the keys speak."""
    named = {key.name: given[key.name] for key in SYSTEM_KEYS if key.name in given and key.correction}
    if Correction.DIMENSION_SCHEDULERS not in corrections:
        for name in named:
            remarks.warn(place, name, UNREAD_ORDER)
        return {}
    for key in SYSTEM_KEYS:
        if key.name in named and named[key.name] not in key.choices:
            hint = nearest(named[key.name], key.choices)
            raise refusal(key, named[key.name], place, hint=hint)
    dimensions = named.get(INTER_DIMENSION, DimensionOrder.ASCENDING)
    return {
        "dimension_order": DimensionOrder.ASCENDING
        if dimensions == "baseline"
        else DimensionOrder(dimensions),
        "queue_order": QueueOrder(named.get(INTRA_DIMENSION, QueueOrder.FIFO)),
    }


def _endpoint_delay(given: dict[str, Any], values: dict[str, Any], place: str, remarks: Remarks) -> int:
    """The endpoint delay in ns.

    The reference scales the delay only while reading the key, so its built-in 10 ns stays unscaled;
    published results depend on that. Cut to an integer before and after, as there.
    """
    delay: int = values["endpoint-delay"]
    if "endpoint-delay" in given:
        return scaled_delay(delay, values["injection-scale"], place)
    if "injection-scale" in given:
        text = "no effect without endpoint-delay: the built-in delay is not scaled, as in the reference"
        remarks.warn(place, "injection-scale", text)
    return delay


def scaled_delay(delay: int, scale: float, place: str) -> int:
    """The endpoint delay times the injection scale, cut to whole nanoseconds."""
    if delay * scale > LONGEST_NS:
        raise MachineError(
            f'"endpoint-delay" {delay} times "injection-scale" {scale:g} is too long',
            place=place,
            remedy=f"allowed: at most {format_ns(LONGEST_NS)}",
        )
    return int(delay * float(scale))


def _shared_bus(values: dict[str, Any]) -> SharedBus | None:
    if not values["model-shared-bus"]:
        return None
    return SharedBus(latency=values["L"], overhead=values["o"], gap=values["g"], gap_per_byte=values["G"])


def _implementations(given: dict[str, Any], place: str, remarks: Remarks) -> Implementations:
    lists: dict[str, tuple[str, ...] | None] = {}
    for collective in COLLECTIVES:
        name = f"{collective}-implementation"
        names: tuple[str, ...] | None = given.get(name)
        lists[collective.replace("-", "_")] = names
        first = next((index for index, entry in enumerate(names or ()) if spans_all(entry)), None)
        if names and first is not None and first + 1 < len(names):
            text = f"{names[first]} at index {first} spans all NPUs, so the entries behind it are not used"
            remarks.warn(place, name, text)
    if "broadcast-implementation" in given:
        lists["broadcast"] = (given["broadcast-implementation"],)
    return Implementations(**lists)


def _custom_implementations(given: dict[str, Any]) -> dict[str, str]:
    """Trace prefix by collective type, named as in `Implementations`."""
    names = {
        collective.replace("-", "_"): f"{collective}-implementation-custom" for collective in COLLECTIVES
    }
    return {collective: given[name] for collective, name in names.items() if name in given}


def _remark_on_roofline(values: dict[str, Any], place: str, remarks: Remarks) -> None:
    if values["roofline-enabled"]:
        for name in ("peak-perf", "local-mem-bw"):
            if not values[name]:
                text = "0 while roofline-enabled is on: computation takes 0 ns, as in the reference"
                remarks.warn(place, name, text)
