"""Transfers of the cache of a sequence, or of weights, between replicas, and loads from remote memory.

Every rank gets its layers and heads from ranks that have them. If several have them, ranks take turns by
their places.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from msgspec import Struct, structs

from et_sim.trace.builder import TraceBuilder
from et_sim.trace.workload import Workload
from et_sim.workloads.inference.memory import (
    SequenceCache,
    cached_bits_of_rank,
    weight_bytes_of_experts,
    weight_bytes_of_stage,
)
from et_sim.workloads.models.model import Model
from et_sim.workloads.rank import PROFILE
from et_sim.workloads.recurrence import STATE_BYTES
from et_sim.workloads.training.plan import Plan


class ReplicaPlace(Struct, frozen=True):
    """The place of a replica: its ranks are consecutive, tensor-parallel ones first."""

    plan: Plan
    first: int
    group: int = 0  # data-parallel group that has the sequence

    def rank(self, stage: int, tensor: int) -> int:
        """Return the rank at a place."""
        return self.first + (stage * self.plan.data + self.group) * self.plan.tensor + tensor


class SentCache(NamedTuple):
    """The cache of a sequence, or the last layers of it, that is sent from a time on."""

    source: ReplicaPlace
    target: ReplicaPlace
    tokens: int
    layers: int = 0  # the last ones; 0: all
    begin_ns: int = 0


class SentWeights(NamedTuple):
    """The weights of a replica, which a new one of the same plan receives from a time on."""

    source: ReplicaPlace
    target: ReplicaPlace
    more_bytes: int = 0  # of each rank, besides those of the model
    begin_ns: int = 0


Sent = SentCache | SentWeights


def messages(
    model: Model, source: ReplicaPlace, target: ReplicaPlace, tokens: int = 1, layers: int = 0
) -> Counter[tuple[int, int]]:
    """Return the bits of the cache of a sequence, or its last layers, by sending and receiving rank."""
    sizes: Counter[tuple[int, int]] = Counter()
    first = model.layers - layers if layers else 0
    for stage in range(target.plan.pipeline):
        wanted = target.plan.part(model, stage, 0).all_layers
        for other in range(source.plan.pipeline):
            there = source.plan.part(model, other, 0).all_layers
            both = range(max(wanted.start, there.start, first), min(wanted.stop, there.stop))
            for heads, bits in _cached_heads(model, target.plan, both, tokens).items():
                for tensor in range(target.plan.tensor):
                    for head in _heads(tensor, target.plan.tensor, heads):
                        holders = [
                            receiver
                            for receiver in range(source.plan.tensor)
                            if head in _heads(receiver, source.plan.tensor, heads)
                        ]
                        holder = source.rank(other, holders[tensor % len(holders)])
                        sizes[holder, target.rank(stage, tensor)] += bits
    return sizes


def _cached_heads(model: Model, plan: Plan, layers: Iterable[int], tokens: int) -> Counter[int]:
    """Return the cached bits of each head in some layers, by the number of heads that ranks share."""
    bits: Counter[int] = Counter()
    attention, states, whole = model.attention, model.recurrence, structs.replace(plan, tensor=1, expert=1)
    heads = 1 if attention.latent is not None else attention.key_heads
    for layer in layers:
        if model.has_attention(layer):
            kept = min(tokens, model.window(layer) or tokens)
            bits[heads] += kept * cached_bits_of_rank(model, whole) // heads
        elif model.kind(layer).mixer and states is not None:
            kept = states.channels * (states.convolution - 1) * plan.value_bytes // states.heads
            bits[states.heads] += 8 * (states.key_size * states.value_size * STATE_BYTES + kept)
    return bits


def _heads(tensor: int, ranks: int, heads: int) -> range:
    """Return the heads of a tensor-parallel rank."""
    first = tensor * heads // ranks
    return range(first, max((tensor + 1) * heads // ranks, first + 1))


def make_transfers(
    sent: Sequence[tuple[Model, Sent]], ranks: int
) -> tuple[Workload, list[list[tuple[int, int]]]]:
    """Return the messages of caches and weights, each of a model and all of its own at once; and the receives
    of each by rank and node.

    The other ones of `ranks` do nothing.
    """
    builders: dict[int, TraceBuilder] = {}
    nodes: Counter[int] = Counter()
    received: list[list[tuple[int, int]]] = []
    for tag, (model, each) in enumerate(sent):
        begun: dict[int, int] = {}
        received.append([])
        kind, begin = "cache" if isinstance(each, SentCache) else "weights", each.begin_ns
        for (sender, receiver), moved in sorted(_moved_bytes(model, each).items()):
            for rank in (sender, receiver):
                builders.setdefault(rank, TraceBuilder(source="<cache>"))
            if begin and sender not in begun:
                wait = builders[sender].compute("begin", nanos=begin, cpu=True, concurrent=True)
                begun[sender] = wait
                nodes[sender] += 1
            after = [begun[sender]] if begin else []
            builders[sender].send(receiver, moved, tag, name=f"{kind} send", after=after)
            builders[receiver].receive(sender, moved, tag, name=f"{kind} receive")
            received[-1].append((receiver, nodes[receiver]))
            nodes.update((sender, receiver))
    return _workload(builders, ranks), received


def _moved_bytes(model: Model, sent: Sent) -> dict[tuple[int, int], int]:
    """Return the bytes of a transfer by sending and receiving rank."""
    if isinstance(sent, SentCache):
        sizes = messages(model, sent.source, sent.target, sent.tokens, sent.layers)
        return {ranks: -(-size // 8) for ranks, size in sizes.items()}
    weights = _weight_bytes_of_ranks(model, sent.source.plan)
    return {
        (sent.source.first + place, sent.target.first + place): size + sent.more_bytes
        for place, size in enumerate(weights)
    }


def _weight_bytes_of_ranks(model: Model, plan: Plan) -> list[int]:
    """Return the bytes of the weights of each rank of a replica."""
    sizes = [weight_bytes_of_stage(model, plan, stage) for stage in range(plan.pipeline)]
    of_rank = [size for size in sizes for _ in range(plan.tensor * plan.data)]
    of_experts = [weight_bytes_of_experts(model, plan)] * plan.expert if plan.experts_apart else []
    return of_rank + of_experts


def make_load(model: Model, place: ReplicaPlace, *, tokens: int, ranks: int) -> Workload:
    """Return the loads of a sequence of some tokens: each rank loads its layers and heads, all at once."""
    builders: dict[int, TraceBuilder] = {}
    for stage in range(place.plan.pipeline):
        size = SequenceCache.of(model, place.plan, stage).bytes(tokens)
        for tensor in range(place.plan.tensor if size else 0):
            builder = builders[place.rank(stage, tensor)] = TraceBuilder(source="<cache>")
            builder.load(size, name="cache load")
    return _workload(builders, ranks)


def make_weights(model: Model, source: ReplicaPlace, targets: Sequence[ReplicaPlace], ranks: int) -> Workload:
    """Return messages with the weights of each rank of a replica to its likes in others, all at once."""
    return make_transfers([(model, SentWeights(source, target)) for target in targets], ranks)[0]


def _workload(builders: Mapping[int, TraceBuilder], ranks: int) -> Workload:
    """Return the workload of some ranks; the other ones of `ranks` do nothing."""
    of_rank = np.zeros(ranks, np.int32)
    for number, rank in enumerate(builders, 1):
        of_rank[rank] = number
    idle = TraceBuilder(source="<cache>").build()
    templates = (idle, *(build.build() for build in builders.values()))
    return Workload(templates, of_rank, "<cache>", profile=PROFILE)
