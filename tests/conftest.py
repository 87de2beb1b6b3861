"""What all tests share: `--deep`, how many random examples, and an engine that is compiled once."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings

EXAMPLES = {"default": 10, "deep": 400}
MACHINE = {
    "system": {"scheduling-policy": "FIFO", "all-reduce-implementation": ["ring"], "local-mem-bw": 50},
    "network": {"topology": ["Ring"], "npus_count": [2], "bandwidth": [50], "latency": [500]},
}
os.environ.setdefault("ET_SIM_COMPILE", "now")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--deep", action="store_true", help="run everything, also what takes long")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "deep: runs only with --deep, because it takes long")
    for name, count in EXAMPLES.items():  # how long one takes depends on what else the machine does
        settings.register_profile(
            name,
            max_examples=count,
            derandomize=config.getoption("hypothesis_seed") is None,  # other cases: --hypothesis-seed=N
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow],
        )
    settings.load_profile("deep" if config.getoption("--deep") else "default")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--deep"):
        return
    deep = [item for item in items if item.get_closest_marker("deep")]
    if deep:
        config.hook.pytest_deselected(items=deep)
        items[:] = [item for item in items if not item.get_closest_marker("deep")]


@pytest.fixture(scope="session")
def warm_engine() -> None:
    """The engine is compiled, for all of the parallel test processes at once: no output says so."""
    import et_sim
    from et_sim.trace import decode, encode_trace

    build = et_sim.TraceBuilder()
    build.collective("all_reduce", 1024)
    workload = et_sim.Workload.of([build.build()] * 2)
    et_sim.simulate(workload, **MACHINE)
    decode(encode_trace(workload.trace(0)))
