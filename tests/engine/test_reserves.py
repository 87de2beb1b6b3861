"""The rows that one event may use up, by what it may start."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from machines import ring, system

from et_sim.engine.pools import reserve_per_event
from et_sim.engine.state.run import NONE
from et_sim.engine.transport.network_seam import Needs, chunk_that_waits, left_of_chunk
from et_sim.run.options import RunOptions
from et_sim.run.planning import plan_of
from et_sim.run.simulation import prepare
from et_sim.trace import TraceBuilder, Workload

ALWAYS = 21  # one node, four messages of a tree that starts, and sixteen to spare
ROWS = 2 * 4  # two completions in an event, and four rows for each thing
STAGE = {"name": "all", "count": 1, "bandwidth": 100}


def kernels(count: int, **options: Any) -> Callable[[TraceBuilder], None]:
    def fill(build: TraceBuilder) -> None:
        for _ in range(count):
            build.compute(nanos=5, **options)

    return fill


def receives(build: TraceBuilder) -> None:
    for _ in range(3):
        build.receive(0, 64)


def sum_of_all(build: TraceBuilder) -> None:
    build.collective("all_reduce", 64)


@pytest.mark.parametrize(
    ("fill", "algorithm", "things"),
    [
        (kernels(1), "ring", ALWAYS),
        (kernels(3), "ring", ALWAYS),  # one at a time
        (kernels(3, concurrent=True), "ring", ALWAYS + 3),
        (receives, "ring", ALWAYS + 3),
        (sum_of_all, "ring", ALWAYS + 4),  # two chunks, each with four messages
        (sum_of_all, "direct", ALWAYS + 2 * 7 - 4),  # two chunks, each with messages to seven others
    ],
)
@pytest.mark.parametrize("events", [0, 1])
def test_an_event_has_rows_for_all_that_it_may_start(
    fill: Callable[[TraceBuilder], None], algorithm: str, things: int, events: int
) -> None:
    build = TraceBuilder()
    fill(build)
    task = prepare(
        Workload.of([build.build()] * 8), RunOptions(system=system(algorithm), network=ring(8), fold=False)
    )
    plan = plan_of(task.workload, task.machine, task.network_model(), may_fold=False).lowered
    found = reserve_per_event(plan, Needs(causal_events=0, events=events))
    assert found.rows == (ROWS + 2 * events) * things


def test_a_message_has_no_events_besides_its_ends_unless_a_model_gives_their_number() -> None:
    assert Needs(causal_events=1) == Needs(causal_events=1, record=None, events=0)


def test_the_last_member_of_the_largest_group_may_start_the_transfers_of_all() -> None:
    """Run a joint request of two ranks, and one of six."""
    builders = [TraceBuilder() for _ in range(8)]
    for rank, build in enumerate(builders):
        build.load(64, gather="1" if rank < 2 else "2")
    memory = {"memory-type": "HIERARCHICAL_POOL", "chunk": 64, "stages": [STAGE]}
    groups = {"1": [0, 1], "2": [*range(2, 8)]}
    options = RunOptions(system=system(), network=ring(8), memory=memory, groups=groups, fold=False)
    task = prepare(Workload.of([build.build() for build in builders]), options)
    plan = plan_of(task.workload, task.machine, task.network_model(), may_fold=False).lowered
    assert reserve_per_event(plan, Needs(causal_events=0)).rows == ROWS * (ALWAYS + 6)


def test_a_completion_holds_the_chunk_that_waits_for_it() -> None:
    assert [chunk_that_waits(left_of_chunk(chunk)) for chunk in (0, 1, 1 << 20)] == [0, 1, 1 << 20]
    assert chunk_that_waits(NONE) == NONE
