"""The order in which the chunks of a collective visit the dimensions of the machine.

Ascending: inwards first (an all-gather the other way round). Round robin: the same, turned by one place from
chunk to chunk. Offline greedy (Themis): the dimension with the least load first, by an estimate of the time
that earlier chunks of the same collective will spend in each dimension; the estimate starts at zero with
every collective. Flexible offline greedy also chooses the size of each chunk, so that it fills the difference
between the least and the most loaded dimension.

An order names all dimensions; those that do not take part are skipped later.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct

from et_sim.collectives import PhaseOperation
from et_sim.machine.model import DimensionOrder
from et_sim.plan.phases import Chunks

Order = tuple[int, ...]

LOAD_UNIT = 1 << 20  # bytes
GREEDY = (DimensionOrder.OFFLINE_GREEDY, DimensionOrder.OFFLINE_GREEDY_FLEX)
# With these an all-reduce scatters and gathers in all dimensions; online greedy does nothing else.
SCATTERING_EVERYWHERE = (*GREEDY, DimensionOrder.ONLINE_GREEDY)
GREEDY_OPERATIONS = (PhaseOperation.ALL_REDUCE, PhaseOperation.REDUCE_SCATTER, PhaseOperation.ALL_GATHER)


class Route(Struct, frozen=True):
    """The way of some chunks: one order, or several among which chunks take turns."""

    chunks: Chunks
    orders: tuple[Order, ...]


class OrderedDimension(Struct, frozen=True):
    """The properties of a dimension that the greedy orders use."""

    members: int
    takes_part: bool
    bandwidth: float
    first_bandwidth: float = 1.0  # of dimension 0

    @property
    def speed(self) -> float:
        """Return the bandwidth as a multiple of that of dimension 0."""
        return self.bandwidth / self.first_bandwidth


class DimensionLoad(Struct):
    """The time that planned chunks will spend in a dimension, as the greedy orders estimate it."""

    dimension: int
    time: float = 0.0


def routes(
    scheduler: DimensionOrder,
    operation: PhaseOperation,
    total: int,
    runs: Sequence[Chunks],
    lanes: Sequence[OrderedDimension],
    gap: float,
    loads: list[DimensionLoad] | None = None,
) -> list[Route]:
    """Return the way of every chunk of a collective that moves `total` bytes; equal neighbours share a route.

    A greedy order keeps the usual one while the loads differ by less than a chunk divided by `gap`. It adds
    to `loads`, which may come from collectives planned in the same nanosecond; without, dimensions are empty.
    """
    usual = usual_order(operation, len(lanes))
    if scheduler is DimensionOrder.ROUND_ROBIN:
        turned = tuple(usual[turn:] + usual[:turn] for turn in range(len(usual)))
        return [Route(run, turned) for run in runs]
    if scheduler not in GREEDY or operation not in GREEDY_OPERATIONS:
        return [Route(run, (usual,)) for run in runs]
    flexible = scheduler is DimensionOrder.OFFLINE_GREEDY_FLEX
    routes_taken: list[Route] = []
    for size, order in greedy_chunks(operation, total, runs, lanes, gap, flexible=flexible, loads=loads):
        last = routes_taken[-1] if routes_taken else None
        if last is not None and last.chunks.size == size and last.orders == (order,):
            routes_taken[-1] = Route(Chunks(last.chunks.number + 1, size), last.orders)
        else:
            routes_taken.append(Route(Chunks(1, size), (order,)))
    return routes_taken


def usual_order(operation: PhaseOperation, dimensions: int) -> Order:
    """Return the ascending order, or the descending one for an all-gather."""
    ascending = range(dimensions)
    return tuple(reversed(ascending) if operation is PhaseOperation.ALL_GATHER else ascending)


def empty_loads(dimensions: int) -> list[DimensionLoad]:
    """Return the loads of dimensions for which nothing is planned."""
    return [DimensionLoad(dimension) for dimension in range(dimensions)]


def greedy_chunks(
    operation: PhaseOperation,
    total: int,
    runs: Sequence[Chunks],
    lanes: Sequence[OrderedDimension],
    gap: float,
    *,
    flexible: bool,
    loads: list[DimensionLoad] | None = None,
) -> Iterator[tuple[int, Order]]:
    """Yield the bytes and the order of every chunk; an all-reduce is planned as its scattering half."""
    gathers = operation is PhaseOperation.ALL_GATHER
    loads = empty_loads(len(lanes)) if loads is None else loads
    left = total
    recommended = (run.size for run in runs for _ in range(run.number))
    usual = max(run.size for run in runs)
    while left > 0:
        wanted = usual if flexible else next(recommended)
        loads.sort(key=lambda load: load.time)
        if gathers:
            loads.reverse()
        slack = _slack_bytes(loads, lanes, gathers=gathers)
        if slack < (wanted if flexible else int(wanted / gap)):
            size = min(left, wanted)
            # The reference charges by place here, and its list runs backwards in an all-gather.
            loads.sort(key=lambda load: load.dimension, reverse=gathers)
            order = tuple(range(len(lanes)))
        else:
            size = min(left, slack) if flexible else min(left, wanted)
            order = tuple(load.dimension for load in loads)
        _charge(loads, order, lanes, size, gathers=gathers)
        left -= size
        yield size, order


def _slack_bytes(loads: Sequence[DimensionLoad], lanes: Sequence[OrderedDimension], *, gathers: bool) -> int:
    """Return the size of a chunk that would level the first dimension that takes part with the last one."""
    places = [place for place, load in enumerate(loads) if lanes[load.dimension].takes_part]
    first, last = places[0], places[-1]
    if not gathers:
        lane = lanes[loads[first].dimension]
        gap = abs(loads[-1].time - loads[first].time)
        return int(gap * lane.speed / ((lane.members - 1) / lane.members) * LOAD_UNIT)
    lane = lanes[loads[last].dimension]
    gap = abs(loads[last].time - loads[first].time)
    size = int(gap * lane.speed / (lane.members - 1) * LOAD_UNIT)
    for place in reversed(places[:-1]):
        size //= lanes[loads[place].dimension].members
    return size


def _charge(
    loads: Sequence[DimensionLoad],
    order: Order,
    lanes: Sequence[OrderedDimension],
    size: int,
    *,
    gathers: bool,
) -> None:
    """Add the cost of a chunk in every dimension of its order to the load at the same place."""
    for load, dimension in zip(loads, order, strict=True):
        lane = lanes[dimension]
        if not lane.takes_part:
            continue
        share = lane.members - 1 if gathers else (lane.members - 1) / lane.members
        load.time += size / LOAD_UNIT * share / lane.speed
        size = size * lane.members if gathers else size // lane.members
