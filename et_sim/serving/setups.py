"""The setup of serving: replicas, batching, cache, client and objectives, checked together."""

from __future__ import annotations

from msgspec import Struct, field
from msgspec.structs import replace

from et_sim.basics.errors import UsageError, did_you_mean
from et_sim.serving.batcher import Policy
from et_sim.serving.caching import Caching
from et_sim.serving.clients import Client
from et_sim.serving.engines.description import FREE_OF_COST, Engine
from et_sim.serving.images import Images
from et_sim.serving.results import Objectives
from et_sim.serving.scaling import Autoscaling
from et_sim.serving.second import PLANNED, SecondModel
from et_sim.serving.speculation import TEXT, Speculation
from et_sim.serving.transfers import LAYERS, TRANSFERS, WHOLE
from et_sim.workloads.training.plan import Plan

CONTEXT_STEP = 64


class Setup(Struct, frozen=True):
    """The setup of serving."""

    plan: Plan  # of a replica
    replicas: int = 1
    prefill_replicas: int = 0  # 0: all replicas do both
    decode_plan: Plan | None = None  # None: as those for prompts
    policy: Policy = field(default_factory=Policy)
    context_step: int = CONTEXT_STEP
    memory_share: float | None = None  # of each NPU, in the engine's rule; None: that of the engine
    capacity_bytes: int = 0  # of each NPU; 0: from the machine
    cache_tokens: int = 0  # of a replica, as its log states them; 0: by the engine's rule of memory
    client: Client = field(default_factory=Client)
    engine: Engine = FREE_OF_COST
    caching: Caching = field(default_factory=Caching)
    transfer: str = WHOLE  # of caches between replicas
    objectives: Objectives = field(default_factory=Objectives)
    speculation: Speculation | None = None
    images: Images | None = None  # of every request
    sends_weights: bool = False  # to all replicas, before each further batch of a rollout
    autoscaling: Autoscaling | None = None  # of replicas that compute prompts and tokens
    second: SecondModel | None = None

    def __post_init__(self) -> None:
        if self.memory_share is not None and not 0 < self.memory_share <= 1:
            raise UsageError(
                f"--memory-share is {self.memory_share}",
                remedy="give a share above 0 and up to 1, such as 0.9",
            )
        for option, is_given in (
            ("--memory-share", self.memory_share is not None),
            ("--capacity", self.capacity_bytes > 0),
        ):
            if is_given and self.cache_tokens:
                raise UsageError(
                    f"{option} and --cache-tokens each give the size of the cache",
                    remedy="leave one of them out",
                )
        if self.transfer not in TRANSFERS:
            remedy = did_you_mean(self.transfer, TRANSFERS) or f"known: {', '.join(TRANSFERS)}"
            raise UsageError(f"there is no transfer {self.transfer!r}", remedy=remedy)
        if self.transfer == LAYERS and not self.prefill_replicas:
            raise UsageError(
                "--transfer layers requires separate prefill and decode replicas",
                remedy="give --prefill-replicas and --decode-replicas, too",
            )
        if self.autoscaling is not None and self.prefill_replicas:
            raise UsageError(
                "--autoscale changes the number of replicas for prompts and tokens, and these are apart",
                remedy="leave out --autoscale, or give --replicas in place of both",
            )
        if self.second is not None:
            self._check_second()
        if self.speculation is not None:
            self._check_speculation(self.speculation)
        if not 1 <= self.context_step <= 10**9:
            raise UsageError(
                f"--context-step is {self.context_step}", remedy="give a number from 1 (exact) up"
            )

    def _check_speculation(self, speculation: Speculation) -> None:
        tokens, batch, budget = 1 + speculation.tokens, self.policy.max_batch, self.policy.token_budget
        if tokens * batch > budget:
            raise UsageError(
                f"{batch} sequences of {tokens} tokens exceed the {budget} of a pass",
                remedy=f"give --max-batch {max(budget // tokens, 1)}, or a --token-budget",
            )
        if speculation.model is None:
            return
        for option, is_given in (
            ("--offload", self.caching.remote_tokens > 0),
            (f"--transfer {LAYERS}", self.transfer == LAYERS),
        ):
            if is_given:
                raise UsageError(
                    f"{option} moves only the cache of the model that is served, and drafts come from"
                    f" {speculation.model.name}, which has a cache of its own",
                    remedy=f"leave out {option}, or speculate with {TEXT}",
                )

    def _check_second(self) -> None:
        """Refuse options that are for replicas of one model."""
        of_one = {
            "--speculate": self.speculation,
            "--image-tokens": self.images,
            "--autoscale": self.autoscaling,
            "--send-weights": self.sends_weights,
            "--cache-tokens": self.cache_tokens,
        }
        for option, is_given in of_one.items():
            if is_given:
                raise UsageError(
                    f"{option} is for replicas of one model, and there are two",
                    remedy=f"leave out {option}, or --second-model",
                )

    def of_second(self, second: SecondModel) -> Setup:
        """Return the setup of the second model beside this one."""
        own = {name: getattr(second, name) for name in PLANNED.values()}
        return replace(
            self,
            plan=replace(self.plan, **own, stage_layers=()),
            replicas=second.replicas,
            prefill_replicas=second.prefill_replicas,
            decode_plan=None,
            second=None,
        )
