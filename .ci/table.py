"""Runs a script of stages, and then prints where the time went: stages, the slowest files of tests, memory.

    python .ci/table.py SCRIPT

The script gets a folder. There it writes `stages` (lines of the second at which one begins, and its name),
has pytest write `short.xml` and `deep.xml`, and keeps machine code in `cache`. The last line is pytest's own.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections import defaultdict
from itertools import pairwise
from pathlib import Path

MOST_FILES = 20


def main(script: str) -> int:
    """Run the script; its exit status."""
    with tempfile.TemporaryDirectory() as folder:
        begin = time.monotonic()
        process = subprocess.Popen(["bash", script, folder], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        closing = ""
        for line in process.stdout:
            sys.stdout.write(line)
            sys.stdout.flush()
            if " passed" in line or " failed" in line:
                closing = line
        status = process.wait()
        _print_table(Path(folder), round(time.monotonic() - begin))
    print(f"== {'all passed' if status == 0 else f'ended with status {status}'}")
    sys.stdout.write(closing)
    return status


def _print_table(results: Path, seconds: int) -> None:
    print("== seconds of each stage")
    stages = results / "stages"
    lines = [line.split(" ", 1) for line in stages.read_text().splitlines()] if stages.exists() else []
    for (begin, name), (end, _) in pairwise([*lines, [str(seconds), ""]]):
        print(f"{int(end) - int(begin):6d}  {name}")
    print(f"{seconds:6d}  altogether")
    for suite in ("short", "deep"):
        if (results / f"{suite}.xml").exists():
            print(f"== seconds and number of tests of the slowest files of the {suite} tests")
            for name, times in _slowest(results / f"{suite}.xml"):
                print(f"{sum(times):6.0f}  {len(times):6,}  {name}")
    machine_code = list((results / "cache").rglob("*.code"))
    forms = sum(path.name.startswith("simulate-") for path in machine_code)
    print(f"== compiled: {forms} forms of the engine, {len(machine_code) - forms} other functions")
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024
    print(f"== peak memory of a process: {peak:,} MiB")


def _slowest(file: Path) -> list[tuple[str, list[float]]]:
    """Return files of tests and the seconds of their tests, the slowest first."""
    times = defaultdict[str, list[float]](list)
    for case in ElementTree.parse(file).iter("testcase"):
        times[case.get("classname", "")].append(float(case.get("time", 0)))
    return sorted(times.items(), key=lambda item: -sum(item[1]))[:MOST_FILES]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
