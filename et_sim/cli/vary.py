"""`et-sim inspect RUN critical-path --vary`: simulate again with one figure of the machine changed at a time.

What is printed are differences between whole simulations, so it holds on every network model. Not here: what
can be predicted without simulating (`et_sim.views.critical.sensitivity`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from et_sim.basics.errors import UsageError, did_you_mean
from et_sim.basics.units import format_ns, plural

if TYPE_CHECKING:
    from et_sim.cli.again import Again
    from et_sim.machine.scaling import Scaled

FACTORS = (1.1, 0.9)  # where none is given
MOST_FIGURES = 10
KERNELS = "time of all kernels"
NOTE = "Finite differences: each line is a simulation with one figure changed."


@dataclass(frozen=True, slots=True)
class Varied:
    """A figure of the machine that was changed, and what the makespan was then."""

    figure: str
    multiple: float
    makespan_ns: int
    change_ns: int

    def as_dict(self) -> dict[str, Any]:
        """For `--json`."""
        return asdict(self)


def vary_text(directory: str, wanted: Sequence[str], top: int | None, *, as_json: bool) -> str:
    """What simulating with changes says: "FIGURE=FACTOR", or with none, all figures a tenth more and less."""
    from et_sim.cli.again import Again
    from et_sim.machine.scaling import figures
    from et_sim.views.run.directory import open_run

    run = open_run(directory)
    before = run.summary["makespan_ns"]
    if run.summary["status"] != "complete":
        raise UsageError("did not complete, so there is no makespan to compare with", place=str(run.path))
    again = Again(run)
    known = figures(again.machine)
    if not any(entry["compute_ns"] for entry in run.summary["per_rank"]):
        known.pop(KERNELS, None)
    if wanted:
        changes, hidden = [_asked_for(one, known) for one in wanted], 0
    else:
        most = MOST_FIGURES if top is None else top
        changes = [(name, factor) for name in [*known][:most] for factor in FACTORS]
        hidden = len(known) - most
    found = []
    for name, factor in changes:
        scaled = known[name](factor)
        assert scaled is not None
        if abs(scaled[1] - factor) > abs(factor - 1) / 2:  # whole numbers may be too coarse
            if wanted:
                raise _too_coarse(name, factor)
            continue
        found.append(_varied(again, name, scaled, before))
    if as_json:
        return json.dumps([one.as_dict() for one in found], indent=2, ensure_ascii=False)
    return "\n".join(_lines(found, before, hidden, len(known)))


def _asked_for(text: str, known: dict[str, Callable[[float], Scaled]]) -> tuple[str, float]:
    """The figure and the factor of "FIGURE=FACTOR"."""
    name, _, number = (part.strip() for part in text.rpartition("="))
    try:
        factor = float(number)
    except ValueError:
        factor = 0.0
    if not name or not 0 < factor < float("inf"):
        raise UsageError(
            f"--vary takes FIGURE=FACTOR with a factor above 0, and {text!r} is not that",
            remedy=f'for example --vary "{next(iter(known), "endpoint delay")}=1.1"',
        )
    if name not in known:
        remedy = did_you_mean(name, tuple(known)) or f"figures: {', '.join(known)}"
        raise UsageError(f"the machine of this run has no figure {name!r} to change", remedy=remedy)
    return name, factor


def _too_coarse(name: str, factor: float) -> UsageError:
    return UsageError(
        f"{name} is a whole number, and cannot be multiplied by {factor:g}: it is too small, or at its limit",
        remedy="give a factor that is farther from 1",
    )


def _varied(again: Again, name: str, scaled: Any, before: int) -> Varied:
    machine, multiple = scaled
    result = again.simulate(machine)
    if not result.is_complete:
        raise UsageError(
            f"with {name} multiplied by {multiple:g}, the run does not complete",
            remedy="give another factor",
        )
    return Varied(name, multiple, result.makespan_ns, result.makespan_ns - before)


def _lines(found: Sequence[Varied], before: int, hidden: int, known: int) -> list[str]:
    from et_sim.views.text import fitted, share, terminal_width

    rows = [
        (
            one.figure,
            f"{one.multiple:.3g}",
            format_ns(one.makespan_ns),
            _signed(one.change_ns),
            share(abs(one.change_ns), before) if one.change_ns else "",
        )
        for one in found
    ]
    width = terminal_width()
    head = ("simulated again with", "times", "makespan", "change", "")
    more = [f"… and {plural(hidden, 'more figure')}: --top {known}"] if hidden > 0 else []
    return [*fitted([head, *rows], "<>>>>", width, shrink={0: 16}, names=(0,)), *more, *wrap(NOTE, width)]


def _signed(ns: int) -> str:
    return "0 ns" if ns == 0 else f"{'-' if ns < 0 else '+'}{format_ns(abs(ns))}"
