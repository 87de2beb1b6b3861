"""The object `costs` of the system file: what an NPU draws, and what it is let for.

Not here: what a run has cost (`et_sim.timeline.costs`).
"""

from __future__ import annotations

from typing import Any

from et_sim.errors import MachineError
from et_sim.machine.checks import fill_defaults, read_keys
from et_sim.machine.costs import Costs
from et_sim.machine.costs_tables import COSTS_KEYS, NAME
from et_sim.machine.keys import Remarks
from et_sim.machine.sources import Source

WATTS = ("busy-watts", "idle-watts", "network-watts")


def read_costs(given: dict[str, Any], place: str, remarks: Remarks) -> Costs | None:
    """The object `costs`; None where it says nothing."""
    if not given:
        return None
    source = Source(f'{place}: "{NAME}"', given, "")
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
