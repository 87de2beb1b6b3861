"""Ranks of inference: those that share attention, those that share every expert, and those with other ones.

Each data-parallel group of `tensor` ranks has sequences of its own. All groups together share the experts:
`expert` groups of them have different ones, and the ranks of such a group, tensor x data / expert, have a
share of every expert of theirs. Or experts are apart: on `expert` further ranks, behind those of attention.
"""

from __future__ import annotations

from msgspec.structs import replace

from et_sim.basics.errors import FieldError
from et_sim.workloads.axes import Axes
from et_sim.workloads.models.model import Experts, Model
from et_sim.workloads.training.expert_plan import EXPERT_NODE, EXPERT_RAIL, EXPERT_TENSOR
from et_sim.workloads.training.plan import DATA, EXPERT, PIPELINE, TENSOR, Plan

REPLICA = "replica"


def expert_sharers(plan: Plan) -> int:
    """Return the ranks that share every expert."""
    return 1 if plan.experts_apart else plan.tensor * plan.data // plan.expert


def experts_on_rank(experts: Experts, plan: Plan) -> tuple[int, int]:
    """Return the experts of a rank, copies included, and the ranks that share each of them."""
    return (experts.count + plan.redundant_experts) // plan.expert, expert_sharers(plan)


def busy_experts(experts: Experts, plan: Plan, tokens: int) -> int:
    """Return the mean number of experts, copies included, that tokens use which choose evenly and by chance.

    A token uses different experts, but two tokens may use the same one.
    """
    count = experts.count + plan.redundant_experts
    return round(count * (1 - (1 - experts.chosen / count) ** tokens))


def with_sharers(model: Model, plan: Plan) -> Plan:
    """Return the plan with the ranks that share every expert, if there are several groups of ranks."""
    if model.experts is None or plan.data == 1:
        return plan
    sharers = expert_sharers(plan)
    if plan.expert_tensor not in (1, sharers):
        raise FieldError(
            f"`expert_tensor` is {plan.expert_tensor}, but `tensor` x `data` / `expert` is {sharers}",
            remedy="leave it out: it follows",
        )
    return replace(plan, expert_tensor=sharers)


def axes_of_replicas(plan: Plan, replicas: int) -> Axes:
    """Return the axes of equal replicas, one after the other.

    Ranks of experts alone are the last places of the data axis.
    """
    data = plan.ranks // (plan.tensor * plan.pipeline)
    sizes = {TENSOR: plan.tensor, DATA: data, PIPELINE: plan.pipeline, REPLICA: replicas}
    axes = Axes(**sizes)
    if plan.data > 1 and plan.spreads_experts:
        axes = axes.split(TENSOR, DATA, **{EXPERT_TENSOR: plan.expert_tensor, EXPERT: plan.expert})
        within = plan.places_of_experts.on_node
        axes = axes.split(EXPERT, **{EXPERT_NODE: within, EXPERT_RAIL: plan.expert // within})
    return axes
