"""What a transformer is made of, and how many weights that makes.

Weights are counted tensor by tensor, as published checkpoints have them.

Not here: reading descriptions (`configuration`), and what a step computes (`et_sim.workloads.kernels`).
"""

from __future__ import annotations

from msgspec import Struct

from et_sim.basics.quick_dataclass import quick_dataclass


class Latent(Struct, frozen=True):
    """Attention whose keys and values are kept in a compressed form (MLA)."""

    query_rank: int  # 0: queries are not compressed
    value_rank: int  # of keys and values together
    rotary_size: int  # of a head's part that carries positions
    value_size: int  # of a head's values


class Attention(Struct, frozen=True):
    """Heads of one layer; `key_heads` is fewer than `heads` where queries share keys and values."""

    heads: int
    key_heads: int
    head_size: int  # of queries and keys, without a rotary part of its own
    has_bias: bool = False  # of queries, keys and values
    has_output_bias: bool = False
    latent: Latent | None = None

    @property
    def query_size(self) -> int:
        """Of a head, all of it."""
        return self.head_size + (self.latent.rotary_size if self.latent else 0)

    @property
    def value_size(self) -> int:
        """Of a head."""
        return self.latent.value_size if self.latent else self.head_size

    def projections(self, hidden: int) -> tuple[tuple[str, int, int], ...]:
        """(name, inputs, outputs) of every matrix before the core of attention."""
        latent = self.latent
        if latent is None:
            return (("qkv", hidden, (self.heads + 2 * self.key_heads) * self.head_size),)
        outputs = self.heads * self.query_size
        queries: tuple[tuple[str, int, int], ...] = (("query", hidden, outputs),)
        if latent.query_rank:
            queries = (
                ("query down", hidden, latent.query_rank),
                ("query up", latent.query_rank, outputs),
            )
        return (
            *queries,
            ("key-value down", hidden, latent.value_rank + latent.rotary_size),
            ("key-value up", latent.value_rank, self.heads * (self.head_size + latent.value_size)),
        )

    def weights(self, hidden: int) -> int:
        """Of one layer, with the projection of its outputs."""
        weights = sum(inputs * outputs for _, inputs, outputs in self.projections(hidden))
        weights += self.heads * self.value_size * hidden
        if self.latent is not None:
            weights += self.latent.query_rank + self.latent.value_rank  # their norms
        if self.has_bias:
            weights += (self.heads + 2 * self.key_heads) * self.head_size
        return weights + hidden * self.has_output_bias


class FeedForward(Struct, frozen=True):
    """Two matrices, or three where one gates the other."""

    width: int
    is_gated: bool
    has_bias: bool = False

    @property
    def inner(self) -> int:
        """Outputs of the first product."""
        return self.width * (2 if self.is_gated else 1)

    def weights(self, hidden: int) -> int:
        """Of one layer, or of one expert."""
        return hidden * (self.inner + self.width) + (self.inner + hidden) * self.has_bias


class Experts(Struct, frozen=True):
    """Feed-forward parts of which each token takes a few."""

    count: int
    chosen: int  # by each token
    expert: FeedForward
    shared: int = 0  # experts that all tokens take
    dense_layers: int = 0  # first layers without experts
    has_bias: bool = False  # of the router
    groups: int = 1  # of experts, equally many each
    chosen_groups: int = 1  # that the experts of a token are in

    def router_weights(self, hidden: int) -> int:
        """Of one layer."""
        return self.count * (hidden + self.has_bias)

    def weights(self, hidden: int) -> int:
        """Of one layer."""
        return self.router_weights(hidden) + (self.count + self.shared) * self.expert.weights(hidden)

    def active_weights(self, hidden: int) -> int:
        """Of one layer, that a token meets."""
        return self.router_weights(hidden) + (self.chosen + self.shared) * self.expert.weights(hidden)


@quick_dataclass(frozen=True)
class Model:
    """A transformer."""

    name: str
    source: str
    hidden: int
    layers: int
    vocabulary: int
    sequence: int  # tokens
    attention: Attention
    feed_forward: FeedForward
    experts: Experts | None = None
    positions: int = 0  # that have weights
    is_tied: bool = False  # the head has the weights of the embedding
    is_encoder: bool = False  # every token sees the whole sequence
    norm_vectors: int = 1  # weights of a norm, per channel: scale, or scale and shift
    token_types: int = 0
    has_pooler: bool = False
    has_dropout: bool = False  # after attention and after the feed-forward part
    windows: tuple[int, ...] = ()  # tokens that attention sees, layer by layer and again; 0: all before

    def has_experts(self, layer: int) -> bool:
        """Whether a layer has experts."""
        return self.experts is not None and layer >= self.experts.dense_layers

    def window(self, layer: int) -> int:
        """How many tokens a layer's attention sees; 0: all before."""
        window = self.windows[layer % len(self.windows)] if self.windows else 0
        return window if window < self.sequence else 0

    @property
    def norm_weights(self) -> int:
        """Of one norm."""
        return self.hidden * self.norm_vectors

    def layer_weights(self, layer: int) -> int:
        """Of one layer."""
        part = self.feed_forward.weights(self.hidden)
        if self.experts is not None and self.has_experts(layer):
            part = self.experts.weights(self.hidden)
        return self.attention.weights(self.hidden) + part + 2 * self.norm_weights

    @property
    def embedding_weights(self) -> int:
        """Of tokens, positions and types of tokens."""
        weights = (self.vocabulary + self.positions + self.token_types) * self.hidden
        return weights + (self.norm_weights if self.is_encoder else 0)

    @property
    def head_weights(self) -> int:
        """Of what comes after the last layer, without what the embedding has."""
        weights = 0 if self.is_encoder else self.norm_weights
        weights += self.hidden * (self.hidden + 1) if self.has_pooler else 0
        return weights + (0 if self.is_tied or self.is_encoder else self.vocabulary * self.hidden)

    @property
    def weights(self) -> int:
        """Of the whole model."""
        layers = sum(self.layer_weights(layer) for layer in range(self.layers))
        return self.embedding_weights + layers + self.head_weights

    @property
    def active_weights(self) -> int:
        """That one token meets: of experts those that it takes, and the shared ones."""
        if self.experts is None:
            return self.weights
        spared = self.experts.weights(self.hidden) - self.experts.active_weights(self.hidden)
        return self.weights - spared * sum(self.has_experts(layer) for layer in range(self.layers))
