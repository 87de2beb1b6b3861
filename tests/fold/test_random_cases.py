"""Random runs with many concurrent nodes are the same folded and unfolded."""

from __future__ import annotations

import numpy as np
import pytest
from machines import network, system
from random_cases import Case, actors_of, buffered_case, outcome, random_case

from et_sim.trace import Trace, TraceBuilder, Workload

A_FEW, PER_TEST = 100, 50


def assert_same(case: Case) -> None:
    assert outcome(case, fold=True) == outcome(case, fold=False)


@pytest.mark.parametrize("first", range(0, A_FEW, PER_TEST))
def test_random_cases_fold_exactly(first: int) -> None:
    for seed in range(first, first + PER_TEST):
        assert outcome(random_case(seed), fold=True) == outcome(random_case(seed), fold=False), seed


@pytest.mark.deep
def test_random_cases_of_groups_on_parts_of_machines_fold_exactly() -> None:
    folded = 0
    for seed in range(10):
        case = random_case(seed, in_parts=True)
        assert outcome(case, fold=True) == outcome(case, fold=False), seed
        folded += actors_of(case) < case.workload.ranks
    assert folded >= 2


@pytest.mark.seeds(deep=100, exhaustive=5000, at_a_time=100)
def test_many_random_cases_of_groups_on_parts_of_machines_fold_exactly(seeds: range) -> None:
    for seed in seeds:
        case = random_case(seed, in_parts=True)
        assert outcome(case, fold=True) == outcome(case, fold=False), seed


@pytest.mark.seeds(deep=100, exhaustive=20_000, at_a_time=100)
def test_many_random_cases_fold_exactly(seeds: range) -> None:
    for seed in seeds:
        assert outcome(random_case(seed), fold=True) == outcome(random_case(seed), fold=False), seed


def test_random_cases_with_late_ranks_and_finite_buffers_fold_exactly() -> None:
    folded = 0
    for seed in range(12):
        case = buffered_case(seed)
        assert outcome(case, fold=True) == outcome(case, fold=False), seed
        folded += actors_of(case) < case.workload.ranks
    assert folded >= 2


@pytest.mark.seeds(deep=50, exhaustive=2000, at_a_time=50)
def test_many_random_cases_with_late_ranks_and_finite_buffers_fold_exactly(seeds: range) -> None:
    for seed in seeds:
        case = buffered_case(seed)
        assert outcome(case, fold=True) == outcome(case, fold=False), seed


@pytest.mark.parametrize("seed", [91, 145, 829, 988, 1206, 3921, 1_000_138])
def test_cases_that_once_differed_fold_exactly(seed: int) -> None:
    assert_same(random_case(seed))


def test_sends_that_two_receivers_release_in_one_nanosecond_fold_exactly() -> None:
    """Check ranks that each send to two others: the ranks' numbers decide the order of the receives."""
    assert_same(buffered_case(1_000_087))


@pytest.mark.deep
def test_random_cases_fold_often_and_stall_at_times() -> None:
    results = [(case, outcome(case, fold=True)) for case in map(random_case, range(60))]
    simulated = [(case, seen) for case, seen in results if not isinstance(seen, str)]
    folded = [case for case, _ in simulated if actors_of(case) < case.workload.ranks]
    stalled = [case for case, seen in simulated if not seen[0]]
    assert len(simulated) >= 50
    assert len(folded) >= 15
    assert 5 <= len(stalled) <= 30


def alike(ranks: int, trace: Trace) -> Workload:
    """Return a workload in which every rank runs one program, with peers relative to itself."""
    return Workload((trace,), np.zeros(ranks, np.int32), relative_peers=(True,))


def test_groups_with_equal_members_are_not_one_group() -> None:
    """Rank 0 waits in group 3 for ranks that wait in group 1."""
    traces = []
    for name in ("3", "1", "1"):
        build = TraceBuilder()
        work = build.compute("work", micros=3)
        build.collective("all_reduce", 65536, group=name, after=[work])
        traces.append(build.build())
    on = system("ring", **{"endpoint-delay": 0, "profile": "reference", "scheduling-policy": "FIFO"})
    machine = {"network": network(["FullyConnected"], [3]), "system": on}
    case = Case(Workload.of(traces), machine | {"groups": {name: [0, 1, 2] for name in ("1", "2", "3")}})
    assert_same(case)
    is_complete, finish_ns, *_ = outcome(case, fold=True)
    assert (is_complete, finish_ns) == (False, [-1, -1, -1])


