"""Compilation of the code that a wheel ships: `python -m et_sim.compiled.ship FOLDER [PROGRAM ARGUMENT ...]`.

Runs of all kinds, or a program of yours, order the code that they lack, while they are interpreted. It is
compiled to bitcode, for any processor, and put into an archive in FOLDER. A wheel takes it from there if the
environment variable ET_SIM_SHIPPED names FOLDER when it is built.
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
from et_sim.compiled.sources import PACKAGE
from et_sim.compiled.store import SETTINGS, cache_directory

ET_SIM = (sys.executable, "-c", "import sys; from et_sim.cli import main; sys.exit(main())")
ET_CONVERT = (sys.executable, "-c", "import sys; from converters.cli import main; sys.exit(main())")
RECORDED = PACKAGE.parent / "tests" / "converters" / "pytorch_traces" / "megatron_tp8"
GRID = "topology: [Ring]\nnpus_count: [4]\nbandwidth: [50.0]\nlatency: [500.0]\n"
GRAPH = (
    "graph: { generator: leaf-spine, leaves: 2, spines: 1, npus-per-leaf: 2, bandwidth: 100Gbps, "
    "latency: 0.5us }\nlogical-dimensions: [ 4 ]\n"
)
LEVELS = (  # of 1.0
    '{"topology-name": "Hierarchical", "topologies-per-dim": ["Ring"], "dimensions-count": 1, '
    '"units-count": [4], "links-count": [2], "link-latency": [500], "link-bandwidth": [50]}\n'
)
PACKETS = (GRAPH, f"{GRAPH}protocol: {{ preset: tcp }}\n", f"{GRAPH}credits: {{ flit: 256, packet: 4096 }}\n")
CONTROLS = (  # of congestion, besides those of the presets: only without details
    *(
        f"{GRAPH}protocol: {{ preset: datacenter, congestion-control: {name} }}\n"
        for name in ("none", "hpcc", "timely", "dctcp", "swift", "powertcp")
    ),
    *(
        f"{GRAPH}protocol: {{ preset: tcp, tcp: {{ congestion-control: {name} }} }}\n"
        for name in ("reno", "cubic", "dctcp")
    ),
)
CONSTANTS = "loggops: { npus: 4, L: 2500, o: 1500, g: 1000, G: 6, O: 0, S: 65535 }\n"
DETAILS = ("", "messages", "path")
NETWORKS = {  # small networks of each model, with all fabrics and transports, and the details it records
    "analytical": ((GRID, GRAPH, LEVELS), DETAILS),
    "link": ((GRID, GRAPH), DETAILS),
    "flow": ((GRID, GRAPH), DETAILS),
    "packet": (PACKETS, DETAILS),
    "loggops": ((CONSTANTS,), DETAILS[:1]),
}
PROFILES = ("corrected", "reference")


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
    (folder / "requires.txt").write_text(f"llvmlite>={version('llvmlite')}\n", encoding="utf-8")  # its reader


def _ordered_by(programs: Iterator[list[str]]) -> list[Order]:
    """Return the orders of programs when no code exists; the lock keeps workers from making it."""
    with locked(cache_directory()):
        for program in programs:
            subprocess.run(program, check=True, stdout=subprocess.DEVNULL)
    return [Order.from_bytes(content) for _, content in orders(cache_directory())]


def _all_kinds(scratch: Path) -> Iterator[list[str]]:
    """Yield commands that order the engine in all its forms, and other compiled functions."""
    demo, run, system = scratch / "demo", str(scratch / "run"), scratch / "system.json"
    yield [*ET_SIM, "demo", "--out", str(demo)]
    yield [*ET_SIM, "make", "all_reduce", "--ranks", "4", "--bytes", "4096", "-o", str(scratch / "four")]
    system.write_text('{"all-reduce-implementation": ["ring"]}')
    file = scratch / "network.yml"
    kinds = [(model, *of_model) for model, of_model in NETWORKS.items()]
    for model, networks, details in (*kinds, ("packet", CONTROLS, DETAILS[:1])):
        for network, detail, profile in itertools.product(networks, details, PROFILES):
            file.write_text(network)
            machine = ["--system", str(system), "--network", str(file), "--network-model", model]
            how = ["--profile", profile, *(["--detail", detail] if detail else [])]
            yield [*ET_SIM, "run", str(scratch / "four"), *machine, *how, "--out", run]
            if detail == "path":
                yield [*ET_SIM, "inspect", run, "critical-path"]
    recorded = [f"--{side}={RECORDED / name}" for side, name in (("host", "et_0"), ("device", "kineto_0"))]
    yield [*ET_CONVERT, "pytorch", *(f"{file}.json.gz" for file in recorded), "-o", str(scratch / "0.et")]


def _compiled(wanted: Order) -> bytes:
    from et_sim.compiled.worker import compiled

    made = compiled(wanted, lambda _: None)
    return member(made.symbol, made.returns, made.bitcode)


if __name__ == "__main__":
    main()
