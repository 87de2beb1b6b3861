"""The command line starts without loading anything heavy."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from et_sim.cli import COMMANDS
from et_sim.trace import TraceBuilder, Workload, write_workload

REPOSITORY = Path(__file__).resolve().parents[1]
HEAVY = ("numpy", "numba", "pyarrow", "yaml", "networkx", "google.protobuf", "msgspec", "rich", "duckdb")
SLOW = (*HEAVY, "pandas", "pyarrow.compute")
OF_FEW_RUNS = (
    *(
        "et_sim.machine.topology",
        "et_sim.machine.version_1",
        "et_sim.memory.spilling",
        "et_sim.trace.builder",
        "et_sim.tables.summary",
        "et_sim.timeline.spool",
        "et_sim.collectives.trees",
    ),
    *("et_sim.compute.device", "et_sim.compute.rules", "et_sim.plan.library_phases", "fractions"),
)
OF_INTERPRETED_RUNS = ("et_sim.engine.loop", "et_sim.engine.nodes", "et_sim.trace.wire_nodes")
PROGRAM = """
import contextlib, io, sys
from et_sim.cli import main
with contextlib.redirect_stdout(io.StringIO()) as printed, contextlib.suppress(SystemExit):
    main({arguments!r})
assert printed.getvalue()
print(*(name for name in {heavy!r} if name in sys.modules))
"""


def _loaded_by(*arguments: str, of: tuple[str, ...] = SLOW) -> list[str]:
    program = PROGRAM.format(arguments=list(arguments), heavy=of)
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=REPOSITORY, capture_output=True, text=True, check=True
    )
    return done.stdout.split()


def test_help_loads_nothing_heavy_and_no_command() -> None:
    names = (name.replace("-", "_") for group in COMMANDS.values() for name in group)
    commands = tuple(f"et_sim.cli.{name}" for name in names)
    assert _loaded_by("run", "--help", of=commands) == ["et_sim.cli.run"]
    assert _loaded_by("--help", of=(*SLOW, "dataclasses", *commands)) == []


OF_OPTIONS = {"msgspec"}  # options of runs and plans are records


def test_help_of_a_command_loads_nothing_heavy() -> None:
    for command in (
        "run",
        "sweep",
        "check",
        "inspect",
        "export",
        "report",
        "sql",
        "make",
        "collective",
        "demo",
        "doctor",
    ):
        assert set(_loaded_by(command, "--help")) <= OF_OPTIONS, command


def test_importing_the_package_loads_nothing_heavy() -> None:
    program = f"import sys, et_sim; print(*(name for name in {SLOW!r} if name in sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=REPOSITORY, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == []


def test_modules_that_few_runs_need_are_not_imported_with_the_simulator() -> None:
    names = (*OF_FEW_RUNS, *OF_INTERPRETED_RUNS)
    program = f"import sys, et_sim.api; print(*(name for name in {names!r} if name in sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=REPOSITORY, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == []


SYSTEM = {
    "profile": "reference",
    **{
        f"{name}-implementation": ["ring"]
        for name in ("all-reduce", "all-gather", "reduce-scatter", "all-to-all")
    },
}
NETWORK = {"topology": ["Ring"], "npus_count": [2], "bandwidth": [50], "latency": [500]}
OWN = """
import sys
from et_sim.cli import main
assert main({arguments!r}) == 0
print(sum(name.partition(".")[0] == "et_sim" for name in sys.modules), file=sys.stderr)
print("yaml" in sys.modules, file=sys.stderr)
"""
MOST_OWN_MODULES = 235  # each takes about 0.2 ms; a run of a few ranks needs no more


@pytest.mark.usefixtures("warm_engine")
def test_a_short_run_imports_few_modules_and_no_yaml_library_for_json(tmp_path: Path) -> None:
    """Check the limit on two ranks that compute; import a new module where it is used, in a function."""
    builder = TraceBuilder()
    builder.compute("kernel", micros=3)
    write_workload(Workload((builder.build(),), np.zeros(2, np.int32)), tmp_path / "two")
    for name, content in (("system.json", SYSTEM), ("network.yml", NETWORK)):
        (tmp_path / name).write_text(json.dumps(content))
    machine = ("--system", "system.json", "--network", "network.yml", "--out", "run")
    program = OWN.format(arguments=["run", "two", *machine])
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    command = [sys.executable, "-c", program]
    for _ in range(2):  # the first run may have to write machine code or the hash of the sources
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
        )
    count, has_yaml = done.stderr.split()[-2:]
    assert has_yaml == "False"
    assert int(count) <= MOST_OWN_MODULES


@pytest.mark.usefixtures("warm_engine")
def test_a_run_loads_nothing_that_it_does_not_need(tmp_path: Path) -> None:
    """Check that the compiler, and modules that numpy and Arrow load for conversions, are not loaded."""
    needless = {
        "numba",
        "numpy.ma",
        "pandas",
        "pyarrow.compute",
        "duckdb",
        "networkx",
        "google.protobuf",
        "rich",
    }
    needless |= {*OF_INTERPRETED_RUNS}
    assert _loaded_by("demo", "--out", str(tmp_path / "demo"), of=tuple(needless)) == []
