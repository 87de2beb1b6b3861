"""Needs of options: conditions without which an option of a training job, of passes or of serving has no
effect.

An option that is given, and whose condition does not hold, is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec.structs import replace

from et_sim.basics.declared_options import Command, flag_of
from et_sim.basics.errors import UsageError
from et_sim.workloads.exchange_names import ALL_TO_ALL

if TYPE_CHECKING:
    from et_sim.machine import Machine
    from et_sim.workloads.models.model import Model
    from et_sim.workloads.training.plan import Plan

LEAVE_OUT = "leave it out"


class Case(NamedTuple):
    """A command line: its options, the model, and the plans of its replicas."""

    options: Any
    model: Model
    plans: tuple[Plan, ...]
    machine: Callable[[], Machine]

    def has_plan(self, condition: Callable[[Plan], bool]) -> bool:
        """Return whether a condition holds for the plan of any replica."""
        return any(condition(plan) for plan in self.plans)

    @property
    def routes_tokens(self) -> bool:
        """Return whether tokens are sent to experts on other ranks."""
        return self.model.experts is not None and self.has_plan(
            lambda plan: plan.experts_apart or min(plan.data, plan.expert) > 1
        )

    @property
    def shares_experts(self) -> bool:
        """Return whether groups of ranks exchange tokens for their experts, on other ranks or in shares."""
        return self.model.experts is not None and self.has_plan(
            lambda plan: plan.experts_apart or plan.data > 1
        )

    @property
    def spreads_experts_over_nodes(self) -> bool:
        """Return whether training sends tokens to experts by an exchange that depends on nodes."""
        return self.model.experts is not None and self.has_plan(
            lambda plan: plan.expert > 1 and plan.expert_exchange != ALL_TO_ALL
        )

    @property
    def is_apart(self) -> bool:
        """Return whether there are replicas for prompts and others for tokens."""
        return (self.options.prefill_replicas or self.options.decode_replicas) is not None

    @property
    def draws(self) -> bool:
        """Return whether times of arrival or lengths of a rule are drawn; those of files are not a rule's."""
        from et_sim.serving.rules import is_drawn

        share = float(self.second.get("share", 0))
        return self.options.lengths < 1 or is_drawn(self.options.requests) or 0 < share < 1

    @property
    def second(self) -> dict[str, str]:
        """Return the values of the second model."""
        from et_sim.serving.second import words_of

        given = self.options.second_model
        return {} if given is None else words_of(given)[1]

    @property
    def has_choice_of_replica(self) -> bool:
        """Return whether a request may go to several groups of ranks."""
        options, plan = self.options, self.plans[0]
        most = options.prefill_replicas or options.most_replicas or options.replicas or 1
        own = [int(count) for name, count in self.second.items() if name.endswith("replicas") or name == "dp"]
        return max(most * plan.data, (options.decode_replicas or 1) * self.plans[-1].data, *own) > 1

    @property
    def has_formats(self) -> bool:
        """Return whether any product has weights in a format."""
        from et_sim.workloads.inference.numbers import LayerNumbers

        return any(
            LayerNumbers.of(self.model, plan, layer).formats.products
            for plan in self.plans
            for layer in range(self.model.layers)
        )

    @property
    def replays_kernels(self) -> bool:
        """Return whether the machine leaves the times of some kernels to the rates of the plan."""
        from et_sim.plan.kernel_times import times_of_kernels
        from et_sim.workloads.inference.batch import Batch, Segment, sights
        from et_sim.workloads.inference.forward import make_inference

        whole = {
            "tensor": 1,
            "data": 1,
            "pipeline": 1,
            "expert": 1,
            "expert_exchange": ALL_TO_ALL,
            "experts_apart": False,
            "attention_parts": False,
        }
        plan = replace(self.plans[0], **whole, dispatch="values", expert_nodes=0, stage_layers=())
        batch, times = Batch.of([Segment(1, 1)], sights=sights(self.model)), times_of_kernels(self.machine())
        at = (replace(plan, tflops=rate, memory_gbps=rate) for rate in (1.0, 2.0))
        slow, fast = (times(make_inference(self.model, each, [batch]).templates[0]) for each in at)
        return bool((slow != fast).any())


class Need(NamedTuple):
    """Options that have no effect unless a condition holds; the cause of a refusal follows the option."""

    options: tuple[str, ...]
    is_met: Callable[[Case], bool]
    cause: str
    remedy: str = LEAVE_OUT


