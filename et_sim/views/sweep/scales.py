"""Scales of charts: places of values along an axis, its marks, and the band between two points.

Places are whole numbers from 0 to 1000.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from et_sim.basics.errors import UsageError
from et_sim.basics.uncertainty import Composition
from et_sim.basics.units import format_bytes, format_joules, format_ns, plural
from et_sim.tables.sweep_tables import FILES, MADE_OF, NUMBER, TABLE
from et_sim.views import bands
from et_sim.views.bands import ALIKE, BAND, Band, contains_none
from et_sim.views.text import distinct

LAST = 1000
MOST_WRITTEN = 10  # values that all get marks
TICKS = 5
MOST_LETTERS, LEAST_LETTERS, LETTERS = 14, 6, 40  # of a word; of all words along an axis
LEAST_SIZE, MOST_SIZE = 1e-100, 1e100
WIDE = 50  # ratio of the greatest to the least value from which a scale is logarithmic


class Scale(Struct, frozen=True):
    """A column's name, the place of the value in every row, and the marks along the axis."""

    title: str
    places: tuple[int | None, ...]
    marks: tuple[tuple[int, str], ...]


class SweepQuantity(Struct, frozen=True):
    """A column with a unit: its title, its format, and the base of its units."""

    column: str
    title: str
    shown: Callable[[Any], str]
    base: int = 1000  # factor between its units
    is_price: bool = False

    def of(self, table: Any) -> SweepQuantity:
        """Return the quantity for a sweep's table, with the currencies of prices."""
        if not self.is_price:
            return self
        currencies = sorted({currency for currency in table["currency"].to_pylist() if currency is not None})
        return replace(self, title=" ".join([self.title, *(f"in {currency}" for currency in currencies)]))


MAKESPAN = SweepQuantity("makespan_ns", "makespan", format_ns)
EXPOSED = SweepQuantity("exposed_comm_ns", "exposed communication", format_ns)
RESOURCES = (
    SweepQuantity("ranks", "NPUs", lambda value: f"{value:,.0f}"),
    SweepQuantity("peak_memory_bytes", "peak memory", format_bytes, 1024),
    SweepQuantity("joules", "energy", format_joules),
    SweepQuantity("price", "price", lambda value: f"{value:.6g}", is_price=True),
    SweepQuantity(
        "price_per_million_tokens",
        "price per million tokens",
        lambda value: f"{value:.6g}",
        is_price=True,
    ),
    SweepQuantity("joules_per_million_tokens", "energy per million tokens", format_joules),
)
SAMPLED = (
    SweepQuantity("mean_ns", "mean step", format_ns),
    SweepQuantity("p50_ns", "p50 of the step", format_ns),
    SweepQuantity("p99_ns", "p99 of the step", format_ns),
)
OF_MONTHS = (
    SweepQuantity("goodput", "goodput", lambda value: f"{value:.2%}"),
    SweepQuantity("kept_tokens", "tokens of a month", lambda value: f"{value:.5g}"),
    SweepQuantity(
        "price_per_million_kept_tokens",
        "price per million kept tokens",
        lambda value: f"{value:.6g}",
        is_price=True,
    ),
    SweepQuantity("finish_days", "days to finish", lambda value: f"{value:.4g} d"),
)
LATENCIES = (
    SweepQuantity("ttft_p50_ns", "p50 to first token", format_ns),
    SweepQuantity("ttft_p99_ns", "p99 to first token", format_ns),
    SweepQuantity("tpot_p50_ns", "p50 per token", format_ns),
    SweepQuantity("tpot_p99_ns", "p99 per token", format_ns),
)
RATES = (
    SweepQuantity("tokens_per_s", "tokens/s", lambda value: f"{value:,.0f}"),
    SweepQuantity("tokens_per_s_per_rank", "tokens/s/NPU", lambda value: f"{value:,.0f}"),
    SweepQuantity("tflops_per_rank", "TFLOP/s/NPU", lambda value: f"{value:,.4g}"),
    SweepQuantity("mfu", "MFU", lambda value: f"{value:.1%}"),
    SweepQuantity("hfu", "HFU", lambda value: f"{value:.1%}"),
    SweepQuantity("output_tokens_per_s_per_rank", "output tokens/s/NPU", lambda value: f"{value:,.1f}"),
    SweepQuantity("tokens_per_s_per_user", "tokens/s/user", lambda value: f"{value:,.1f}"),
    SweepQuantity("requests_per_s", "requests/s", lambda value: f"{value:,.4g}"),
    SweepQuantity("good_share", "good", lambda value: f"{value:.1%}"),
)


def quantity_named(column: str) -> SweepQuantity:
    """Return the quantity of a column that is an objective of searches."""
    every = (MAKESPAN, EXPOSED, *SAMPLED, *OF_MONTHS, *RESOURCES, *LATENCIES, *RATES)
    return next(of for of in every if of.column == column)


def are_numbers(rows: Sequence[Mapping[str, Any]], axis: str) -> bool:
    """Return whether all values of an axis are numbers."""
    return all(isinstance(row[axis], int | float) and not isinstance(row[axis], bool) for row in rows)


def shown(value: Any) -> str:
    """Return a value of an axis as text."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:.6g}"
    return "none" if value is None else str(value)


def is_number(value: Any) -> bool:
    """Return whether a value can be placed by its size, so that differences and factors are finite."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return value == 0 or LEAST_SIZE < abs(value) < MOST_SIZE


