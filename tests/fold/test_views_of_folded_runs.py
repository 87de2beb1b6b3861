"""Every view of a folded run is that of the unfolded one, to the last digit, on machines of every kind.

Views are taken from their registry, so that a new one is covered by itself.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from machines import network, ring, system
from training_jobs import transformer

from et_sim.api import run
from et_sim.basics.errors import EtSimError
from et_sim.timeline import write_run
from et_sim.trace import TraceBuilder, Workload
from et_sim.views import RunDirectory, open_run
from et_sim.views.compare.changes import compare
from et_sim.views.report.times import exposed_by_group
from et_sim.views.run.selection import Selection, selection
from et_sim.views.sql import Database
from et_sim.views.view import VIEWS

RANKS = 8
MIB = 1 << 20
Machine = dict[str, Any]
# Actors differ by the ranks they represent; the picture of a timeline is no data.
OF_ACTORS = ("folded",)
NOT_DATA = ("picture",)
# Tables that are defined by rank; columns that name actors are none of it.
QUERIES = (
    "SELECT * EXCLUDE (actor, end_cause_actor, waits_for) FROM rank_timeline ORDER BY ALL",
    "SELECT * FROM rank_groups ORDER BY ALL",
    "SELECT * EXCLUDE (actor) FROM ranks ORDER BY ALL",
    "SELECT rank, phases.* EXCLUDE (actor) FROM phases JOIN ranks USING (actor) ORDER BY ALL",
)


def of_builders(builders: list[TraceBuilder]) -> Workload:
    return Workload.of([builder.build() for builder in builders])


def collectives(ranks: int = RANKS, *, sends: bool = True) -> Workload:
    """Return computation, collectives beside and after each other, and a message to the next rank."""
    builders = []
    for rank in range(ranks):
        build = TraceBuilder()
        work = build.compute("layer", micros=20)
        reduced = build.collective("all_reduce", MIB, after=[work])
        swapped = build.collective("all_to_all", 1 << 18, after=[reduced])
        build.collective("all_gather", 100_001, after=[work])
        if sends:
            build.send((rank + 1) % ranks, 65536, tag=1, after=[swapped])
            got = build.receive((rank - 1) % ranks, 65536, tag=1, after=[swapped])
            build.compute("tail", micros=7, after=[got])
        builders.append(build)
    return of_builders(builders)


def pipeline(width: int = 2, micro_batches: int = 3) -> Workload:
    """Return stages of some ranks each; at the end, the ranks of a stage add up their results."""
    builders = []
    for rank in range(RANKS):
        build, stage, before = TraceBuilder(), rank // width, list[int]()
        for number in range(micro_batches):
            if stage:
                before = [*before, build.receive(rank - width, MIB, tag=number, after=before)]
            before = [build.compute(f"micro-batch {number}", micros=30, after=before)]
            if rank + width < RANKS:
                build.send(rank + width, MIB, tag=number, after=before)
        build.collective("all_reduce", MIB, after=before, group=str(stage + 1))
        builders.append(build)
    return of_builders(builders)


def requests() -> Workload:
    """Return loads from a memory pool and stores to it, and an all-reduce."""
    build = TraceBuilder()
    work = build.compute("kernel", micros=5, after=[build.load(MIB)])
    build.store(MIB // 2, after=[work])
    build.collective("all_reduce", MIB, after=[work])
    return of_builders([build] * RANKS)


def jobs(*npus: str) -> dict[str, Any]:
    """Return the same job on several parts of the machine."""
    listed = enumerate(npus)
    return {"jobs": [{"name": f"job{at}", "workload": collectives(4), "npus": which} for at, which in listed]}


def corrected(dimensions: int = 1, algorithm: str = "ring", **keys: Any) -> dict[str, Any]:
    return system(algorithm, dimensions, profile="corrected", **keys)


def graph(generator: str, **keys: Any) -> dict[str, Any]:
    return {"graph": {"generator": generator, "bandwidth": "47GB/s", "latency": 300, **keys}}


GRID = network(["Ring", "Switch"], [4, 2])
STAR, LEAVES = (
    graph("star", npus=RANKS),
    graph("leaf-spine", **{"leaves": 2, "spines": 2, "npus-per-leaf": 4}),
)
OWN_STAGES: dict[str, Any] = {
    "memory-type": "HIERARCHICAL_POOL",
    "chunk": "64KiB",
    "stages": [
        {"name": "nic", "count": RANKS, "bandwidth": 100, "latency": 50},
        {"name": "memory", "count": RANKS, "bandwidth": 200, "latency": 100},
    ],
}
PAIRS = corrected(algorithm="halvingDoubling", **{"all-to-all-implementation": ["direct"]})
STAGES = {str(stage + 1): [2 * stage, 2 * stage + 1] for stage in range(4)}
LATE = [{"ranks": "1,3,5,7", "delay": "3us"}]
SLOW = [{"ranks": "1,3,5,7", "compute": 1.5}]
CASES: Mapping[str, tuple[Any, Machine]] = MappingProxyType(
    {
        "grid": (collectives(), {"network": GRID, "system": corrected(2)}),
        "grid of ASTRA-sim's rules": (collectives(), {"network": ring(RANKS), "system": system()}),
        "exchanges in pairs": (
            collectives(),
            {"network": network(["FullyConnected"], [RANKS]), "system": PAIRS},
        ),
        "star": (collectives(), {"network": STAR, "system": corrected()}),
        "star of ASTRA-sim's rules": (collectives(), {"network": STAR, "system": system()}),
        "leaves and spines": (collectives(), {"network": LEAVES, "system": corrected(2)}),
        "pipeline": (
            pipeline(),
            {"network": network(["Switch"], [RANKS]), "system": corrected(), "groups": STAGES},
        ),
        "pipeline on a graph": (
            pipeline(),
            {"network": LEAVES, "system": corrected(2), "groups": STAGES},
        ),
        "pool": (requests(), {"network": ring(RANKS), "system": corrected(), "memory": OWN_STAGES}),
        "pool beside a graph": (
            requests(),
            {"network": LEAVES, "system": corrected(2), "memory": OWN_STAGES},
        ),
        "library": (collectives(16), {"machine": "h100-dgx:16"}),
        "training": (transformer(tensor=4, data=4), {"machine": "h100-dgx:16"}),
        "late ranks": (
            collectives(sends=False),
            {"network": network(["Switch"], [RANKS]), "system": corrected(stragglers=LATE)},
        ),
        "slow ranks": (
            collectives(sends=False),
            {"network": network(["Switch"], [RANKS]), "system": corrected(stragglers=SLOW)},
        ),
        "jobs": (jobs("0-6/2", "1-7/2"), {"network": network(["Switch"], [RANKS]), "system": corrected()}),
        "jobs on a graph": (jobs("0-3", "4-7"), {"network": STAR, "system": corrected()}),
    }
)
# On the analytical and the link model, others are simulated rank by rank where links are recorded.
ON_ALL_MODELS = (
    *("grid of ASTRA-sim's rules", "exchanges in pairs", "pipeline", "pool"),
    *("late ranks", "slow ranks", "jobs"),
)
FOLDED = (
    *((case, "flow") for case in CASES),
    *((case, model) for case in ON_ALL_MODELS for model in ("analytical", "link")),
)


def carried_out(case: str, model: str, folder: Path, detail: str) -> tuple[RunDirectory, RunDirectory]:
    """Run a case, folded and not."""
    workload, machine = CASES[case]
    runs = []
    for fold in (True, False):
        write_run(run(workload, **machine, model=model, fold=fold, detail=detail), folder / str(fold))
        runs.append(open_run(folder / str(fold)))
    return runs[0], runs[1]


def parts(found: RunDirectory) -> list[Selection]:
    """Return selections: all of a run, some of its ranks, some of its time, and both."""
    end = found.summary["makespan_ns"]
    window = f"{end // 3}:{end // 2 + 1}"
    return [selection(), selection("1"), selection(None, window), selection("1,2", window)]


def answer(view: str, found: RunDirectory, part: Selection) -> Any:
    """Return a view as JSON, or its refusal."""
    try:
        data = json.loads(json.dumps(VIEWS[view].data(found, part)))
    except EtSimError as error:
        return str(error).replace(str(found.path), "RUN")
    return (
        {name: value for name, value in data.items() if name not in OF_ACTORS} if view == "summary" else data
    )


def rows_of(found: RunDirectory) -> list[Any]:
    with Database(found) as database:
        return [database.connection.execute(query).fetchall() for query in QUERIES]


def assert_alike(folded: RunDirectory, unfolded: RunDirectory) -> None:
    for part in parts(folded):
        for view in VIEWS:
            if view not in NOT_DATA:
                assert answer(view, folded, part) == answer(view, unfolded, part), (view, part)
    assert compare(folded, unfolded).is_identical
    assert rows_of(folded) == rows_of(unfolded)
    assert exposed_by_group(folded) == exposed_by_group(unfolded)


@pytest.mark.in_turn(days=2)
@pytest.mark.parametrize(("case", "model"), FOLDED)
def test_every_view_of_a_folded_run_is_that_of_the_unfolded_one(
    case: str, model: str, tmp_path: Path
) -> None:
    folded, unfolded = carried_out(case, model, tmp_path, "phases,links")
    actors = folded.summary["folded"]
    assert actors["actors"] < actors["ranks"] == unfolded.summary["folded"]["actors"]
    assert_alike(folded, unfolded)


def test_bandwidths_of_links_are_those_of_the_unfolded_run_where_causes_alone_are_recorded(
    tmp_path: Path,
) -> None:
    """Check the analytical model, on which the graph is then folded without distinguishing its links."""
    folded, unfolded = carried_out("star of ASTRA-sim's rules", "analytical", tmp_path, "path")
    assert folded.summary["folded"]["actors"] == 1
    assert answer("bandwidth", folded, selection()) == answer("bandwidth", unfolded, selection())
    assert answer("bandwidth", folded, selection())["links_bytes_per_second"] == dict.fromkeys(
        ("NPUs to switch", "switch to NPUs"), 47e9
    )
