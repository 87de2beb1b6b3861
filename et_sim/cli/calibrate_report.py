"""Report of the fits of `et-sim calibrate`: options, output, and errors by class."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from msgspec import Struct

from et_sim.basics.declared_options import Command, Option
from et_sim.basics.files import write_json

TRUSTED = 10.0  # percent of E on rows that were left out
FITTED, LEFT_OUT = "rows that were fitted", "rows that were left out"
ALL = "all"

Classes = Mapping[str, Sequence[float]]  # ratios of predicted to measured


class OutputOptions(Command):
    """Options of the result of every fit."""

    output: Annotated[Path | None, "write the result here", "FILE", Option("-o --output")] = None
    json: Annotated[bool, "print the fit and its errors as JSON"] = False


class FitOptions(OutputOptions):
    """Options of every fit of a machine."""

    machine: Annotated[str, "the machine that was measured", "NAME", Option()]


def conclude(
    options: OutputOptions, data: Any, text: Iterable[str], result: Callable[[], dict[str, Any]]
) -> int:
    """Print the fit, and write the result if an output is given."""
    print(json.dumps(data, indent=2) if options.json else "\n".join(text))
    if options.output:
        write_json(result(), options.output)
    return 0


def by_class(rows: Iterable[tuple[str, float]]) -> dict[str, list[float]]:
    """Return the ratios by class, in the order of classes."""
    ratios: dict[str, list[float]] = {}
    for name, ratio in sorted(rows, key=lambda row: row[0]):
        ratios.setdefault(name, []).append(ratio)
    return ratios


class FitErrors(Struct, frozen=True):
    """Errors by class, of rows that were fitted and of rows that were left out; and undetermined figures."""

    fitted: Classes
    left_out: Classes
    unknown: Sequence[str]

    def lines(self, noun: str) -> Iterator[str]:
        """Yield a table; a class is trusted if the errors of rows that were left out are small."""
        from et_sim.basics.alignment import aligned
        from et_sim.validation.rows import Errors

        rows = [(noun, "rows", "fitted E %", "left out: rows", "E %", "bias %", "")] if self.fitted else []
        for name, inside in self.fitted.items():
            far, trust = ("", "", ""), "nothing could be left out"
            if self.left_out.get(name):
                errors = Errors.of(self.left_out[name])
                far = (f"{errors.rows}", f"{errors.e:.1f}", f"{errors.bias:+.1f}")
                trust = "trusted" if errors.e <= TRUSTED else "not trusted"
            rows.append((name, f"{len(inside)}", f"{Errors.of(inside).e:.1f}", *far, trust))
        yield from aligned(rows, "<>>>>><")
        yield from (f"unknown: {text}" for text in self.unknown)

    def of_machine(self) -> dict[str, Any]:
        """Return the errors of each class, of rows that were left out if there are any, and the
        kind of rows.
        """
        from msgspec import to_builtins

        from et_sim.validation.rows import Errors

        return {
            name: {"of": LEFT_OUT, **to_builtins(Errors.of(self.left_out[name]))}
            if self.left_out.get(name)
            else {"of": FITTED, **to_builtins(Errors.of(inside))}
            for name, inside in self.fitted.items()
        }

    def data(self) -> dict[str, Any]:
        """Return the errors for JSON."""
        from msgspec import to_builtins

        from et_sim.validation.rows import Errors

        return {"unknown": list(self.unknown)} | {
            key: {name: to_builtins(Errors.of(inside)) for name, inside in classes.items()}
            for key, classes in (("fitted", self.fitted), ("left_out", self.left_out))
        }
