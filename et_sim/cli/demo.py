"""`et-sim demo`: simulate the bundled training step on the bundled machine, and leave everything as files."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from et_sim.basics.declared_options import Command
from et_sim.basics.errors import UsageError, unreadable

MACHINE = ("system.json", "network.yml")
TRACES, STEP, RUN = "traces", "step", "run"


class Options(Command):
    """Write a small training step and a machine as files, simulate it, and show the result."""

    out: Annotated[Path, "directory to write"] = Path("et-sim-demo")


def run(options: Options) -> int:
    """Write the inputs, and run them like `et-sim run`."""
    from et_sim.cli.simulating import simulate_into
    from et_sim.run.options import RunOptions
    from et_sim.timeline import check_target

    folder: Path = options.out
    check_target(folder / RUN)
    _write_inputs(folder)
    print("One training step of a 12-layer transformer, data-parallel on a ring of 8; rank 5 is slow.\n")
    sys.stdout.flush()
    system, network = folder / "system.json", folder / "network.yml"
    machine = RunOptions(system=system, network=network, other_profile=True)  # like et-sim run
    status = simulate_into(folder / RUN, str(folder / TRACES / STEP), machine, as_json=False)
    print("\nThe inputs are files too. Change one, for example the bandwidth, and simulate again:")
    print(_repeat(folder))
    return status


def _repeat(folder: Path) -> str:
    """Return the command that repeats the demo's run."""
    options = f"--system {folder / 'system.json'} --network {folder / 'network.yml'} --out {folder / RUN}"
    return f"et-sim run {folder / TRACES / STEP} {options}"


def _write_inputs(folder: Path) -> None:
    """Write all files or none: check for loss before writing."""
    from et_sim.trace.encode import encode_trace
    from et_sim.workloads.demo import training_step

    workload = training_step()
    encoded = [encode_trace(trace) for trace in workload.templates]
    files = {folder / name: _bundled(name) for name in MACHINE}
    for rank, template in enumerate(workload.template_of_rank.tolist()):
        files[folder / TRACES / f"{STEP}.{rank}.et"] = encoded[template]
    try:
        for path, content in files.items():
            if path.exists() and path.read_bytes() != content:
                raise UsageError(
                    "exists and is not the demo's file, or was changed since",
                    place=str(path),
                    remedy="choose another directory with --out; nothing was overwritten",
                )
        (folder / TRACES).mkdir(parents=True, exist_ok=True)
        for path, content in files.items():
            path.write_bytes(content)
    except OSError as error:
        place = str(error.filename or folder)
        raise UsageError(
            f"cannot be written: {unreadable(error)}", place=place, remedy="choose a directory with --out"
        ) from None


def _bundled(name: str) -> bytes:
    from importlib.resources import files

    return (files("et_sim.workloads.demo") / name).read_bytes()