def test_ranks_that_number_spanning_groups_differently_are_separated() -> None:
    traces = []
    for first, second in (("1", "2"), ("2", "1")) * 2:
        build = TraceBuilder()
        build.collective("all_reduce", 65536, group=first)
        build.collective("all_reduce", 65536, group=second)
        traces.append(build.build())
    on = system("ring", profile="corrected")
    machine = {"network": network(["Ring"], [4]), "system": on, "groups": {n: [0, 1, 2, 3] for n in "12"}}
    assert_same(Case(Workload.of(traces), machine))


def test_a_link_that_a_pair_shares_with_a_message_separates_even_ranks_from_odd_ones() -> None:
    """Exchange between even ranks and the next, to which they also send; odd ranks use the one before."""
    build = TraceBuilder()
    build.collective("all_gather", 65536)
    build.compute(micros=1)
    build.send(1, 65536, tag=1)
    build.receive(3, 65536, tag=1)
    keys = {"profile": "corrected", "scheduling-policy": "EXPLICIT", "preferred-dataset-splits": 2}
    on = system("halvingDoubling", **keys, **{"all-to-all-implementation": ["ring"]})
    machine = {"network": network(["FullyConnected"], [4]), "system": on, "model": "link"}
    case = Case(alike(4, build.build()), machine)
    assert_same(case)
    assert outcome(case, fold=True)[1] == [5811, 5720, 5811, 5720]
    assert actors_of(case) == 2


def test_nodes_left_behind_do_not_depend_on_the_first_completion() -> None:
    """Check node 4, ready from the start: at rank 0 the send ends first, elsewhere the receive."""
    build = TraceBuilder()
    beginning = build.invalid("beginning")
    build.send(1, 64, tag=1)
    build.receive(7, 64, tag=1)
    build.collective("all_to_all", 64)
    build.collective("all_to_all", 4096, after=[beginning], concurrent=True)
    on = system("ring", **{"profile": "reference", "endpoint-delay": 500})
    machine = {"network": network(["Ring"], [8]), "system": on}
    assert_same(Case(alike(8, build.build()), machine))


def test_exchanges_in_pairs_alone_still_fold_to_one_actor() -> None:
    build = TraceBuilder()
    build.collective("all_reduce", 65536)
    on = system("halvingDoubling", **{"profile": "corrected", "all-to-all-implementation": ["ring"]})
    case = Case(
        alike(8, build.build()), {"network": network(["FullyConnected"], [8]), "system": on, "model": "link"}
    )
    assert_same(case)
    assert actors_of(case) == 1


@pytest.mark.parametrize(
    ("profile", "model"), [("reference", "link"), ("reference", "flow"), ("corrected", "analytical")]
)
def test_exchanges_in_pairs_through_two_switches_fold_to_one_actor(profile: str, model: str) -> None:
    """Check that only paths to partners count: others would lead through both switches from some ranks."""
    build = TraceBuilder()
    build.collective("all_reduce", 65536)
    on = system("ring", 2, **{"profile": profile, "all-reduce-implementation": ["oneHalvingDoubling"]})
    machine = {"network": network(["Switch", "Switch"], [4, 4]), "system": on, "model": model}
    case = Case(alike(16, build.build()), machine)
    assert_same(case)
    assert actors_of(case) == 1


@pytest.mark.parametrize(("profile", "model"), [("reference", "link"), ("corrected", "analytical")])
def test_pairs_through_all_that_share_links_with_a_ring_are_separated(profile: str, model: str) -> None:
    """Check a ring on the links from each rank to the next, where only every other rank has its partner."""
    build = TraceBuilder()
    build.collective("all_reduce", 1 << 20, concurrent=True)
    build.collective("all_gather", 1 << 20, concurrent=True)
    keys = {"profile": profile, "all-reduce-implementation": ["oneHalvingDoubling"], "num-queues-per-dim": 2}
    machine = {"network": network(["FullyConnected"] * 2, [4, 4]), "system": system("ring", 2, **keys)}
    case = Case(alike(16, build.build()), machine | {"model": model})
    assert_same(case)
    assert actors_of(case) == 4


@pytest.mark.parametrize("active", [1, 4])
def test_messages_that_arrive_as_their_receives_are_posted_are_watched(active: int) -> None:
    build = TraceBuilder()
    build.collective("reduce_scatter", 65536)
    build.collective("all_to_all", 65536)
    build.send(1, 64, tag=0)
    build.receive(2, 64, tag=0)
    build.collective("reduce_scatter", 1024)
    build.collective("all_to_all", 1024)
    keys = {"scheduling-policy": "EXPLICIT", "endpoint-delay": 0, "num-queues-per-dim": 2}
    on = system("ring", **keys, **{"preferred-dataset-splits": 3, "all-to-all-implementation": ["direct"]})
    on["active-chunks-per-dimension"] = active
    machine = {"network": network(["Ring"], [3]), "system": on, "model": "link"}
    assert_same(Case(alike(3, build.build()), machine))
