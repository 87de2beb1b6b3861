"""`et-sim calibrate kernels`: fit a machine's device to measured kernels, a CSV of shapes and times."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Struct

from et_sim.basics.units import plural
from et_sim.cli.calibrate_report import ALL, FitErrors, FitOptions, by_class, conclude

if TYPE_CHECKING:
    from et_sim.calibrate.kernels import FittedDevice, MeasuredKernel
    from et_sim.machine.roofline import RooflineDevice

Ratios = Sequence[tuple["MeasuredKernel", float]]  # with the ratio of predicted to measured


class Options(FitOptions):
    """Fit the device of a machine to kernels: fractions of the peak by tile size, times of launches, tiles
    and splits, and fractions of the bandwidth. Rows have the form of et-sim validate: table,shape,us, with
    gpu and dtype in a JSON file beside them.
    """

    file: Annotated[Path, "kernels as CSV", "FILE"]
    table: Annotated[Sequence[str], "only this table", "NAME"] = ()


def run(options: Options) -> int:
    """Read the kernels, and fit the device."""
    from et_sim.calibrate.machine_file import read_kernels

    machine = options.machine.partition(":")[0]
    rows, left = read_kernels(options.file, machine, options.table)
    fit = KernelFit.of(machine, rows)
    notes = [f"left out: {table}" for table in left]
    data, text = {**fit.data, "notes": notes}, (*fit.text, *notes)
    return conclude(options, data, text, lambda: fit.written([options.file]))


class KernelFit(Struct, frozen=True, eq=False):
    """A fit, and its errors on the fitted rows and on rows that were left out."""

    machine: str
    before: RooflineDevice
    result: FittedDevice
    fitted: Ratios
    held_out: Ratios

    @staticmethod
    def of(machine: str, rows: Sequence[MeasuredKernel], *, takes_few: bool = False) -> KernelFit:
        """Fit a machine's device."""
        from et_sim.calibrate.kernels import Kernels, fit, left_out
        from et_sim.calibrate.machine_file import device_of

        before, kernels = device_of(machine), Kernels.of(rows)
        fitting = fit(before, kernels, takes_few=takes_few)
        ratios = kernels.ratios(fitting.device, fitting.which).tolist()
        fitted = [(rows[at], ratio) for at, ratio in zip(fitting.which.tolist(), ratios, strict=True)]
        held_out = list(left_out(fitting.device, kernels, takes_few=takes_few))
        return KernelFit(machine, before, fitting, fitted, held_out)

    @property
    def errors(self) -> FitErrors:
        """Return the errors of the fit."""
        return FitErrors(_classes(self.fitted), _classes(self.held_out), self.result.unknown)

    @property
    def data(self) -> dict[str, Any]:
        """Return the fit for JSON."""
        return {"fitted_figures": self.result.fitted, **self.errors.data()}

    @property
    def text(self) -> Iterator[str]:
        """Yield the fit as lines of text."""
        yield f"{len(self.fitted)} rows, {plural(len(self.result.fitted), 'figure')}:"
        for name, value in self.result.fitted.items():
            unit = " ns" if "launch-overhead" in name or "split-time" in name else ""
            yield f"  {name}: {value:g}{unit}"
        yield from self.errors.lines("kernels")

    def written(self, files: Sequence[Path]) -> dict[str, Any]:
        """Return the machine with the fitted figures."""
        from et_sim.calibrate.machine_file import (
            NAME,
            accuracy_of,
            calibrated_machine,
            device_changes,
            files_text,
        )

        device = device_changes(
            self.machine, self.before, self.result.device, accuracy_of(self.before, self.held_out)
        )
        types = " and ".join(sorted({row.datatype for row, _ in self.fitted if row.datatype}))
        source = f"{len(self.fitted)} kernels{f' in {types}' if types else ''} of {files_text(files)}"
        errors = self.errors.of_machine()
        return calibrated_machine(self.machine, {"device": device}, source, NAME, errors, adds=True)


def _classes(rows: Ratios) -> dict[str, list[float]]:
    """Return the ratios by kind and size, and by kind if it has several sizes."""
    classes = by_class((row.size_class, ratio) for row, ratio in rows)
    kinds = by_class((f"{row.size_class.partition(',')[0]}, {ALL}", ratio) for row, ratio in rows)
    several = {
        name
        for name in kinds
        if sum(size_class.split(",")[0] == name.split(",")[0] for size_class in classes) > 1
    }
    return dict(sorted({**classes, **{name: kinds[name] for name in several}}.items()))
