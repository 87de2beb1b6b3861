"""Ranks are distinguished only if their messages differ: no coarser partition could be simulated.

An independent refinement distinguishes ranks by the messages of an unfolded run: by the step and collective
that sends them, and by their path. No message waits for a link or for its receive,
as waits distinguish ranks, too.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from machines import network, system
from random_cases import Case, outcome, straggling_case

from et_sim.api import run
from et_sim.fold.partition import MOST_ACTORS_PER_RANK, _OwnPrograms
from et_sim.trace import TraceBuilder, Workload

WHICH_MESSAGE = ("node", "chunk", "phase", "step", "bytes", "dimension")


def without_queues(case: Case) -> Case:
    """Return the case without waiting messages."""
    on = {key: value for key, value in case.machine["system"].items() if "-dimension-scheduling" not in key}
    on |= {"profile": "reference", "rendezvous-protocol": False}
    return case._replace(machine=case.machine | {"model": "analytical", "system": on})


def coarsest(case: Case) -> int:
    """Return the number of kinds of ranks that messages distinguish."""
    messages = run(case.workload, **case.machine, fold=False, detail="messages").table("messages").to_pylist()
    edges = []
    for sent in messages:
        which = tuple(-1 if sent[column] is None else sent[column] for column in WHICH_MESSAGE)
        edges.append((sent["actor"], sent["peer"], (*which, sent["arrived_ns"] - sent["sent_ns"])))
    late = {int(entry["ranks"]) for entry in case.machine["system"]["stragglers"]}
    colours = [
        (rank in late, template) for rank, template in enumerate(case.workload.template_of_rank.tolist())
    ]
    count = 0
    while len(set(colours)) > count:
        count = len(set(colours))
        seen: list[list[Any]] = [[] for _ in colours]
        for source, target, message in edges:
            seen[source].append((0, message, colours[target]))
            seen[target].append((1, message, colours[source]))
        known: dict[Any, int] = {}
        colours = [
            known.setdefault((mine, tuple(sorted(others))), len(known))
            for mine, others in zip(colours, seen, strict=True)
        ]
    return count


def parted(case: Case, monkeypatch: pytest.MonkeyPatch) -> int:
    """Return the number of actors at the beginning of the run, before the tie check may unfold it."""
    from et_sim.run import planning

    results: list[int] = []

    def noted(*arguments: Any) -> Any:
        actors = fold(*arguments)
        results.append(len(actors))
        return actors

    fold = planning.fold_ranks
    with monkeypatch.context() as patch:
        patch.setattr(planning, "fold_ranks", noted)
        run(case.workload, **case.machine)
    return results[0]


def assert_coarsest(case: Case, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Check the actors; return False without a check if the run stalls, or hardly any ranks are alike."""
    if not run(case.workload, **case.machine, fold=False).is_complete:
        return False
    kinds, ranks = coarsest(case), case.workload.ranks
    is_worth_while = kinds <= MOST_ACTORS_PER_RANK * ranks
    if is_worth_while:
        assert parted(case, monkeypatch) <= kinds
    return is_worth_while


def test_ranks_beside_a_straggler_differ_only_by_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    results = [assert_coarsest(without_queues(straggling_case(seed)), monkeypatch) for seed in range(25)]
    assert sum(results) >= 4


@pytest.mark.seeds(deep=50, exhaustive=4000, at_a_time=50)
def test_many_ranks_beside_stragglers_differ_only_by_messages(
    seeds: range, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in seeds:
        assert_coarsest(without_queues(straggling_case(seed)), monkeypatch)


@pytest.mark.seeds(deep=100, exhaustive=5000, at_a_time=100)
def test_many_random_cases_with_stragglers_fold_exactly(seeds: range) -> None:
    for seed in seeds:
        case = straggling_case(seed)
        assert outcome(case, fold=True) == outcome(case, fold=False), seed


def one_straggler(algorithm: str, shape: str, npus: list[int], **keys: Any) -> Case:
    """Return an all-reduce of all ranks, after a computation that takes rank 5 twice as long."""
    build = TraceBuilder()
    work = build.compute("work", micros=10)
    build.collective("all_reduce", 1 << 20, after=[work])
    ranks = int(np.prod(npus))
    on = system(algorithm, len(npus), stragglers=[{"ranks": "5", "compute": 2}], **keys)
    if algorithm not in ("ring", "direct"):
        on["all-to-all-implementation"] = ["ring"] * len(npus)
    machine = {"network": network([shape] * len(npus), npus), "system": on}
    return Case(Workload((build.build(),), np.zeros(ranks, np.int32)), machine)


def histories(case: Case) -> int:
    """Return the number of different sets of messages, with their times, that a rank receives."""
    result = run(case.workload, **case.machine, fold=False, detail="messages")
    seen: list[list[Any]] = [[] for _ in range(case.workload.ranks)]
    columns = ("chunk", "phase", "bytes", "arrived_ns")
    for message in result.table("messages").select(["peer", *columns]).to_pylist():
        seen[message["peer"]].append(tuple(message[column] for column in columns))
    return len({tuple(sorted(mine)) for mine in seen})


@pytest.mark.parametrize(
    ("algorithm", "shape", "npus"),
    [
        ("ring", "Ring", [16]),
        ("ring", "Switch", [16]),
        ("ring", "Ring", [4, 4]),
        ("halvingDoubling", "Switch", [16]),
        ("halvingDoubling", "Switch", [4, 4]),
        ("direct2", "Ring", [8]),
    ],
)
def test_a_straggler_gives_every_rank_of_an_all_reduce_a_history_of_its_own(
    algorithm: str, shape: str, npus: list[int]
) -> None:
    case = one_straggler(algorithm, shape, npus)
    assert histories(case) == case.workload.ranks


def test_ranks_of_one_direct_exchange_have_equal_histories_but_for_the_straggler() -> None:
    """Check that each rank is still simulated: ranks receive from the straggler in different orders."""
    case = one_straggler("direct", "FullyConnected", [16])
    assert histories(case) == 2
    assert coarsest(case) == 16


@pytest.mark.parametrize("changed", range(12))
def test_members_are_distinguished_by_each_of_their_own_steps(changed: int) -> None:
    """Check two members with two blocks of three steps each."""

    def signatures(size: int) -> list[int]:
        steps = np.zeros(12, [("bytes", "i8"), ("incoming", "i8")])
        steps["bytes"], steps["incoming"] = 100, 200
        steps["bytes"][changed] = size
        own = _OwnPrograms.__new__(_OwnPrograms)
        programs = np.array([(0, 4, 3)], [("step_first", "i8"), ("own_steps", "i8"), ("step_period", "i8")])
        own._tables, own._of_program = {"programs": programs, "steps": steps}, {}
        found: list[int] = own._signature(0).tolist()
        return found

    equal, other = signatures(100), signatures(101)
    assert equal[0] == equal[1]
    assert [one == two for one, two in zip(equal, other, strict=True)] == [changed >= 6, changed < 6]
