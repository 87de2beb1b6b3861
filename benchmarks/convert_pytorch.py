"""Convert a large pair of PyTorch recordings: megabytes per second on one core, and peak memory.

    python benchmarks/convert_pytorch.py [--copies 16 160] [--folder FOLDER]

The pair is Megatron's of tests/converters/pytorch_traces, repeated with shifted times and ids; 16 copies are
what Chakra's tools are known to need 110 s and 1.2 GB for. `et-convert pytorch` runs in a process of its own,
and once before that to compile.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from recordings import RECORDINGS, repeat

PAIR = RECORDINGS / "megatron_tp8"
_MB = 1_000_000


def repeat_pair(host: Path, device: Path, copies: int) -> None:
    """Write both recordings as if the step had been repeated so many times."""
    repeat(PAIR / "et_0.json.gz", host, 0, copies)
    repeat(PAIR / "kineto_0.json.gz", device, 0, copies)


def convert(folder: Path, host: Path, device: Path) -> dict[str, float]:
    """Return wall and processor seconds, and peak memory, of one conversion."""
    program = "import sys; from converters.cli import main; sys.exit(main())"
    files = ["--force", "--host", str(host), "--device", str(device), "-o", str(folder / "out.0.et")]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[1])}
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    command = [sys.executable, "-c", f"import resource\n{_REPORTING}{program}", "pytorch", *files]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {
        "wall_s": time.monotonic() - begin,
        "cpu_s": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
        "peak_mib": int(done.stderr.rpartition("VmHWM:")[2].split()[0]) / 1024,
        "out_mb": (folder / "out.0.et").stat().st_size / _MB,
    }


# The peak of that program alone; getrusage of children includes the peak of this process.
_REPORTING = (
    "import atexit, pathlib, sys\n"
    "atexit.register(lambda: sys.stderr.write(pathlib.Path('/proc/self/status').read_text()))\n"
)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--copies", type=int, nargs="+", default=[16])
    parser.add_argument("--folder", type=Path, help="where the large files go")
    options = parser.parse_args()
    print("| copies | MB in | MB out | processor | wall | MB/s | peak |")
    print("|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory(dir=options.folder) as temporary:
        folder = Path(temporary)
        host, device = folder / "et_0.json", folder / "kineto_0.json"
        repeat_pair(host, device, 1)
        convert(folder, host, device)
        for copies in options.copies:
            repeat_pair(host, device, copies)
            size = (host.stat().st_size + device.stat().st_size) / _MB
            took = convert(folder, host, device)
            seconds = f"{took['cpu_s']:.1f} s | {took['wall_s']:.1f} s"
            rate = f"{size / took['cpu_s']:.0f} | {took['peak_mib']:.0f} MiB"
            print(f"| {copies} | {size:,.0f} | {took['out_mb']:.0f} | {seconds} | {rate} |", flush=True)


if __name__ == "__main__":
    main()
