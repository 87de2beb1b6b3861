"""`et-sim doctor`: test this installation, and show remedies for its problems."""

from __future__ import annotations

import json
from itertools import groupby
from typing import TYPE_CHECKING

from et_sim.basics.declared_options import Command
from et_sim.cli.options import Json
from et_sim.cli.progress import printing

if TYPE_CHECKING:
    from et_sim.doctor import Finding


class Options(Command):
    """Check versions, computer and cache, and simulate five runs with known results. Exit status 1 if
    something is wrong.
    """

    json: Json = False


def run(options: Options) -> int:
    """Check everything, and print the problems."""
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
            from et_sim.cli.styled import show

            show("\n".join([*_tables(findings), *_verdict(problems)]))
    return status


def _tables(findings: list[Finding]) -> list[str]:
    """Return a table for each topic."""
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
