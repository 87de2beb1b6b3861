"""Ranks whose messages take turns on links of others are folded together with the links, exactly."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
import pytest
from machines import network, system
from random_cases import Case, actors_of, graph_under, outcome, random_case, straggling_case

from et_sim.api import run
from et_sim.trace import TraceBuilder, Workload

A_FEW = 24
SPEED = {"bandwidth": "400Gbps", "latency": "500ns"}
GRIDS = ((2, 2), (4, 2), (3, 3), (4, 3), (2, 4), (8, 2), (4, 4))


def case_in_turn(seed: int) -> Case:
    """Return the random case of a seed on graphs or grids whose links carry one message at a time."""
    draw = Random(seed)
    if draw.random() < 0.3:
        return _alike(draw)
    late = draw.random() < 0.3
    case = straggling_case(seed) if late else random_case(seed, in_parts=draw.random() < 0.5)
    npus = case.machine["network"]["npus_count"]
    net = case.machine["network"] if draw.random() < 0.3 else _graph(draw, npus)
    keys = case.machine["system"] | {"profile": draw.choice(("reference", "corrected", "corrected"))}
    model = draw.choice(("analytical", "link"))
    return Case(case.workload, case.machine | {"network": net, "system": keys, "model": model})


def _graph(draw: Random, npus: list[int]) -> dict[str, Any]:
    if len(npus) == 2 and draw.random() < 0.6:
        return leaves(*npus, draw.choice((1, 2)), draw.choice(("spread", "shortest", "destination")))
    return graph_under(draw, npus)


def leaves(npus: int, count: int, spines: int, routing: str = "spread") -> dict[str, Any]:
    """Return leaves with so many NPUs each, and spines."""
    shape = {"generator": "leaf-spine", "npus-per-leaf": npus, "leaves": count, "spines": spines}
    return {"graph": shape | SPEED, "routing": routing}


def _alike(draw: Random) -> Case:
    """Return the same collectives on all ranks of leaves and spines."""
    npus = list(draw.choice(GRIDS))
    build, last = TraceBuilder(), []
    for number in range(draw.randint(1, 4)):
        kind = draw.choice(("all_reduce", "all_gather", "reduce_scatter", "all_to_all"))
        node = build.collective(kind, draw.choice((64, 4096, 65536, 100_001)), after=last)
        last = [node] if draw.random() < 0.6 else []
        if draw.random() < 0.4:
            last = [build.compute(f"work{number}", micros=draw.choice((0, 1)), after=last)]
    algorithm = draw.choice(("ring", "ring", "halvingDoubling", "direct"))
    keys = {"preferred-dataset-splits": draw.choice((1, 2, 4)), "profile": "corrected"}
    machine = {
        "system": system(algorithm, 2, **keys),
        "network": leaves(*npus, draw.choice((1, 2, 3))),
        "model": draw.choice(("analytical", "link")),
    }
    return Case(Workload.of([build.build()] * int(np.prod(npus))), machine)


def chunks_on_leaves(seed: int) -> Case:
    """Return the case of a seed with chunks that meet on the uplinks of leaves, on all ranks."""
    draw = Random(seed)
    npus, count, size = (
        draw.choice((2, 3, 4, 6, 8)),
        draw.choice((2, 3, 4, 5)),
        draw.choice((1 << 16, 1 << 30)),
    )
    build = TraceBuilder()
    first = build.collective(draw.choice(("all_reduce", "all_gather", "all_to_all")), size)
    if draw.random() < 0.5:
        ahead = draw.choice((npus, npus * count - npus))
        build.send(ahead, size, after=[first])
        build.receive(npus * count - ahead, size, after=[first])
    keys: dict[str, Any] = {"preferred-dataset-splits": draw.choice((2, 3, 4, 6)), "profile": "corrected"}
    keys |= {"active-chunks-per-dimension": draw.choice((1, 2)), "endpoint-delay": draw.choice((0, 10, 500))}
    if draw.random() < 0.2:
        keys["stragglers"] = [{"ranks": f"0-{npus * count - 1}/{npus}", "delay": "500ns"}]
    machine = {
        "system": system(draw.choice(("ring", "ring", "ring", "direct", "halvingDoubling")), 2, **keys),
        "network": leaves(npus, count, draw.choice((1, 2, 3))),
        "model": draw.choice(("analytical", "link")),
    }
    return Case(Workload((build.build(),), np.zeros(npus * count, np.int32), relative_peers=(True,)), machine)


def assert_same(seed: int, make: Callable[[int], Case] = case_in_turn) -> None:
    assert outcome(make(seed), fold=True) == outcome(make(seed), fold=False), seed


@pytest.mark.deep
def test_random_cases_fold_exactly_and_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ET_SIM_COMPILE", "never")
    folded = 0
    for seed in range(A_FEW):
        case = case_in_turn(seed)
        result = outcome(case, fold=True)
        assert result == outcome(case, fold=False), seed
        folded += not isinstance(result, str) and actors_of(case) < case.workload.ranks
    assert folded >= A_FEW // 6


@pytest.mark.parametrize("model", ["analytical", "link"])
def test_each_place_in_a_leaf_is_simulated_once_for_all_leaves(model: str) -> None:
    build = TraceBuilder()
    build.collective("all_reduce", 1 << 20)
    machine = {"system": system("ring", 2, profile="corrected"), "network": leaves(3, 5, 2), "model": model}
    case = Case(Workload.of([build.build()] * 15), machine)
    assert actors_of(case) == 3
    assert outcome(case, fold=True) == outcome(case, fold=False)


def all_reduced(npus: int, count: int, **keys: Any) -> Case:
    """Return an all-reduce of 1 GiB in two chunks on leaves."""
    build = TraceBuilder()
    build.collective("all_reduce", 1 << 30)
    machine = {
        "system": system("ring", 2, **{"profile": "corrected", "preferred-dataset-splits": 2, **keys}),
        "network": leaves(npus, count, 2),
        "model": "analytical",
    }
    return Case(Workload.of([build.build()] * (npus * count)), machine)


def test_chunks_that_follow_from_messages_of_one_leaf_meet_on_links_in_one_order() -> None:
    """Check messages that begin in one nanosecond because of messages of the leaf before."""
    case = all_reduced(8, 3)
    assert actors_of(case) == 8
    assert outcome(case, fold=True) == outcome(case, fold=False)


@pytest.mark.parametrize("rows", [(2, 2), (4,)])
def test_leaves_in_rows_are_not_taken_for_a_circle(rows: tuple[int, ...]) -> None:
    """Check that messages from the last leaf of a row to its first go another way than those to the next."""
    case = all_reduced(2, 4)
    dims = 1 + len(rows)
    case.machine["network"]["logical-dimensions"] = [2, *rows]
    case.machine["system"] = system("ring", dims, **{"profile": "corrected", "preferred-dataset-splits": 2})
    turns = run(case.workload, **case.machine).outcome.plan.link_turns
    assert turns.circle == (4 if rows == (4,) else 0)
    assert outcome(case, fold=True) == outcome(case, fold=False)


def test_pairs_over_two_leaves_each_meet_on_links_in_an_order_of_their_own() -> None:
    """Check that none are folded: the pair of the last leaf and the first has its ranks in another order."""
    traces = []
    for rank in range(8):
        build = TraceBuilder()
        build.collective("all_to_all", 1 << 30, group=f"pair{(rank - 1) % 8 // 2}")
        traces.append(build.build())
    keys = {"profile": "corrected", "preferred-dataset-splits": 6, "active-chunks-per-dimension": 2}
    wires = [
        {"from": f"npu{rank}", "to": f"leaf{rank // 2}", "bandwidth": "1GB/s", "latency": "500ns"}
        for rank in range(8)
    ]
    wires += [
        {"from": f"leaf{leaf}", "to": "spine", "bandwidth": "10GB/s", "latency": "100ns"} for leaf in range(4)
    ]
    switches = [*(f"leaf{leaf}" for leaf in range(4)), "spine"]
    machine = {
        "system": system("direct", 3, **keys),
        "network": {"npus": 8, "switches": switches, "links": wires, "logical-dimensions": [2, 2, 2]},
        "model": "analytical",
        "groups": {f"pair{first // 2}": [first + 1, (first + 2) % 8] for first in range(0, 8, 2)},
    }
    case = Case(Workload.of(traces), machine)
    assert actors_of(case) == 8
    assert outcome(case, fold=True) == outcome(case, fold=False)


@pytest.mark.parametrize("shape", ["Ring", "Switch", "FullyConnected"])
def test_ranks_that_send_through_the_links_of_others_are_folded(shape: str) -> None:
    """Check ranks that send to the one in the next column and row."""
    traces = []
    for rank in range(16):
        build, (row, column) = TraceBuilder(), divmod(rank, 4)
        build.send((column + 1) % 4 + (row + 1) % 4 * 4, 1 << 20)
        build.receive((column - 1) % 4 + (row - 1) % 4 * 4, 1 << 20)
        traces.append(build.build())
    machine = {
        "system": system("ring", 2, profile="corrected"),
        "network": network([shape, shape], [4, 4]),
        "model": "analytical",
    }
    case = Case(Workload.of(traces), machine)
    assert actors_of(case) == 1
    assert outcome(case, fold=True) == outcome(case, fold=False)


def test_links_that_a_message_crosses_early_and_late_are_separated() -> None:
    """Check a message through other NPUs, whose links carry it as its own ones do, but later."""
    assert_same(519)


def test_equal_groups_whose_messages_meet_on_a_link_are_distinguished() -> None:
    """Check four pairs of ranks that cross the link between two leaves at once."""
    case = case_in_turn(738)
    assert actors_of(case) > 1
    assert_same(738)


@pytest.mark.seeds(deep=40, exhaustive=4000, at_a_time=40)
def test_random_chunks_on_leaves_fold_exactly(seeds: range) -> None:
    for seed in seeds:
        assert_same(seed, chunks_on_leaves)


@pytest.mark.seeds(deep=40, exhaustive=4000, at_a_time=40)
def test_many_random_cases_fold_exactly(seeds: range) -> None:
    for seed in seeds:
        assert_same(seed)