def axis_scale(name: str, values: Sequence[Any]) -> Scale:
    """Return the scale of an axis: numbers by size, or by factors if these spread better; others in order."""
    different = list(dict.fromkeys(values))
    if not all(is_number(value) for value in different):
        return _listed(name, values, different)
    different.sort()
    place = _logarithmic if _are_factors(different) else _linear
    at = {value: place(value, different[0], different[-1]) for value in different}
    if len(different) <= MOST_WRITTEN:
        marks = [(at[value], shown(value)) for value in different]
    elif place is _linear:
        marks = _round_marks(different[0], different[-1], shown, 1000)
    else:
        marks = _factor_marks(different[0], different[-1], shown, 1000)
    return Scale(name, tuple(at[value] for value in values), tuple(marks))


def quantity_scale(quantity: SweepQuantity, values: Sequence[Any]) -> Scale:
    """Return the scale of a figure: from 0 if differences remain visible; rows without it have no place."""
    known = [value for value in values if value is not None]
    least, most = min(known), max(known)
    if least > 0 and most > WIDE * least:
        place, marks = _logarithmic, _factor_marks(least, most, quantity.shown, quantity.base)
    else:
        least = 0 if 2 * least <= most or most == least else least - (most - least) / 20
        place, marks = _linear, _round_marks(least, most, quantity.shown, quantity.base)
    at = {value: place(value, least, most) for value in set(known)}
    places = tuple(None if value is None else at[value] for value in values)
    return Scale(quantity.title, places, tuple(marks))


def _listed(name: str, values: Sequence[Any], different: Sequence[Any]) -> Scale:
    parts = max(len(different) - 1, 1)
    at = {value: LAST * number // parts for number, value in enumerate(different)}
    letters = max(LEAST_LETTERS, min(MOST_LETTERS, LETTERS // len(different)))
    words = distinct([shown(value) for value in different], letters)
    marks = tuple((at[value], word) for value, word in zip(different, words, strict=True))
    return Scale(name, tuple(at[value] for value in values), marks)


def _are_factors(different: Sequence[float]) -> bool:
    """Return whether ascending numbers are spread more evenly by factors than by differences."""
    if len(different) < 3 or different[0] <= 0:
        return False
    pairs = list(pairwise(different))
    apart = max(after - before for before, after in pairs) / (different[-1] - different[0])
    factor = max(math.log(after / before) for before, after in pairs)
    return factor / math.log(different[-1] / different[0]) < apart


def _linear(value: float, least: float, most: float) -> int:
    return LAST // 2 if most == least else round(LAST * (value - least) / (most - least))


def _logarithmic(value: float, least: float, most: float) -> int:
    return round(LAST * math.log(value / least) / math.log(most / least))


def _round_marks(
    least: float, most: float, text_of: Callable[[Any], str], base: int
) -> list[tuple[int, str]]:
    """Return marks at round numbers of the largest unit that fits."""
    if most == least:
        return [(LAST // 2, text_of(least))]
    unit = _unit(max(abs(least), abs(most)), base)
    step = _round_step((most - least) / unit / TICKS) * unit
    numbers = range(math.ceil(least / step - 1e-9), math.floor(most / step + 1e-9) + 1)
    return [(_linear(number * step, least, most), text_of(number * step)) for number in numbers]


def _factor_marks(
    least: float, most: float, text_of: Callable[[Any], str], base: int
) -> list[tuple[int, str]]:
    """Return marks at 1, 2, 5, 10, … of a unit, or at powers of ten if there are many."""
    unit = _unit(least, base)
    first, last = math.floor(math.log10(least / unit)), math.ceil(math.log10(most / unit))
    digits = (1, 2, 5) if last - first <= 2 else (1,)
    numbers = [digit * 10.0**power * unit for power in range(first, last + 1) for digit in digits]
    return [
        (_logarithmic(number, least, most), text_of(number)) for number in numbers if least <= number <= most
    ]


def _unit(size: float, base: int) -> float:
    power = 0 if size < base else math.floor(math.log(size, base))
    return float(base**power)


def _round_step(span: float) -> float:
    """Return the least of 1, 2, 5 times a power of ten that is not below `span`."""
    power = 10.0 ** math.floor(math.log10(span))
    return next(digit * power for digit in (1, 2, 5, 10) if digit * power >= span * (1 - 1e-9))


Row = Mapping[str, Any]


def band_of_points(before: Row, after: Row) -> Band | None:
    """Return the relative slowness of a point against another; None if either states no uncertainty."""
    compositions = _composition(before), _composition(after)
    return bands.relative_band(compositions[0], before["makespan_ns"], compositions[1], after["makespan_ns"])


def band_note(done: Sequence[Row]) -> str:
    """Return a sentence on points within the model's error of the best; empty if no uncertainty is stated."""
    of_others = [band_of_points(done[0], row) for row in done[1:]]
    others = plural(len(of_others), "other point")
    if not any(of_others):
        return ""
    alike = sum(map(contains_none, of_others))
    if not alike:
        return f"The best differs from {others} by more than the error of the model: the {BAND} of each."
    return f"{alike:,} of {others} ({ALIKE}) may be as fast as the best, by their {BAND}."


def _composition(row: Row) -> Composition | None:
    if not row[MADE_OF]:
        return None
    try:
        return Composition.read(json.loads(row[MADE_OF]))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise UsageError(
            f"column {MADE_OF!r} of point {row[NUMBER]} has no valid composition of its time",
            place=FILES[TABLE],
            remedy="sweep again: the journal keeps finished points",
        ) from None
