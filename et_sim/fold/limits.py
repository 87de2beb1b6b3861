"""Reasons why ranks are folded less than their programs allow, and changes that would fold them.

The inputs have them: programs, late or slow ranks, and groups that nodes cut in several ways. The network
model and ties have the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from et_sim.basics.unique import unique
from et_sim.fold.axes import Pattern
from et_sim.plan.groups import WHOLE_SYSTEM
from et_sim.plan.layout import classes_of_groups
from et_sim.plan.lowering import Lowering
from et_sim.plan.records import FoldLimit

if TYPE_CHECKING:
    from et_sim.trace.group_rule import GroupRule

UNFOLDED_MODEL = FoldLimit("this network model simulates every rank", "--network-model flow folds ranks")
CUSTOM = FoldLimit("custom collectives name their ranks", "name algorithms in the system file instead")
SHARED_BUS = FoldLimit("ranks share a memory bus", 'leave "model-shared-bus" out')
SWITCHES = FoldLimit("messages meet at switches that reduce", "--network-model analytical")
WAYS = FoldLimit("messages wait on links between other ranks", "--network-model flow")
TIE = FoldLimit(
    "the order of events in one nanosecond, or of queues that block each other, has an effect, or messages"
    " turn to other links on their way",
    "sizes or latencies that differ a little, or more active-chunks-per-dimension",
)
PROGRAMS = FoldLimit("nearly every rank has a program of its own", "one trace for ranks that do the same")
LATE = FoldLimit(
    "some ranks are late, or slower than others",
    'leave "stragglers", "time-factors" and "failures" out',
)
TREES = FoldLimit("trees give each rank a place of its own", "rings or direct exchanges")
FAILING = FoldLimit(
    "links fail, perhaps behind some of the ranks only", "equal failures of equal links, or none"
)
PLACES = FoldLimit("ranks have other ways to their peers, or other peers", "equal links, and equal peers")
MOST_PROGRAMS_PER_RANK = 0.75


def limits_of(
    lowering: Lowering, patterns: Mapping[tuple[int, int], Pattern], shapes: Any, actors: int
) -> tuple[FoldLimit, ...]:
    """Return the reasons for more actors than different programs, the likeliest first."""
    programs = len(unique(shapes))
    if lowering.variants.change_times:  # programs at other paces share a trace
        programs = min(programs, len(set(map(id, tuple(lowering.workload.templates)))))
    if programs > max(MOST_PROGRAMS_PER_RANK * lowering.workload.ranks, 1):
        return (PROGRAMS,)
    if actors <= programs:
        return ()
    found = list(_cut_groups(lowering))
    variants = lowering.variants
    if variants.start_ns is not None or variants.change_times or lowering.machine.slow:
        found.append(LATE)
    if any(pattern.places for pattern in patterns.values()):
        found.append(TREES)
    if lowering.machine.network.failures:
        found.append(FAILING)
    return tuple(found or [PLACES])


def _cut_groups(lowering: Lowering) -> Iterator[FoldLimit]:
    """Yield a limit for the groups of each name that nodes cut in several ways.

    If neighbours are cut, so are groups of ranks that are farther apart, and these are left out.
    """
    grid, workload = lowering.machine.network.grid, lowering.workload
    if not lowering.groups.are_laid_out:
        return
    used = {name for names in lowering.used_groups for name in names} - {WHOLE_SYSTEM}
    rules = {name: rule for name, rule in workload.group_rules.items() if name in used}
    ways = {
        name: int(classes_of_groups(grid, rule.groups(workload.ranks)).max(initial=0)) + 1
        for name, rule in rules.items()
    }
    cut = [name for name in sorted(rules) if ways[name] > 1]
    blocks = np.cumprod([dimension.npus for dimension in grid.dimensions]).tolist()
    for name in [name for name in cut if rules[name].axes == ((rules[name].count, 1),)] or cut:
        yield _cut(name, rules[name], ways[name], blocks)


def _cut(name: str, rule: GroupRule, ways: int, blocks: list[int]) -> FoldLimit:
    size = rule.count
    block = next((block for block in blocks if block % size and size % block), blocks[0])
    fits = [other for other in range(1, 2 * max(size, block) + 1) if block % other == 0 or other % block == 0]
    fit = "a multiple of" if size < block else "a part of"
    sizes = f"{max(other for other in fits if other <= size)} or {min(x for x in fits if x > size)}"
    return FoldLimit(
        f"nodes of {block} ranks cut the groups {name!r} of {size} in {ways} ways",
        f"groups of {sizes} ranks, or nodes of ranks that are {fit} {size}",
    )
