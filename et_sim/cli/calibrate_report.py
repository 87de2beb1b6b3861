"""What `et-sim calibrate` says of errors: by class, of rows that were fitted and of rows that were left out.

Not here: what was fitted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

TRUSTED = 10.0  # percent of E on rows that were left out
FITTED, LEFT_OUT = "rows that were fitted", "rows that were left out"
ALL = "all"

Classes = Mapping[str, Sequence[float]]  # predicted by measured


def by_class(rows: Iterable[tuple[str, float]]) -> dict[str, list[float]]:
    """Ratios by the name of their class, in the order of these."""
    found: dict[str, list[float]] = {}
    for name, ratio in sorted(rows, key=lambda row: row[0]):
        found.setdefault(name, []).append(ratio)
    return found


def error_lines(noun: str, fitted: Classes, left_out: Classes) -> Iterator[str]:
    """A table; a class is trusted where rows that were left out are near."""
    from et_sim.validation.errors import Errors

    width = max(len(noun), *map(len, fitted))
    yield f"{noun:{width}}  rows   fitted E %   left out: rows  E %  bias %"
    for name, inside in fitted.items():
        line = f"{name:{width}}  {len(inside):4}  {Errors.of(inside).e:11.1f}"
        if left_out.get(name):
            errors = Errors.of(left_out[name])
            line += f"  {errors.rows:14}  {errors.e:4.1f}  {errors.bias:+6.1f}"
            line += "  trusted" if errors.e <= TRUSTED else "  not trusted"
        else:
            line += "  nothing could be left out"
        yield line


def error_data(fitted: Classes, left_out: Classes) -> dict[str, Any]:
    """Of each class, of rows that were left out if there are any, and which they are."""
    from et_sim.validation.errors import Errors

    return {
        name: {"of": LEFT_OUT, **asdict(Errors.of(left_out[name]))}
        if left_out.get(name)
        else {"of": FITTED, **asdict(Errors.of(inside))}
        for name, inside in fitted.items()
    }


def all_errors(classes: Classes) -> dict[str, Any]:
    """Of each class."""
    from et_sim.validation.errors import Errors

    return {name: asdict(Errors.of(inside)) for name, inside in classes.items()}
