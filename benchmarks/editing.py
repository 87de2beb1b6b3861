"""The cost of editing a long trace: `python benchmarks/editing.py [NODES]` (default: a million).

The trace is that of a host thread which launches a kernel on one of four streams with every other node, and
now and then waits for a stream: what a converted recording looks like, but without attributes. Every command
runs in a process of its own, from files to files. Seconds are those of the processor, start included.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from et_sim import TraceBuilder
from et_sim.trace import Trace, write_trace

COMMANDS = (
    ("slice --iterations", ["slice", "job", "-o", "part", "--iterations", "3-5"]),
    ("strip", ["strip", "job", "-o", "devices"]),
    ("strip --keep-delays", ["strip", "job", "-o", "timed", "--keep-delays"]),
    ("scale --replicas 1024", ["scale", "job", "-o", "many", "--replicas", "1024"]),
    ("stats", ["stats", "job"]),
    ("unjson", ["unjson", "job", "-o", "lines"]),
    ("json", ["json", "lines.0.jsonl", "-o", "back"]),
)
REPOSITORY = Path(__file__).resolve().parents[1]
STREAMS = 4
KERNELS_PER_SYNC = 25


def recording(nodes: int) -> Trace:
    """Write a trace of ten iterations, with half of the nodes on the host."""
    build = TraceBuilder()
    host = build.compute("begin", micros=3, cpu=True)
    last: list[int | None] = [None] * STREAMS
    kernels = nodes // 2
    for number in range(kernels):
        stream = 0 if number % 5 else 1 + number // 5 % (STREAMS - 1)
        synced = last[number // KERNELS_PER_SYNC % STREAMS] if number % KERNELS_PER_SYNC == 0 else None
        begins = number % max(1, kernels // 10) == 0
        name = f"ProfilerStep#{number // max(1, kernels // 10)}" if begins else "launch"
        after = [host] if synced is None else [host, synced]
        host = build.compute(name, micros=3, cpu=True, after=after)
        before = last[stream]
        last[stream] = build.compute("kernel", micros=5, after=[host] if before is None else [host, before])
    return build.build()


def main() -> None:
    """Print a table of seconds and peaks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("nodes", nargs="?", type=int, default=1_000_000)
    nodes = parser.parse_args().nodes
    with tempfile.TemporaryDirectory() as folder:
        # In a process of its own: a child's peak is at least what its parent holds.
        _run(["from benchmarks.editing import make", f"make({nodes}, 'job.0.et')"], folder)
        print(f"{nodes:,} nodes, {(Path(folder) / 'job.0.et').stat().st_size / 2**20:.0f} MiB")
        print("| command | processor | peak |")
        print("|---|---|---|")
        for name, arguments in COMMANDS:
            seconds, peak = _run(["from converters.cli import main", f"main({arguments})"], folder)
            print(f"| `et-convert {name}` | {seconds:.1f} s | {peak / 2**20:.0f} MiB |", flush=True)


def make(nodes: int, path: str) -> None:
    """Write the recording."""
    write_trace(recording(nodes), path)


def _run(statements: list[str], folder: str) -> tuple[float, int]:
    """Return (seconds of the processor, bytes at the peak) of a program."""
    usage = "used = resource.getrusage(resource.RUSAGE_SELF)"
    told = "print(used.ru_utime + used.ru_stime, used.ru_maxrss, file=sys.stderr)"
    code = "; ".join(
        ["import resource, sys", f"sys.path.append({str(REPOSITORY)!r})", *statements, usage, told]
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=True
    )
    seconds, kilobytes = done.stderr.splitlines()[-1].split()
    return float(seconds), 1024 * int(kilobytes)


if __name__ == "__main__":
    main()
