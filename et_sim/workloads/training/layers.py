"""Which parts the layers of a model have on a rank, and how many weights.

Tensor-parallel ranks have a share of the heads, of the width of the feed-forward part, and of the vocabulary,
which is filled up to a multiple. Experts are whole; each rank of the expert axis has a share of them.
"""

from __future__ import annotations

from msgspec import Struct, field, structs

from et_sim.workloads.kernels import MASK_BYTES, norm, passing
from et_sim.workloads.models.model import (
    EXPERTS,
    RECURRENCE,
    Experts,
    FeedForward,
    LayerKind,
    Model,
    Recurrence,
)
from et_sim.workloads.recurrence import Chunks
from et_sim.workloads.training.attention import Core
from et_sim.workloads.training.parts import Enter, Leave, ModelPart, Passing, Product, ToExperts, overlapped
from et_sim.workloads.training.plan import Plan, tokens_of_experts

LOGIT_BYTES = 4  # of the score of a word
ROUTER, HEAD = "router", "head"


class Layers(Struct, frozen=True):
    """The layers of a model under a plan."""

    model: Model
    plan: Plan
    place: int = 0  # among the ranks that the experts are spread over, if experts are uneven
    _known: dict[tuple[LayerKind, int], tuple[ModelPart, ...]] = field(default_factory=dict)
    _tokens: dict[Experts, tuple[int, ...]] = field(default_factory=dict)  # that each expert gets

    def at(self, place: int) -> Layers:
        """Those of another place, to which as many tokens are sent."""
        return Layers(self.model, self.plan, place, _tokens=self._tokens)

    @property
    def tokens(self) -> int:
        """Of a micro-batch, on each rank of the context axis."""
        return self.plan.batch * self.model.sequence // self.plan.context

    @property
    def kept_tokens(self) -> int:
        """Of which a rank keeps what is not spread over tensor-parallel ranks otherwise."""
        return self.tokens // (self.plan.tensor if self.plan.sequence_parallel else 1)

    @property
    def activation_bytes(self) -> int:
        """What a layer hands to the next one, on the ranks that share it together."""
        return self.tokens * self.model.hidden * self.plan.value_bytes

    @property
    def vocabulary(self) -> int:
        """Rows of the embedding on a rank."""
        return -(-self.model.vocabulary // self.plan.tensor)

    def _norm(self, name: str) -> Passing:
        model, size = self.model, self.plan.value_bytes
        has_shift = model.norm_vectors > 1
        forward, backward = norm(name, self.kept_tokens, model.hidden, size, has_shift=has_shift)
        return Passing((forward,), (backward,))

    def _sum(self, name: str, *, has_bias: bool) -> Passing:
        """What a part of the layer gives, its bias and dropout, and what went into it: one kernel.

        On the way back the gradients of both sides of the sum, of dropout, and of the bias are kernels apart.
        """
        size, drops = self.plan.value_bytes, self.model.has_dropout
        values = self.kept_tokens * self.model.hidden
        forward = passing(name, values, 3 * size + drops * MASK_BYTES, 1 + has_bias + 2 * drops)
        moved = 3 * size + drops * (2 * size + MASK_BYTES) + has_bias * size
        backward = passing(name, values, moved, 1 + has_bias + drops, 1 + drops + has_bias)
        return Passing((forward,), (backward,))

    def _product(
        self,
        name: str,
        columns: int,
        inner: int,
        *,
        rows: int | None = None,
        copies: int = 1,
        gathers: int = 0,
        groups: tuple[int, ...] = (),
    ) -> Product:
        """Those that choose experts or words keep the datatype of values."""
        plan = self.plan
        return Product(
            name,
            self.tokens if rows is None else rows,
            columns,
            inner,
            plan.value_bytes,
            copies,
            gathers,
            groups,
            "" if name in (ROUTER, HEAD) else plan.cast_to,
        )

    def _enter(self, name: str) -> Enter:
        return Enter(name, self.activation_bytes, self.plan.sequence_parallel)

    def _leave(self, name: str) -> Leave:
        return Leave(name, self.activation_bytes, self.plan.sequence_parallel)

    @property
    def _again(self) -> int:
        """Bytes of its share of the inputs that a rank kept, to be gathered for gradients of weights."""
        return self.activation_bytes // self.plan.tensor if self.plan.sequence_parallel else 0

    def layer(self, layer: int) -> tuple[ModelPart, ...]:
        """The parts of a layer, in the order of the forward pass."""
        kind, window = self.model.kind(layer), self.model.window(layer)
        if (kind, window) not in self._known:
            parts = (*self._mixer(kind, window), *self._second_half(kind))
            self._known[kind, window] = self._overlapped(parts)
        return self._known[kind, window]

    def _mixer(self, kind: LayerKind, window: int) -> tuple[ModelPart, ...]:
        """Return attention, or the parts that a layer has in its place."""
        if kind.mixer == RECURRENCE and self.model.recurrence is not None:
            return self._recurrence(self.model.recurrence)
        return self._attention(window, has_rotary=kind.has_rotary) if kind.mixer else ()

    def _second_half(self, kind: LayerKind) -> tuple[ModelPart, ...]:
        """Return experts or a feed-forward part, if there is one."""
        if kind.part == EXPERTS and self.model.experts is not None:
            return self._experts(self.model.experts)
        return self._dense(self.model.feed_forward, "feed-forward") if kind.part else ()

    def _recurrence(self, recurrence: Recurrence) -> tuple[ModelPart, ...]:
        """Return states that tokens change one after the other, in place of attention."""
        hidden, tensor = self.model.hidden, self.plan.tensor
        share = recurrence.share(tensor)
        chunks = Chunks(share, self.plan.batch, self.tokens // self.plan.batch, self.plan.value_bytes)
        name = "recurrence"
        return (
            self._norm(f"{name} norm"),
            self._enter(name),
            self._product(f"{name} in", share.inner, hidden, gathers=self._again),
            Passing(tuple(chunks.forward()), tuple(chunks.backward())),
            self._product(f"{name} out", hidden, share.values),
            self._leave(name),
            *self._output_norm(name),
            self._sum(f"{name} sum", has_bias=False),
        )

    def _output_norm(self, name: str) -> tuple[ModelPart, ...]:
        """Return the norm of the outputs of a half of a layer, if there is one."""
        return (self._norm(f"{name} output norm"),) if self.model.half_norms > 1 else ()

    def _query_norm(self, *, has_rotary: bool) -> tuple[ModelPart, ...]:
        """Return the norms of queries and keys, by head or of all heads at once, if there are any."""
        attention = self.model.attention
        if not attention.has_query_norm(has_rotary=has_rotary):
            return ()
        rows, width = self.tokens, attention.normed_size // self.plan.tensor
        if attention.query_norm != "whole":
            rows, width = rows * width // attention.head_size, attention.head_size
        kernels = norm("query norm", rows, width, self.plan.value_bytes, has_shift=False)
        forward, backward = (kernel._replace(launches=2 * kernel.launches) for kernel in kernels)
        return (Passing((forward,), (backward,)),)

    def _gate(self) -> tuple[ModelPart, ...]:
        """Return the product of outputs and sigmoids of their gates, if there are gates."""
        attention, size = self.model.attention, self.plan.value_bytes
        if not attention.has_gate:
            return ()
        values = self.tokens * attention.heads * attention.value_size // self.plan.tensor
        forward, backward = passing("gate", values, 3 * size, 6), passing("gate", values, 5 * size, 12)
        return (Passing((forward,), (backward,)),)

    def _attention(self, window: int, *, has_rotary: bool = True) -> tuple[ModelPart, ...]:
        model, tensor = self.model, self.plan.tensor
        attention = model.attention
        parts: list[ModelPart] = [self._norm("attention norm"), self._enter("attention")]
        again = self._again
        for name, inputs, outputs in attention.projections(model.hidden):
            columns = outputs if name.endswith("down") else -(-outputs // tensor)
            parts.append(self._product(name, columns, inputs, gathers=again if inputs == model.hidden else 0))
            again = 0 if inputs == model.hidden else again
        rows = attention.heads * attention.value_size // tensor
        parts += [
            *self._query_norm(has_rotary=has_rotary),
            self._positions(has_rotary=has_rotary),
            Core.of(model, self.plan, window),
            *self._gate(),
            self._product("attention output", model.hidden, rows),
            self._leave("attention"),
            *self._output_norm("attention"),
            self._sum("attention sum", has_bias=attention.has_output_bias),
        ]
        return tuple(parts)

    def _positions(self, *, has_rotary: bool) -> Passing:
        """Queries and keys turned by their positions, if positions have no weights; gradients of the bias.

        Forward, the product adds its bias.
        """
        attention, size = self.model.attention, self.plan.value_bytes
        turned = attention.latent.rotary_size if attention.latent else attention.head_size
        values = self.tokens * (attention.heads + attention.key_heads) * turned // self.plan.tensor
        is_turned = has_rotary and not self.model.positions
        rotary = (passing("rotary", values, 2 * size, 3, launches=2),) if is_turned else ()
        outputs = (
            sum(projection[2] for projection in attention.projections(self.model.hidden)) // self.plan.tensor
        )
        bias = (passing("qkv bias", self.tokens * outputs, size),) if attention.has_bias else ()
        return Passing(rotary, (*rotary, *bias))

    def _dense(self, part: FeedForward, name: str) -> tuple[ModelPart, ...]:
        hidden, tensor = self.model.hidden, self.plan.tensor
        width = part.width // tensor
        return (
            self._norm(f"{name} norm"),
            self._enter(name),
            self._product(f"{name} up", part.inner // tensor, hidden, gathers=self._again),
            self._activation(name, part, self.tokens * width),
            self._product(f"{name} down", hidden, width),
            self._leave(name),
            *self._output_norm(name),
            self._sum(f"{name} sum", has_bias=part.has_bias),
        )

    def _activation(self, name: str, part: FeedForward, values: int) -> Passing:
        """With the bias; inputs of the function and gradients of outputs give those of inputs."""
        name, size, gates = f"{name} activation", self.plan.value_bytes, part.is_gated
        bias = (1 + gates) * part.has_bias
        moved, each = (3 + 2 * gates + bias) * size, part.operations
        backward = passing(name, values, moved, 2 * each, 1 + part.has_bias)
        return Passing((passing(name, values, (2 + gates) * size, each),), (backward,))

    def _experts(self, experts: Experts) -> tuple[ModelPart, ...]:
        """Every rank has its own tokens, and sends each to the ranks of the experts that it takes."""
        hidden, tokens = self.model.hidden, self.kept_tokens
        local, sent = experts.count // self.plan.expert, tokens * experts.chosen
        each = -(-sent // local)  # tokens of an expert, if all get as many
        size, value = sent * hidden * self.plan.value_bytes, hidden * self.plan.value_bytes
        groups = self.tokens_here(experts)
        got = sum(groups) if groups else each * local
        there = tuple(tokens * value for tokens in self.tokens_sent(experts))
        back = there[self.place : self.place + 1] * self.plan.expert
        shared: tuple[ModelPart, ...] = ()
        if experts.shared:
            width = experts.expert.width * experts.shared
            shared = self._dense(structs.replace(experts.expert, width=width), "shared expert")
        sorting = passing("sorting", (tokens + sent) * hidden, self.plan.value_bytes)
        sorting_pass = Passing((sorting,), (sorting,))
        return (
            *(shared or (self._norm("expert norm"),)),
            self._product(ROUTER, experts.count, hidden, rows=tokens),
            sorting_pass,
            ToExperts("to experts", size, there, back),
            self._product("experts up", experts.expert.inner, hidden, rows=each, copies=local, groups=groups),
            self._activation("experts", experts.expert, max(got, 1) * experts.expert.width),
            self._product(
                "experts down", hidden, experts.expert.width, rows=each, copies=local, groups=groups
            ),
            ToExperts("from experts", size, back, there),
            sorting_pass,
            self._sum("experts sum", has_bias=False),
        )

    def tokens_of_experts(self, experts: Experts) -> tuple[int, ...]:
        """What each expert gets of a rank's tokens, if experts are uneven."""
        plan, tokens = self.plan, self.kept_tokens
        if not plan.expert_skew:
            return ()
        if experts not in self._tokens:
            self._tokens[experts] = tokens_of_experts(
                plan.expert_skew, plan.expert_seed, experts.count, experts.chosen, tokens
            )
        return self._tokens[experts]

    def tokens_sent(self, experts: Experts) -> tuple[int, ...]:
        """To each place along the expert axis."""
        loads, local = self.tokens_of_experts(experts), experts.count // self.plan.expert
        return tuple(sum(loads[at : at + local]) for at in range(0, len(loads), local))

    def tokens_here(self, experts: Experts) -> tuple[int, ...]:
        """What each expert of the rank gets from all ranks together; (): all get as many."""
        local = experts.count // self.plan.expert
        here = self.tokens_of_experts(experts)[self.place * local : (self.place + 1) * local]
        return tuple(tokens * self.plan.expert for tokens in here)

    def embedding(self) -> tuple[ModelPart, ...]:
        """Rows of the tokens, and on the way back a whole table; a rank that lacks a row gives zeros."""
        model, size, hidden = self.model, self.plan.value_bytes, self.model.hidden
        rows = passing("embedding", self.tokens * hidden, 2 * size)
        table = passing("embedding", (self.tokens + self.vocabulary) * hidden, size, launches=2)
        parts: list[ModelPart] = [Passing((rows,), (table,)), self._leave("embedding")]
        if model.positions or model.has_dropout:
            drops = model.has_dropout * (2 * size + MASK_BYTES)
            values, moved = self.kept_tokens * hidden, (3 * size if model.positions else 0) + drops
            launches = (model.positions > 0) + model.has_dropout
            summed = passing("embedding sum", values, moved, 2, launches)
            dropped = (passing("embedding sum", values, drops),) if drops else ()
            parts.append(Passing((summed,), dropped))
        return tuple(parts)

    def head(self) -> tuple[ModelPart, ...]:
        """Scores of all words, and the loss."""
        hidden = self.model.hidden
        parts = (
            self._norm("head norm"),
            self._enter("head"),
            self._product(HEAD, self.vocabulary, hidden, gathers=self._again),
            self._loss(),
            Leave("loss", self.tokens * 4, is_scattered=False),
        )
        return self._overlapped(parts)

    def _loss(self) -> Passing:
        """Of scores in fp32: cast, softmax and loss; its gradient, and that cast back."""
        scores, size = self.tokens * self.vocabulary, self.plan.value_bytes
        cast, pass_over = size + LOGIT_BYTES, 2 * LOGIT_BYTES
        forward, backward = (passing("loss", scores, cast + pass_over, each, 2) for each in (5, 2))
        return Passing((forward,), (backward,))

    def _overlapped(self, parts: tuple[ModelPart, ...]) -> tuple[ModelPart, ...]:
        return overlapped(parts, self.plan.tensor_overlap) if self.plan.tensor_overlap > 1 else parts

    def dense_weights(self, layer: int) -> int:
        """Of a layer, on a rank, without experts that are spread."""
        model, tensor = self.model, self.plan.tensor
        weights = model.norms_of_layer(layer) + -(-model.mixer_weights(layer) // tensor)
        if model.experts is None or not model.has_experts(layer):
            has_part = bool(model.kind(layer).part)
            return weights + has_part * -(-model.feed_forward.weights(model.hidden) // tensor)
        shared = model.experts.shared * model.experts.expert.weights(model.hidden)
        return weights + model.experts.router_weights(model.hidden) + -(-shared // tensor)

    def expert_weights(self, layer: int) -> int:
        """Of a layer, on a rank, of the experts that it has."""
        experts = self.model.experts
        if experts is None or not self.model.has_experts(layer):
            return 0
        return experts.count // self.plan.expert * experts.expert.weights(self.model.hidden)

    @property
    def embedding_weights(self) -> int:
        """Of the embedding, on a rank."""
        padded = self.vocabulary * self.plan.tensor - self.model.vocabulary
        return -(-(self.model.embedding_weights + padded * self.model.hidden) // self.plan.tensor)

    @property
    def head_weights(self) -> int:
        """Of the head, on a rank; its own copy where the embedding is far and tied to it."""
        model = self.model
        if model.is_tied and self.plan.pipeline * self.plan.chunks == 1:
            return model.head_weights
        if model.is_encoder:
            return model.head_weights
        return model.norm_weights + self.vocabulary * model.hidden
