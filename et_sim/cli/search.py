"""`et-sim search`: find the best points of a sweep without trying all."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from et_sim.cli.sweep import KEPT, EvaluationOptions, evaluate


class Options(EvaluationOptions):
    """Find the points of a sweep with the least time, memory, energy, price or ranks, the most tokens per
    second or MFU, or the best compromises of several of these. Plans that bounds rule out are not
    simulated; without bounds, Optuna chooses the points. Points that a directory already holds are not
    simulated again. Exit status 1: no point meets the goal.
    """

    spec: Annotated[Path, "YAML file of a sweep with a section search", "SPEC"]
    out: Annotated[Path | None, "directory to write (default: ./NAME.search)", "DIR"] = None
    keep: Annotated[str, KEPT.format("best:3 of those found, all that were evaluated"), "WHICH"] = "none"
    json: Annotated[bool, "print the search as et-sim inspect --json does"] = False


def run(options: Options) -> int:
    """Evaluate some points, write the tables, and print the search."""
    return evaluate(options, may_be_large=True, searches=True)
