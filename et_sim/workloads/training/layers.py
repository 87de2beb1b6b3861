"""Which parts the layers of a model have on a rank, and how many weights.

Tensor-parallel ranks have a share of the heads, of the width of the feed-forward part, and of the vocabulary,
which is filled up to a multiple. Experts are whole; each rank of the expert axis has a share of them.
"""

from __future__ import annotations

from msgspec import Struct, field

from et_sim.workloads.kernels import MASK_BYTES, RMS_NORM, Kernel, norm, passing
from et_sim.workloads.models.model import Experts, FeedForward, Model
from et_sim.workloads.software.description import BothWays, Software, is_named
from et_sim.workloads.training.attention import Core
from et_sim.workloads.training.parts import (
    Enter,
    Leave,
    ModelPart,
    Passing,
    Product,
    Products,
    ToExperts,
    overlapped,
    repeated,
)
from et_sim.workloads.training.plan import Plan, tokens_of_experts

LOGIT_BYTES = 4  # of the score of a word
ROUTER, HEAD = "router", "head"


class Layers(Struct, frozen=True):
    """The layers of a model under a plan."""

    model: Model
    plan: Plan
    place: int = 0  # among the ranks that the experts are spread over, if experts are uneven
    _known: dict[tuple[bool, int], tuple[ModelPart, ...]] = field(default_factory=dict)
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

    @property
    def by(self) -> Software:
        """Return the software that runs them."""
        return self.plan.by

    def _unfused(self, name: str, values: int, operations: int, ways: BothWays) -> Passing:
        """Return the kernels that software has for a part that it does not fuse."""
        size = self.plan.value_bytes
        there, back = (
            passing(name, values, way.bytes(size), operations, way.launches)
            for way in (ways.forward, ways.backward)
        )
        return Passing((there,), (back,))

    def _norm(self, name: str) -> Passing:
        model, size = self.model, self.plan.value_bytes
        has_shift = model.norm_vectors > 1
        if self.by.element_wise.rms_norm and not has_shift:
            values = self.kept_tokens * model.hidden
            return self._unfused(name, values, RMS_NORM, self.by.element_wise.rms_norm)
        forward, backward = norm(name, self.kept_tokens, model.hidden, size, has_shift=has_shift)
        return Passing((forward,), (backward,))

    def _sum(self, name: str, *, has_bias: bool) -> Passing:
        """What a part of the layer gives, its bias and dropout, and what went into it: one kernel.

        On the way back the gradients of both sides of the sum, of dropout, and of the bias are kernels apart.
        """
        size, drops = self.plan.value_bytes, self.model.has_dropout
        values = self.kept_tokens * self.model.hidden
        dropout = self.by.element_wise.dropout if drops else None
        apart, more = (dropout.bytes(size), dropout.launches) if dropout else (0, 0)
        each = 3 * size + drops * MASK_BYTES + apart
        forward = passing(name, values, each, 1 + has_bias + 2 * drops, 1 + more)
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
        """Those that software names keep the datatype of values."""
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
            "" if is_named(name, self.by.casts.wide_products) else plan.cast_to,
        )

    def _products(self, names: tuple[str, ...], columns: tuple[int, ...], gathers: int) -> Products:
        """Return products of the same inputs, of which the first one gathers these again."""
        hidden, size = self.model.hidden, self.plan.value_bytes
        products = tuple(
            self._product(name, width, hidden, gathers=0 if at else gathers)
            for at, (name, width) in enumerate(zip(names, columns, strict=True))
        )
        count = len(names)
        passes, launches = (count + 1, 1) if self.by.sums_fused else (3 * (count - 1), count - 1)
        values = self.tokens * hidden
        return Products(products, passing(f"{names[0]} sums", values, passes * size, count - 1, launches))

    @property
    def are_apart(self) -> bool:
        """Return whether products of the same inputs are apart; chunks of overlapped ones are not."""
        return self.by.splits_products and self.plan.tensor_overlap == 1

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
        has_experts, window = self.model.has_experts(layer), self.model.window(layer)
        if (has_experts, window) not in self._known:
            experts = self.model.experts if has_experts else None
            last = self._experts(experts) if experts else self._dense(self.model.feed_forward, "feed-forward")
            self._known[has_experts, window] = self._overlapped((*self._attention(window), *last))
        return self._known[has_experts, window]

    def _attention(self, window: int) -> tuple[ModelPart, ...]:
        model, tensor = self.model, self.plan.tensor
        attention = model.attention
        parts: list[ModelPart] = [self._norm("attention norm"), self._enter("attention")]
        again = self._again
        if self.are_apart and attention.latent is None:
            size = attention.head_size
            heads = (attention.heads, attention.key_heads, attention.key_heads)
            widths = tuple(-(-count * size // tensor) for count in heads)
            parts.append(self._products(("queries", "keys", "values"), widths, again))
        for name, inputs, outputs in () if len(parts) > 2 else attention.projections(model.hidden):
            columns = outputs if name.endswith("down") else -(-outputs // tensor)
            parts.append(self._product(name, columns, inputs, gathers=again if inputs == model.hidden else 0))
            again = 0 if inputs == model.hidden else again
        rows = attention.heads * attention.value_size // tensor
        parts += [
            self._positions(),
            Core.of(model, self.plan, window),
            self._product("attention output", model.hidden, rows),
            self._leave("attention"),
            self._sum("attention sum", has_bias=attention.has_output_bias),
        ]
        return tuple(parts)

    def _positions(self) -> Passing:
        """Queries and keys turned by their positions, if positions have no weights; gradients of the bias.

        Forward, the product adds its bias.
        """
        attention, size = self.model.attention, self.plan.value_bytes
        turned = attention.latent.rotary_size if attention.latent else attention.head_size
        values = self.tokens * (attention.heads + attention.key_heads) * turned // self.plan.tensor
        there, back = self._rotary(values)
        outputs = (
            sum(projection[2] for projection in attention.projections(self.model.hidden)) // self.plan.tensor
        )
        bias = (passing("qkv bias", self.tokens * outputs, size),) if attention.has_bias else ()
        return Passing(there, (*back, *bias))

    def _rotary(self, values: int) -> tuple[tuple[Kernel, ...], tuple[Kernel, ...]]:
        """Return kernels forward and backward, with copies of keys and values for every query head."""
        model, attention, size = self.model, self.model.attention, self.plan.value_bytes
        rotary = Passing((), ())
        if not model.positions and self.by.element_wise.rotary:
            rotary = self._unfused("rotary", values, 3, self.by.element_wise.rotary)
        elif not model.positions:
            kernel = passing("rotary", values, 2 * size, 3, launches=2)
            rotary = Passing((kernel,), (kernel,))
        if not self.by.expands_keys or attention.key_heads == attention.heads:
            return rotary.there, rotary.back
        heads = attention.heads + attention.key_heads
        copied = self.tokens * heads * (attention.query_size + attention.value_size) // self.plan.tensor
        copies = passing("keys expanded", copied, size, launches=2)
        return (*rotary.there, copies), (copies, *rotary.back)

    def _dense(self, part: FeedForward, name: str) -> tuple[ModelPart, ...]:
        hidden, tensor = self.model.hidden, self.plan.tensor
        width = part.width // tensor
        up: ModelPart
        if self.are_apart and part.is_gated:
            up = self._products((f"{name} up", f"{name} gate"), (width, width), self._again)
        else:
            up = self._product(f"{name} up", part.inner // tensor, hidden, gathers=self._again)
        return (
            self._norm(f"{name} norm"),
            self._enter(name),
            up,
            self._activation(name, part, self.tokens * width),
            self._product(f"{name} down", hidden, width),
            self._leave(name),
            self._sum(f"{name} sum", has_bias=part.has_bias),
        )

    def _activation(self, name: str, part: FeedForward, values: int) -> Passing:
        """With the bias; inputs of the function and gradients of outputs give those of inputs."""
        name, size, gates = f"{name} activation", self.plan.value_bytes, part.is_gated
        if gates and self.by.element_wise.gate and not part.has_bias:
            return self._unfused(name, values, 8, self.by.element_wise.gate)
        bias = (1 + gates) * part.has_bias
        backward = passing(name, values, (3 + 2 * gates + bias) * size, 16, 1 + part.has_bias)
        return Passing((passing(name, values, (2 + gates) * size, 8),), (backward,))

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
            whole = FeedForward(experts.expert.width * experts.shared, experts.expert.is_gated)
            shared = self._dense(whole, "shared expert")
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
        if self.by.element_wise.loss:
            return self._unfused("loss", scores, 5, self.by.element_wise.loss)
        cast, pass_over = size + LOGIT_BYTES, 2 * LOGIT_BYTES
        forward, backward = (passing("loss", scores, cast + pass_over, each, 2) for each in (5, 2))
        return Passing((forward,), (backward,))

    def _overlapped(self, parts: tuple[ModelPart, ...]) -> tuple[ModelPart, ...]:
        return overlapped(parts, self.plan.tensor_overlap) if self.plan.tensor_overlap > 1 else parts

    def again(self, layer: int) -> tuple[ModelPart, ...]:
        """Return the parts that selective recomputation runs again before the backward pass of a layer."""
        return repeated(self.layer(layer), self.by) if self.plan.recompute == "selective" else ()

    def dense_weights(self, layer: int) -> int:
        """Of a layer, on a rank, without experts that are spread."""
        model, tensor = self.model, self.plan.tensor
        weights = 2 * model.norm_weights + -(-model.attention.weights(model.hidden) // tensor)
        if model.experts is None or not model.has_experts(layer):
            return weights + -(-model.feed_forward.weights(model.hidden) // tensor)
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
