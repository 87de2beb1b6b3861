"""The same engine source, run uncompiled, gives the same nanoseconds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from cases import all_cases
from test_reference_2x import CASES

from et_sim.api import run

SCRIPT = """
import json, sys, warnings
warnings.simplefilter("error")
from cases import all_cases
from et_sim.api import run
wanted = set(json.load(sys.stdin))
cases = [case for case in all_cases() if case.name in wanted]
results = {case.name: run(case.workload(), **case.machine, model=case.model) for case in cases}
print(json.dumps({name: result.finish_ns.tolist() for name, result in results.items()}))
"""


def small_cases() -> list[str]:
    """Of every category, the case with the fewest events among its first few."""
    considered: dict[str, list[tuple[int, str]]] = {}
    for case in CASES:
        of_category = considered.setdefault(case.category, [])
        if case.ranks <= 8 and not case.content.get("extra_et") and len(of_category) < 8:
            outcome = run(case.workload(), **case.machine, model=case.model).outcome
            of_category.append((outcome.messages + len(outcome.nodes), case.name))
    return [min(of_category)[1] for of_category in considered.values() if of_category]


def test_interpreted_equals_compiled() -> None:
    names = small_cases()
    folder = Path(__file__).parent
    paths = os.pathsep.join([str(folder), str(folder.parent.parent), os.environ.get("PYTHONPATH", "")])
    interpreted = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        input=json.dumps(names),
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "NUMBA_DISABLE_JIT": "1", "PYTHONPATH": paths},
    )
    expected = {case.name: case.expected_finish() for case in all_cases() if case.name in set(names)}
    assert json.loads(interpreted.stdout) == expected
