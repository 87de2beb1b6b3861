"""Speculation: drafts of further tokens, which are verified together in a pass of the model.

Every running sequence has `tokens` drafts in a pass, which then computes so many tokens and one more. It
keeps `acceptance` tokens on average: after the n-th pass of a sequence, n times the acceptance, rounded down,
but for those beyond the end of its output. With an acceptance of 1, no draft is ever right, and the results
are those without speculation.

Drafts come from a module of the model that predicts further tokens (`mtp`), from a smaller model, or from the
text itself, at no cost (`ngram`). The first pass of the drafting model computes the tokens that the model
computes, since it has a cache of its own; each further one a token of every sequence.
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import asdict, replace

from et_sim.basics.errors import UsageError
from et_sim.workloads.inference.memory import SequenceCache, layer_bytes, weight_bytes_of_stage
from et_sim.workloads.models.model import Model, PredictingModule
from et_sim.workloads.training.plan import Plan

MODULE, TEXT = "mtp", "ngram"
FORM = f"{MODULE}:1, {TEXT}:3 or the name of a smaller model, as in qwen3-0.6b:4"
MOST_DRAFTS = 64
MILLION = 1_000_000


class Speculation(Struct, frozen=True):
    """Drafts of a running sequence, and how many tokens of a pass it keeps on average."""

    source: str
    tokens: int  # drafts of a sequence in a pass
    acceptance: float  # tokens of a pass that a sequence keeps, drafts and one more
    model: Model | None = None  # that makes drafts; None: they cost nothing

    def kept(self, number: int) -> int:
        """Return the tokens that a sequence keeps of its pass of this number, from 0 on."""
        millionths = round(self.acceptance * MILLION)
        return (number + 1) * millionths // MILLION - number * millionths // MILLION

    def plan(self, plan: Plan) -> Plan:
        """Return the plan of the drafting model on the ranks of the other one; it has no adapters."""
        if plan.lora_rank or plan.adapters:
            plan = replace(plan, lora_rank=0, adapters=0)
        if self.model is None or self.model.experts is not None:
            return plan
        whole = {"expert": 1, "redundant_experts": 0, "dispatch": "values", "expert_nodes": 0}
        even = {"expert_skew": "", "expert_seed": 0, "experts_apart": False}
        even |= {"overlap_experts": False, "attention_parts": False}
        return replace(
            plan, **whole, **even, expert_exchange="all-to-all", expert_tensor=1, expert_products=""
        )

    def check(self, plan: Plan) -> None:
        """Refuse plans under which the drafting model cannot run."""
        if self.model is None:
            return
        if plan.pipeline > 1:
            raise UsageError(
                f"drafts come from {self.model.name}, which has no stages, but --pp is {plan.pipeline}",
                remedy="leave out --pp, or speculate with ngram",
            )
        if plan.data > 1 and self.model.experts is None:
            raise UsageError(
                f"drafts come from {self.model.name}, without experts that the groups of --dp could share",
                remedy=f"leave out --dp, or speculate with {MODULE} or {TEXT}",
            )

    def weight_bytes(self, plan: Plan) -> int:
        """Return the bytes of weights of the drafting model on a rank."""
        if self.model is None:
            return 0
        if isinstance(self.model, PredictingModule):  # the embedding and the head are those of the model
            return layer_bytes(self.model, self.plan(plan), 0) + self.model.joining_weights * plan.value_bytes
        return weight_bytes_of_stage(self.model, self.plan(plan), 0)

    def cache_bytes(self, plan: Plan, tokens: int) -> int:
        """Return the bytes of the drafting model's cache of a sequence on a rank."""
        return 0 if self.model is None else SequenceCache.of(self.model, self.plan(plan)).bytes(tokens)


def read_speculation(given: str, acceptance: float, model: Model) -> Speculation | None:
    """Return the speculation of SOURCE:TOKENS for a model; None if no draft is ever kept."""
    source, _, count = given.rpartition(":")
    if not source or not (count.isascii() and count.isdecimal() and 1 <= int(count[:9]) <= MOST_DRAFTS):
        raise UsageError(
            f"--speculate is {given!r}", remedy=f"give {FORM}, with 1 to {MOST_DRAFTS} drafts of a sequence"
        )
    tokens = int(count)
    if not 1 <= acceptance <= tokens + 1:
        raise UsageError(
            f"--acceptance is {acceptance:g} tokens of a pass, which verifies {tokens} and computes one more",
            remedy=f"give a number from 1 to {tokens + 1}",
        )
    drafting = _drafting(source, model)
    return None if acceptance == 1 else Speculation(source, tokens, acceptance, drafting)


def _drafting(source: str, model: Model) -> Model | None:
    if source == TEXT:
        return None
    if source == MODULE:
        if not model.next_tokens:
            raise UsageError(
                f"{model.name} has no modules that predict further tokens",
                remedy=f"speculate with {TEXT} or a smaller model; in a file: num_nextn_predict_layers",
            )
        return _module_of(model)
    from et_sim.workloads.models.configuration import read_model

    drafting = read_model(source)
    if drafting.vocabulary < model.vocabulary // 2:
        raise UsageError(
            f"{drafting.name} has {drafting.vocabulary:,} words, and {model.name} {model.vocabulary:,}",
            remedy="give a model with the same vocabulary",
        )
    return replace(drafting, sequence=max(drafting.sequence, model.sequence))


def _module_of(model: Model) -> PredictingModule:
    """Return the module of a model that predicts a further token: a layer like its last one."""
    last = model.layers - 1
    experts = model.experts and replace(model.experts, dense_layers=0)
    same = asdict(model) | {
        "name": f"the {MODULE} module of {model.name}",
        "layers": 1,
        "kinds": (model.kind(last),),
        "windows": (model.window(last),),
        "formats": (model.formats_of(last),),
        "experts": experts,
        "next_tokens": 0,
    }
    return PredictingModule(**same)
