"""Batches of forward passes: new tokens of several sequences, with cached keys and values; checks of plans
and of batches.

Kernels depend on sums over the sequences only, so batches with equal sums are equal. Layers that see a window
or a chunk have sums of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import add, sub
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import astuple, replace

from et_sim.basics.errors import FieldError, UsageError
from et_sim.basics.units import plural
from et_sim.workloads.inference.ranks import expert_sharers
from et_sim.workloads.models.model import Model
from et_sim.workloads.training.expert_loads import loads_of
from et_sim.workloads.training.plan import Plan


class Segment(NamedTuple):
    """Tokens of one sequence."""

    tokens: int  # new ones
    context: int = 0  # earlier tokens, whose keys and values are cached
    is_sampled: bool = True  # the pass samples the next token of the sequence
    drafts: int = 0  # of the tokens, which the pass verifies: it samples after each of them, too

    @property
    def is_prompt(self) -> bool:
        """Return whether this is a prompt or a part of one, rather than a token after cached ones."""
        return self.tokens > 1 + self.drafts or not self.context


class BatchLoad(Struct, frozen=True):
    """Sums over segments."""

    segments: int = 0
    tokens: int = 0
    keys: int = 0  # keys that the segments' last tokens see
    pairs: int = 0  # pairs of a token and a key that it sees

    def plus(self, other: BatchLoad) -> BatchLoad:
        """Return the load of these segments and others."""
        return BatchLoad(*map(add, astuple(self), astuple(other)))

    def less(self, other: BatchLoad) -> BatchLoad:
        """Return the load without that of some of the segments."""
        return BatchLoad(*map(sub, astuple(self), astuple(other)))


class AttentionSight(Struct, frozen=True):
    """The tokens that a layer's attention sees: a sliding window, a chunk, or chosen ones; 0: all before."""

    window: int = 0
    in_chunks: bool = False
    is_chosen: bool = False  # each token has its own choice, so that those of a prompt see all before

    def of_prompt(self, tokens: int, before: int) -> tuple[int, int]:
        """Return the keys that any of some new tokens sees, and the pairs of a new token and a key."""
        if not self.window:
            return before + tokens, tokens * before + tokens * (tokens + 1) // 2
        if self.in_chunks:
            before %= self.window
            chunks, rest = divmod(before + tokens, self.window)
            ends = chunks * self.window * (self.window + 1) // 2 + rest * (rest + 1) // 2
            return before + tokens, ends - before * (before + 1) // 2
        growing = min(max(self.window - before, 0), tokens)  # tokens that see all before
        pairs = growing * before + growing * (growing + 1) // 2 + (tokens - growing) * self.window
        return (before if self.is_chosen else min(before, self.window - 1)) + tokens, pairs

    def of_token(self, before: int) -> int:
        """Return the keys that a single token sees, itself included."""
        if not self.window:
            return before + 1
        return before % self.window + 1 if self.in_chunks else min(before + 1, self.window)


def sights(model: Model) -> tuple[AttentionSight, ...]:
    """Return the sights of layers that do not see all tokens, each kind once."""
    if model.attention.index is not None:
        return (AttentionSight(model.attention.index.chosen, is_chosen=True),)
    windows = {model.window(layer) for layer in range(model.layers) if model.has_attention(layer)}
    return tuple(AttentionSight(window, model.in_chunks) for window in sorted(windows - {0}))


