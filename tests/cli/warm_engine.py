"""A fixture for tests that look at output: the engine is compiled before, so that nothing says so."""

from __future__ import annotations

import fcntl
from pathlib import Path

import pytest

MACHINE = {
    "system": {"scheduling-policy": "FIFO", "all-reduce-implementation": ["ring"], "local-mem-bw": 50},
    "network": {"topology": ["Ring"], "npus_count": [2], "bandwidth": [50], "latency": [500]},
}


@pytest.fixture(scope="session")
def warm_engine(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Compile once, whichever of the parallel test processes comes first."""
    import et_sim
    from et_sim.trace import decode, encode_trace

    build = et_sim.TraceBuilder()
    build.collective("all_reduce", 1024)
    workload = et_sim.Workload.of([build.build()] * 2)
    lock = Path(tmp_path_factory.getbasetemp().parent) / "compiling.lock"
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        et_sim.simulate(workload, **MACHINE)
        decode(encode_trace(workload.trace(0)))
