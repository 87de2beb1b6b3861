"""Options of a plan that have no effect beside the others, which are refused.

A description of a sweep may have their keys, since an axis may give them an effect at other points.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, NamedTuple

from et_sim.basics.errors import UsageError
from et_sim.workloads.exchange_names import ALL_TO_ALL

if TYPE_CHECKING:
    from et_sim.workloads.models.model import Model
    from et_sim.workloads.training.plan import Plan


class Need(NamedTuple):
    """A condition on a plan without which options have no effect."""

    options: tuple[str, ...]
    is_met: bool
    text: str  # the option that it requires


def refuse_idle(names: Collection[str], plan: Plan, model: Model) -> None:
    """Refuse those of these options, by their names, that have no effect in a plan of a model."""
    if model.experts is None and "unfused_routing" in names:
        raise UsageError(f"{model.name} has no experts", remedy="leave --unfused-routing out")
    for need in _needs(plan):
        for name in need.options:
            if name in names and not need.is_met:
                raise UsageError(
                    f"--{name.replace('_', '-')} has no effect without {need.text}",
                    remedy=f"give {need.text}, or leave it out",
                )


def _needs(plan: Plan) -> Iterator[Need]:
    yield Need(("context_attention", "context_balance"), plan.context > 1, "--cp, 2 or more")
    yield Need(("prefetch",), plan.zero == 3, "--zero 3")
    exchange = "--expert-exchange, hierarchical or deepep"
    yield Need(("node_ranks",), plan.expert_exchange != ALL_TO_ALL, exchange)
