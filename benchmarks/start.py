"""The time of whole processes: `--help`, a warm and a first run of eight ranks, and compiling for it.

    python benchmarks/start.py [--repeat 7] [--shipped FOLDER]

The first run is interpreted; a second one waits until engine and decoder are compiled into an empty cache.
With FOLDER, which `python -m et_sim.compiled.ship` filled, a third one is that of a wheel with the archive.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
SAMPLE = REPOSITORY / "traces" / "all_reduce_ring_8"
ET_SIM = (sys.executable, "-c", "import sys; from et_sim.cli import main; sys.exit(main())")


def processor_seconds() -> float:
    """Return the processor time of all ended child processes."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def seconds(arguments: list[str], folder: str, cache: str, compiling: str = "now", **others: str) -> float:
    """Return the wall time of one process."""
    environment = {**os.environ, "ET_SIM_CACHE_DIR": cache, "ET_SIM_COMPILE": compiling, **others}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # with it, every module is compiled anew
    begin = time.perf_counter()
    subprocess.run([*ET_SIM, *arguments], cwd=folder, env=environment, check=True, capture_output=True)
    return time.perf_counter() - begin


def first_with_shipped(run: list[str], folder_of_archive: Path, folder: str) -> float:
    """Return the wall time of a first run of the installed wheel."""
    site, cache = Path(folder) / "site", Path(folder) / "cache"
    shutil.copytree(REPOSITORY / "et_sim", site / "et_sim")
    shutil.copy(folder_of_archive / "bitcode.zip", site / "et_sim" / "compiled")
    return seconds(run, folder, str(cache), PYTHONPATH=str(site))


def main() -> None:
    """Print the median of each."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeat", type=int, default=7)
    parser.add_argument("--shipped", type=Path)
    given = parser.parse_args()
    repeat = given.repeat
    [trace] = {path.name.split(".")[0] for path in SAMPLE.glob("*.0.et")}
    run = ["run", str(SAMPLE / trace), "--system", str(SAMPLE / "system.json")]
    run += ["--network", str(SAMPLE / "network.yml"), "--profile", "reference", "--out", "out"]
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as cache:
        print(f"first run, interpreted {seconds(run, folder, cache, 'never'):6.2f} s")
        print(f"first run, compiling   {seconds(run, folder, cache):6.2f} s")
        if given.shipped:
            first = first_with_shipped(run, given.shipped, folder)
            print(f"first run, shipped     {first:6.2f} s")
        for name, arguments in (("warm run, 8 ranks", run), ("--help", ["--help"])):
            times, work = [], []
            for _ in range(repeat):
                before = processor_seconds()
                times.append(seconds(arguments, folder, cache))
                work.append(processor_seconds() - before)
            clock = f"{statistics.median(times):6.2f} s  (best {min(times):.2f} s of {repeat})"
            print(f"{name:<22} {clock}, of the processor {statistics.median(work):.2f} s")


if __name__ == "__main__":
    main()
