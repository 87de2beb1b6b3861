"""`et-sim search`: find the best points of a sweep without trying all."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from et_sim.cli.sweep import KEPT, EvaluationOptions, evaluate


class Options(EvaluationOptions):
    """Find the points of a sweep with the least time, memory, energy, price or ranks, the most tokens per
    second or MFU, or the best compromises of several of these. Plans that bounds rule out are not simulated;
    where there are no bounds, Optuna chooses what is. What a directory already holds is not simulated again.
    Exit status 1: no point is what was looked for."""

    spec: Annotated[Path, "YAML file of a sweep that says what to search for, too", "SPEC"]
    out: Annotated[Path | None, "directory to write (default: ./NAME.search)", "DIR"] = None
    keep: Annotated[str, KEPT.format("best:3 of what is found, all that were evaluated"), "WHICH"] = "none"
    json: Annotated[bool, "print what inspect --json says of the search"] = False


def run(options: Options) -> int:
    """Evaluate some points, write the tables, and print what they say."""
    return evaluate(options, may_be_large=True, searches=True)
