"""The study of docs/studies/dlrm.md: a DLRM on four systems, packet by packet.

    python docs/studies/dlrm.py [--results FILE]

Runs what is not in the file of results yet (`dlrm.json` beside this script: a study that was ended goes on
where it was), then writes the page's numbers between its markers, and the pictures. Progress goes to stderr.

Not here: the DLRM and the systems (`dlrm_setup`), its tables and pictures (`dlrm_page`).
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import dlrm_setup as setup
from dlrm_setup import FULL, MIB, SYSTEMS, Scale
from msgspec import Struct
from msgspec.structs import force_setattr

import et_sim

HERE = Path(__file__).parent
RESULTS = HERE / "dlrm.json"
QUEUES, TIMEOUTS = (350, 1400, 5500), ("1ms", "10ms", "200ms")
INJECTIONS = ("0.01us", "1us", "10us", "100us")
CHUNKED = ("Flat100G", "HierOpt")
CHUNKS, CONCURRENCIES, WINDOWS = (1024, 128, 32), (64, 128), (500_000, 100_000)
BUFFERS = (64 * MIB, 1024 * MIB)
BUFFERED: tuple[dict[str, Any], ...] = ({}, {"chunks": 32, "concurrency": 128})
SAME_ORDER = "direct, same order"
ALGORITHMS = ("ring", "direct", SAME_ORDER, "doubleBinaryTree")
MODELS = ("analytical", "flow", "packet")

Found = dict[str, Any]


class Point(Struct, frozen=True):
    """A run: its name in the page, and what it is made of."""

    name: tuple[Any, ...]
    layers: str
    system: dict[str, Any]
    network: dict[str, Any]
    model: str = "packet"
    same_order: tuple[int, int] | None = None  # ranks and bytes
    digest: str = ""

    def __post_init__(self) -> None:
        parts = (self.layers, self.system, self.network, self.model, self.same_order)
        found = hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
        force_setattr(self, "digest", found[:16])


def lone(
    scale: Scale, model: str, algorithm: str, size: int, packets: int = 5500, timeout: str = "10ms"
) -> Point:
    """Return a job of a single all-reduce."""
    is_same = algorithm == SAME_ORDER
    return Point(
        ("lone", model, algorithm, size, packets, timeout),
        setup.one_all_reduce(size),
        setup.lone_system(algorithm, Path("same") if is_same else None),
        setup.lone_network(scale.ranks, model, packets, timeout),
        model,
        (scale.ranks, size) if is_same else None,
    )


def trained(scale: Scale, system: str, *, model: str = "packet", **changed: Any) -> Point:
    """Return a job of two iterations of the DLRM."""
    of_system = {key: changed[key] for key in ("chunks", "concurrency") if key in changed}
    of_network = {key: value for key, value in changed.items() if key not in of_system}
    return Point(
        ("dlrm", model, system, *sorted(changed.items())),
        setup.layer_file(scale),
        setup.system_of(system, scale, **of_system),
        setup.network_of(system, scale, model, **of_network),
        model,
    )


def points(scale: Scale) -> Iterator[Point]:
    """Yield all runs of the study; some appear twice."""
    for size in scale.sizes:
        for algorithm in ALGORITHMS:
            for model in MODELS:
                yield lone(scale, model, algorithm, size)
    for packets in QUEUES:
        for timeout in TIMEOUTS:
            yield lone(scale, "packet", SAME_ORDER, min(MIB, scale.sizes[-1]), packets, timeout)
    for model in MODELS:
        for system in SYSTEMS:
            yield trained(scale, system, model=model)
    for system in SYSTEMS:
        for injection in INJECTIONS[1:]:
            yield trained(scale, system, injection=injection)
        for changed in BUFFERED:
            for buffer in BUFFERS:
                for is_shared in (False, True):
                    yield trained(scale, system, buffer=buffer, is_shared=is_shared, **changed)
    for system in CHUNKED:
        for chunks in CHUNKS:
            for concurrency in CONCURRENCIES:
                for window in WINDOWS:
                    yield trained(scale, system, chunks=chunks, concurrency=concurrency, window=window)


def simulated(point: Point) -> Found:
    """Simulate a run, and return its figures."""
    with TemporaryDirectory() as folder:
        path, system = Path(folder) / "layers.txt", dict(point.system)
        path.write_text(point.layers, encoding="utf-8")
        if point.same_order:
            setup.write_same_order(Path(folder) / "same", *point.same_order)
            system["all-reduce-implementation-custom"] = [str(Path(folder) / "same")]
        begin = time.process_time()
        result = et_sim.simulate(path, system=system, network=point.network, model=point.model)
        seconds = time.process_time() - begin
    rows = result.table("layers").to_pylist()
    packets: Mapping[str, Any] = result.summary()["packets"] or {}
    return {
        "makespan_ns": result.makespan_ns,
        "seconds": round(seconds, 2),
        "packets": {name: packets[name] for name in ("sent", "sent_again", "lost") if name in packets},
        "layers": [{name: value for name, value in row.items() if value} for row in rows],
    }


class Results:
    """The figures of all runs, in a file that is written after each run."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._found: dict[str, Found] = {}
        if path and path.exists():
            self._found = json.loads(path.read_text(encoding="utf-8"))

    def __getitem__(self, point: Point) -> Found:
        return self._found[point.digest]

    def missing(self, wanted: Iterator[Point]) -> list[Point]:
        """Return the runs that are still missing."""
        return list({point.digest: point for point in wanted if point.digest not in self._found}.values())

    def add(self, point: Point, found: Found) -> None:
        """Keep what a run gave."""
        self._found[point.digest] = {"name": " ".join(map(str, point.name)), **found}
        if self._path:
            lines = [f"{json.dumps(key)}: {json.dumps(one)}" for key, one in self._found.items()]
            beside = self._path.with_suffix(".part")
            beside.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
            beside.replace(self._path)


def run_all(scale: Scale, results: Results, say: Callable[[str], None]) -> None:
    """Run what is missing; what is left is estimated from what was run."""
    wanted, begin = results.missing(points(scale)), time.monotonic()
    for done, point in enumerate(wanted):
        left = (time.monotonic() - begin) / max(done, 1) * (len(wanted) - done) / 60
        estimate = f", about {left:.0f} min left" if done else ""
        say(f"{done + 1} of {len(wanted)}{estimate}: {' '.join(map(str, point.name))}")
        results.add(point, simulated(point))


def main() -> None:
    """Run the whole study."""
    os.environ.setdefault("ET_SIM_COMPILE", "now")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--results", type=Path, default=RESULTS)
    results = Results(parser.parse_args().results)
    run_all(FULL, results, lambda text: print(text, file=sys.stderr, flush=True))  # noqa: T201
    from dlrm_page import write_page

    write_page(FULL, results)


if __name__ == "__main__":
    main()
