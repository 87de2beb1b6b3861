"""Parts and numbers of weights of a model's layers on a rank.

Tensor-parallel ranks have a share of the heads, of the width of the feed-forward part, and of the vocabulary,
which is padded to a multiple. Experts are whole; each rank of the expert axis has a share of them.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import field
from msgspec.structs import replace

from et_sim.workloads.exchange_names import ALL_TO_ALL
from et_sim.workloads.kernels import MASK_BYTES, Kernel, norm, passing
from et_sim.workloads.models.model import EXPERTS, RECURRENCE, Experts, FeedForward, LayerKind, Recurrence
from et_sim.workloads.recurrence import SequenceChunks
from et_sim.workloads.training.attention import Core
from et_sim.workloads.training.exchanges import from_experts, shared_by, to_experts, widened
from et_sim.workloads.training.parts import Leave, LowRank, ModelPart, Passing, Products
from et_sim.workloads.training.rank_tokens import ROWS_OF_CAST
from et_sim.workloads.training.shared_parts import HEAD, ROUTER, SharedParts

LOGIT_BYTES = 4  # size of the score of a word
QUERIES_KEYS_VALUES = ("queries", "keys", "values")


class ModelLayers(SharedParts, frozen=True):
    """The layers of a model under a plan."""

    _known: dict[tuple[LayerKind, int], tuple[ModelPart, ...]] = field(default_factory=dict)

    def at(self, place: int) -> ModelLayers:
        """Return the same layers on the rank at another place of the expert axis."""
        return ModelLayers(self.model, self.plan, place, _tokens=self._tokens, _met=self._met)

    def layer(self, layer: int) -> tuple[ModelPart, ...]:
        """Return the parts of a layer, in the order of the forward pass."""
        kind, window = self.model.kind(layer), self.model.window(layer)
        if (kind, window) not in self._known:
            parts = (*self._mixer(kind, window), *self._second_half(kind))
            self._known[kind, window] = self._overlapped(parts)
        return self._known[kind, window]

    def _mixer(self, kind: LayerKind, window: int) -> tuple[ModelPart, ...]:
        """Return the parts of attention, or of the recurrence that replaces it."""
        if kind.mixer == RECURRENCE and self.model.recurrence is not None:
            return self._recurrence(self.model.recurrence)
        return self._attention(window, has_rotary=kind.has_rotary) if kind.mixer else ()

    def _second_half(self, kind: LayerKind) -> tuple[ModelPart, ...]:
        """Return experts or a feed-forward part, if there is one."""
        if kind.part == EXPERTS and self.model.experts is not None:
            return self._experts(self.model.experts)
        return self._dense(self.model.feed_forward, "feed-forward") if kind.part else ()

    def _recurrence(self, recurrence: Recurrence) -> tuple[ModelPart, ...]:
        """Return the parts of a recurrence, whose state each token changes in turn."""
        hidden, tensor = self.model.hidden, self.plan.tensor
        share = recurrence.share(tensor)
        chunks = SequenceChunks(share, self.plan.batch, self.tokens // self.plan.batch, self.plan.value_bytes)
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

    def _query_norm(self, *, has_rotary: bool) -> tuple[ModelPart, ...]:
        """Return the norms of queries and keys, by head or over all heads at once, if there are any."""
        attention = self.model.attention
        if not attention.has_query_norm(has_rotary=has_rotary):
            return ()
        rows, width = self.tokens, attention.normed_size // self.plan.tensor
        if attention.query_norm != "whole":
            rows, width = rows * width // attention.head_size, attention.head_size
        kernels = norm("query norm", rows, width, self.plan.value_bytes, has_shift=False)
        forward, backward = (replace(kernel, launches=2 * kernel.launches) for kernel in kernels)
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
        parts: list[ModelPart] = [self._norm("attention norm"), self._enter("attention", "qkv")]
        again = self._again
        if self.are_apart and attention.latent is None:
            size = attention.head_size
            heads = (attention.heads, attention.key_heads, attention.key_heads)
            widths = tuple(-(-count * size // tensor) for count in heads)
            parts.append(self._products(QUERIES_KEYS_VALUES, widths, again))
        for name, inputs, outputs in () if len(parts) > 2 else attention.projections(model.hidden):
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
        """Return rotary embeddings of queries and keys, if positions have no weights, and bias gradients.

        Forward, the product adds its bias.
        """
        attention, size = self.model.attention, self.plan.value_bytes
        turned = attention.latent.rotary_size if attention.latent else attention.head_size
        values = self.tokens * (attention.heads + attention.key_heads) * turned // self.plan.tensor
        there, back = self._rotary(values, is_turned=has_rotary and not self.model.positions)
        outputs = (
            sum(projection[2] for projection in attention.projections(self.model.hidden)) // self.plan.tensor
        )
        bias = (passing("qkv bias", self.tokens * outputs, size),) if attention.has_bias else ()
        bias = () if self.plan.lora_rank else bias
        return Passing(there, (*back, *bias))

    def _rotary(self, values: int, *, is_turned: bool) -> tuple[tuple[Kernel, ...], tuple[Kernel, ...]]:
        """Return kernels forward and backward, with copies of keys and values for every query head."""
        attention, size = self.model.attention, self.plan.value_bytes
        rotary = Passing((), ())
        by = self.by.element_wise
        ways = (by.scaled_rotary if attention.is_scaled else None) or by.rotary
        if is_turned and ways:
            rotary = self._unfused("rotary", values, 3, ways)
        elif is_turned:
            kernel = passing("rotary", values, 2 * size, 3, launches=2)
            rotary = Passing((kernel,), (kernel,))
        if is_turned and self.by.splits_copy and not attention.latent:
            rotary = self._split_around(rotary)
        if not self.by.expands_keys or attention.key_heads == attention.heads:
            return rotary.there, rotary.back
        heads = attention.heads + attention.key_heads
        copied = self.tokens * heads * (attention.query_size + attention.value_size) // self.plan.tensor
        copies = passing("keys expanded", copied, size, launches=2)
        return (*rotary.there, copies), (copies, *rotary.back)

    def _split_around(self, rotary: Passing) -> Passing:
        """Return the rotary part with copies that split the outputs of one product.

        Before attention values are copied, and queries too if heads share keys; backward, all gradients are
        joined again.
        """
        attention, size = self.model.attention, self.plan.value_bytes
        of_values = attention.key_heads * attention.value_size
        of_queries = attention.heads * attention.query_size
        of_keys = attention.key_heads * attention.query_size
        shares = attention.key_heads != attention.heads
        split = of_values + shares * of_queries
        copied, joined = (
            passing(name, self.tokens * width // self.plan.tensor, 2 * size, launches=launches)
            for name, width, launches in (
                ("split", split, 1 + shares),
                ("split", of_queries + of_keys + of_values, 1),
            )
        )
        return Passing((copied, *rotary.there), (*rotary.back, joined))

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
            self._enter(name, f"{name} up"),
            up,
            self._activation(name, part, self.tokens * width),
            self._product(f"{name} down", hidden, width),
            self._leave(name),
            *self._output_norm(name),
            self._sum(f"{name} sum", has_bias=part.has_bias),
        )

    def _experts(self, experts: Experts) -> tuple[ModelPart, ...]:
        """Return the parts of experts: every rank sends each of its tokens to the ranks of its experts."""
        plan, hidden, part = self.plan, self.model.hidden, experts.expert
        routed, sharers = self.routed(experts), plan.expert_tensor
        rows = self.rows_here(experts)
        groups: tuple[int, ...] = rows if plan.expert_skew else ()
        each, local = rows[0], len(rows)
        inner, width = part.inner // sharers, part.width // sharers
        shared: tuple[ModelPart, ...] = ()
        if experts.shared:
            whole = replace(part, width=part.width * experts.shared)
            shared = self._dense(whole, "shared expert")
        gathered, added = shared_by(routed, sharers)
        up = self._product("experts up", inner, hidden, rows=each, copies=local, groups=groups)
        down = self._product("experts down", hidden, width, rows=each, copies=local, groups=groups)
        there, back = widened(routed, sharers, plan.cast_to)
        if routed.dispatch and not there:
            up, down = replace(up, arrives="inputs"), replace(down, arrives="gradients")
        return (
            *(shared or (self._norm("expert norm"),)),
            self._product(ROUTER, experts.count, hidden, rows=self.kept_tokens),
            *to_experts(routed, plan.expert),
            *gathered,
            *there,
            *self._expert_padding("padding", rows),
            up,
            *self._expert_activation(part, max(sum(rows), 1) * width),
            down,
            *self._expert_bias(part, sum(rows), local),
            *self._expert_padding("unpadding", rows),
            *back,
            *added,
            *from_experts(routed, plan.expert),
            self._sum("experts sum", has_bias=False),
        )

    def _expert_activation(self, part: FeedForward, values: int) -> Iterator[Passing]:
        """Yield the clipping of inputs, if the software has it, and the activation of experts.

        Backward, the activation may include the gradients of the routing weights.
        """
        by, size = self.by.experts, self.plan.value_bytes
        if part.is_clipped and by.limits:
            yield self._unfused("experts limits", values, 1 + part.is_gated, by.limits)
        activation = self._activation("experts", part, values)
        if by.weights_apart and self.plan.fused_routing:
            *others, last = activation.back
            more, launches = values * (2 + part.is_gated) * size, last.launches + 1
            back = (*others, replace(last, bytes=last.bytes + more, launches=launches))
            activation = Passing(activation.there, back)
        yield activation

    def _expert_padding(self, name: str, rows: tuple[int, ...]) -> Iterator[Passing]:
        """Yield the copies of rows for products in fewer bits; exchanges but all-to-alls pad rows themselves.

        The numbers of tokens of real routers need padding, although even ones may not.
        """
        plan, by = self.plan, self.by.experts
        if by.padding and plan.cast_to in ROWS_OF_CAST and plan.expert_exchange == ALL_TO_ALL:
            yield self._unfused(f"experts {name}", max(sum(rows), 1) * self.model.hidden, 1, by.padding)

    def _expert_bias(self, part: FeedForward, rows: int, experts: int) -> Iterator[Passing]:
        """Yield the bias of expert outputs if their product does not include it."""
        if part.has_bias and self.by.experts.bias:
            bias = self._unfused("experts bias", max(rows, 1) * self.model.hidden, 2, self.by.experts.bias)
            there, back = (
                tuple(replace(kernel, launches=kernel.launches * experts) for kernel in kernels)
                for kernels in (bias.there, bias.back)
            )
            yield Passing(there, back)

    def embedding(self) -> tuple[ModelPart, ...]:
        """Return the parts of the embedding; backward writes the gradients of the whole table.

        A rank that lacks the row of a token gives zeros.
        """
        model, size, hidden = self.model, self.plan.value_bytes, self.model.hidden
        rows = passing("embedding", self.tokens * hidden, 2 * size)
        table = passing("embedding", (self.tokens + self.vocabulary) * hidden, size, launches=2)
        backward = () if self.plan.lora_rank else (table,)
        parts: list[ModelPart] = [Passing((rows,), backward), self._leave("embedding")]
        if model.positions or self.has_dropout:
            drops = self.has_dropout * (2 * size + MASK_BYTES)
            values, moved = self.kept_tokens * hidden, (3 * size if model.positions else 0) + drops
            launches = (model.positions > 0) + self.has_dropout
            summed = passing("embedding sum", values, moved, 2, launches)
            dropped = (passing("embedding sum", values, drops),) if drops else ()
            parts.append(Passing((summed,), dropped))
        return tuple(parts)

    def head(self) -> tuple[ModelPart, ...]:
        """Return the parts of the head: scores of all words, and the loss."""
        hidden = self.model.hidden
        parts = (
            self._norm("head norm"),
            self._enter("head"),
            self._product(HEAD, self.vocabulary, hidden, gathers=self._again),
            self._loss(),
            Leave("loss", self.tokens * 4, is_scattered=False),
        )
        return self._overlapped(parts)

    def joining(self) -> tuple[ModelPart, ...]:
        """Return the parts that join outputs and the embedding of the next token for a further layer."""
        hidden = self.model.hidden
        first, second = self._norm("joining norm"), self._norm("joining embedding norm")
        product = self._product("joining", hidden, 2 * hidden, rows=self.kept_tokens)
        return (*self.embedding(), first, second, product)

    @property
    def joining_weights(self) -> int:
        """Return the weights of the joining parts, without the embedding."""
        return 2 * self.model.hidden**2 + 3 * self.model.norm_weights  # and the norm before the head

    def _loss(self) -> Passing:
        """Return the loss of scores in fp32: cast, softmax and loss; backward, the gradient and its cast."""
        scores, size = self.tokens * self.vocabulary, self.plan.value_bytes
        if self.by.element_wise.loss:
            return self._unfused("loss", scores, 5, self.by.element_wise.loss)
        cast, pass_over = size + LOGIT_BYTES, 2 * LOGIT_BYTES
        forward, backward = (passing("loss", scores, cast + pass_over, each, 2) for each in (5, 2))
        return Passing((forward,), (backward,))

    def dense_weights(self, layer: int) -> int:
        """Return the weights of a layer on a rank, without routed experts."""
        model, tensor = self.model, self.plan.tensor
        weights = model.norms_of_layer(layer) + -(-model.mixer_weights(layer) // tensor)
        if model.experts is None or not model.has_experts(layer):
            has_part = bool(model.kind(layer).part)
            return weights + has_part * -(-model.feed_forward.weights(model.hidden) // tensor)
        shared = model.experts.shared * model.experts.expert.weights(model.hidden)
        return weights + model.experts.router_weights(model.hidden) + -(-shared // tensor)

    def adapter_weights(self, layer: int) -> int:
        """Return the weights of a layer's adapters on a rank."""
        return sum(part.weights for part in self.adapters(layer))

    def adapters(self, layer: int) -> Iterator[LowRank]:
        """Yield the products of a layer that have adapters."""
        for part in self.layer(layer):
            for product in part.products if isinstance(part, Products) else (part,):
                if isinstance(product, LowRank):
                    yield product

    def expert_weights(self, layer: int) -> int:
        """Return the weights of a layer's routed experts on a rank."""
        experts = self.model.experts
        if experts is None or not self.model.has_experts(layer):
            return 0
        weights = experts.count // self.plan.expert * experts.expert.weights(self.model.hidden)
        return -(-weights // self.plan.expert_tensor)

    @property
    def embedding_weights(self) -> int:
        """Return the weights of the embedding on a rank."""
        padded = self.vocabulary * self.plan.tensor - self.model.vocabulary
        return -(-(self.model.embedding_weights + padded * self.model.hidden) // self.plan.tensor)

    @property
    def head_weights(self) -> int:
        """Return the weights of the head on a rank.

        A head tied to the embedding has its own copy if the model is cut into several parts.
        """
        model = self.model
        if model.is_tied and self.plan.pipeline * self.plan.chunks == 1:
            return model.head_weights
        if model.is_encoder:
            return model.head_weights
        return model.norm_weights + self.vocabulary * model.hidden
