"""Five runs with known results, simulated as any other run of this installation, nanosecond for nanosecond.

The cases are files in `cases/`: golden cases of the reference, each with its origin (`tests/golden/data` has
all of them). Not here: anything that decides how they are run.
"""

from __future__ import annotations

import base64
import json
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from et_sim.basics.errors import EtSimError
from et_sim.basics.units import parse_ranks
from et_sim.doctor.host import Finding

TOPIC = "self-test"
CASES = Path(__file__).with_name("cases")
REMEDY = "install et-sim anew; if that does not help, report it with the output of et-sim doctor --json"


def examine_results() -> Iterator[Finding]:
    """One finding for each case, and how long all of them took."""
    begin = time.monotonic()
    for path in sorted(CASES.glob("*.json")):
        yield _judged(json.loads(path.read_text(encoding="utf-8")))
    yield Finding(TOPIC, "time", f"{time.monotonic() - begin:.1f} s")


def _judged(case: dict[str, Any]) -> Finding:
    name, wanted = case["name"], case["finish_ns"]
    expected = f"{max(wanted):,} ns"
    try:
        finish = _simulated(case)
    except EtSimError as error:
        problem = f"the case {name} is refused: {error}"
        return Finding(TOPIC, name, "nothing", expected, problem, REMEDY)
    except Exception as error:  # whatever is broken is what this command is there to tell
        problem = f"the case {name} fails with {type(error).__name__}: {error}"
        return Finding(TOPIC, name, "nothing", expected, problem, REMEDY)
    makespan = f"{max(finish):,} ns"
    if finish == wanted:
        return Finding(TOPIC, name, makespan, expected)
    rank = next(rank for rank, both in enumerate(zip(finish, wanted, strict=True)) if both[0] != both[1])
    problem = (
        f"in the case {name}, rank {rank} finishes at {finish[rank]:,} ns in place of {wanted[rank]:,} ns"
    )
    return Finding(TOPIC, name, makespan, expected, problem, REMEDY)


def _simulated(case: dict[str, Any]) -> list[int]:
    """When each rank finishes."""
    from et_sim import api

    with tempfile.TemporaryDirectory(prefix="et-sim-doctor-") as folder:
        workload = Path(folder, "workload")
        if isinstance(case["workload"], str):
            workload.write_text(case["workload"], encoding="utf-8")
        else:
            for ranks, trace in case["workload"].items():
                for rank in (rank for part in parse_ranks(ranks) for rank in part):
                    Path(f"{workload}.{rank}.et").write_bytes(base64.b64decode(trace))
        machine = {name: case[name] for name in ("system", "network", "groups") if name in case}
        result = api.simulate(workload, model=case["model"], **machine)
        return [int(finish) for finish in result.finish_ns]
