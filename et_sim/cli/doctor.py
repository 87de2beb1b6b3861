"""`et-sim doctor`: whether this installation is well, and what to do if it is not.

`et-sim check-model`: whether a network model of yours keeps what it promises.
"""

from __future__ import annotations

import argparse
import json
import os
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from et_sim.cli.progress import printing

if TYPE_CHECKING:
    from et_sim.doctor import Finding


def add_parser(commands: Any) -> None:
    """Register both commands."""
    parser = commands.add_parser(
        "doctor",
        description="Look at versions, computer and cache, and simulate five runs with known results. "
        "Exit status 1 if something is wrong.",
    )
    parser.add_argument("--json", action="store_true", help="print data instead of text")
    parser.set_defaults(run=run)
    add_check_model(commands)


def run(options: argparse.Namespace) -> int:
    """Look at everything, and say what is wrong."""
    from msgspec import to_builtins

    from et_sim.doctor import examine

    findings = list(examine())
    problems = [finding for finding in findings if finding.problem]
    status = 1 if problems else 0
    with printing(status):
        if options.json:
            data = {"is_well": not problems, "findings": [to_builtins(finding) for finding in findings]}
            print(json.dumps(data, indent=2, ensure_ascii=False))
        else:
            from et_sim.cli.inspect import show

            show("\n".join([*_tables(findings), *_verdict(problems)]))
    return status


def _tables(findings: list[Finding]) -> list[str]:
    """A table for each topic."""
    from et_sim.basics.alignment import aligned

    rows = []
    for topic, of_topic in groupby(findings, lambda finding: finding.topic):
        for number, finding in enumerate(of_topic):
            expected = f"expected {finding.expected}" if finding.expected else ""
            texts = filter(None, ("PROBLEM" if finding.problem else "", finding.found, expected))
            rows.append(("" if number else topic, finding.name, ", ".join(texts)))
    return aligned(rows, "<<<")


def _verdict(problems: list[Finding]) -> list[str]:
    if not problems:
        return ["", "all is well"]
    return ["", *(f"PROBLEM: {problem.problem} ({problem.remedy})" for problem in problems)]


def add_check_model(commands: Any) -> None:
    """Register the command that tries a network model."""
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
    parser.set_defaults(run=try_model)


def try_model(options: argparse.Namespace) -> int:
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
