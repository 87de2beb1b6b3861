"""`et-sim search`: find the best points of a sweep without trying all of them."""

from __future__ import annotations

from functools import partial
from typing import Any

from et_sim.cli.sweep import add_options, run


def add_parser(commands: Any) -> None:
    """Register the command."""
    parser = commands.add_parser(
        "search",
        description="Find the points of a sweep with the least time, memory, energy, price or ranks, the most"
        " tokens per second or MFU, or the best compromises of several of these. Plans that bounds rule out"
        " are not simulated; where there are no bounds, Optuna chooses what is. What a directory already"
        " holds is not simulated again."
        " Exit status 1: no point is what was looked for.",
    )
    add_options(
        parser,
        "search",
        "YAML file of a sweep that says what to search for, too",
        "best:3 of what is found, all that were evaluated, or their numbers, such as 0-3,6",
    )
    parser.set_defaults(run=partial(run, searches=True))
