"""Repeated simulations of a run with changed figures of the machine: `--vary` and `--verify` of inspect.

`--vary` prints differences between whole simulations, so it holds on every network model. `--verify` compares
them with the predictions of the critical path. `et_sim.machine.scaling` changes figures,
`et_sim.views.critical.verification` selects the changes that are verified.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from textwrap import wrap
from typing import TYPE_CHECKING

from msgspec import Struct, to_builtins

from et_sim.basics.errors import EtSimError, UsageError, did_you_mean
from et_sim.basics.quantities import Quantity
from et_sim.cli.progress import Progress

if TYPE_CHECKING:
    from et_sim.run.variation import Ending
    from et_sim.views.run.directory import RunDirectory

AGAIN = "simulate again with et-sim run"
FACTORS = (1.1, 0.9)  # defaults
MOST_FIGURES = 10
NOTE = "Finite differences: each line is a simulation with one figure changed."


class Again:
    """Inputs of a run, which must exist unchanged at their places."""

    def __init__(self, run: RunDirectory, model: str | None) -> None:
        """Read the inputs; `model` is the network model of the command line, because a run's data runs no
        code.
        """
        from et_sim.machine import read_machine
        from et_sim.machine.scaling import figures
        from et_sim.run.options import repeated
        from et_sim.run.variation import Variations

        command = run.manifest.get("command")
        if command is None:
            own = run.manifest["configuration"].get("compute_model")
            how = f"was timed by {own}, a program" if own else "was not simulated from files"
            raise UsageError(
                f"{how}, so it cannot be simulated again",
                place=str(run.path),
                remedy=f"{AGAIN} and changed files" if own else "simulate files with et-sim run",
            )
        self._run = run
        workload, options = repeated(run.manifest, run.path, _model_of(run, model))
        self._variations = Variations(workload, options)
        try:
            self.machine = read_machine(**options.parts, profile=command["profile"])
        except EtSimError as error:
            raise self._refused(f"its inputs cannot be read where they were: {error}") from None
        self.figures = figures(self.machine)

    def scaled(self, figure: str, factor: float) -> float | None:
        """Return the possible multiple of a figure near a factor; None if there is no such figure, or no near
        one.
        """
        scaled = self.figures[figure](factor) if figure in self.figures else None
        return None if scaled is None or abs(scaled[1] - 1) < abs(factor - 1) / 2 else scaled[1]

    def endings(self, changes: Sequence[tuple[str, float]], remedy: str) -> list[Ending]:
        """Return the endings of the run with each figure multiplied; `remedy` is for runs that do not
        complete.
        """
        with Progress() as progress:
            progress.stage("simulating again")
            endings = progress.counted(self._endings(changes, progress), len(changes), "simulations")
            completed = []
            for (name, factor), ending in zip(changes, endings, strict=True):
                if ending.makespan_ns is None:
                    multiple = self.scaled(name, factor)
                    text = f"with {name} multiplied by {multiple:g}, the run does not complete"
                    raise UsageError(text, remedy=remedy)
                completed.append(ending)
        return completed

    def _endings(self, changes: Sequence[tuple[str, float]], progress: Progress) -> Iterator[Ending]:
        known = {(entry["file"], entry["sha256"]) for entry in self._run.manifest["inputs"]}
        try:
            changed = sorted(self._variations.inputs() - known)
            if not changed:
                yield from self._variations.with_figures(changes, progress.stage)
        except EtSimError as error:
            raise self._refused(f"cannot be simulated again: {error}") from None
        for file, _ in changed:
            raise self._refused(f"{file} has changed since the run, so it cannot be simulated again")

    def _refused(self, reason: str) -> UsageError:
        return UsageError(reason, place=str(self._run.path), remedy=AGAIN)


def _model_of(run: RunDirectory, named: str | None) -> str:
    """Return the network model of a run, or the one of the command line."""
    from et_sim.network.registry import as_named, check_model

    simulated: str = run.manifest["model"]
    if named is None:
        check_model(simulated)
        return simulated
    if named != simulated:
        cause = f"was simulated with the network model {simulated}, and --network-model is {named}"
        raise UsageError(cause, place=str(run.path), remedy="leave it out, or simulate with et-sim run")
    return as_named(named)


def verify_text(directory: str, top: int | None, model: str | None, *, as_json: bool) -> str:
    """Return the verification of the critical path's predictions, as text or JSON."""
    from et_sim.views.critical.path import CriticalPath
    from et_sim.views.critical.record import PathRecord
    from et_sim.views.critical.sensitivity import Sensitivities
    from et_sim.views.critical.verification import Simulated, verification_lines, verify
    from et_sim.views.run.directory import open_run

    run = open_run(directory)
    path = CriticalPath(PathRecord(run))
    if not path.record.is_complete:
        raise UsageError(
            "did not complete, so nothing is predicted that could be verified", place=str(run.path)
        )
    again = Again(run, model)
    again.figures.pop(Quantity.KERNELS, None)  # a sum over operations, which are not verified

    def simulated(changes: Sequence[tuple[str, float]]) -> list[Simulated]:
        endings = again.endings(changes, "give --top for fewer figures")
        return [Simulated(ending.makespan_ns or 0, _band(run, ending)) for ending in endings]

    verified = verify(Sensitivities(path), again.scaled, simulated, top)
    if as_json:
        return json.dumps([entry.as_dict() for entry in verified], indent=2, ensure_ascii=False)
    has_library = again.machine.system.library is not None
    return "\n".join(verification_lines(verified, is_exact=path.record.is_exact, has_library=has_library))


