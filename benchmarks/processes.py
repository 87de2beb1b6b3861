"""Processes that the suite measures: et-sim, and a binary of the reference on the same inputs.

The reference is ASTRA-sim with its analytical network. It reads one trace file for each rank, and so gets the
files that a manifest stands for. Not here: what is measured (`suite`), and how it is shown.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from msgspec import Struct

ET_SIM = (sys.executable, "-c", "import sys; from et_sim.entry import main; sys.exit(main())")
# In a process of its own: one that has used much memory passes that on as the peak of those it starts.
WRITE_FILES = (
    sys.executable,
    "-c",
    "import sys; from et_sim.trace import read_workload, write_workload;"
    " write_workload(read_workload(sys.argv[1]), sys.argv[2])",
)
# Machine code is waited for, and Python keeps its own: the second of equal runs makes neither.
MADE_BEFORE = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
MADE_BEFORE["ET_SIM_COMPILE"] = "now"
NO_MEMORY = {"memory-type": "NO_MEMORY_EXPANSION"}


class ProcessError(Exception):
    """A process that failed; the text names it and its error."""


class Measured(Struct, frozen=True):
    """The resources that a process used."""

    wall_s: float
    processor_s: float  # user and system
    peak_mib: int


def run_measured(command: list[str], folder: Path, name: str) -> Measured:
    """Run a command in a folder, with its output in the files `stdout` and `stderr` there.

    et-sim finds its machine code, or makes it first.
    """
    with (folder / "stdout").open("wb") as stdout, (folder / "stderr").open("wb") as stderr:
        begin = time.perf_counter()
        try:
            process = subprocess.Popen(command, cwd=folder, env=MADE_BEFORE, stdout=stdout, stderr=stderr)
        except OSError as error:
            raise ProcessError(f"{name} {command[0]} cannot be run: {error.strerror}") from None
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        wall = time.perf_counter() - begin
    if status:
        said = [*(folder / "stderr").read_text(errors="replace").split("\n"), ""]
        last = next((line for line in reversed(said) if line.strip()), "nothing on stderr")
        raise ProcessError(f"{name} {command[0]} ended with status {process.returncode}: {last.strip()}")
    return Measured(round(wall, 3), round(usage.ru_utime + usage.ru_stime, 3), usage.ru_maxrss >> 10)


class Reference(Struct, frozen=True):
    """The reference's binaries by network model."""

    binaries: dict[str, Path]

    @staticmethod
    def of(unaware: Path | None, aware: Path | None) -> Reference:
        """Return the given binaries, each of which must be a program."""
        given = {"analytical": unaware, "link": aware}
        binaries = {model: path.resolve() for model, path in given.items() if path is not None}
        for path in binaries.values():
            if not (path.is_file() and os.access(path, os.X_OK)):
                raise ProcessError(f"the reference {path} is no program that can be run")
        return Reference(binaries)

    def measure(self, model: str, workload: Path, folder: Path) -> Measured:
        """Run once on the files of a folder; the traces of a manifest are written first."""
        prefix = workload
        if not Path(f"{prefix}.0.et").exists():
            prefix = folder / f"{workload.name.removesuffix('.workload.json')}-files"
            if not Path(f"{prefix}.0.et").exists():
                subprocess.run([*WRITE_FILES, str(workload), str(prefix)], check=True)
        (folder / "memory.json").write_text(json.dumps(NO_MEMORY))
        command = [
            str(self.binaries[model]),
            f"--workload-configuration={prefix}",
            "--system-configuration=system.json",
            "--remote-memory-configuration=memory.json",
            "--network-configuration=network.yml",
        ]
        groups = folder / "groups.json"
        command += [f"--comm-group-configuration={groups.name}"] if groups.exists() else []
        return run_measured(command, folder, "the reference")
