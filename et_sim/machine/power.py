"""Power of a device, as a function of its clock: the keys `power` and `power-cap` of `roofline`.

    draw = idle + (energy of operations x clock^voltage + energy of bytes) / time

The clock is a part of the full one, for which peaks are given.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from et_sim.basics.errors import UsageError
from et_sim.basics.units import format_watts, parse_watts
from et_sim.documents.keys import Section, Slot, ValueKind, key, nearest, show
from et_sim.documents.kinds import OBJECT, number, watts
from et_sim.machine.datatypes import BITS

POWER, CAP = "power", "power-cap"
MOST_PICOJOULES = 1_000_000
STEEPEST = 4


def _energies(slot: Slot, value: Any) -> Mapping[str, float]:
    section = slot.section.entry(slot.key.name, OBJECT.read(slot, value))
    if not value:
        raise section.fault("no energy is given", 'for example {"bf16": 0.7}')
    for name, figure in value.items():
        if name not in BITS:
            remedy = nearest(name, BITS) or f"known: {', '.join(BITS)}"
            raise section.fault(f"datatype {show(name)} is not known", remedy)
        if (
            isinstance(figure, bool)
            or not isinstance(figure, int | float)
            or not 0 < figure <= MOST_PICOJOULES
        ):
            raise section.fault(f'key "{name}" is {show(figure)}', "allowed: a number > 0, in pJ")
    return MappingProxyType({name: float(figure) for name, figure in value.items()})


ENERGIES = ValueKind("energies", OBJECT.allowed, _energies)


def with_cap(device: Mapping[str, Any], cap: float, name: str) -> dict[str, Any]:
    """Return a device with another cap; refuse one above its own, which is the limit of the board."""
    own = device.get(CAP)
    most = parse_watts(own) if isinstance(own, str) else math.inf
    if cap > most:
        raise UsageError(
            f'--power {format_watts(cap)} is more than {name} draws: its "{CAP}" is {format_watts(most)}',
            remedy=f"give {format_watts(most)} or less, or leave out --power",
        )
    return {**device, CAP: f"{cap!r}W"}


class Power(Struct, frozen=True):
    """Energies in pJ, which are mW in a ns; power in watts."""

    idle_watts: float = watts(
        "Power of the device while no kernel runs; kernels add to it.", name="idle", required=True
    )
    limit: float | None = watts("The highest cap that the board allows. Without the key: any.", None)
    operation: Mapping[str, float] = key(
        ENERGIES,
        "Energy of an operation at the full clock, by datatype. A datatype that is not listed draws as "
        "much at its peak as the first listed one.",
        unit="pJ",
        choices=BITS,
        required=True,
    )
    byte: float = number(
        "Energy of a byte that the largest level of memory moves, at any clock.",
        0.0,
        unit="pJ",
        maximum=MOST_PICOJOULES,
    )
    voltage: float = number(
        "Exponent by which the energy of an operation falls with the clock: clock^`voltage`. 2 is a voltage "
        "in proportion to the clock, 0 a constant one.",
        1.0,
        maximum=STEEPEST,
    )
    lowest_clock: float = number(
        "The lowest clock, as a part of the full one. Kernels that exceed the cap even at this clock are "
        "stretched by pauses.",
        0.5,
        above_minimum=True,
        below=1,
    )

    def energies(self, peaks: Mapping[str, float]) -> dict[str, float]:
        """Return the energy of an operation at the full clock, in pJ, for all datatypes that have a peak."""
        first = next(iter(self.operation))
        draw = self.operation[first] * peaks[first]
        return {name: self.operation.get(name, draw / peak) for name, peak in peaks.items()}

    def check_with(self, peaks: Mapping[str, float], cap: float | None, section: Section) -> None:
        """Refuse energies without a peak, and a cap that is missing, too low or too high."""
        if cap is None:
            raise section.fault(
                f'key "{POWER}" requires "{CAP}"',
                'give the limit of the board, such as "700W"',
            )
        if cap <= self.idle_watts:
            raise section.fault(
                f'key "{CAP}" is {format_watts(cap)}, and the device draws '
                f"{format_watts(self.idle_watts)} while idle",
                f"give more than {format_watts(self.idle_watts)}",
            )
        if self.limit is not None and cap > self.limit:
            raise section.fault(
                f'key "{CAP}" is {format_watts(cap)}, more than the {format_watts(self.limit)} of the board',
                f'give {format_watts(self.limit)} or less, or a higher "limit" of "{POWER}"',
            )
        for name in self.operation:
            if name not in peaks:
                raise section.entry(POWER, {}).fault(
                    f'"operation" gives an energy of {name}, which has no peak', f"peaks: {', '.join(peaks)}"
                )

    def faster(self, datatype: str, multiple: float) -> Power:
        """Return the figures with the peak of a datatype multiplied at equal power."""
        if datatype not in self.operation:
            return self
        operation = {**self.operation, datatype: self.operation[datatype] / multiple}
        return replace(self, operation=MappingProxyType(operation))
