"""The engine against queues modelled as lists: all orders of dimensions and within them."""

from __future__ import annotations

import math
from typing import Any

from hypothesis import assume, given
from hypothesis import strategies as st
from machines import KINDS, collective
from queue_model import Chunk, Machine, Phase
from test_closed_forms import Costs, finish, network, system

from et_sim.collectives import PhaseOperation
from et_sim.machine.model import AllReducePlan, DimensionOrder, QueueOrder
from et_sim.plan.dimension_order import SCATTERING_EVERYWHERE, OrderedDimension, routes
from et_sim.plan.phases import PhasePart, PhaseRules, PhaseStep, bytes_to_cut, plan_phases, split_into_chunks
from et_sim.plan.records import QueueCursor


class Cursors:
    """The three cursors of every dimension."""

    def __init__(self, queues: int) -> None:
        self.queues = queues
        self.taken: dict[tuple[int, QueueCursor], int] = {}

    def take(self, dimension: int, cursor: QueueCursor) -> int:
        turn = self.taken.get((dimension, cursor), 0)
        self.taken[dimension, cursor] = turn + 1
        half = self.queues // 2
        if cursor is QueueCursor.NEXT:
            return turn % self.queues
        if cursor is QueueCursor.FIRST:
            return turn % max(half, 1)
        return half + turn % (self.queues - half)


def phase_of(step: PhaseStep, costs: list[Costs], cursors: Cursors) -> Phase:
    cost, members, operation = costs[step.part.dimension], step.part.members, step.operation.name.lower()
    piece = step.size if operation == "all_gather" else step.size // members
    grown = step.size * members if operation == "all_gather" else step.size
    return Phase(
        dimension=step.part.dimension,
        queue=cursors.take(step.part.dimension, step.cursor),
        operation=operation,
        largest=grown,
        duration=cost.ring(operation, members, step.size),
        last_wait=cost.reduction(piece) if operation == "reduce_scatter" else cost.endpoint,
    )


def chunks_of(
    kind: str,
    size: int,
    splits: int,
    npus: list[int],
    costs: list[Costs],
    scheduler: DimensionOrder,
    queues: int,
) -> list[Chunk]:
    operation = PhaseOperation[kind.upper()]
    runs = split_into_chunks(operation, size, splits, math.prod(npus))
    parts = {d: PhasePart(d, members) for d, members in enumerate(npus) if members > 1}
    lanes = [
        OrderedDimension(m, m > 1, costs[d].bytes_per_ns / costs[0].bytes_per_ns) for d, m in enumerate(npus)
    ]
    ways = routes(scheduler, operation, bytes_to_cut(size, splits, runs), runs, lanes, 16.0)
    rules = PhaseRules(AllReducePlan.LOCAL_BW_AWARE, everywhere=scheduler in SCATTERING_EVERYWHERE)
    cursors = Cursors(queues)
    results: list[Chunk] = []
    for way in ways:
        for _ in range(way.chunks.number):
            order = way.orders[len(results) % len(way.orders)]
            steps = plan_phases(operation, way.chunks.size, [parts[d] for d in order if d in parts], rules)
            results.append(Chunk(0, 0, [phase_of(step, costs, cursors) for step in steps]))
    return results


@given(
    kind=st.sampled_from(KINDS),
    npus=st.lists(st.integers(1, 4), min_size=2, max_size=3).filter(lambda npus: max(npus) > 1),
    # Bytes per chunk and rank leave no message empty.
    size=st.integers(1 << 14, 1 << 24),
    splits=st.integers(1, 12),
    active=st.integers(1, 5),
    queues=st.integers(1, 4),
    scheduler=st.sampled_from(list(DimensionOrder)),
    order=st.sampled_from(list(QueueOrder)),
    bandwidths=st.permutations([13.7, 47.3, 101.9]),
    latencies=st.permutations([17.3, 501.9, 937.1]),
)
def test_orders_of_chunks_are_those_of_queues_modelled_as_lists(
    kind: str,
    npus: list[int],
    size: int,
    splits: int,
    active: int,
    queues: int,
    scheduler: DimensionOrder,
    order: QueueOrder,
    bandwidths: list[float],
    latencies: list[float],
) -> None:
    count = len(npus)
    costs = [Costs("FullyConnected", bandwidths[d], latencies[d], 10, 50) for d in range(count)]
    chunks = chunks_of(kind, size, splits, npus, costs, scheduler, queues)
    machine = Machine(-(-active // queues), order.value)
    [expected] = machine.run(chunks)
    assume(not machine.is_tied)
    keys: dict[str, Any] = {
        "preferred-dataset-splits": splits,
        "active-chunks-per-dimension": active,
        "num-queues-per-dim": queues,
        "inter-dimension-scheduling": scheduler.value,
        "intra-dimension-scheduling": order.value,
        "corrections": {"dimension-schedulers": True},
    }
    shape = network(["FullyConnected"] * count, npus, bandwidths[:count], latencies[:count])
    workload = collective(math.prod(npus), kind, size)
    assert finish(workload, system(["ring"] * count, **keys), shape) == expected
