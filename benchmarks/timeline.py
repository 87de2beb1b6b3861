"""Timelines: how fast one is written, and how fast the views read it.

    python benchmarks/timeline.py [--rows N]

One process simulates N rows (8 ranks, nine kernels to each all-reduce) and writes them with every
compression; the figures are rows per second of the writing alone, measuring the ranks included. Then each
view is a process of its own: wall and processor time, and its highest memory.

Not here: the simulation itself (`engine.py`).
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

RANKS = 8
MACHINE: dict[str, Any] = {
    "system": {"scheduling-policy": "FIFO", "all-reduce-implementation": ["direct"], "local-mem-bw": 50},
    "network": {
        "topology": ["FullyConnected"],
        "npus_count": [RANKS],
        "bandwidth": ["50GB/s"],
        "latency": [500],
    },
}
KINDS = "SELECT kind, count(*) AS n, sum(end_ns - start_ns) AS ns FROM timeline GROUP BY kind"
VIEWS = (
    ("inspect RUN", ["inspect", "RUN"]),
    ("inspect RUN groups", ["inspect", "RUN", "groups"]),
    ("inspect RUN ranks, 1 % of the time", ["inspect", "RUN", "ranks", "--window", "1s:1.1s"]),
    ("sql RUN, by kind", ["sql", "RUN", KINDS]),
    ("compare RUN RUN", ["compare", "RUN", "RUN"]),
)


def main() -> None:
    """Write, read, and print both tables."""
    parser = argparse.ArgumentParser(description="Timelines: how fast they are written and read.")
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--into", type=Path, help="only write, into this directory")
    options = parser.parse_args()
    if options.into is not None:
        _write(options.into, options.rows)
        return
    with tempfile.TemporaryDirectory() as folder:
        # A process of its own: the views' would be charged with its memory.
        command = [sys.executable, __file__, "--rows", str(options.rows), "--into", folder]
        subprocess.run(command, check=True)
        print("\n| view | wall | processor | peak |\n|---|---|---|---|")
        for name, command in VIEWS:
            _read(name, [str(Path(folder) / "lz4") if word == "RUN" else word for word in command])


def _write(folder: Path, rows: int) -> None:
    import et_sim
    from et_sim.timeline import Keep, write_run

    build = et_sim.TraceBuilder()
    last: list[int] = []
    for number in range(rows // RANKS):
        if number % 10 == 9:
            last = [build.collective("all_reduce", 1 << 16, name=f"layer {number % 97} sum", after=last)]
        else:
            last = [build.compute(f"layer {number % 97}", micros=1 + number % 13, after=last)]
    result = et_sim.simulate(et_sim.Workload.of([build.build()] * RANKS), fold=False, **MACHINE)
    before = _peak_mib(os.getpid())
    print("| compression | million rows/s | per processor second | MB |\n|---|---|---|---|")
    for compression in ("lz4", "zstd", "none"):
        result._measures.clear()  # so that each pass does everything
        wall, processor = time.perf_counter(), time.process_time()
        write_run(result, folder / compression, keep=Keep(compression=compression))
        wall, processor = time.perf_counter() - wall, time.process_time() - processor
        size = (folder / compression / "timeline.arrow").stat().st_size / 1e6
        print(f"| {compression} | {rows / wall / 1e6:.1f} | {rows / processor / 1e6:.1f} | {size:.0f} |")
    print(f"\nmemory for writing: {_peak_mib(os.getpid()) - before:.0f} MiB above the simulation's")


def _read(name: str, command: list[str]) -> None:
    program = "import sys; from et_sim.cli import main; sys.exit(main())"
    wall = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-c", program, *command], stdout=subprocess.DEVNULL)
    _, _, used = os.wait4(process.pid, 0)
    wall = time.perf_counter() - wall
    processor = used.ru_utime + used.ru_stime
    print(f"| {name} | {wall:.1f} s | {processor:.1f} s | {used.ru_maxrss / 1024:.0f} MiB |")


def _peak_mib(process: int) -> float:
    status = Path(f"/proc/{process}/status").read_text(encoding="utf-8")
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


if __name__ == "__main__":
    main()
