"""Compilation, one after the other, of the code that most tests need, while the tests run.

    python tests/engines_ahead.py [SEED]

Code that a test waits for is compiled next. `conftest` handles the code that few tests need. With the
seed of a deep suite, the forms of the engine follow that its tests need, in the order in which these run.
"""

from __future__ import annotations

import io
import os
import sys
import tempfile
from collections.abc import Callable
from contextlib import redirect_stdout
from functools import partial
from math import inf
from pathlib import Path
from typing import Any
from unittest.mock import patch

SYSTEM = {"scheduling-policy": "FIFO", "all-reduce-implementation": ["ring"], "local-mem-bw": 50}
NETWORK = {"topology": ["Ring"], "npus_count": [2], "bandwidth": [50], "latency": [500]}
LOGGOPS = {"loggops": {"npus": 2, "L": 1000, "o": 200, "g": 5, "G": 0.04, "S": 0}}
LEVELS = {
    "dimensions-count": 1,
    "topologies-per-dim": ["Ring"],
    "units-count": [2],
    "links-count": [2],
    "link-bandwidth": [50],
    "link-latency": [500],
}
GRAPH = {"graph": {"generator": "star", "npus": 2, "bandwidth": "50GB/s", "latency": "500ns"}}
FAILING = {**GRAPH, "failures": [{"link": "npu0->*", "at": "1us", "for": "1us"}]}


def on_packets(preset: str, control: str = "") -> dict[str, Any]:
    """Return the settings of a run on the packet model."""
    protocol = {"preset": preset} | ({"congestion-control": control} if control else {})
    return {"model": "packet", "network": {**NETWORK, "protocol": protocol}}


# A run of each form that only deep tests need; `compiled/test_engines_ahead.py` names tests that do.
DEEP_FORMS: dict[str, dict[str, Any]] = {
    "path": {"model": "analytical", "detail": "path"},
    "path on links": {"model": "link", "detail": "path"},
    "1.0": {"model": "analytical", "network": LEVELS},
    "path of 1.0": {"model": "analytical", "network": LEVELS, "detail": "path"},
    "flow": {"model": "flow"},
    "TCP": on_packets("htsim-parity"),
    "packets": on_packets("roce"),
    "DCTCP": on_packets("roce", "dctcp"),
    "TIMELY": on_packets("roce", "timely"),
    "HPCC": on_packets("roce", "hpcc"),
    "DCQCN": on_packets("roce", "dcqcn"),
    "failing links": {"model": "link", "network": FAILING},
    "LogGOPS": {"model": "loggops", "network": LOGGOPS},
    "failures of packets": {"model": "packet", "network": FAILING},
}
# Tests need these on one day of two, as `in_turn` counts days.
DAYS = {"DCTCP": 1, "TIMELY": 1, "HPCC": 0, "failures of packets": 0}


class EngineCalled(BaseException):
    """The end of a run at its call of the engine; has the engine and the arguments."""


def simulate(**how: Any) -> None:
    """Run two ranks, with traces read from bytes."""
    import et_sim
    from et_sim.trace import decode, encode_trace

    build = et_sim.TraceBuilder()
    build.collective("all_reduce", 1024)
    trace = decode(encode_trace(build.build()))
    et_sim.simulate(et_sim.Workload.of([trace] * 2), **{"system": SYSTEM, "network": NETWORK, **how})


def engine_call(runs: Callable[[], object]) -> tuple[Any, tuple[Any, ...]]:
    """Return the engine and the arguments of its first call, at which the run ends."""
    from et_sim.compiled.entry_points import CompiledEntry

    def run(entry: Any, _: Any, *arguments: Any) -> Any:
        if entry.what == "the engine":
            raise EngineCalled(entry, arguments)
        return entry._interpret(arguments)

    with patch.object(CompiledEntry, "_run", run):
        try:
            runs()
        except EngineCalled as call:
            return call.args
    raise AssertionError("the engine is not called")


def convert(folder: Path) -> None:
    """Convert a recording of PyTorch."""
    from converters.cli import main as convert_files

    recording = Path(__file__).parent / "converters" / "pytorch_traces" / "simple_add"
    host, device = recording / "et.json.gz", recording / "kineto.json.gz"
    with redirect_stdout(io.StringIO()):
        convert_files(["pytorch", "--host", str(host), "--device", str(device), "-o", str(folder / "x.0.et")])


def forms_of(seed: int) -> list[str]:
    """Return the names of the forms that the deep suite with a seed needs."""
    return [name for name in DEEP_FORMS if DAYS.get(name, seed % 2) == seed % 2]


def main(seed: int | None) -> None:
    with tempfile.TemporaryDirectory() as folder:
        convert(Path(folder))
    for model in ("analytical", "link"):
        simulate(model=model)
    for name in () if seed is None else forms_of(seed):
        engine, arguments = engine_call(partial(simulate, **DEEP_FORMS[name]))
        engine._made(arguments, inf, waits=inf)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    os.environ["ET_SIM_COMPILE"] = "now"
    main(int(sys.argv[1]) if sys.argv[1:] else None)
