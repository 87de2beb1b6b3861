"""Ranks whose messages share links are folded together with the links, exactly."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from machines import system
from random_cases import Case, actors_of, graph_under, outcome, random_case

from et_sim.api import run
from et_sim.machine import read_network_alone
from et_sim.network import paths
from et_sim.network.registry import model_named
from et_sim.timeline import write_run
from et_sim.trace import TraceBuilder, Workload
from et_sim.trace.columns import NodeKind
from et_sim.views import open_run
from et_sim.views.run.slices import link_table
from et_sim.views.run.topology import tier_uses

A_FEW = 20
SYSTEM_OF_PAIRS = system("halvingDoubling", 1)
SPEED = {"bandwidth": "50GB/s", "latency": "500ns"}


def flow_case(seed: int) -> Case:
    """Return the random case of a seed on the flow model, on its dimensions or on a graph."""
    draw, case = Random(seed), random_case(seed)
    npus = case.machine["network"]["npus_count"]
    net = case.machine["network"] if draw.random() < 0.4 else graph_under(draw, npus)
    if draw.random() < 0.3:
        net = net | {"protocol": {"preset": draw.choice(("roce", "tcp"))}}
    return Case(case.workload, case.machine | {"network": net, "model": "flow"})


def assert_same(seed: int) -> None:
    assert outcome(flow_case(seed), fold=True) == outcome(flow_case(seed), fold=False), seed


@pytest.mark.deep
def test_paths_that_are_kept_fold_as_those_that_are_walked_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    cases = [case for case in map(flow_case, range(A_FEW)) if not isinstance(outcome(case, fold=True), str)]
    kept = [(outcome(case, fold=True), actors_of(case)) for case in cases]
    assert any(actors_of(case) < case.workload.ranks for case in cases)
    for few, most in ((-1, 1), (1 << 20, 1)):
        monkeypatch.setattr(paths, "FEW_PATHS", few)
        monkeypatch.setattr(paths, "MOST_KEPT", most)
        assert [(outcome(case, fold=True), actors_of(case)) for case in cases] == kept


@pytest.mark.deep
def test_random_cases_fold_exactly_and_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ET_SIM_COMPILE", "never")
    folded = 0
    for seed in range(A_FEW):
        assert_same(seed)
        case = flow_case(seed)
        folded += not isinstance(outcome(case, fold=True), str) and actors_of(case) < case.workload.ranks
    assert folded >= A_FEW // 6


def test_messages_of_old_and_new_routes_begin_at_the_same_fraction_of_a_nanosecond() -> None:
    """Check a case whose folded routes had another time within the nanosecond than new ones."""
    assert_same(81_045_496_450)


@pytest.mark.seeds(deep=40, exhaustive=4000, at_a_time=40)
def test_many_random_cases_fold_exactly(seeds: range) -> None:
    for seed in seeds:
        assert_same(seed)


def torus_case(seed: int) -> Case:
    """Return the random case of a seed on a torus as a graph, with messages in several chunks over all equal
    paths.
    """
    draw, case = Random(seed), random_case(seed, in_parts=seed % 2 == 1)
    npus = case.machine["network"]["npus_count"]
    torus = {"generator": "torus", "sizes": npus, "bandwidth": "50GB/s", "latency": draw.choice((0, 500))}
    net = {"graph": torus, "routing": "spread", "logical-dimensions": npus}
    keys = case.machine["system"] | {"preferred-dataset-splits": draw.choice((2, 3, 4))}
    return Case(case.workload, case.machine | {"network": net, "system": keys, "model": "flow"})


def assert_same_on_torus(seed: int) -> None:
    assert outcome(torus_case(seed), fold=True) == outcome(torus_case(seed), fold=False), seed


@pytest.mark.deep
def test_chunks_on_random_tori_fold_exactly_and_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ET_SIM_COMPILE", "never")
    folded = 0
    for seed in range(A_FEW):
        assert_same_on_torus(seed)
        case = torus_case(seed)
        folded += not isinstance(outcome(case, fold=True), str) and actors_of(case) < case.workload.ranks
    assert folded >= A_FEW // 6


@pytest.mark.seeds(deep=40, exhaustive=2000, at_a_time=40)
def test_chunks_on_many_random_tori_fold_exactly(seeds: range) -> None:
    for seed in seeds:
        assert_same_on_torus(seed)


@pytest.mark.parametrize("routing", ["spread", "shortest"])
def test_paths_longer_than_the_space_at_first_are_complete(
    routing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    torus = {"graph": {"generator": "torus", "sizes": [4, 4], **SPEED}, "routing": routing}
    keys = model_named("flow").path_keys(read_network_alone(torus), whole=True)
    source, target = np.divmod(np.arange(256), 16)
    (known,) = keys.paths(source, target)
    monkeypatch.setattr(paths, "FEW_LINKS", 1)
    (again,) = keys.paths(source, target)
    most = 32 if routing == "spread" else 4
    assert known.links.shape == again.links.shape == (256, most)
    assert (known.links == again.links).all()
    assert (known.marks is None) == (routing == "shortest")
    assert known.marks is None or (known.marks == again.marks).all()


def collective(kind: str, ranks: int, size: int) -> Workload:
    build = TraceBuilder()
    build.collective(kind, size)
    return Workload.of([build.build()] * ranks)


RAILS = {
    "generator": "rail-optimised",
    "nodes": 4,
    "npus-per-node": 4,
    "inside": {"bandwidth": "450GB/s", "latency": "300ns"},
}
LEAVES = {"generator": "leaf-spine", "npus-per-leaf": 4, "leaves": 4, "spines": 1}
FOLDED = [
    ("all_to_all", "direct", {"generator": "switch", "npus": 16}, [16], 1),
    ("all_reduce", "ring", {"generator": "switch", "npus": 16}, [16], 1),
    ("all_reduce", "ring", {"generator": "torus", "sizes": [4, 4]}, [4, 4], 1),
    ("all_reduce", "ring", RAILS, [4, 4], 1),
    ("all_to_all", "direct", LEAVES, [4, 4], 1),
    # the place behind a leaf determines the distances of the others
    ("all_to_all", "direct", LEAVES, [16], 4),
]


@pytest.mark.parametrize(("kind", "algorithm", "graph", "dimensions", "actors"), FOLDED)
def test_symmetric_collectives_are_few_actors(
    kind: str,
    algorithm: str,
    graph: dict[str, Any],
    dimensions: list[int],
    actors: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ET_SIM_COMPILE", "never")
    on = system(algorithm, len(dimensions), **{"preferred-dataset-splits": 3})
    net = {"graph": graph | SPEED, "logical-dimensions": dimensions}
    case = Case(collective(kind, 16, 1 << 20), {"network": net, "system": on, "model": "flow"})
    assert outcome(case, fold=True) == outcome(case, fold=False)
    assert actors_of(case) == actors


def test_pairs_and_rings_meet_at_a_neighbour_for_some_ranks_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that even ranks, whose partner is their successor, are simulated as one with the odd ranks."""
    monkeypatch.setenv("ET_SIM_COMPILE", "never")
    assert_same(81_045_496_245)
    build = TraceBuilder()
    build.collective("all_reduce", 1 << 20)
    build.collective("all_gather", 1 << 16)
    on = system(**{"all-reduce-implementation": ["halvingDoubling"], "active-chunks-per-dimension": 2})
    net = {"graph": {"generator": "switch", "npus": 16, **SPEED}, "logical-dimensions": [16]}
    case = Case(Workload.of([build.build()] * 16), {"network": net, "system": on, "model": "flow"})
    assert outcome(case, fold=True) == outcome(case, fold=False)
    assert actors_of(case) == 1


