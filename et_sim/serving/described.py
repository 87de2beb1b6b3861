"""The setup of serving from choices with names: those of options, and of the keys of sweeps."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from et_sim.basics.errors import UsageError
from et_sim.serving.batcher import Policy
from et_sim.serving.caching import Caching
from et_sim.serving.clients import Client
from et_sim.serving.engines import DEFAULT
from et_sim.serving.engines.description import Engine
from et_sim.serving.engines.reading import read_engine
from et_sim.serving.results import Objectives
from et_sim.serving.scaling import COMPANIONS, Autoscaling, read_autoscaling
from et_sim.serving.second import SecondModel, second_of, words_of
from et_sim.serving.setups import CONTEXT_STEP, Setup
from et_sim.serving.speculation import Speculation, read_speculation
from et_sim.serving.transfers import WHOLE
from et_sim.workloads.models.model import Model
from et_sim.workloads.training.plan import Plan


class ServingChoices(Struct, frozen=True, kw_only=True):
    """Choices of a load and of an engine; None: the engine's, or none."""

    engine: str = DEFAULT
    replicas: int | None = None
    prefill_replicas: int | None = None
    decode_replicas: int | None = None
    decode: Mapping[str, int] = MappingProxyType({})  # fields of the plan that decode replicas have apart
    policy: str | None = None
    max_batch: int | None = None
    token_budget: int | None = None
    block: int | None = None
    prompt_every: int | None = None
    cache_tokens: int | None = None
    prefix_cache: str | None = None
    offload: str | None = None
    router: str | None = None
    transfer: str | None = None
    context_step: int = CONTEXT_STEP
    capacity: int | None = None
    memory_share: float | None = None
    concurrency: int | None = None
    lengths: float = 1.0
    warm_up: int | None = None
    seed: int | None = None
    rate: float | None = None
    spread: bool = False
    send_weights: bool = False
    autoscale: str | None = None
    most_replicas: int | None = None
    start_time: float | None = None
    scale_every: float | None = None
    scale_down_after: float | None = None
    weights_from: str | None = None
    second_model: str | None = None
    speculate: str | None = None
    acceptance: float | None = None
    ttft: float | None = None
    tpot: float | None = None


def setup_of(choices: ServingChoices, plan: Plan, model: Model) -> Setup:
    """Return the setup of serving a model with a plan."""
    engine = read_engine(choices.engine)
    replicas, prefill = _replicas(choices)
    speculation = _speculation(choices, model)
    return Setup(
        plan=plan,
        replicas=replicas,
        prefill_replicas=prefill,
        decode_plan=replace(plan, **choices.decode) if choices.decode else None,
        policy=_policy(choices, engine, 1 if speculation is None else 1 + speculation.tokens),
        context_step=choices.context_step,
        memory_share=choices.memory_share,
        capacity_bytes=choices.capacity or 0,
        cache_tokens=choices.cache_tokens or 0,
        client=_client(choices),
        engine=engine,
        caching=Caching.of(choices.prefix_cache, choices.router, choices.offload),
        transfer=choices.transfer or WHOLE,
        speculation=speculation,
        sends_weights=choices.send_weights,
        autoscaling=_autoscaling(choices, replicas),
        second=_second(choices),
        objectives=Objectives(int(choices.ttft or 0), int(choices.tpot or 0)),
    )


def _speculation(choices: ServingChoices, model: Model) -> Speculation | None:
    if (choices.speculate is None) != (choices.acceptance is None):
        raise UsageError(
            "--speculate and --acceptance require each other",
            remedy="give both, as in --speculate mtp:1 --acceptance 1.8",
        )
    if choices.speculate is None or choices.acceptance is None:
        return None
    return read_speculation(choices.speculate, choices.acceptance, model)


def _second(choices: ServingChoices) -> SecondModel | None:
    if choices.second_model is None:
        return None
    from et_sim.workloads.models.configuration import read_model

    name, values = words_of(choices.second_model)
    return second_of(read_model(name), values)


def _autoscaling(choices: ServingChoices, replicas: int) -> Autoscaling | None:
    others = {name: getattr(choices, name) for name in COMPANIONS}
    if choices.autoscale is not None:
        return read_autoscaling(choices.autoscale, replicas, others)
    for name, value in others.items():
        if value is not None:
            raise UsageError(
                f"--{name.replace('_', '-')} requires --autoscale",
                remedy="give both, as in --autoscale requests:16, or leave it out",
            )
    return None


def _client(choices: ServingChoices) -> Client:
    if choices.rate is not None and not choices.rate > 0:
        raise UsageError(f"--rate is {choices.rate:g}", remedy="give requests in a second, more than 0")
    return Client(
        choices.concurrency or 0,
        choices.lengths,
        choices.warm_up,
        choices.seed,
        choices.rate or 0.0,
        choices.spread,
    )


def _policy(choices: ServingChoices, engine: Engine, tokens: int) -> Policy:
    """Return the batching of the engine, with the choices that override it.

    A running sequence has some `tokens` in a pass, all of which must fit the budget.
    """
    budget = choices.token_budget or engine.token_budget
    most = min(engine.max_batch, engine.token_budget, max(budget // tokens, 1))
    waits = {name: getattr(engine, name) for name in ("wait_passes", "wait_share", "balance_passes")}
    own = Policy(engine.policy, most, engine.token_budget, engine.block, **waits)
    given: dict[str, Any] = {
        "name": choices.policy,
        "max_batch": choices.max_batch,
        "token_budget": choices.token_budget,
        "block": choices.block,
        "prompt_every": choices.prompt_every,
    }
    given = {name: value for name, value in given.items() if value is not None}
    return replace(own, **given)


def _replicas(choices: ServingChoices) -> tuple[int, int]:
    """Return the number of replicas that generate tokens, and of those only for prompts."""
    prefill, decode, both = choices.prefill_replicas, choices.decode_replicas, choices.replicas
    if prefill is None and decode is None:
        return both or 1, 0
    if both is not None:
        raise UsageError(
            "--replicas cannot be combined with separate prefill and decode replicas",
            remedy="leave out --replicas, or --prefill-replicas and --decode-replicas",
        )
    if prefill is None or decode is None:
        raise UsageError(
            "prefill replicas and decode replicas require each other",
            remedy="give both --prefill-replicas and --decode-replicas",
        )
    return decode, prefill
