"""How a plan spreads experts over nodes, and which exchanges of their tokens it may ask for.

- all-to-all: a rank sends a token once for each of its experts.
- hierarchical: a rank sends a token once to each node of its experts, to the rank at its own place there;
  that one copies it to the ranks of the node that have its experts. The way back is the same, with sums in
  place of copies: of the experts of a rank, then of the ranks of a node.
- deepep: the same messages at the same time. Tokens are copied on while others arrive, and the kernels of the
  exchange put them in order and add them up, as those of DeepEP do.

Not here: what is sent (`exchanges`), and who has which rank (`plan`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from et_sim.basics.errors import UsageError

if TYPE_CHECKING:
    from et_sim.workloads.training.plan import Plan

DISPATCH = ("values", "fp8")
ALL_TO_ALL, HIERARCHICAL, DEEPEP = "all-to-all", "hierarchical", "deepep"
EXCHANGES = (ALL_TO_ALL, HIERARCHICAL, DEEPEP)
EXPERT = "expert"
EXPERT_TENSOR = "expert-tensor"  # ranks that share every expert
EXPERT_NODE = "expert-node"  # those with other experts on the same node
EXPERT_RAIL = "expert-rail"  # those at the same place on other nodes


def experts_on_node(plan: Plan) -> int:
    """Return how many places of the expert axis are on one node; all of them, if nodes do not matter."""
    if plan.expert_exchange == ALL_TO_ALL:
        return plan.expert
    size, stride = plan.axes_of_experts[EXPERT]
    return max(min(plan.node_ranks // stride, size), 1)


def check_experts(plan: Plan) -> None:
    """Refuse exchanges of experts that do not fit nodes, and overlap that hides nothing."""
    if plan.expert_exchange != ALL_TO_ALL:
        _check_nodes(plan)
    elif plan.expert_nodes:
        raise UsageError(
            "expert_nodes is given, and an all-to-all sends a token once for each of its experts, wherever"
            " they are",
            remedy="give expert_exchange, hierarchical or deepep, too",
        )
    if plan.dispatch != DISPATCH[0] and plan.expert == 1:
        raise UsageError("dispatch is given, and no token is sent", remedy="give expert, 2 or more")
    if plan.dispatch not in (DISPATCH[0], plan.products):
        raise UsageError(
            f"dispatch is {plan.dispatch}, and experts compute with {plan.products}",
            remedy=f"give products {plan.dispatch}, or leave dispatch out",
        )
    if plan.capacity_factor and plan.expert_exchange != ALL_TO_ALL:
        raise UsageError(
            f"capacity_factor is given, and which nodes a token still goes to is not known for"
            f" {plan.expert_exchange}",
            remedy=f"leave it out, or take expert_exchange {ALL_TO_ALL}",
        )
    if plan.overlaps_passes and plan.zero > 1:
        raise UsageError(
            f"zero is {plan.zero}, and two passes at the same time would reduce each other's gradients",
            remedy="give zero 0 or 1, or leave out overlap_experts and the schedule dualpipe",
        )


def _check_nodes(plan: Plan) -> None:
    if plan.expert == 1:
        raise UsageError(
            f"expert_exchange is {plan.expert_exchange}, and no token is sent",
            remedy="give expert, 2 or more",
        )
    size, stride = plan.axes_of_experts[EXPERT]
    within = experts_on_node(plan)
    span, node = size * stride, plan.node_ranks
    if size % within or (node % stride and stride % node) or (node % span and span % node):
        raise UsageError(
            f"nodes of {node} ranks cut the {size} expert-parallel ranks, {stride} apart, into unequal parts",
            remedy="give node_ranks, or numbers of ranks that divide it or are multiples of it",
        )
    nodes = size // within
    if plan.expert_nodes > nodes:
        raise UsageError(
            f"expert_nodes is {plan.expert_nodes}, and experts are on {nodes}",
            remedy=f"give a number from 1 to {nodes}, or leave it out",
        )