@pytest.mark.parametrize("rendezvous", [False, True])
@pytest.mark.parametrize("later_us", [0, 3])
def test_a_neighbour_shared_by_groups_does_not_matter_to_a_rank(
    rendezvous: bool, later_us: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Check that ranks 0 and 1, neighbours in both of their groups, are simulated as one with the others."""
    monkeypatch.setenv("ET_SIM_COMPILE", "never")
    groups = {"1": [0, 1], "2": [2, 3], "3": [4, 5], "4": [0, 1], "5": [3, 4], "6": [5, 2]}
    builders = []
    for rank in range(6):
        builder = TraceBuilder()
        for name, members in groups.items():
            if rank in members:
                wait = builder.compute("wait", micros=1 + later_us * (int(name) > 3))
                builder.collective("all_reduce", 1 << 20, name, after=[wait])
        builders.append(builder)
    speed = {"bandwidth": "1GB/s", "latency": "500ns"}
    net = {"graph": {"generator": "switch", "npus": 6, **speed}, "logical-dimensions": [6]}
    on = system(**{"rendezvous-protocol": rendezvous})
    machine = {"network": net, "system": on, "model": "flow", "groups": groups}
    case = Case(Workload.of([builder.build() for builder in builders]), machine)
    assert outcome(case, fold=True) == outcome(case, fold=False)
    assert actors_of(case) == 1


@pytest.mark.parametrize("kind", ["all_reduce", "all_gather"])
def test_links_are_distinguished_by_exchanges_in_pairs_as_they_are_sent(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Run two switches in the middle, one for some of the exchanges of every rank, without other messages."""
    monkeypatch.setenv("ET_SIM_COMPILE", "never")
    fast = {"bandwidth": "500GB/s", "latency": "500ns", "one-way": True}
    slow = {**fast, "bandwidth": "50GB/s"}
    npus = [f"npu{rank}" for rank in range(4)]
    links: list[Any] = [{"from": npus, "to": "x", **fast}, {"from": "y", "to": npus, **fast}]
    for middle in ("m1", "m2"):
        links += [{"from": "x", "to": middle, **slow}, {"from": middle, "to": "y", **slow}]
    first = {(0, 1), (2, 3), (1, 0), (3, 2), (0, 2), (1, 3)}
    pairs = [(a, b) for a in range(4) for b in range(4) if a != b]
    ways = [["x", "m1" if pair in first else "m2", "y"] for pair in pairs]
    routes = [{"path": [npus[a], *way, npus[b]]} for (a, b), way in zip(pairs, ways, strict=True)]
    net = {"npus": 4, "switches": ["x", "y", "m1", "m2"], "links": links, "routes": routes}
    net["logical-dimensions"] = [4]
    case = Case(collective(kind, 4, 1 << 20), {"network": net, "system": SYSTEM_OF_PAIRS, "model": "flow"})
    assert outcome(case, fold=True) == outcome(case, fold=False)


@pytest.mark.parametrize("profile", ["reference", "corrected"])
def test_sends_of_one_rank_that_end_in_one_nanosecond_are_watched(
    profile: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Check sends that end together: the ranks' numbers decide the order, and so the first computation."""
    monkeypatch.setenv("ET_SIM_COMPILE", "never")
    build = TraceBuilder()
    for tag, micros in ((1, 1), (2, 3)):
        values = {
            "is_cpu": False,
            "comm_bytes": 1000,
            "comm_tag": tag,
            "comm_dst": tag,
            "is_concurrent": True,
        }
        build.compute(micros=micros, after=[build._add(NodeKind.SEND, "send", values)])
        build.receive(4 - tag, 1000, tag=tag)
    net = {"graph": {"generator": "switch", "npus": 4, **SPEED}, "logical-dimensions": [4]}
    workload = Workload((build.build(),), np.zeros(4, np.int32), relative_peers=(True,))
    case = Case(workload, {"network": net, "system": system("ring", 1, profile=profile), "model": "flow"})
    assert outcome(case, fold=True) == outcome(case, fold=False)


def test_an_exchange_of_all_behind_an_oversubscribed_leaf_takes_the_time_of_its_uplink(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Check that each leaf sends 4 * 12 of 16 shares up one link, which is the slowest."""
    monkeypatch.setenv("ET_SIM_COMPILE", "never")
    size, latency = 16 * 2**20, 4 * 500
    on = system("direct", **{"endpoint-delay": 0, "active-chunks-per-dimension": 16})
    net = {"graph": LEAVES | SPEED, "logical-dimensions": [16]}
    result = run(collective("all_to_all", 16, size), network=net, system=on, model="flow")
    taken = result.makespan_ns - 4 * 12 * 2**20 / 50
    assert -1 <= taken - latency < 15 * (latency + 1)


def test_a_link_that_stands_for_others_is_counted_with_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compare bytes, messages, waiting and load of every tier, and the bottleneck, with the unfolded run."""
    monkeypatch.setenv("ET_SIM_COMPILE", "never")
    net = {"graph": LEAVES | SPEED, "logical-dimensions": [4, 4]}
    on = system("ring", 2, **{"preferred-dataset-splits": 2})
    seen, rows = [], []
    for fold in (True, False):
        workload = collective("all_reduce", 16, 1 << 20)
        result = run(workload, network=net, system=on, model="flow", fold=fold, detail="links")
        write_run(result, tmp_path / str(fold))
        written = open_run(tmp_path / str(fold))
        table = link_table(written)
        assert table is not None
        rows.append(len(written.table("links")["resource"].unique()))
        assert len(table.actor) == 2 * (16 + 4)
        seen.append((tier_uses(written, table, 20), written.summary["bottleneck"]))
    assert rows == [4, 2 * (16 + 4)]
    assert seen[0] == seen[1]
