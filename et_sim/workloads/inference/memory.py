"""Memory of inference: the bytes of weights on a rank, and of the cache of a sequence.

Weights are counted product by product, as they are stored: with scales; with a copy of heads of keys and
values, or of compressed projections, on every tensor-parallel rank that computes with them.

A layer with a sliding window caches the tokens of its window only. A recurrent layer keeps a state and the
last tokens of its convolution, whatever the length of the sequence.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import gcd

from msgspec import Struct

from et_sim.workloads.inference.numbers import LayerNumbers, cache_bits
from et_sim.workloads.inference.ranks import experts_on_rank
from et_sim.workloads.models.formats import LayerFormats
from et_sim.workloads.models.model import RECURRENCE, Attention, Experts, FeedForward, LayerKind, Model
from et_sim.workloads.recurrence import STATE_BYTES
from et_sim.workloads.training.layers import ModelLayers
from et_sim.workloads.training.plan import Plan

WHOLE = Plan()
NOT_ADAPTED = ("experts ", "index ", "key-value up")


class Matrix(Struct, frozen=True):
    """The weights of a product on a rank."""

    name: str
    outputs: int
    inputs: int
    copies: int = 1

    @property
    def weights(self) -> int:
        """Return the number of weights."""
        return self.outputs * self.inputs * self.copies


def key_heads_of_rank(attention: Attention, tensor: int) -> int:
    """Return the heads of keys and values of each tensor-parallel rank."""
    return -(-attention.key_heads // tensor)


def attention_matrices(attention: Attention, hidden: int, tensor: int) -> Iterator[Matrix]:
    """Yield the matrices of attention; each rank has all projections to a compressed form."""
    heads = attention.heads // tensor
    if attention.latent is None:
        columns = heads * (1 + attention.has_gate) + 2 * key_heads_of_rank(attention, tensor)
        yield Matrix("qkv", columns * attention.head_size, hidden)
    else:
        for name, inputs, outputs in attention.projections(hidden):
            yield Matrix(name, outputs if name.endswith("down") else outputs // tensor, inputs)
    yield Matrix("attention output", hidden, heads * attention.value_size)
    if attention.index is not None and attention.latent is not None:
        for name, inputs, outputs in attention.index.projections(hidden, attention.latent.query_rank):
            yield Matrix(name, outputs, inputs)


def dense_matrices(
    part: FeedForward, name: str, hidden: int, shares: int, copies: int = 1
) -> Iterator[Matrix]:
    """Yield the two matrices of a feed-forward part that some ranks share, or those of several experts."""
    yield Matrix(f"{name} up", part.inner // shares, hidden, copies)
    yield Matrix(f"{name} down", hidden, part.width // shares, copies)


def expert_matrices(experts: Experts, plan: Plan, hidden: int) -> Iterator[Matrix]:
    """Yield the matrices of the routed experts of a rank that has some."""
    local, shares = experts_on_rank(experts, plan)
    yield from dense_matrices(experts.expert, "experts", hidden, shares, local)


def matrices(model: Model, plan: Plan, layer: int) -> Iterator[Matrix]:
    """Yield the matrices of a layer's products on a rank, without its router."""
    hidden, tensor, kind, experts = model.hidden, plan.tensor, model.kind(layer), model.experts
    if kind.mixer == RECURRENCE and model.recurrence is not None:
        share = model.recurrence.share(tensor)
        yield Matrix("recurrence in", share.inner, hidden)
        yield Matrix("recurrence out", hidden, share.values)
    elif kind.mixer:
        yield from attention_matrices(model.attention, hidden, tensor)
    if experts is not None and model.has_experts(layer):
        if not plan.experts_apart:
            yield from expert_matrices(experts, plan, hidden)
        if experts.shared:
            yield from dense_matrices(experts.shared_part, "shared expert", hidden, tensor)
    elif kind.part:
        yield from dense_matrices(model.feed_forward, "feed-forward", hidden, tensor)


