"""Timelines: how fast one is written, and how fast the views read it.

    python benchmarks/timeline.py [--rows N] [--times N] [--only TEXT]

One process simulates N rows (8 ranks, nine kernels to each all-reduce, nothing folded) and writes them with
every compression; the figures are rows per second of the writing alone, measuring the ranks included, best of
so many times. Memory is the highest while writing, above what the simulation holds. Then each view (of all of
them, those with a text in their names) is a process of its own: wall and processor time, and highest memory.

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
WINDOW = ["--window", "1s:1.1s"]
VIEWS = (
    ("inspect RUN", ["inspect", "RUN"]),
    ("inspect RUN ranks", ["inspect", "RUN", "ranks"]),
    ("inspect RUN ops", ["inspect", "RUN", "ops"]),
    ("inspect RUN groups", ["inspect", "RUN", "groups"]),
    ("inspect RUN waits", ["inspect", "RUN", "waits"]),
    ("inspect RUN activity", ["inspect", "RUN", "activity"]),
    ("inspect RUN bandwidth", ["inspect", "RUN", "bandwidth"]),
    ("inspect RUN spread", ["inspect", "RUN", "spread"]),
    ("inspect RUN idle", ["inspect", "RUN", "idle"]),
    ("inspect RUN critical-path", ["inspect", "RUN", "critical-path"]),
    ("inspect RUN stalls", ["inspect", "RUN", "stalls"]),
    ("inspect RUN notices", ["inspect", "RUN", "notices"]),
    ("inspect RUN, a tenth of a second", ["inspect", "RUN", *WINDOW]),
    ("inspect RUN ranks, a tenth of a second", ["inspect", "RUN", "ranks", *WINDOW]),
    ("inspect RUN ranks, measured over all time", ["inspect", "RUN", "ranks", "--window", "0:"]),
    ("inspect RUN picture", ["inspect", "RUN", "picture", "--svg", "OUT.svg"]),
    ("sql RUN, by kind", ["sql", "RUN", KINDS]),
    ("compare RUN RUN", ["compare", "RUN", "RUN"]),
    ("export RUN --perfetto", ["export", "RUN", "--perfetto", "OUT.pftrace"]),
    ("export RUN --chrome", ["export", "RUN", "--chrome", "OUT.json"]),
    ("export RUN, two million", ["export", "RUN", "--perfetto", "OUT.pftrace", "--limit", "2000000"]),
    ("export RUN, everything", ["export", "RUN", "--perfetto", "OUT.pftrace", "--limit", "1000000000"]),
    ("report RUN", ["report", "RUN", "--html", "OUT.html"]),
    ("report RUN, a tenth of a second", ["report", "RUN", "--html", "OUT.html", *WINDOW]),
)


def main() -> None:
    """Write, read, and print both tables."""
    parser = argparse.ArgumentParser(description="Timelines: how fast they are written and read.")
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--times", type=int, default=3, help="how often to write")
    parser.add_argument("--only", default="", help="of the views, those whose names have this")
    parser.add_argument("--into", type=Path, help="only write, into this directory")
    options = parser.parse_args()
    if options.into is not None:
        _write(options.into, options.rows, options.times)
        return
    with tempfile.TemporaryDirectory() as folder:
        # A process of its own: the views' would be charged with its memory.
        numbers = ["--rows", str(options.rows), "--times", str(options.times)]
        subprocess.run([sys.executable, __file__, *numbers, "--into", folder], check=True)
        print("\n| view | wall | processor | peak |\n|---|---|---|---|", flush=True)
        for name, words in VIEWS:
            if options.only in name:
                _read(name, [word.replace("OUT", f"{folder}/out") for word in words], Path(folder) / "lz4")


def _write(folder: Path, rows: int, times: int) -> None:
    import et_sim
    from et_sim.timeline import OutputFilter, write_run

    build = et_sim.TraceBuilder()
    last: list[int] = []
    for number in range(rows // RANKS):
        if number % 10 == 9:
            last = [build.collective("all_reduce", 1 << 16, name=f"layer {number % 97} sum", after=last)]
        else:
            last = [build.compute(f"layer {number % 97}", micros=1 + number % 13, after=last)]
    result = et_sim.simulate(et_sim.Workload.of([build.build()] * RANKS), fold=False, **MACHINE)
    print("| compression | million rows/s | per processor second | MB | memory |\n|---|---|---|---|---|")
    for compression in ("lz4", "zstd", "none"):
        best, above = [float("inf")] * 2, 0.0
        for _ in range(times):
            result.__dict__.pop("measurement", None)  # so that each pass does everything
            before = _from_here_mib()
            wall, processor = time.perf_counter(), time.process_time()
            write_run(result, folder / compression, output_filter=OutputFilter(compression=compression))
            best[0] = min(best[0], time.perf_counter() - wall)
            best[1] = min(best[1], time.process_time() - processor)
            above = max(above, _mib("VmHWM") - before)
        size = (folder / compression / "timeline.arrow").stat().st_size / 1e6
        speeds = " | ".join(f"{rows / seconds / 1e6:.1f}" for seconds in best)
        print(f"| {compression} | {speeds} | {size:.0f} | {above:.0f} MiB |", flush=True)


def _read(name: str, words: list[str], run: Path) -> None:
    command = [str(run) if word == "RUN" else word for word in words]
    program = "import sys; from et_sim.cli import main; sys.exit(main())"
    wall = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-c", program, *command], stdout=subprocess.DEVNULL)
    _, _, used = os.wait4(process.pid, 0)
    wall = time.perf_counter() - wall
    processor = used.ru_utime + used.ru_stime
    print(f"| {name} | {wall:.1f} s | {processor:.1f} s | {used.ru_maxrss / 1024:.0f} MiB |", flush=True)


def _mib(figure: str) -> float:
    """Return the memory of this process."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return int(status.partition(f"{figure}:")[2].split()[0]) / 1024


def _from_here_mib() -> float:
    """Return the memory of this process now, and reset its peak."""
    Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")
    return _mib("VmRSS")


if __name__ == "__main__":
    main()
