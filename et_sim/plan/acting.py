"""Corrections that may change what a plan does, found without simulating it.

Most corrections change the tables of the plan: the plan is made with each of them, and compared. Some take
effect only while the plan runs: each of these has a condition here, without which it changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from et_sim.basics.unique import equal_rows, unique
from et_sim.machine.corrections import Correction
from et_sim.plan.records import Action, Lane, LoweredPlan, most_of_a_template

NOT_COMPARED = ("corrections", "limits", "notices", "compute", "tensors", "pool_units", "kept")
SCHEDULED = (Action.DELAY, Action.MEMORY)  # these never end while their rank issues other nodes


def have_same_tables(first: LoweredPlan | None, second: LoweredPlan | None) -> bool:
    """Return whether two plans have the same tables; None stands for no plan."""
    if first is None or second is None:
        return first is second
    return all(
        _are_equal(getattr(first, name), getattr(second, name))
        for name in LoweredPlan.__struct_fields__
        if name not in NOT_COMPARED
    )


def _are_equal(first: Any, second: Any) -> bool:
    if not isinstance(first, np.ndarray) or first.dtype.names is None:
        return np.array_equal(first, second)
    return first.shape == second.shape and bool(equal_rows(first, second).all())


def _shares_the_slot(plan: LoweredPlan) -> bool:
    return most_of_a_template(plan, plan.nodes["lane"] == Lane.COMMUNICATION) > 1


def _has_sends(plan: LoweredPlan) -> bool:
    return bool((plan.nodes["action"] == Action.SEND).any())


def _releases_while_issuing(plan: LoweredPlan) -> bool:
    return bool((~np.isin(plan.nodes["action"], SCHEDULED) & (plan.nodes["children"] > 0)).any())


def _has_queues_to_wait_in(plan: LoweredPlan) -> bool:
    longest = max(int(plan.collectives[of].max(initial=0)) for of in ("phases", "chunks"))
    return longest > 1 or plan.most_collectives > 1


def _has_groups(plan: LoweredPlan) -> bool:
    return len(unique(plan.members["group"])) > 1


def _crosses_dimensions(plan: LoweredPlan) -> bool:
    """Return whether the ends of some message may differ in several dimensions."""
    has_peers = bool((plan.programs["dimension"] < 0).any())
    return plan.dimensions > 1 and (has_peers or _has_sends(plan))


# Conditions on a plan of the reference profile.
CONDITIONS: Mapping[Correction, Callable[[LoweredPlan], bool]] = MappingProxyType(
    {
        Correction.GROUP_COUNTERS: _has_groups,
        Correction.MATCH_BY_PROGRAM: lambda plan: plan.most_collectives > 1,
        Correction.ISSUE_AT_ONCE: _releases_while_issuing,
        Correction.TWO_WAY_QUEUES: _has_queues_to_wait_in,
        Correction.ALL_QUEUES: lambda plan: plan.queues_per_dim > 1,
        Correction.WHOLE_PATH: _crosses_dimensions,
        Correction.PORT_BANDWIDTH: lambda plan: plan.largest_message > 0,
        Correction.CONCURRENT_COMMUNICATION: _shares_the_slot,
        Correction.EAGER_SENDS: _has_sends,
        Correction.ENDS_WHEN_SENT: lambda plan: plan.most_collectives > 0,
    }
)


def may_act(
    plan: LoweredPlan,
    missing: frozenset[Correction],
    with_these: Callable[[frozenset[Correction]], LoweredPlan | None],
) -> list[Correction]:
    """Return the missing corrections that may change what the plan does, in their order.

    `with_these` makes the plan with more corrections, for the same actors; None if that is refused.
    """
    of_tables = missing - CONDITIONS.keys()
    if have_same_tables(plan, with_these(of_tables)):  # this saves most of the plans that would be made below
        of_tables = frozenset()
    acting = {correction for correction in missing & CONDITIONS.keys() if CONDITIONS[correction](plan)}
    acting |= {
        correction
        for correction in of_tables
        if not have_same_tables(plan, with_these(frozenset({correction})))
    }
    return [correction for correction in Correction if correction in acting]
