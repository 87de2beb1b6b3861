"""`et-sim check-model`: test whether a user's network model keeps its promises."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

from et_sim.basics.declared_options import Command


class Options(Command):
    """Test a network model, a Python file or module. Paths with one number must take one time, and random
    programs must give the same nanoseconds folded, unfolded and again. Exit status 1 if they do not.
    """

    model: Annotated[str, "a Python file, or the name of a module with a dot"]
    network: Annotated[Path | None, "on this network file, of at most 64 NPUs; else small ones"] = None
    programs: Annotated[int, "random programs for each network"] = 10
    seed: Annotated[int, "of the programs"] = 1


def run(options: Options) -> int:
    """Test the model, and print the problems of each network."""
    from et_sim.doctor.models import examine_model

    os.environ.setdefault("ET_SIM_COMPILE", "never")  # all runs are short, and the model may change
    status = 0
    for verdict in examine_model(options.model, options.network, options.programs, options.seed):
        paths = f"{verdict.pairs} paths" if verdict.pairs else "no paths to compare (it never folds)"
        tried = f"{paths} and {verdict.programs} programs agree"
        print(f"{verdict.network} NPUs: {verdict.problem or tried}", flush=True)
        status = max(status, int(bool(verdict.problem)))
    return status