def adapted_matrices(model: Model, plan: Plan, layer: int) -> Iterator[Matrix]:
    """Yield the matrices of a layer that adapters of low rank (LoRA) are beside; none without a rank."""
    for matrix in matrices(model, plan, layer) if plan.lora_rank else ():
        if not matrix.name.startswith(NOT_ADAPTED):
            yield matrix


def parts_of(matrix: Matrix, model: Model) -> int:
    """Return the matrices of the model's file in a product: each has an adapter with inputs of its own."""
    if matrix.name == "qkv":
        return 3
    if matrix.name == "shared expert up" and model.experts is not None:
        return 1 + model.experts.shared_part.is_gated
    return 1 + (matrix.name == "feed-forward up" and model.feed_forward.is_gated)


def adapter_weights(model: Model, plan: Plan, layer: int) -> int:
    """Return the weights of one adapter in a layer on a rank."""
    return plan.lora_rank * sum(
        parts_of(matrix, model) * matrix.inputs + matrix.outputs
        for matrix in adapted_matrices(model, plan, layer)
    )


def layer_bytes(model: Model, plan: Plan, layer: int) -> int:
    """Return the bytes of a layer's weights on a rank; routers are whole, biases shared by tensor ranks."""
    numbers = LayerNumbers.of(model, plan, layer)
    size = router = biases = mine = 0
    if (experts := model.experts) is not None and model.has_experts(layer):
        router = experts.router_weights(model.hidden)
        each = experts.expert.biases(model.hidden)
        local, sharers = experts_on_rank(experts, plan)
        biases, mine = experts.count * each, local * -(-each // sharers) * (not plan.experts_apart)
    for matrix in matrices(model, plan, layer):
        size += matrix.copies * numbers.stored_bytes(matrix.name, matrix.outputs, matrix.inputs)
    products = sum(matrix.weights for matrix in matrices(model, WHOLE, layer))
    norms = model.norms_of_layer(layer)
    others = model.layer_weights(layer) - norms - router - products - biases  # with norms of attention
    adapters = max(plan.adapters, 1) * adapter_weights(model, plan, layer)
    return size + (norms + router + mine + -(-others // plan.tensor) + adapters) * plan.value_bytes


def weight_bytes_of_experts(model: Model, plan: Plan) -> int:
    """Return the bytes of weights on a rank that has experts alone."""
    size, experts = 0, model.experts
    for layer, count in _distinct(model, range(model.layers if experts is not None else 0)):
        if experts is not None and model.has_experts(layer):
            numbers, (local, _) = LayerNumbers.of(model, plan, layer), experts_on_rank(experts, plan)
            size += count * local * experts.expert.biases(model.hidden) * plan.value_bytes
            for matrix in expert_matrices(experts, plan, model.hidden):
                each = numbers.stored_bytes(matrix.name, matrix.outputs, matrix.inputs)
                size += count * matrix.copies * each
    return size


def _distinct(model: Model, layers: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Yield a layer of each kind with each numbers, and how many there are: they have equal weights."""
    found: dict[tuple[LayerKind, LayerFormats], list[int]] = {}
    for layer in layers:
        found.setdefault((model.kind(layer), model.formats_of(layer)), []).append(layer)
    return ((alike[0], len(alike)) for alike in found.values())


def weight_bytes_of_stage(model: Model, plan: Plan, place: int) -> int:
    """Return the bytes of weights on a rank at a place of the pipeline."""
    layers, part = ModelLayers(model, plan), plan.part(model, place, 0)
    ends = layers.embedding_weights * part.has_embedding + layers.head_weights * part.has_head
    of_layers = (
        count * layer_bytes(model, plan, layer) for layer, count in _distinct(model, part.all_layers)
    )
    return ends * plan.value_bytes + sum(of_layers)


def cached_values_of_rank(attention: Attention, tensor: int) -> int:
    """Return the cached values of a token in one layer on each tensor-parallel rank."""
    if attention.latent is not None:
        return attention.latent.value_rank + attention.latent.rotary_size
    return key_heads_of_rank(attention, tensor) * (attention.query_size + attention.value_size)


def cached_bits_of_rank(model: Model, plan: Plan) -> int:
    """Return the cached bits of a token in one layer on each tensor-parallel rank."""
    index = model.attention.index
    bits = cache_bits(model, plan) * cached_values_of_rank(model.attention, plan.tensor)
    return bits + (index.cached_bits if index is not None else 0)


class SequenceCache(Struct, frozen=True):
    """The cache of a sequence on a rank, by the layers that keep different numbers of tokens."""

    token_bits: tuple[tuple[int, int], ...]  # (window, bits of a token in all layers with it); 0: all tokens
    state_bytes: int = 0  # of all recurrent layers

    @staticmethod
    def of(model: Model, plan: Plan, place: int = 0) -> SequenceCache:
        """Return the cache at a place of the pipeline."""
        bits: dict[int, int] = {}
        each, states = cached_bits_of_rank(model, plan), 0
        for layer in plan.part(model, place, 0).all_layers:
            if model.has_attention(layer):
                window = model.window(layer)
                bits[window] = bits.get(window, 0) + each
            elif model.kind(layer).mixer and model.recurrence is not None:
                share = model.recurrence.share(plan.tensor)
                states += share.state * STATE_BYTES
                states += share.channels * (share.convolution - 1) * plan.value_bytes
        return SequenceCache(tuple(sorted(bits.items())), states)

    def bytes(self, tokens: int, block: int = 1) -> int:
        """Return the bytes of a sequence of some tokens, whose cache is allocated in blocks."""
        size = self.state_bytes
        for window, bits in self.token_bits:
            kept = min(tokens, window) if window else tokens
            size += -(-kept // block) * -(-block * bits // 8)
        return size

    @property
    def is_plain(self) -> bool:
        """Return whether all layers keep all tokens, and nothing else."""
        return not self.state_bytes and len(self.token_bits) == 1 and not self.token_bits[0][0]

    def in_units(self, block: int) -> CacheUnits:
        """Return the cache in units of memory that divide the blocks of all layers, and the states."""
        sizes = [(window, -(-block * bits // 8)) for window, bits in self.token_bits]
        unit = gcd(self.state_bytes, *(size for _, size in sizes))
        growing = tuple((window, size // unit) for window, size in sizes)
        return CacheUnits(block, unit, growing, self.state_bytes // unit)

    @property
    def token_bytes(self) -> int:
        """Return the bytes of a token while no window is full."""
        return sum(-(-bits // 8) for _, bits in self.token_bits)


class CacheUnits(Struct, frozen=True):
    """The cache of a sequence in units of memory."""

    block: int  # tokens whose cache is allocated together
    unit_bytes: int
    growing: tuple[tuple[int, int], ...]  # (window, units of a block)
    state: int = 0  # units of states

    def of(self, tokens: int) -> int:
        """Return the units of a sequence."""
        kept = ((min(tokens, window) if window else tokens, units) for window, units in self.growing)
        return self.state + sum(-(-count // self.block) * units for count, units in kept)

    @property
    def unlimited(self) -> int:
        """Return the units of a block of the layers that keep all tokens."""
        return sum(units for window, units in self.growing if not window)

    @property
    def longest_window(self) -> int:
        """Return the tokens from which on other layers need no further units."""
        return max((window for window, _ in self.growing), default=0)

    def all_of(self, tokens: int) -> int:
        """Return the units of whole blocks of tokens in all layers, as engines count a cache in tokens."""
        return tokens // self.block * sum(units for _, units in self.growing)

    def tokens(self, units: int) -> int:
        """Return the tokens that units hold in all layers."""
        return units // max(sum(each for _, each in self.growing), 1) * self.block
