"""`et-sim check-model`: whether a network model of yours keeps what it promises.

Not here: what is tried (`et_sim.doctor.models`).
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any


def add_parser(commands: Any) -> None:
    """Register the command."""
    parser = commands.add_parser(
        "check-model",
        description="Try a network model, a Python file or module. Paths with one number must take one time,"
        " and random programs must give the same nanoseconds folded, unfolded and again. Exit status 1 if"
        " they do not.",
    )
    parser.add_argument("model", help="a Python file, or the name of a module with a dot")
    parser.add_argument(
        "--network", type=Path, help="on this network file, of at most 64 NPUs; else small ones"
    )
    parser.add_argument(
        "--programs", type=int, default=10, help="random programs for each network (default: 10)"
    )
    parser.add_argument("--seed", type=int, default=1, help="of the programs (default: 1)")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Try it, and say what is wrong on which network."""
    from et_sim.doctor.models import examine_model

    os.environ.setdefault("ET_SIM_COMPILE", "never")  # all runs are short, and the model may change
    status = 0
    for verdict in examine_model(options.model, options.network, options.programs, options.seed):
        paths = f"{verdict.pairs} paths" if verdict.pairs else "no paths to compare (it never folds)"
        tried = f"{paths} and {verdict.programs} programs agree"
        print(f"{verdict.network} NPUs: {verdict.problem or tried}", flush=True)
        status = max(status, int(bool(verdict.problem)))
    return status