class Varied(Struct, frozen=True):
    """A changed figure of the machine, and the makespan with it."""

    figure: str
    multiple: float
    makespan_ns: int
    change_ns: int
    relative_band: tuple[float, float] | None = None  # of the change, relative to the makespan before


def _band(run: RunDirectory, ending: Ending) -> tuple[float, float] | None:
    """Return the band of the change from the run."""
    from et_sim.views.bands import relative_band, stated

    before = stated(run.summary.get("uncertainty"))
    return relative_band(before, run.summary["makespan_ns"], stated(ending.made_of), ending.makespan_ns)


def vary_text(
    directory: str, wanted: Sequence[str], top: int | None, model: str | None, *, as_json: bool
) -> str:
    """Return the effect of changes "FIGURE=FACTOR", or of a tenth more and less of all figures."""
    from et_sim.views.run.directory import open_run

    run = open_run(directory)
    before = run.summary["makespan_ns"]
    if run.summary["status"] != "complete":
        raise UsageError("did not complete, so there is no makespan to compare with", place=str(run.path))
    again = Again(run, model)
    if not any(entry["compute_ns"] for entry in run.summary["per_rank"]):
        again.figures.pop(Quantity.KERNELS, None)
    known = tuple(again.figures)
    most = MOST_FIGURES if top is None else top
    changes = [_parsed_change(text, known) for text in wanted]
    wishes = changes or [(name, factor) for name in known[:most] for factor in FACTORS]
    multiples = [again.scaled(*wish) for wish in wishes]
    for (name, factor), multiple in zip(wishes, multiples, strict=True):
        if multiple is None and wanted:
            raise UsageError(
                f"{name} is a whole number, and cannot be multiplied by {factor:g}: it is too small, or"
                " at its limit",
                remedy="give a factor that is farther from 1",
            )
    possible = [
        (wish, multiple) for wish, multiple in zip(wishes, multiples, strict=True) if multiple is not None
    ]
    endings = again.endings([wish for wish, _ in possible], "give another factor")
    varied = [
        Varied(name, multiple, makespan := ending.makespan_ns or 0, makespan - before, _band(run, ending))
        for ((name, _), multiple), ending in zip(possible, endings, strict=True)
    ]
    if as_json:
        return json.dumps([to_builtins(entry) for entry in varied], indent=2, ensure_ascii=False)
    return "\n".join(_lines(varied, before, 0 if wanted else len(known) - most, len(known)))


def _parsed_change(text: str, known: tuple[str, ...]) -> tuple[str, float]:
    """Return the figure and the factor of "FIGURE=FACTOR"."""
    name, _, number = (part.strip() for part in text.rpartition("="))
    try:
        factor = float(number)
    except ValueError:
        factor = 0.0
    if not name or not 0 < factor < float("inf"):
        raise UsageError(
            f"--vary takes FIGURE=FACTOR with a factor above 0, and {text!r} is not that",
            remedy=f'for example --vary "{next(iter(known), Quantity.ENDPOINT_DELAY)}=1.1"',
        )
    if name not in known:
        remedy = did_you_mean(name, known) or f"figures: {', '.join(known)}"
        raise UsageError(f"the machine of this run has no figure {name!r} to change", remedy=remedy)
    return name, factor


def _lines(varied: Sequence[Varied], before: int, hidden: int, known: int) -> list[str]:
    from et_sim.views.bands import BAND, band_text, notes, percent_text
    from et_sim.views.sheet import Sheet, SheetColumn
    from et_sim.views.text import not_shown, signed, terminal_width

    sheet = Sheet(
        (
            SheetColumn("simulated again with", "figure", "<"),
            SheetColumn("times", lambda entry: f"{entry.multiple:.3g}"),
            SheetColumn("makespan", "makespan_ns"),
            SheetColumn("change", lambda entry: signed(entry.change_ns)),
            SheetColumn("", lambda entry: percent_text(before, entry.makespan_ns, entry.relative_band)),
            SheetColumn(BAND, lambda entry: band_text(entry.relative_band), is_optional=True),
        ),
        cut={"simulated again with": 16},
        names=("simulated again with",),
    )
    width = terminal_width()
    more = not_shown(hidden, "more figure", f": --top {known}")
    meaning = " ".join((NOTE, *notes(entry.relative_band for entry in varied)))
    return [*sheet.lines(varied, width), *more, *wrap(meaning, width)]
