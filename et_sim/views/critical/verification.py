"""Verification of sensitivities by new simulations.

Each parameter is changed to both ends of the range of its path. The command line runs the simulations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict

from et_sim.basics.units import format_ns, plural
from et_sim.views.bands import BAND, Band, band_text
from et_sim.views.critical.sensitivity import OF_LINKS, Parameter, ParameterEffect, Sensitivities, parameters
from et_sim.views.sheet import Sheet, SheetColumn
from et_sim.views.text import shortened, signed, terminal_width

FARTHEST = 8.0  # multiple of a parameter to which longer ranges are verified
SMALLEST_CHANGE = 0.001
MOST_PARAMETERS = 10
CHANGE = f"change, {BAND}"  # of the makespan
FigureChange = tuple[str, float]  # (figure of the machine, factor)
Scale = Callable[[str, float], float | None]  # the applied factor; None: unchangeable


class Simulated(Struct, frozen=True):
    """A makespan, and the band of its difference from the run's."""

    makespan_ns: int
    band: Band | None = None


Simulate = Callable[[Sequence[FigureChange]], Iterable[Simulated]]


class Verified(Struct, frozen=True):
    """A changed parameter with the predicted and the simulated makespan."""

    parameter: str
    multiple: float
    predicted_ns: float
    simulated_ns: int
    rounding_ns: float  # tolerance, because durations are whole
    relative_band: Band | None = None  # of the change, by the run's makespan

    @property
    def difference(self) -> str:
        """Return the difference in words."""
        difference_ns = self.simulated_ns - round(self.predicted_ns)
        return "as predicted" if self.is_as_predicted else signed(difference_ns)

    @property
    def is_as_predicted(self) -> bool:
        """Return whether prediction and simulation agree."""
        return abs(self.simulated_ns - self.predicted_ns) <= self.rounding_ns + 1

    def as_dict(self) -> dict[str, Any]:
        """Return it for `--json`."""
        return asdict(self) | {"as_predicted": self.is_as_predicted}


SHEET = Sheet(
    (
        SheetColumn("simulated again with", "parameter", "<"),
        SheetColumn("times", lambda verified: f"{verified.multiple:.3g}"),
        SheetColumn("predicted", lambda verified: format_ns(round(verified.predicted_ns))),
        SheetColumn("simulated", "simulated_ns"),
        SheetColumn("difference"),
        SheetColumn(CHANGE, lambda verified: band_text(verified.relative_band), is_optional=True),
    ),
    cut={"simulated again with": 12},
    names=("simulated again with",),
)


def verify(
    sensitivities: Sensitivities, scale: Scale, simulate: Simulate, top: int | None = None
) -> list[Verified]:
    """Simulate the ends of the ranges of the parameters that change the makespan most."""
    by_name = {parameter.name: parameter for parameter in parameters(sensitivities.path)}
    ends = [
        (by_name[each.parameter], side, wanted, multiple)
        for each in sensitivities.all()[: MOST_PARAMETERS if top is None else top]
        for side in (each.worse, each.better)
        if abs((wanted := _end_of(side)) - 1) >= SMALLEST_CHANGE
        and (multiple := scale(each.parameter, wanted)) is not None
    ]
    simulations = simulate([(parameter.name, wanted) for parameter, _, wanted, _ in ends])
    return [
        _verified(sensitivities, parameter, side, multiple, simulated)
        for (parameter, side, _, multiple), simulated in zip(ends, simulations, strict=True)
    ]


def _verified(
    sensitivities: Sensitivities,
    parameter: Parameter,
    side: ParameterEffect,
    multiple: float,
    simulated: Simulated,
) -> Verified:
    factor = 1 / multiple if parameter.is_rate else multiple
    predicted = sensitivities.path.makespan_ns + side.slope_ns * (factor - 1)
    rounding = sensitivities.rounding_ns(parameter, factor)
    return Verified(parameter.name, multiple, predicted, simulated.makespan_ns, rounding, simulated.band)


def _end_of(side: ParameterEffect) -> float:
    """Return the multiple at which a range ends, or to which it is verified."""
    return min(max(side.same_path_until, 1 / FARTHEST), FARTHEST)


def is_of_links(parameter: str) -> bool:
    """Return whether a parameter is a figure of links."""
    return parameter.startswith(tuple(quantity.of("") for quantity in OF_LINKS))


def verification_lines(
    verified: Sequence[Verified], *, is_exact: bool = True, has_library: bool = False
) -> list[str]:
    """Return the verification as text; a collective library has different times for different links."""
    if not verified:
        return ["nothing was simulated: no figure of the machine changes the makespan along this path"]
    differ = sum(not prediction.is_as_predicted for prediction in verified)
    result = f"{plural(len(verified), 'simulation')}, {differ or 'none'} not as predicted"
    why = "usually because the order of service changed" if is_exact else "others share the changed resource"
    if has_library and any(is_of_links(each.parameter) for each in verified if not each.is_as_predicted):
        why = "the library's times depend on the links"
    reason = f": {why}" if differ else ""
    width = terminal_width()
    return [
        *SHEET.lines(verified, width),
        shortened(f"{result}{reason}", width),
    ]