_EXPERTS = "has no effect: no tokens are sent to experts on other ranks"
_SPREAD = "give a model with experts, and --dp and --ep of 2 or more, or leave it out"
_OF_STAGES = Need(
    ("stage_layers",),
    lambda case: case.has_plan(lambda plan: plan.pipeline > 1),
    "has no effect: there is one stage, which has all layers",
    "give --pp, 2 or more, or leave it out",
)
_NODES = (
    "has no effect: nodes matter only to tokens that are sent to experts on other ranks by another"
    " exchange than an all-to-all"
)
OF_PLANS = (
    Need(
        ("expert_nodes", "dispatch", "expert_exchange", "attention_parts"),
        lambda case: case.routes_tokens,
        _EXPERTS,
        _SPREAD,
    ),
    Need(
        ("overlap_experts",),
        lambda case: case.shares_experts,
        "has no effect: tokens are not exchanged for experts that groups of ranks share",
        "give a model with experts, and --dp, 2 or more, or leave it out",
    ),
    Need(
        ("node_ranks",),
        lambda case: case.routes_tokens and case.has_plan(lambda plan: plan.expert_exchange != ALL_TO_ALL),
        _NODES,
        "give --expert-exchange, hierarchical or deepep, with --dp and --ep of 2 or more, or leave it out",
    ),
    Need(
        ("expert_seed",),
        lambda case: case.has_plan(lambda plan: plan.expert > 1),
        "has no effect: the ranks that share the experts have all of them, the busy ones, too",
        "give --ep, 2 or more, or leave it out",
    ),
    Need(
        ("expert_products",),
        lambda case: case.model.experts is not None,
        "has no effect: the model has no experts",
        "give --products, or leave it out",
    ),
    _OF_STAGES,
    Need(
        ("lora_rank",),
        lambda case: case.has_plan(lambda plan: plan.lora_rank > 0),
        "has no effect: adapters of rank 0 have no products",
        "give 1 or more, such as 16, or leave it out",
    ),
    Need(
        ("adapters",),
        lambda case: case.options.adapters > 0,
        "is 0, and --lora-rank is given",
        "give 1 or more, or leave both out",
    ),
    Need(
        ("computes",),
        lambda case: case.has_formats,
        "has no effect: all weights are stored as values",
        "give --products, or leave it out",
    ),
)
OF_PASSES = (
    *OF_PLANS,
    Need(
        ("eager",),
        lambda case: bool(case.options.exchanges),
        "is about the exchanges of an engine",
        "add --exchanges, such as vllm",
    ),
)
_SEVERAL = "give {}, 2 or more, or leave it out"
OF_TRAINING = (
    Need(
        ("context_attention", "context_balance"),
        lambda case: case.has_plan(lambda plan: plan.context > 1),
        "has no effect: every rank has whole sequences",
        _SEVERAL.format("--cp"),
    ),
    Need(
        ("zero",),
        lambda case: case.options.zero == 0 or case.has_plan(lambda plan: plan.data * plan.context > 1),
        "has no effect: there is one replica",
        _SEVERAL.format("--dp"),
    ),
    Need(
        ("prefetch",),
        lambda case: case.has_plan(lambda plan: plan.zero == 3),
        "has no effect: every rank has whole weights of its layers",
        "give --zero 3, or leave it out",
    ),
    _OF_STAGES,
    _OF_STAGES._replace(options=("scatter_gather",)),
    Need(
        ("unfused_routing",),
        lambda case: case.model.experts is not None,
        "has no effect: the model has no experts",
    ),
    Need(
        ("node_ranks",),
        lambda case: case.spreads_experts_over_nodes,
        _NODES,
        "give --expert-exchange, hierarchical or deepep, with --ep of 2 or more, or leave it out",
    ),
    Need(
        ("no_dropout",),
        lambda case: case.model.has_dropout,
        "has no effect: the model has no dropout",
    ),
)
OF_SERVING = (
    *OF_PLANS,
    Need(
        ("good_share", "tolerance"),
        lambda case: case.options.find_rate,
        "requires --find-rate",
        "give both, or leave it out",
    ),
    Need(
        ("rate",),
        lambda case: not case.options.find_rate,
        "and --find-rate cannot be combined",
        "leave one of them out",
    ),
    Need(("seed",), lambda case: case.draws, "has no effect: neither times of arrival nor lengths are drawn"),
    Need(
        ("decode_tp", "decode_dp", "decode_ep", "decode_pp"),
        lambda case: case.is_apart,
        "requires separate decode replicas",
        "give --decode-replicas, too",
    ),
    Need(
        ("transfer",),
        lambda case: case.is_apart,
        "requires separate prefill and decode replicas",
        "give --prefill-replicas and --decode-replicas, too",
    ),
    Need(
        ("router",),
        lambda case: case.has_choice_of_replica,
        "has no effect: all requests go to one group of ranks",
        "give --replicas or --dp, 2 or more, or leave it out",
    ),
    Need(
        ("memory",),
        lambda case: case.options.offload not in (None, "0"),
        "has no effect: only caches that --offload keeps are in remote memory",
        "give --offload, such as --offload all, or leave it out",
    ),
    Need(
        ("tflops", "memory_gbps"),
        lambda case: case.replays_kernels,
        "has no effect: the machine gives the times of all kernels",
        "leave it out, or give a --system that gives no times of kernels",
    ),
    Need(
        ("value_type",),
        lambda case: bool(case.machine().system.compute),
        "has no effect: the machine has no rates by datatype",
    ),
)


def check_needs(needs: tuple[Need, ...], case: Case) -> None:
    """Refuse given options that have no effect."""
    values = vars(case.options)
    for need in needs:
        for name in need.options:
            is_given = values.get(name) is not None and values[name] is not False
            if is_given and not need.is_met(case):
                raise UsageError(f"{flag_of(name)} {need.cause}", remedy=need.remedy)


def case_of(options: Command, model: Model, *plans: Plan | None) -> Case:
    """Return the case of a command line; its machine is read when a condition depends on it."""
    from et_sim.cli.options import run_options
    from et_sim.machine import read_machine

    def machine() -> Machine:
        of = run_options(options)
        return read_machine(**of.parts, profile=of.profile)

    return Case(options, model, tuple(filter(None, plans)), machine)
