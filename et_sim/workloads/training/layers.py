"""Which parts the layers of a model have on a rank, and how many weights.

Tensor-parallel ranks have a share of the heads, of the width of the feed-forward part, and of the vocabulary,
which is filled up to a multiple. Experts are whole; each rank of the expert axis has a share of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from et_sim.workloads.models.model import Experts, FeedForward, Model
from et_sim.workloads.training.attention import Core
from et_sim.workloads.training.parts import ElementWise, Enter, Leave, Part, Product, ToExperts
from et_sim.workloads.training.plan import Plan


@dataclass(frozen=True, slots=True)
class Layers:
    """The layers of a model under a plan."""

    model: Model
    plan: Plan
    _known: dict[bool, tuple[Part, ...]] = field(default_factory=dict)

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

    def _element_wise(self, name: str, values: int, operations: int, passes: int) -> ElementWise:
        return ElementWise(name, values, operations, passes, self.plan.value_bytes)

    def _norm(self, name: str) -> ElementWise:
        return self._element_wise(name, self.kept_tokens * self.model.hidden, 5, 2)

    def _product(
        self,
        name: str,
        columns: int,
        inner: int,
        *,
        rows: int | None = None,
        copies: int = 1,
        gathers: int = 0,
    ) -> Product:
        return Product(
            name,
            self.tokens if rows is None else rows,
            columns,
            inner,
            self.plan.value_bytes,
            copies,
            gathers,
        )

    def _enter(self, name: str) -> Enter:
        return Enter(name, self.activation_bytes, self.plan.sequence_parallel)

    def _leave(self, name: str) -> Leave:
        return Leave(name, self.activation_bytes, self.plan.sequence_parallel)

    @property
    def _again(self) -> int:
        """Bytes of its share of the inputs that a rank kept, to be gathered for gradients of weights."""
        return self.activation_bytes // self.plan.tensor if self.plan.sequence_parallel else 0

    def layer(self, layer: int) -> tuple[Part, ...]:
        """The parts of a layer, in the order of the forward pass."""
        has_experts = self.model.has_experts(layer)
        if has_experts not in self._known:
            experts = self.model.experts if has_experts else None
            last = self._experts(experts) if experts else self._dense(self.model.feed_forward, "feed-forward")
            self._known[has_experts] = (*self._attention(), *last)
        return self._known[has_experts]

    def _attention(self) -> tuple[Part, ...]:
        model, tensor = self.model, self.plan.tensor
        attention = model.attention
        parts: list[Part] = [self._norm("attention norm"), self._enter("attention")]
        again = self._again
        for name, inputs, outputs in attention.projections(model.hidden):
            columns = outputs if name.endswith("down") else -(-outputs // tensor)
            parts.append(self._product(name, columns, inputs, gathers=again if inputs == model.hidden else 0))
            again = 0 if inputs == model.hidden else again
        rows = attention.heads * attention.value_size // tensor
        parts += [
            Core.of(model, self.plan),
            self._product("attention output", model.hidden, rows),
            self._leave("attention"),
        ]
        return tuple(parts)

    def _dense(self, part: FeedForward, name: str) -> tuple[Part, ...]:
        hidden, tensor = self.model.hidden, self.plan.tensor
        width = part.width // tensor
        return (
            self._norm(f"{name} norm"),
            self._enter(name),
            self._product(f"{name} up", part.inner // tensor, hidden, gathers=self._again),
            self._activation(name, part, self.tokens * width),
            self._product(f"{name} down", hidden, width),
            self._leave(name),
        )

    def _activation(self, name: str, part: FeedForward, values: int) -> ElementWise:
        return self._element_wise(f"{name} activation", values, 8, 3 if part.is_gated else 2)

    def _experts(self, experts: Experts) -> tuple[Part, ...]:
        """Every rank has its own tokens, and sends each to the ranks of the experts that it takes."""
        hidden, tokens = self.model.hidden, self.kept_tokens
        local, sent = experts.count // self.plan.expert, tokens * experts.chosen
        each = -(-sent // local)  # tokens of an expert, if all get as many
        size = sent * hidden * self.plan.value_bytes
        shared: tuple[Part, ...] = ()
        if experts.shared:
            whole = FeedForward(experts.expert.width * experts.shared, experts.expert.is_gated)
            shared = self._dense(whole, "shared expert")
        return (
            *(shared or (self._norm("expert norm"),)),
            self._product("router", experts.count, hidden, rows=tokens),
            ToExperts("to experts", size),
            self._product("experts up", experts.expert.inner, hidden, rows=each, copies=local),
            self._activation("experts", experts.expert, each * local * experts.expert.width),
            self._product("experts down", hidden, experts.expert.width, rows=each, copies=local),
            ToExperts("from experts", size),
        )

    def embedding(self) -> tuple[Part, ...]:
        """Rows of the tokens; a rank that lacks a token's row gives zeros."""
        return (
            self._element_wise("embedding", self.tokens * self.model.hidden, 1, 2),
            self._leave("embedding"),
        )

    def head(self) -> tuple[Part, ...]:
        """Scores of all words, and the loss."""
        hidden = self.model.hidden
        return (
            self._norm("head norm"),
            self._enter("head"),
            self._product("head", self.vocabulary, hidden, gathers=self._again),
            self._element_wise("loss", self.tokens * self.vocabulary, 5, 2),
            Leave("loss", self.tokens * 4, is_scattered=False),
        )

    def dense_weights(self, layer: int) -> int:
        """Of a layer, on a rank, without experts that are spread."""
        model, tensor = self.model, self.plan.tensor
        found = 2 * model.norm_weights + -(-model.attention.weights(model.hidden) // tensor)
        if model.experts is None or not model.has_experts(layer):
            return found + -(-model.feed_forward.weights(model.hidden) // tensor)
        shared = model.experts.shared * model.experts.expert.weights(model.hidden)
        return found + model.experts.router_weights(model.hidden) + -(-shared // tensor)

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
