"""`et-sim check-model`: test whether a user's network or compute model keeps its promises."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

from et_sim.basics.declared_options import Command
from et_sim.basics.errors import UsageError


class Options(Command):
    """Test a network model or a compute model, a Python file or module. In a network model, paths with one
    number must take one time, and random programs must give the same nanoseconds folded, unfolded and again.
    In a compute model, equal kernels must take equal times. Exit status 1 if they do not.
    """

    model: Annotated[str, "a Python file, or the name of a module with a dot"]
    network: Annotated[Path | None, "on this network file, of at most 64 NPUs; else small ones"] = None
    programs: Annotated[int | None, "random programs for each network (default: 10)"] = None
    seed: Annotated[int, "of the programs or kernels"] = 1


def run(options: Options) -> int:
    """Test the model, and print the problems of each network."""
    os.environ.setdefault("ET_SIM_COMPILE", "never")  # all runs are short, and the model may change
    if _times_kernels(options.model):
        return _run_compute(options)
    from et_sim.doctor.models import examine_model

    programs = 10 if options.programs is None else options.programs
    status = 0
    for verdict in examine_model(options.model, options.network, programs, options.seed):
        paths = f"{verdict.pairs} paths" if verdict.pairs else "no paths to compare (it never folds)"
        tried = f"{paths} and {verdict.programs} programs agree"
        print(f"{verdict.network} NPUs: {verdict.problem or tried}", flush=True)
        status = max(status, int(bool(verdict.problem)))
    return status


def _times_kernels(model: str) -> bool:
    """Check whether a file has the function of a compute model."""
    if not model.endswith(".py"):
        return False
    from et_sim.basics.own_modules import module_in_file
    from et_sim.compute.custom import FUNCTION

    return hasattr(module_in_file(Path(model), "a network model or a compute model"), FUNCTION)


def _run_compute(options: Options) -> int:
    """Test a compute model, and print its problem."""
    for name in ("network", "programs"):
        if getattr(options, name) is not None:
            raise UsageError(
                f"--{name} has no effect: {options.model} is a compute model", remedy="leave it out"
            )
    from et_sim.doctor.compute_models import KERNELS, examine_compute_model

    problem = examine_compute_model(options.model, options.seed)
    print(problem or f"{KERNELS} kernels take the same times again, in another order and alone")
    return int(bool(problem))
