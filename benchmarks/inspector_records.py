"""Read many records of NCCL's Inspector: processor time and peak memory of the report.

    python benchmarks/inspector_records.py [--millions 1 10] [--folder FOLDER]

The records are JSON lines with header and metadata each (format v4.0, 447 bytes), of 64 ranks in one
communicator; ten millions are 4.5 GB. `et-convert recording` runs in a process of its own. The target is 60 s
and 1 GiB for ten millions.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

RANKS, MILLION = 64, 1_000_000
_REPORTING = (
    "import atexit, pathlib, sys\n"
    "atexit.register(lambda: sys.stderr.write(pathlib.Path('/proc/self/status').read_text()))\n"
    "from converters.cli import main\n"
    "sys.exit(main())\n"
)
_HEAD = (
    '{"header":{"id":"0x7f8c496ae9f661","rank":%d,"n_ranks":%d,"nnodes":8,"comm_name":""},"metadata":'
    '{"inspector_output_format_version":"v4.0","git_rev":"","rec_mechanism":"profiler_plugin",'
    '"dump_timestamp_us":1748030377748202,"hostname":"example-hostname","pid":%d},"coll_perf":'
    '{"coll":"AllReduce","coll_sn":'
)
_REST = (
    '%d,"coll_msg_size_bytes":%d,"coll_exec_time_us":%d,"coll_timing_source":"kernel_gpu",'
    '"coll_algobw_gbs":277.8,"coll_busbw_gbs":486.2}}\n'
)


def write(path: Path, records: int) -> None:
    """Write so many records, rank by rank, with times that differ a little."""
    with path.open("w") as file:
        for rank in range(RANKS):
            head = _HEAD % (rank, RANKS, 1000 + rank)
            for number in range(records // RANKS):
                time = 61 + (number * 7 + rank) % 23
                file.write(head + _REST % (number, 1 << 14 + number % 12, time))


def report(path: Path) -> tuple[float, float]:
    """Return the seconds of the processor, and the peak in MiB."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[1])}
    command = [sys.executable, "-c", _REPORTING, "recording", str(path)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return seconds, int(done.stderr.rpartition("VmHWM:")[2].split()[0]) / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--millions", type=float, nargs="+", default=[1])
    parser.add_argument("--folder", type=Path, help="where the large files go")
    options = parser.parse_args()
    print("| million records | MB | processor | peak |")
    print("|---|---|---|---|")
    with tempfile.TemporaryDirectory(dir=options.folder) as temporary:
        path = Path(temporary) / "node-pid1000.log"
        for millions in options.millions:
            write(path, int(millions * MILLION))
            seconds, peak = report(path)
            size = path.stat().st_size / MILLION
            print(f"| {millions:g} | {size:,.0f} | {seconds:.1f} s | {peak:.0f} MiB |", flush=True)


if __name__ == "__main__":
    main()
