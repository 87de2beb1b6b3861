"""The same engine source, run uncompiled, gives the same nanoseconds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from cases import all_cases
from test_reference_2x import CASES

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

RECORDING = """
import hashlib, sys
from pathlib import Path
from test_reference_1x import RUNS, simulate
for name in sys.argv[2:]:
    [case] = [case for case in RUNS if case["id"] == name]
    result = simulate(case, Path(sys.argv[1]), fold=False, detail="path")
    digest = hashlib.sha256()
    for block in result.causal_events.blocks():
        for column in block.dtype.names:
            digest.update(block[column].tobytes())
    print(name, result.causal_events.count, digest.hexdigest())
"""
RECORDED = ("switch4_hbm_bound", "Switch4_ring_ALLREDUCE_4MB", "tiny_DATA_torus2d_p1_LIFO")


def small_cases() -> list[str]:
    """Return one case with the fewest nodes of every category."""
    results: dict[str, str] = {}
    for case in sorted(CASES, key=lambda case: case.nodes):
        if case.ranks <= 8 and not case.content.get("extra_et"):
            results.setdefault(case.category, case.name)
    return list(results.values())


def test_interpreted_equals_compiled() -> None:
    names = small_cases()
    expected = {case.name: case.expected_finish() for case in all_cases() if case.name in set(names)}
    assert json.loads(output(SCRIPT, given=json.dumps(names), is_compiled=False)) == expected


@pytest.mark.exhaustive
def test_the_record_of_causes_is_the_same_interpreted(tmp_path: Path) -> None:
    """Run cases of ASTRA-sim 1.0: levels with a memory, links with fractions, and a training loop."""
    compiled, interpreted = (
        output(RECORDING, str(tmp_path), *RECORDED, is_compiled=is_compiled) for is_compiled in (True, False)
    )
    assert len(compiled.splitlines()) == len(RECORDED)
    assert compiled == interpreted


def output(script: str, *arguments: str, given: str = "", is_compiled: bool) -> str:
    """Return the output of a script of this folder."""
    folder = Path(__file__).parent
    paths = os.pathsep.join([str(folder), str(folder.parent.parent), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-c", script, *arguments]
    switch = "0" if is_compiled else "1"
    environment = {**os.environ, "NUMBA_DISABLE_JIT": switch, "PYTHONPATH": paths}
    return subprocess.run(
        command, input=given, capture_output=True, text=True, check=True, env=environment
    ).stdout
