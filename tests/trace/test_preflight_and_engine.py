"""Errors of order in the pre-flight stall in the engine, and workloads without findings do not."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from machines import ring, system

from et_sim import api
from et_sim.trace import TraceBuilder, Workload
from et_sim.trace.preflight import find_problems
from et_sim.trace.preflight.collectives import CorrectionEffects

SYSTEM = system(
    **{"all-to-all-implementation": ["direct"], "collective-optimization": "baseline", "local-mem-bw": 0}
)
NETWORK = ring(3)
GROUPS = {"1": [0, 1], "2": [1, 2], "3": [2, 0]}
MEMBERS = {name: tuple(members) for name, members in GROUPS.items()}
RANKS = 3


@st.composite
def orders(draw: st.DrawFn) -> Workload:
    """Draw equal collectives of three overlapping groups on all members, in orders of their own."""
    collectives = draw(
        st.lists(
            st.tuples(st.sampled_from(["all_reduce", "all_gather"]), st.sampled_from(sorted(GROUPS))),
            min_size=2,
            max_size=5,
        )
    )
    traces = []
    for rank in range(RANKS):
        mine = [at for at, (_, group) in enumerate(collectives) if rank in GROUPS[group]]
        mine = draw(st.permutations(mine)) if draw(st.booleans()) else mine
        build = TraceBuilder(source=f"rank {rank}")
        made = [build.compute("first", micros=draw(st.integers(0, 3)))]
        for at in mine:
            after = draw(st.lists(st.sampled_from(made), max_size=2))
            if draw(st.integers(0, 3)) == 0:
                made.append(build.compute(f"before {at}", micros=draw(st.integers(0, 30)), after=after))
                after = [made[-1]]
            kind, group = collectives[at]
            made.append(build.collective(kind, 64 << at % 2, group, after=after))
        traces.append(build.build())
    return Workload.of(traces)


@st.composite
def messages(draw: st.DrawFn) -> Workload:
    """Draw messages among three ranks, some of them similar, in orders and with dependencies of their own."""
    ends = st.tuples(st.permutations(range(RANKS)), st.integers(0, 1))
    listed = draw(st.lists(ends, min_size=1, max_size=5))
    traces = []
    for rank in range(RANKS):
        mine = [(order, tag) for order, tag in listed if rank in order[:2]]
        build = TraceBuilder(source=f"rank {rank}")
        made = [build.compute("first", micros=draw(st.integers(0, 3)))]
        for (source, target, *_), tag in draw(st.permutations(mine)):
            after = draw(st.lists(st.sampled_from(made), max_size=2, unique=True))
            if draw(st.integers(0, 3)) == 0:
                made.append(build.compute("before", micros=draw(st.integers(0, 30)), after=after))
                after = [made[-1]]
            peer = target if rank == source else source
            made.append((build.send if rank == source else build.receive)(peer, 64, tag, after=after))
        traces.append(build.build())
    return Workload.of(traces)


@given(messages())
def test_ranks_in_a_circle_of_messages_hang(workload: Workload) -> None:
    if find_problems(workload):
        assert not api.run(workload, system=SYSTEM, network=NETWORK).is_complete


CORRECTED = CorrectionEffects(side_by_side=True, any_order=True, simulates_broadcast=True)


@given(orders())
def test_errors_of_order_hang_in_the_corrected_profile(workload: Workload) -> None:
    problems = find_problems(workload, groups=MEMBERS, rules=CORRECTED)
    system = {**SYSTEM, "profile": "corrected"}
    if any(problem.severity == "error" for problem in problems):
        assert not api.run(workload, system=system, network=NETWORK, groups=GROUPS).is_complete, problems


def test_a_cycle_is_uncertain_if_a_group_may_start_in_another_order() -> None:
    """Let rank 0 start its last node first, so that group 3 agrees with rank 2, and no rank hangs."""
    builds = [TraceBuilder(source=f"rank {rank}") for rank in range(RANKS)]
    zero, one, two = builds
    after = [zero.compute("first", micros=0), zero.compute("second", micros=0)][1:]
    zero.collective("all_reduce", 64, "1", after=after)
    zero.collective("all_reduce", 128, "3", after=after)
    zero.collective("all_reduce", 64, "3")
    for size in (64, 128):
        one.collective("all_reduce", size, "2")
    one.collective("all_reduce", 64, "1", after=[one.compute("only", micros=0)])
    two.collective("all_reduce", 64, "2", after=[two.compute("first", micros=0)])
    two.collective("all_reduce", 64, "3")
    for group in ("2", "3"):
        two.collective("all_reduce", 128, group, after=[two.compute(f"before {group}", micros=0)])
    workload = Workload.of([build.build() for build in builds])
    problems = find_problems(workload, groups=MEMBERS)
    assert [(problem.kind, problem.severity) for problem in problems] == [
        ("collective-order", "warning"),
        ("collective-circle", "warning"),
    ]
    assert api.run(workload, system=SYSTEM, network=NETWORK, groups=GROUPS).is_complete


def test_the_root_of_a_broadcast_waits_for_no_rank() -> None:
    """Let rank 0 broadcast and then reduce, and rank 1 the other way round: rank 0 goes on at once."""
    builds = [TraceBuilder(source=f"rank {rank}") for rank in range(RANKS)]
    zero, one, two = builds
    zero.collective("all_reduce", 64, "2", after=[zero.collective("broadcast", 64, "1", root=0)])
    one.collective("broadcast", 64, "1", root=0, after=[one.collective("all_reduce", 64, "2")])
    two.compute("idle", micros=1)
    workload, groups = Workload.of([build.build() for build in builds]), {"1": [0, 1], "2": [0, 1]}
    assert not find_problems(workload, groups={"1": (0, 1), "2": (0, 1)}, rules=CORRECTED)
    assert api.run(
        workload, system={**SYSTEM, "profile": "corrected"}, network=NETWORK, groups=groups
    ).is_complete


@given(orders())
def test_errors_of_order_hang_and_agreement_completes(workload: Workload) -> None:
    problems = find_problems(workload, groups=MEMBERS)
    outcome = api.run(workload, system=SYSTEM, network=NETWORK, groups=GROUPS)
    if any(problem.severity == "error" for problem in problems):
        assert not outcome.is_complete, problems
    if not problems and all_in_one_order(workload):
        assert outcome.is_complete


def all_in_one_order(workload: Workload) -> bool:
    """Return whether every rank starts its collectives in a fixed order."""
    import numpy as np

    from et_sim.trace import NodeKind
    from et_sim.trace.order import issue_order

    return all(
        issue_order(trace, np.flatnonzero(trace.kind == NodeKind.COLL).astype(np.int32))[1]
        for trace in workload.templates
    )
