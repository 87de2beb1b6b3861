"""Reading the objects `accuracy` and `costs` of the system file.

Not here: their keys (`object_tables`), and what is known where a file says nothing (`accuracy`).
"""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import Any

from et_sim.errors import MachineError
from et_sim.machine.accuracy import DEFAULTS, DEVICE, FAMILY, Accuracy
from et_sim.machine.checks import fill_defaults, nearest, read_keys, refusal
from et_sim.machine.costs import Costs
from et_sim.machine.keys import Remarks
from et_sim.machine.object_tables import ACCURACY, ACCURACY_KEYS, COSTS, COSTS_KEYS, TERM_KEYS
from et_sim.machine.sources import Source
from et_sim.uncertainty import Term

WATTS = ("busy-watts", "idle-watts", "network-watts")


def read_costs(given: dict[str, Any], place: str, remarks: Remarks) -> Costs | None:
    """The object `costs`; None where it says nothing."""
    if not given:
        return None
    source = Source(f'{place}: "{COSTS}"', given, "")
    values = read_keys(source, COSTS_KEYS, remarks)
    named = [name for name in WATTS if name in values]
    if named and not {"busy-watts", "idle-watts"} <= set(named):
        missing = next(name for name in WATTS if name not in values)
        raise MachineError(
            f'key "{named[0]}" without "{missing}": the energy of a run would leave a part out',
            place=source.place,
            remedy='give "busy-watts" and "idle-watts", or neither',
        )
    if values.get("busy-watts", 0) < values.get("idle-watts", 0):
        raise MachineError(
            f'"busy-watts" {values["busy-watts"]:g} is below "idle-watts" {values["idle-watts"]:g}',
            place=source.place,
            remedy="exchange them",
        )
    if "currency" in values and "price-per-hour" not in values:
        raise MachineError(
            'key "currency" has no effect without "price-per-hour"',
            place=source.place,
            remedy="give both, or neither",
        )
    filled = fill_defaults(values, COSTS_KEYS, source.place, Remarks())
    fields: dict[str, Any] = {key.field: filled.get(key.name) for key in COSTS_KEYS}
    return Costs(**fields)


def read_accuracy(given: dict[str, Any], place: str, remarks: Remarks) -> Accuracy | None:
    """The object `accuracy`; None where there is none."""
    if ACCURACY not in given:
        return None
    place = f'{place}: "{ACCURACY}"'
    terms, device = dict(DEFAULTS), ""
    for name, value in given[ACCURACY].items():
        if name == DEVICE:
            device = read_keys(Source(place, {name: value}, ""), ACCURACY_KEYS, remarks)[name]
            continue
        if name not in DEFAULTS and name not in FAMILY:
            known = (DEVICE, *DEFAULTS, *FAMILY)
            remedy = nearest(name, known) or f"known keys: {', '.join(known)}"
            raise MachineError(f'key "{name}" is not known', place=place, remedy=remedy)
        if not isinstance(value, dict):
            raise refusal(replace(ACCURACY_KEYS[-1], name=name), value, place)
        read = read_keys(Source(f'{place}: "{name}"', value, ""), TERM_KEYS, remarks)
        usual = DEFAULTS[name if name in DEFAULTS else FAMILY[name]]
        terms[name] = Term(**{**usual.as_dict(), **read})
    return Accuracy(device, MappingProxyType(terms))
