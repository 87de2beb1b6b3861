"""The nodes of a program whose times vary, and the order in which they draw.

The events of a kind are counted in the order of the program, whatever the order in which they run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
from msgspec import Struct

from et_sim.basics.errors import MachineError
from et_sim.machine.model import WorkKind
from et_sim.machine.networks import LogicalGrid
from et_sim.machine.variation import SharedBy, Variation, VariedKind
from et_sim.plan.records import Action
from et_sim.plan.straggler_variants import of_kind
from et_sim.samples.draws import Draws
from et_sim.trace.columns import Trace

WORK: Mapping[VariedKind, tuple[WorkKind, ...]] = MappingProxyType(
    {
        VariedKind.KERNEL: (WorkKind.KERNELS, WorkKind.COPIES),
        VariedKind.HOST: (WorkKind.OPERATORS, WorkKind.GAPS),
        VariedKind.LAUNCH: (WorkKind.LAUNCHES,),
        VariedKind.COLLECTIVE: (WorkKind.COMMUNICATION,),
    }
)


RACK_DIMENSIONS = 2


class VariedNodes(Struct, frozen=True, eq=False):
    """The nodes of a program whose times an entry multiplies."""

    rows: Any  # of nodes that take time by themselves
    numbers: Any  # of events of the kind that came before each
    events: int  # of the kind, in the whole program
    simulated: int  # of them, nodes whose time the network sets


def varied_nodes(entry: Variation, trace: Trace, nodes: Any) -> VariedNodes:
    """Return the nodes of a template that an entry concerns; `nodes` are its rows of the plan."""
    is_of_kind = np.zeros(len(trace), bool)
    for kind in WORK.get(entry.kind, ()):
        is_of_kind |= of_kind(trace, kind)
    if entry.operations:
        is_of_kind &= np.isin(trace.names, entry.operations)[trace.name]
    every = np.flatnonzero(is_of_kind)
    takes_time = nodes["action"][every] == Action.DELAY
    is_simulated = np.isin(nodes["action"][every], (Action.COLLECTIVE, Action.SEND, Action.RECEIVE))
    numbers = np.arange(len(every))
    if entry.operations:
        numbers = _numbers_by_name(trace.name[every])
    events = int(numbers.max(initial=-1)) + 1
    return VariedNodes(every[takes_time], numbers[takes_time], events, int(is_simulated.sum()))


def _numbers_by_name(names: Any) -> Any:
    """Return for each node the number of nodes with its name before it."""
    order = np.argsort(names, kind="stable")
    first = np.searchsorted(names[order], names[order])
    numbers = np.empty(len(names), np.int64)
    numbers[order] = np.arange(len(names)) - first
    return numbers


def elements_of(entry: Variation, grid: LogicalGrid, ranks: int) -> Any:
    """Return for each rank the element that draws for it: itself, its node, its rack or the machine."""
    sizes = [dimension.npus for dimension in grid.dimensions]
    if entry.shared is SharedBy.RACK and len(sizes) <= RACK_DIMENSIONS:
        shape = " x ".join(map(str, sizes))
        raise MachineError(
            f'key "shared" is "{entry.shared}", and a network of {shape} NPUs has no racks',
            place=entry.place,
            remedy='take "node", or a network of three or more dimensions: a rack is the two innermost',
        )
    inner = {SharedBy.RANK: 0, SharedBy.NODE: 1, SharedBy.RACK: RACK_DIMENSIONS}.get(entry.shared)
    return np.arange(ranks) // int(np.prod(sizes[:inner], dtype=np.int64))


def factors_of_nodes(
    draws: Sequence[Draws],
    varied: Sequence[VariedNodes],
    elements: Sequence[Any],
    step: int,
    shape: tuple[int, int],
) -> Any:
    """Return the factor of each node on each of some ranks of a template.

    `elements` has for each entry the elements of the ranks; `shape` is the number of ranks and of nodes.
    """
    factors = np.ones(shape)
    for draw, nodes, of_ranks in zip(draws, varied, elements, strict=True):
        if not len(nodes.rows):
            continue
        different, which = np.unique(of_ranks, return_inverse=True)
        drawn = draw.factors(different, step, nodes.events)
        if drawn.shape[1] > 1 or nodes.events == 1:
            drawn = drawn[:, nodes.numbers]
        factors[:, nodes.rows] *= drawn[which.reshape(-1)]
    return factors
