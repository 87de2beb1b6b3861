"""`et-sim check` and a run name the same mistake of a workload in the same words."""

from __future__ import annotations

import pytest
from machines import ring, system

from et_sim import api
from et_sim.basics.errors import TraceError
from et_sim.machine import read_machine
from et_sim.plan import build_plan
from et_sim.plan.mismatches import find_renumbered, rules_of
from et_sim.trace import Trace, TraceBuilder, Workload
from et_sim.trace.preflight import Problem, find_problems

GROUPS = {"1": [0, 1, 2], "2": [0, 1, 2]}
NETWORK = ring(3)
PROFILES = ("reference", "corrected")


def trace(rank: int, *nodes: tuple[str, int | str, int], in_order: bool = True) -> Trace:
    """Make nodes (operation; peer, or name of a group; bytes), each after the one before if `in_order`."""
    build, last = TraceBuilder(source=f"x.{rank}.et"), list[int]()
    build.compute("first", micros=1)
    for operation, where, size in nodes:
        if operation == "send":
            node = build.send(int(where), size, after=last)
        elif operation == "receive":
            node = build.receive(int(where), size, after=last)
        else:
            node = build.collective(operation, size, str(where), after=last)
        last = [node] if in_order else []
    return build.build()


def after_each_other() -> list[Trace]:
    """Return ranks of which two nodes depend on each other."""
    build = TraceBuilder(source="x.0.et")
    build.compute("first", micros=1, node_id=0)
    build.compute("a", after=[2], node_id=1)
    build.collective("all_reduce", 64, after=[1], node_id=2)
    return [build.build()] * 3


REDUCE, GATHER = ("all_reduce", "1", 64), ("all_gather", "1", 64)
FAULTY = {
    "a member lacks a collective": [trace(0, REDUCE), trace(1, REDUCE), trace(2)],
    "a member has fewer collectives": [trace(0, REDUCE, REDUCE), trace(1, REDUCE, REDUCE), trace(2, REDUCE)],
    "collectives in another order": [
        trace(0, REDUCE, GATHER),
        trace(1, REDUCE, GATHER),
        trace(2, GATHER, REDUCE),
    ],
    "a collective of another size": [trace(0, REDUCE), trace(1, REDUCE), trace(2, ("all_reduce", "1", 32))],
    "a collective of another type": [trace(0, REDUCE), trace(1, REDUCE), trace(2, GATHER)],
    "collectives of two groups in turn": [
        trace(0, ("all_reduce", "1", 64), ("all_reduce", "2", 64)),
        trace(1, ("all_reduce", "1", 64), ("all_reduce", "2", 64)),
        trace(2, ("all_reduce", "2", 64), ("all_reduce", "1", 64)),
    ],
    "a receive without a send": [trace(0), trace(1, ("receive", 0, 64)), trace(2)],
    "a message of another size": [trace(0, ("send", 1, 64)), trace(1, ("receive", 0, 32)), trace(2)],
    "messages in a circle": [
        trace(rank, ("receive", (rank - 1) % 3, 64), ("send", (rank + 1) % 3, 64)) for rank in range(3)
    ],
    "dependencies in a circle": after_each_other(),
}


def errors_of(workload: Workload, profile: str, **settings: object) -> list[Problem]:
    """Return the errors that a check with the machine reports."""
    machine = read_machine(system={**system(profile=profile), **settings}, network=NETWORK, groups=GROUPS)
    problems = find_problems(workload, groups=machine.groups, rules=rules_of(machine.system))
    return [problem for problem in problems if problem.severity == "error"]


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("name", FAULTY)
def test_a_stall_names_the_mistakes_that_a_check_finds(name: str, profile: str) -> None:
    workload = Workload.of(FAULTY[name])
    if profile == "corrected" and "another order" in name:
        pytest.skip("this profile matches collectives by their places in the program")
    first, *others = errors_of(workload, profile)
    result = api.run(workload, system=system(profile=profile), network=NETWORK, groups=GROUPS)
    stall = result.stall
    assert stall is not None
    assert stall.cause.endswith(f"ranks cannot finish: {first.text}")
    assert stall.nearest == (first.text, *(problem.text for problem in others))
    assert first.remedy in stall.remedies
    assert all(problem.text in stall.text for problem in others)


def test_a_send_without_a_receive_is_refused_or_stalls_in_the_words_of_a_check() -> None:
    workload = Workload.of([trace(0, ("send", 1, 64)), trace(1), trace(2)])
    (problem,) = errors_of(workload, "reference")
    with pytest.raises(TraceError) as refused:
        api.run(workload, system=system(), network=NETWORK)
    assert (refused.value.cause, refused.value.remedy) == (problem.text, problem.remedy)
    stall = api.run(workload, system={**system(), "rendezvous-protocol": 1}, network=NETWORK).stall
    assert stall is not None
    assert stall.cause.endswith(problem.text)


def test_numbers_that_differ_are_named_as_in_a_check() -> None:
    """Let collectives of a group take numbers of the count of all ranks, on its members alone."""
    groups = {"1": [1, 2]}
    traces = [trace(0, ("all_reduce", "", 64)), *(trace(r, REDUCE, ("all_reduce", "", 64)) for r in (1, 2))]
    workload = Workload.of(traces)
    machine = read_machine(system=system(), network=NETWORK, groups=groups)
    (problem,) = find_renumbered(build_plan(workload, machine), workload)
    stall = api.run(workload, system=system(), network=NETWORK, groups=groups).stall
    assert stall is not None
    assert stall.cause.endswith(problem.text)


def test_waits_that_only_a_run_shows_are_not_called_mistakes() -> None:
    traces = [trace(rank, ("send", 1 - rank, 64), ("receive", 1 - rank, 64)) for rank in range(2)]
    workload = Workload.of([*traces, trace(2)])
    stall = api.run(workload, system={**system(), "rendezvous-protocol": 1}, network=NETWORK).stall
    assert stall is not None
    assert stall.nearest == ()
    assert "rank 0 waits for rank 1 to post the receive of 64 B" in stall.cause
