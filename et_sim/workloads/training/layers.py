"""Parts and numbers of weights of a model's layers on a rank.

Tensor-parallel ranks have a share of the heads, of the width of the feed-forward part, and of the vocabulary,
which is padded to a multiple. Experts are whole; each rank of the expert axis has a share of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil

from msgspec import Struct, field
from msgspec.structs import replace

from et_sim.workloads.exchange_names import ALL_TO_ALL
from et_sim.workloads.kernels import MASK_BYTES, RMS_NORM, Kernel, norm, passing, stored_bytes, strided
from et_sim.workloads.models.model import (
    EXPERTS,
    RECURRENCE,
    Experts,
    FeedForward,
    LayerKind,
    Model,
    Recurrence,
)
from et_sim.workloads.recurrence import SequenceChunks
from et_sim.workloads.software.description import BothWays, KernelPass, Software, is_named
from et_sim.workloads.training.attention import Core
from et_sim.workloads.training.exchanges import Routed, Spread, counted, from_experts, shared_by, to_experts
from et_sim.workloads.training.expert_loads import tokens_of_experts
from et_sim.workloads.training.expert_plan import EXPERT_RAIL
from et_sim.workloads.training.parts import (
    Enter,
    Leave,
    LowRank,
    ModelPart,
    Passing,
    Products,
    WeightProduct,
    overlapped,
)
from et_sim.workloads.training.plan import AS_VALUES, Plan
from et_sim.workloads.training.routing import odds_of, shares_met, tokens_met

LOGIT_BYTES = 4  # size of the score of a word
QUERIES_KEYS_VALUES = ("queries", "keys", "values")
ROWS_OF_CAST = {"fp8": 16, "fp4": 32}  # rows of products with cast operands are padded to a multiple
ROUTER, HEAD = "router", "head"


class ModelLayers(Struct, frozen=True):
    """The layers of a model under a plan."""

    model: Model
    plan: Plan
    place: int = 0  # position on the expert axis, if experts are uneven
    _known: dict[tuple[LayerKind, int], tuple[ModelPart, ...]] = field(default_factory=dict)
    _tokens: dict[Experts, tuple[int, ...]] = field(default_factory=dict)  # tokens of each expert
    # Tokens that go to each part of the experts.
    _met: dict[tuple[Experts, int], Spread] = field(default_factory=dict)

    def at(self, place: int) -> ModelLayers:
        """Return the same layers on the rank at another place of the expert axis."""
        return ModelLayers(self.model, self.plan, place, _tokens=self._tokens, _met=self._met)

    @property
    def tokens(self) -> int:
        """Return the tokens of a micro-batch on each rank of the context axis."""
        return self.plan.batch * self.model.sequence // self.plan.context

    @property
    def kept_tokens(self) -> int:
        """Return the tokens whose activations a rank keeps between the tensor-parallel parts."""
        return self.tokens // (self.plan.tensor if self.plan.sequence_parallel else 1)

    @property
    def activation_bytes(self) -> int:
        """Return the bytes that a layer passes to the next one, on all its tensor-parallel ranks together."""
        return self.tokens * self.model.hidden * self.plan.value_bytes

    @property
    def has_dropout(self) -> bool:
        """Return whether the model has dropout and the plan keeps it."""
        return self.model.has_dropout and self.plan.dropout

    @property
    def vocabulary(self) -> int:
        """Return the rows of the embedding on a rank."""
        return -(-self.model.vocabulary // self.plan.tensor)

    @property
    def by(self) -> Software:
        """Return the software that runs the layers."""
        return self.plan.by

    def _unfused(self, name: str, values: int, operations: int, ways: BothWays) -> Passing:
        """Return the kernels of a part that the software does not fuse."""
        size = self.plan.value_bytes

        def kernels(way: KernelPass) -> Iterator[Kernel]:
            for part in way.parts():
                if part.strided:
                    yield strided(f"{name} strided", values, part.strided, size, part.launches)
                else:
                    yield passing(name, values, part.bytes(size), operations, part.launches)

        return Passing(tuple(kernels(ways.forward)), tuple(kernels(ways.backward)))

    def _norm(self, name: str) -> Passing:
        model, size = self.model, self.plan.value_bytes
        has_shift = model.norm_vectors > 1
        if self.by.element_wise.rms_norm and not has_shift:
            values = self.kept_tokens * model.hidden
            return self._unfused(name, values, RMS_NORM, self.by.element_wise.rms_norm)
        forward, backward = norm(name, self.kept_tokens, model.hidden, size, has_shift=has_shift)
        if self.plan.lora_rank:  # without the kernel of scale and shift, which reads inputs and gradients
            operations, moved = backward.operations // 2, backward.bytes - forward.bytes
            backward = replace(backward, operations=operations, bytes=moved, launches=1)
        return Passing((forward,), (backward,))

    def _sum(self, name: str, *, has_bias: bool) -> Passing:
        """Return the kernel that adds the outputs of a part, with bias and dropout, to its inputs.

        Backward, the gradients of the sum, of dropout and of the bias are separate kernels.
        """
        size, drops = self.plan.value_bytes, self.has_dropout
        values = self.kept_tokens * self.model.hidden
        dropout = self.by.element_wise.dropout if drops else None
        apart, more = (dropout.bytes(size), dropout.launches) if dropout else (0, 0)
        each = 3 * size + drops * MASK_BYTES + apart
        forward = passing(name, values, each, 1 + has_bias + 2 * drops, 1 + more)
        has_bias = has_bias and not self.plan.lora_rank
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
    ) -> WeightProduct | LowRank:
        """Return a product, cast unless the software excludes it, and with adapters where LoRA has them."""
        plan = self.plan
        product = WeightProduct(
            name,
            self.tokens if rows is None else rows,
            columns,
            inner,
            plan.value_bytes,
            copies,
            gathers,
            groups,
            "" if is_named(name, self.by.casts.wide_products) else plan.cast_to,
            arrives=self._arrives(name, inner),
            is_frozen=plan.lora_rank > 0,
        )
        if not plan.lora_rank or name in (ROUTER, HEAD) or name.startswith("experts "):
            return product
        return LowRank.of(product, plan.lora_rank)

    def _enters(self, name: str, inner: int) -> bool:
        """Return whether tensor-parallel ranks gather the inputs of a product."""
        return inner == self.model.hidden and name not in (ROUTER, HEAD) and not name.startswith("experts ")

    def _arrives(self, name: str, inner: int) -> str:
        """Return the tensor of a product that is gathered after a cast along rows; empty if there is none."""
        if not self._gathers_cast:
            return ""
        if self._enters(name, inner):
            return "inputs"
        leaves = name in ("attention output", "recurrence out") or name.endswith(" down")
        return "gradients" if leaves and not name.startswith("experts ") else ""

    def _products(self, names: tuple[str, ...], columns: tuple[int, ...], gathers: int) -> Products:
        """Return products of the same inputs; the first one gathers the inputs again for its gradients."""
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
        """Return whether products of the same inputs are separate; in overlapped chunks they are not."""
        return self.by.splits_products and self.plan.tensor_overlap == 1

    def _enter(self, name: str, into: str = "") -> Enter:
        """Return the entry into tensor-parallel products; `into` names the first of them."""
        datatype = self.plan.cast_to if self._gathers_cast and name != HEAD else ""
        is_cast_before = bool(datatype) and is_named(into or name, self.by.casts.fused)
        is_spread = self.plan.sequence_parallel
        return Enter(name, self.activation_bytes, is_spread, datatype, is_cast_before)

    @property
    def _gathers_cast(self) -> bool:
        """Return whether tensor-parallel ranks cast their shares of inputs before they gather them."""
        plan = self.plan
        return plan.sequence_parallel and bool(plan.cast_to) and self.by.casts.exchanged

    def _leave(self, name: str) -> Leave:
        datatype = self.plan.cast_to if self._gathers_cast and name != "embedding" else ""
        return Leave(name, self.activation_bytes, self.plan.sequence_parallel, datatype)

    @property
    def _again(self) -> int:
        """Return the bytes of a rank's kept share of the inputs, gathered again for gradients of weights."""
        share = self.activation_bytes // self.plan.tensor if self.plan.sequence_parallel else 0
        if not share or not self._gathers_cast or not self.by.casts.kept:
            return share
        return stored_bytes(share // self.plan.value_bytes, self.plan.cast_to)

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

    def _output_norm(self, name: str) -> tuple[ModelPart, ...]:
        """Return the norm of the outputs of a half of a layer, if there is one."""
        return (self._norm(f"{name} output norm"),) if self.model.half_norms > 1 else ()

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

    def _activation(self, name: str, part: FeedForward, values: int) -> Passing:
        """Return the activation function with its bias; backward reads its inputs and output gradients."""
        name, size, gates = f"{name} activation", self.plan.value_bytes, part.is_gated
        if gates and self.by.element_wise.gate and not part.has_bias:
            return self._unfused(name, values, 8, self.by.element_wise.gate)
        has_bias = part.has_bias and not self.plan.lora_rank
        bias = (1 + gates) * has_bias
        moved, each = (3 + 2 * gates + bias) * size, part.operations
        backward = passing(name, values, moved, 2 * each, 1 + has_bias)
        return Passing((passing(name, values, (2 + gates) * size, each),), (backward,))

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
        if routed.dispatch:
            up, down = replace(up, arrives="inputs"), replace(down, arrives="gradients")
        return (
            *(shared or (self._norm("expert norm"),)),
            self._product(ROUTER, experts.count, hidden, rows=self.kept_tokens),
            *to_experts(routed, plan.expert),
            *gathered,
            *self._expert_padding("padding", rows),
            up,
            *self._expert_activation(part, max(sum(rows), 1) * width),
            down,
            *self._expert_bias(part, sum(rows), local),
            *self._expert_padding("unpadding", rows),
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

    def routed(self, experts: Experts) -> Routed:
        """Return the routing of a rank's tokens."""
        plan, nodes = self.plan, self._nodes
        copies, places = self.tokens_sent(experts), self.plan.expert
        met = copies if plan.expert_exchange == ALL_TO_ALL else self.tokens_met(experts, places)
        return Routed(
            self.kept_tokens,
            copies.total,
            copies.arriving(self.place),
            experts.count,
            experts.count // places,
            self.model.hidden,
            plan.value_bytes,
            "" if plan.dispatch == AS_VALUES else plan.dispatch,
            plan.expert_exchange,
            plan.fused_routing,
            self.place,
            places // nodes,
            met,
            self.tokens_met(experts, nodes),
        )

    @property
    def _nodes(self) -> int:
        """Return the number of nodes that have experts; 1 if nodes do not matter."""
        return self.plan.size(EXPERT_RAIL)

    def _most_copies(self, experts: Experts) -> int:
        """Return the most tokens of a rank that an expert accepts."""
        factor, tokens = self.plan.capacity_factor, self.kept_tokens
        return min(ceil(factor * tokens * experts.chosen / experts.count), tokens) if factor else tokens

    def tokens_of_experts(self, experts: Experts) -> tuple[int, ...]:
        """Return the tokens that each expert gets from a rank; empty if experts are even."""
        plan, tokens = self.plan, self.kept_tokens
        if not plan.expert_skew:
            return ()
        if experts not in self._tokens:
            loads = tokens_of_experts(
                plan.expert_skew, plan.expert_seed, experts.count, experts.chosen, tokens
            )
            self._tokens[experts] = tuple(min(load, self._most_copies(experts)) for load in loads)
        return self._tokens[experts]

    def tokens_sent(self, experts: Experts) -> Spread:
        """Return the copies of a rank's tokens that go to each place of the expert axis."""
        loads, places = self.tokens_of_experts(experts), self.plan.expert
        if not loads:
            copies = min(self.kept_tokens * experts.chosen, self._most_copies(experts) * experts.count)
            return Spread(places, copies)
        return Spread.of(tuple(map(sum, _parted(loads, places))))

    def tokens_met(self, experts: Experts, parts: int) -> Spread:
        """Return how many of a rank's tokens use at least one expert of each of several equal parts."""
        if (experts, parts) not in self._met:
            plan, tokens = self.plan, self.kept_tokens
            loads = self.tokens_of_experts(experts)
            groups, limit = experts.groups, experts.chosen_groups
            if plan.expert_nodes:
                groups, limit = self._nodes, plan.expert_nodes
            odds = odds_of(loads, experts.count, tokens)
            shares = shares_met(odds, parts, groups, limit, experts.chosen)
            met = Spread(parts, round(tokens * sum(shares)))
            self._met[experts, parts] = (
                Spread.of(tokens_met(shares, tokens, _parted(loads, parts))) if loads else met
            )
        return self._met[experts, parts]

    def rows_here(self, experts: Experts) -> tuple[int, ...]:
        """Return the rows of each expert of the rank, from all ranks, padded for its products."""
        plan, local = self.plan, experts.count // self.plan.expert
        loads = self.tokens_of_experts(experts)[self.place * local : (self.place + 1) * local]
        rows = [tokens * plan.expert for tokens in loads]
        rows = rows or [-(-self.tokens_sent(experts).total // local)] * local
        multiple = ROWS_OF_CAST.get(plan.cast_to, 1)
        return counted([count * plan.expert_tensor for count in rows], multiple)

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

    def _overlapped(self, parts: tuple[ModelPart, ...]) -> tuple[ModelPart, ...]:
        return overlapped(parts, self.plan.tensor_overlap) if self.plan.tensor_overlap > 1 else parts

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


def _parted(loads: tuple[int, ...], parts: int) -> list[tuple[int, ...]]:
    """Return the loads of experts in several equal parts."""
    each = len(loads) // parts
    return [loads[at : at + each] for at in range(0, len(loads), each)]
