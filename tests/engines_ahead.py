"""Compilation, one after the other, of the code that most tests need, while the tests run.

    python tests/engines_ahead.py

Code that a test waits for is compiled next. `conftest` handles the code that few tests need.
"""

from __future__ import annotations

import io
import os
import sys
import tempfile
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

SYSTEM = {"scheduling-policy": "FIFO", "all-reduce-implementation": ["ring"], "local-mem-bw": 50}
NETWORK = {"topology": ["Ring"], "npus_count": [2], "bandwidth": [50], "latency": [500]}


def simulate(**how: Any) -> None:
    """Run two ranks, with traces read from bytes."""
    import et_sim
    from et_sim.trace import decode, encode_trace

    build = et_sim.TraceBuilder()
    build.collective("all_reduce", 1024)
    trace = decode(encode_trace(build.build()))
    et_sim.simulate(et_sim.Workload.of([trace] * 2), system=SYSTEM, network=NETWORK, **how)


def convert(folder: Path) -> None:
    """Convert a recording of PyTorch."""
    from converters.cli import main as convert_files

    recording = Path(__file__).parent / "converters" / "pytorch_traces" / "simple_add"
    host, device = recording / "et.json.gz", recording / "kineto.json.gz"
    with redirect_stdout(io.StringIO()):
        convert_files(["pytorch", "--host", str(host), "--device", str(device), "-o", str(folder / "x.0.et")])


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        convert(Path(folder))
    for model in ("analytical", "link"):
        simulate(model=model)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    os.environ["ET_SIM_COMPILE"] = "now"
    main()