def _load_of_singles(
    count: int, context: int, context_step: int, sight: AttentionSight, drafts: int = 0
) -> BatchLoad:
    """Return the load of single tokens with drafts after each, the mean of whose contexts is rounded up."""
    if context_step > 1 and count:
        unit = context_step * count
        context = -(-context // unit) * unit
        context = min(context, (sight.window - 1) * count) if sight.window else context
    if not drafts:
        return BatchLoad(count, count, context + count, context + count)
    each = 1 + drafts
    tokens, pairs = count * each, each * context + count * each * (each + 1) // 2
    return BatchLoad(
        count, tokens, context + tokens, min(pairs, tokens * sight.window) if sight.window else pairs
    )


def _halves_of_singles(load: BatchLoad) -> tuple[BatchLoad, BatchLoad]:
    """Return the single tokens of half of the sequences, whose contexts are equal, and of the others."""
    second = _part(load, load.segments // 2)
    return load.less(second), second


def _halves_of_prompts(load: BatchLoad, sight: AttentionSight) -> tuple[BatchLoad, BatchLoad]:
    """Return prompts of equal length with half of the tokens, and the others; one may be cut in two."""
    each = _part(load, load.segments // 2)
    left = load.less(each).less(each)
    if left.tokens < 2 or not left.segments:
        return load.less(each), each
    cut, before = left.tokens - left.tokens // 2, left.keys - left.tokens
    kept = before + cut  # of the first part, which the second one sees
    if sight.window and not sight.is_chosen:
        kept = kept % sight.window if sight.in_chunks else min(kept, sight.window - 1)
    pairs = min(cut * before + cut * (cut + 1) // 2, left.pairs * cut // left.tokens)
    rest = left.tokens - cut
    parts = BatchLoad(1, cut, before + cut, pairs), BatchLoad(1, rest, kept + rest, left.pairs - pairs)
    return each.plus(parts[0]), each.plus(parts[1])


def _part(load: BatchLoad, segments: int) -> BatchLoad:
    """Return the load of some of equal segments, rounded down."""
    total = max(load.segments, 1)
    return BatchLoad(*(value * segments // total for value in astuple(load)))


WithinSights = tuple[tuple[AttentionSight, BatchLoad, BatchLoad], ...]


class Batch(Struct, frozen=True):
    """The segments of a pass: prompts, or parts of them, and single tokens after cached ones."""

    prefill: BatchLoad
    decode: BatchLoad
    sampled: int
    within: WithinSights = ()  # prompts and single tokens in layers with windows

    def seen(self, sight: AttentionSight) -> tuple[BatchLoad, BatchLoad]:
        """Return the loads of prompts and of single tokens in layers with a sight."""
        if not sight.window:
            return self.prefill, self.decode
        for known, prefill, decode in self.within:
            if known == sight:
                return prefill, decode
        raise UsageError(
            f"layers see {sight.window} tokens only, and the batch lacks their number of keys",
            remedy="give Batch.of the sights of the model: Batch.of(segments, sights=sights(model))",
        )

    @staticmethod
    def of(
        segments: Iterable[Segment], context_step: int = 1, sights: Sequence[AttentionSight] = ()
    ) -> Batch:
        """Return the batch of some segments, with sums for layers of each sight.

        With a step above 1, contexts are rounded up to multiples of it, so that fewer batches differ: each
        context of a prompt, and the mean context of single tokens.
        """
        segments = tuple(segments)
        all_tokens = Batch._of(segments, context_step, AttentionSight())
        loads = ((sight, Batch._of(segments, context_step, sight)) for sight in sights)
        return replace(
            all_tokens, within=tuple((sight, batch.prefill, batch.decode) for sight, batch in loads)
        )

    @staticmethod
    def _of(segments: Iterable[Segment], context_step: int, sight: AttentionSight) -> Batch:
        prefill, singles, context, sampled, drafts = [0] * 4, 0, 0, 0, set[int]()
        for tokens, before, is_sampled, verified in segments:
            sampled += is_sampled * (1 + verified)
            if tokens == 1 + verified and before:
                singles += 1
                drafts.add(verified)
                context += sight.of_token(before) - 1
                continue
            rounded = -(-before // context_step) * context_step
            keys, pairs = sight.of_prompt(tokens, rounded)
            prefill[0] += 1
            prefill[1] += tokens
            prefill[2] += keys
            prefill[3] += pairs
        if len(drafts) > 1:
            raise UsageError(
                "sequences of a pass have different numbers of drafts", remedy="give all of them equally many"
            )
        load = _load_of_singles(singles, context, context_step, sight, max(drafts, default=0))
        return Batch(BatchLoad(*prefill), load, sampled)

    @staticmethod
    def of_singles(
        count: int, contexts: int, sampled: int, context_step: int = 1, within: WithinSights = ()
    ) -> Batch:
        """Return the batch of single tokens by the sum of their contexts, and by the loads within sights."""
        load = _load_of_singles(count, contexts, context_step, AttentionSight())
        return Batch(BatchLoad(), load, sampled, within)

    @property
    def tokens(self) -> int:
        """Return the number of new tokens."""
        return self.prefill.tokens + self.decode.tokens

    def halves(self) -> tuple[Batch, Batch]:
        """Return two batches: half of the tokens of prompts, and of the sequences with single tokens, each.

        Of an odd number of prompts, one is cut: its second part reads the keys of the first one, too.
        """
        prompts = _halves_of_prompts(self.prefill, AttentionSight())
        singles = _halves_of_singles(self.decode)
        within = [
            (sight, _halves_of_prompts(prefill, sight), _halves_of_singles(decode))
            for sight, prefill, decode in self.within
        ]
        more = self.sampled // 2
        first, second = (
            Batch(
                prompts[at],
                singles[at],
                sampled,
                tuple((sight, prefill[at], decode[at]) for sight, prefill, decode in within),
            )
            for at, sampled in enumerate((self.sampled - more, more))
        )
        return first, second

    def __str__(self) -> str:
        prefill, decode = self.prefill, self.decode
        parts = []
        if prefill.segments:
            parts.append(f"{plural(prefill.segments, 'prompt')} of {plural(prefill.tokens, 'token')}")
        if decode.segments:
            sees = f"sees {decode.keys:,} tokens" if decode.segments == 1 else f"see {decode.keys:,} tokens"
            parts.append(f"a token of {plural(decode.segments, 'sequence')} that {sees}")
        return ", ".join(parts)


GroupBatches = Batch | tuple[Batch, ...]  # of all data-parallel groups alike, or of each of them


def halves_of_groups(groups: Sequence[Batch]) -> tuple[tuple[Batch, ...], ...]:
    """Return the two halves of the batches of all groups; none if a half of a group has no tokens."""
    halves = tuple(zip(*(group.halves() for group in groups), strict=True))
    return halves if all(batch.tokens for half in halves for batch in half) else ()


def have_prompts(groups: Iterable[Batch]) -> bool:
    """Return whether any of the batches of a pass has prompts."""
    return any(group.prefill.segments for group in groups)


def check_batches(plan: Plan, batches: Iterable[GroupBatches]) -> None:
    """Refuse passes without tokens, or with another number of batches than of data-parallel groups."""
    for batch in batches:
        groups = (batch,) if isinstance(batch, Batch) else batch
        if not any(group.tokens for group in groups):
            raise UsageError("a forward pass has no tokens", remedy="give a segment with at least 1 token")
        if not isinstance(batch, Batch) and len(groups) != plan.data:
            raise UsageError(
                f"a pass has {plural(len(groups), 'batch', 'batches')}, but the plan has"
                f" {plural(plan.data, 'group')} of ranks with sequences of their own",
                remedy="give a batch for each group, which may be empty, or one for all",
            )


def check(model: Model, plan: Plan) -> None:
    """Refuse a plan that does not fit the model."""
    plan.check_values()
    if model.is_encoder:
        raise UsageError(
            f"{model.name} is an encoder, which does not generate tokens",
            remedy="choose a decoder, such as llama3-8b",
        )
    plan.check_stages(model)
    if plan.adapters and not plan.lora_rank:
        raise FieldError(
            "`adapters` requires `lora_rank`", remedy="give `lora_rank`, such as 16, or leave it out"
        )
    _check_shares(model, plan)


def _check_shares(model: Model, plan: Plan) -> None:
    attention, experts, tensor = model.attention, model.experts, plan.tensor
    _check_share("heads", attention.heads, tensor, "tensor-parallel ranks")
    if model.recurrence is not None:
        _check_share("heads of states", model.recurrence.heads, tensor, "tensor-parallel ranks")
    if attention.latent is None and tensor % attention.key_heads:
        _check_share("heads of keys and values", attention.key_heads, tensor, "tensor-parallel ranks")
    _check_share(
        "the width of the feed-forward part", model.feed_forward.width, tensor, "tensor-parallel ranks"
    )
    if experts is None:
        if plan.expert > 1:
            raise FieldError(f"{model.name} has no experts", remedy="leave `expert` out")
        for name in ("redundant_experts", "expert_skew", "overlap_experts", "experts_apart"):
            if getattr(plan, name):
                raise FieldError(f"{model.name} has no experts", remedy=f"leave `{name}` out")
        return
    if plan.expert_skew:
        loads_of(plan.expert_skew, plan.expert_seed, experts.count, experts.chosen)
    copied = experts.count + plan.redundant_experts
    if copied % plan.expert:
        more = -experts.count % plan.expert
        raise FieldError(
            f"experts: {copied} is not a multiple of {plan.expert}, the number of expert-parallel ranks",
            remedy=f"choose a number that divides {copied}, or give {more} `redundant_experts`",
        )
    sharers = expert_sharers(plan)
    _check_share("the width of an expert", experts.expert.width, sharers, "ranks that share every expert")


def _check_share(quantity: str, total: int, share: int, by: str) -> None:
    if total % share:
        raise UsageError(
            f"{quantity}: {total} is not a multiple of {share}, the number of {by}",
            remedy=f"choose a number of {by} that divides {total}",
        )


def check_length(model: Model, tokens: int, place: str = "") -> None:
    """Refuse a sequence longer than the model is made for."""
    if tokens > model.sequence:
        raise UsageError(
            f"a sequence of {tokens:,} tokens is longer than the {model.sequence:,} that {model.name} is"
            " made for",
            place=place,
            remedy=f"shorten it, or give --sequence {tokens}",
        )
