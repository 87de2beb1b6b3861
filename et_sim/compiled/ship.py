"""Compiles ahead what a wheel brings along: `python -m et_sim.compiled.ship FOLDER [PROGRAM ARGUMENT ...]`.

Runs of all kinds, or a program of yours, order the code that they lack, while they are interpreted. It is
compiled to bitcode, for any processor, and put into an archive in FOLDER. A wheel takes it from there if the
environment variable ET_SIM_SHIPPED names FOLDER when it is built.

Not here: using the archive (`shipped`).
"""

from __future__ import annotations

import argparse
import itertools
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from importlib.metadata import version
from multiprocessing import get_context
from pathlib import Path

from et_sim.compiled.compile_queue import Order, locked, orders
from et_sim.compiled.shipped import ARCHIVE, member, write_archive
from et_sim.compiled.store import SETTINGS, cache_directory

ET_SIM = (sys.executable, "-c", "import sys; from et_sim.cli import main; sys.exit(main())")
MODELS, PACKETS = ("analytical", "link", "flow"), "packet"
DETAILS = ("", "messages", "path")
PROFILES = ("corrected", "reference")
MACHINE = "h100-dgx:16"


def main() -> None:
    """Make the archive."""
    parser = argparse.ArgumentParser(prog="python -m et_sim.compiled.ship", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("program", nargs=argparse.REMAINDER)
    given = parser.parse_args()
    folder: Path = given.folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    for name in SETTINGS:
        os.environ.pop(name, None)
    os.environ["NUMBA_CPU_NAME"] = "generic"
    with tempfile.TemporaryDirectory() as scratch:
        os.environ.update(ET_SIM_CACHE_DIR=scratch, ET_SIM_COMPILE="background")
        programs = iter([given.program]) if given.program else _all_kinds(Path(scratch))
        wanted = _ordered_by(programs)
        with ProcessPoolExecutor(1, get_context("spawn"), max_tasks_per_child=1) as pool:
            members = {}
            for order, made in zip(wanted, pool.map(_compiled, wanted), strict=True):
                members[order.path.name] = made
                sys.stdout.write(f"{order.path.name} {len(made):,} bytes\n")
                sys.stdout.flush()
        write_archive(folder / ARCHIVE, members)
    (folder / "requires.txt").write_text(f"llvmlite>={version('llvmlite')}\n", encoding="utf-8")  # reads it


def _ordered_by(programs: Iterator[list[str]]) -> list[Order]:
    """What programs order when nothing is there: the lock keeps others from making it."""
    with locked(cache_directory()):
        for program in programs:
            subprocess.run(program, check=True, stdout=subprocess.DEVNULL)
    return [wanted for _, wanted in orders(cache_directory())]


def _all_kinds(scratch: Path) -> Iterator[list[str]]:
    """Commands that between them run every kind of code that is common."""
    demo, run = scratch / "demo", str(scratch / "run")
    yield [*ET_SIM, "demo", "--out", str(demo)]
    yield [*ET_SIM, "make", "all_reduce", "--ranks", "16", "--bytes", "65536", "-o", str(scratch / "alike")]
    ring = ["--system", str(demo / "system.json"), "--network", str(demo / "network.yml")]
    uneven = (str(demo / "traces" / "step"), *ring)  # packets of this one take minutes
    alike = (str(scratch / "alike"), "--machine", MACHINE)
    cases = [*itertools.product((uneven, alike), MODELS), (alike, PACKETS)]
    for (workload, model), detail in itertools.product(cases, DETAILS):
        details = ["--detail", detail] if detail else []
        for profile in PROFILES:
            how = ["--network-model", model, "--profile", profile, *details]
            yield [*ET_SIM, "run", *workload, *how, "--out", run]
        if detail == "path":
            yield [*ET_SIM, "inspect", run, "critical-path"]


def _compiled(wanted: Order) -> bytes:
    from et_sim.compiled.worker import compiled

    made = compiled(wanted, lambda _: None)
    return member(made.symbol, made.returns, made.bitcode)


if __name__ == "__main__":
    main()
