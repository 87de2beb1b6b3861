"""Dimensions of a transformer, and its numbers of weights.

Weights are counted tensor by tensor, as in published checkpoints.
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from et_sim.workloads.models.formats import LayerFormats


class Latent(Struct, frozen=True):
    """Attention whose keys and values are kept in a compressed form (MLA)."""

    query_rank: int  # 0: queries are not compressed
    value_rank: int  # of keys and values together
    rotary_size: int  # of a head's part that carries positions
    value_size: int  # of a head's values


class Index(Struct, frozen=True):
    """Scores of a token and all before it, by which each token chooses those that its attention sees."""

    heads: int  # of queries; a token has one key
    size: int  # of a head
    chosen: int  # tokens

    KEY_BITS = 8  # of a value of a cached key
    SCALE_BITS = 32  # of a cached key

    @property
    def cached_bits(self) -> int:
        """Return the cached bits of a token in one layer."""
        return self.size * self.KEY_BITS + self.SCALE_BITS

    def projections(self, hidden: int, query_rank: int) -> tuple[tuple[str, int, int], ...]:
        """Return (name, inputs, outputs) of every matrix, which tensor-parallel ranks do not share."""
        queries = ("index queries", query_rank, self.heads * self.size)
        return queries, ("index keys", hidden, self.size), ("index weights", hidden, self.heads)

    def weights(self, hidden: int, query_rank: int) -> int:
        """Return the weights of one layer, with the norm of keys, which has a shift."""
        matrices = sum(inputs * outputs for _, inputs, outputs in self.projections(hidden, query_rank))
        return matrices + 2 * self.size


class Attention(Struct, frozen=True):
    """The heads of one layer; `key_heads` is fewer than `heads` if queries share keys and values."""

    heads: int
    key_heads: int
    head_size: int  # of queries and keys, without a rotary part of its own
    has_bias: bool = False  # of queries, keys and values
    has_output_bias: bool = False
    latent: Latent | None = None
    query_norm: str = ""  # "head": by head, "whole": over all heads at once, "plain": without weights
    has_sinks: bool = False  # a score of each head that takes a share of every softmax, and has no value
    has_gate: bool = False  # for each output, from the inputs
    is_scaled: bool = False  # rotary positions have a factor beside the rotation (YaRN)
    index: Index | None = None  # of compressed attention, each token of which sees chosen ones only

    @property
    def normed_size(self) -> int:
        """Return the number of values of a token's queries and keys that are normalised."""
        return (self.heads + self.key_heads) * self.head_size if self.query_norm else 0

    @property
    def query_size(self) -> int:
        """Return all channels of a query or key of a head."""
        return self.head_size + (self.latent.rotary_size if self.latent else 0)

    @property
    def value_size(self) -> int:
        """Return the channels of a value of a head."""
        return self.latent.value_size if self.latent else self.head_size

    def has_query_norm(self, *, has_rotary: bool) -> bool:
        """Return whether a layer normalises queries and keys; without weights, only rotary layers do."""
        return bool(self.query_norm) and (has_rotary or self.query_norm != "plain")

    def projections(self, hidden: int) -> tuple[tuple[str, int, int], ...]:
        """Return (name, inputs, outputs) of every matrix before the core of attention."""
        latent = self.latent
        if latent is None:
            heads = self.heads * (1 + self.has_gate) + 2 * self.key_heads
            return (("qkv", hidden, heads * self.head_size),)
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
        """Return the weights of one layer, with the projection of its outputs."""
        weights = sum(inputs * outputs for _, inputs, outputs in self.projections(hidden))
        weights += self.heads * self.value_size * hidden
        if self.latent is not None:
            weights += self.latent.query_rank + self.latent.value_rank  # their norms
            weights += self.index.weights(hidden, self.latent.query_rank) if self.index else 0
        if self.has_bias:
            weights += (self.heads + 2 * self.key_heads) * self.head_size
        weights += {"head": 2 * self.head_size, "whole": self.normed_size}.get(self.query_norm, 0)
        return weights + hidden * self.has_output_bias + self.heads * self.has_sinks


class Recurrence(Struct, frozen=True):
    """A state of each head that each token changes in turn, in place of attention.

    The state has `key_size` x `value_size` values. Chunks of tokens are computed as products of matrices.
    """

    heads: int
    key_heads: int  # heads of keys, which several heads share
    key_size: int  # of keys and queries; Mamba calls it the size of the state
    value_size: int  # of a head's values
    convolution: int  # tokens that the convolution covers
    has_delta_rule: bool  # a token replaces the value of its key (gated delta rule); else it adds (Mamba-2)
    chunk: int  # tokens that are computed together
    has_convolution_bias: bool = False

    @property
    def values(self) -> int:
        """Return the number of values in a token's outputs."""
        return self.heads * self.value_size

    @property
    def channels(self) -> int:
        """Return the number of values in a token's queries, keys and values."""
        return 2 * self.key_heads * self.key_size + self.values

    @property
    def state(self) -> int:
        """Return the number of values in the states of all heads."""
        return self.heads * self.key_size * self.value_size

    @property
    def inner(self) -> int:
        """Return the outputs of the first product: channels, gates, and one or two steps of each head."""
        return self.channels + self.values + self.heads * (1 + self.has_delta_rule)

    def share(self, ranks: int) -> Recurrence:
        """Return the share of one of several ranks; ranks beyond the number of key heads share one."""
        return Recurrence(
            self.heads // ranks,
            -(-self.key_heads // ranks),
            self.key_size,
            self.value_size,
            self.convolution,
            self.has_delta_rule,
            self.chunk,
            self.has_convolution_bias,
        )

    def weights(self, hidden: int) -> int:
        """Return the weights of one layer, with the projections, and the norm of the outputs."""
        weights = hidden * (self.inner + self.values)
        weights += self.channels * (self.convolution + self.has_convolution_bias)
        return weights + (
            2 * self.heads + self.value_size if self.has_delta_rule else 3 * self.heads + self.values
        )


class FeedForward(Struct, frozen=True):
    """A feed-forward part: two matrices, or three if one is a gate."""

    width: int
    is_gated: bool
    has_bias: bool = False
    operations: int = 8  # of the activation function, for each of its outputs
    is_clipped: bool = False  # inputs of the activation function are kept within limits

    @property
    def inner(self) -> int:
        """Return the outputs of the first product."""
        return self.width * (2 if self.is_gated else 1)

    def biases(self, hidden: int) -> int:
        """Return the weights of biases of one layer, or of one expert."""
        return (self.inner + hidden) * self.has_bias

    def weights(self, hidden: int) -> int:
        """Return the weights of one layer, or of one expert."""
        return hidden * (self.inner + self.width) + self.biases(hidden)


class Experts(Struct, frozen=True):
    """The experts of a layer, a few of which each token takes."""

    count: int
    chosen: int  # by each token
    expert: FeedForward
    shared: int = 0  # experts that all tokens take
    dense_layers: int = 0  # first layers without experts
    has_bias: bool = False  # of the router
    groups: int = 1  # of equally many experts
    chosen_groups: int = 1  # groups that the experts of a token are in
    has_shared_gate: bool = False  # a weight of shared experts, from the inputs

    @property
    def shared_part(self) -> FeedForward:
        """Return the shared experts as one part."""
        return replace(self.expert, width=self.expert.width * self.shared)

    def router_weights(self, hidden: int) -> int:
        """Return the weights of the router of one layer, with the gate of shared experts."""
        return self.count * (hidden + self.has_bias) + hidden * self.has_shared_gate

    def weights(self, hidden: int) -> int:
        """Return the weights of one layer."""
        return self.router_weights(hidden) + (self.count + self.shared) * self.expert.weights(hidden)

    def active_weights(self, hidden: int) -> int:
        """Return the weights of one layer that a token is multiplied with."""
        return self.router_weights(hidden) + (self.chosen + self.shared) * self.expert.weights(hidden)


ATTENTION, RECURRENCE = "attention", "recurrence"
FEED_FORWARD, EXPERTS = "feed-forward", "experts"


class LayerKind(Struct, frozen=True):
    """The two halves of a layer, either of which may be missing."""

    mixer: str = ATTENTION  # or recurrence
    part: str = FEED_FORWARD  # or experts
    has_rotary: bool = True  # attention turns queries and keys by their positions

    @property
    def halves(self) -> int:
        """Return the number of halves that the layer has."""
        return bool(self.mixer) + bool(self.part)


class Model(Struct, frozen=True):
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
    positions: int = 0  # positions that have weights
    is_tied: bool = False  # the head has the weights of the embedding
    is_encoder: bool = False  # every token sees the whole sequence
    norm_vectors: int = 1  # weights of a norm, per channel: scale, or scale and shift
    token_types: int = 0
    has_pooler: bool = False
    has_dropout: bool = False  # after attention and after the feed-forward part
    windows: tuple[int, ...] = ()  # tokens that attention sees, layer by layer and again; 0: all before
    in_chunks: bool = False  # windows do not slide: each begins at the end of the previous one
    kinds: tuple[LayerKind, ...] = ()  # layer by layer and again; (): attention, experts after dense ones
    recurrence: Recurrence | None = None
    half_norms: int = 1  # norms of each half of a layer: of its inputs, or of its outputs, too
    next_tokens: int = 0  # modules of the file that predict further tokens; their weights are not counted
    formats: tuple[LayerFormats, ...] = ()  # of stored weights, layer by layer and again; (): all as values
    cache_type: str = ""  # of cached keys and values; empty: that of values
    remarks: tuple[str, ...] = ()  # on the file that the model comes from

    def kind(self, layer: int) -> LayerKind:
        """Return the kind of a layer."""
        if self.kinds:
            return self.kinds[layer % len(self.kinds)]
        has_experts = self.experts is not None and layer >= self.experts.dense_layers
        return LayerKind(part=EXPERTS if has_experts else FEED_FORWARD)

    def formats_of(self, layer: int) -> LayerFormats:
        """Return the formats of a layer's weights."""
        return self.formats[layer % len(self.formats)] if self.formats else LayerFormats()

    def has_experts(self, layer: int) -> bool:
        """Return whether a layer has experts."""
        return self.kind(layer).part == EXPERTS

    def has_attention(self, layer: int) -> bool:
        """Return whether a layer has attention."""
        return self.kind(layer).mixer == ATTENTION

    @property
    def has_equal_layers(self) -> bool:
        """Return whether all layers are alike, but for first ones without experts."""
        return len(set(self.windows)) <= 1 and len(set(self.kinds)) <= 1

    def window(self, layer: int) -> int:
        """Return the number of tokens that attention of a layer sees; 0: all before."""
        window = self.windows[layer % len(self.windows)] if self.windows else 0
        return window if window < self.sequence else 0

    @property
    def norm_weights(self) -> int:
        """Return the weights of one norm."""
        return self.hidden * self.norm_vectors

    def mixer_weights(self, layer: int) -> int:
        """Return the weights of attention, or of the recurrence in its place."""
        mixer = self.kind(layer).mixer
        if mixer == RECURRENCE and self.recurrence is not None:
            return self.recurrence.weights(self.hidden)
        return self.attention.weights(self.hidden) if mixer else 0

    def norms_of_layer(self, layer: int) -> int:
        """Return the weights of all norms of a layer, without those within attention."""
        return self.kind(layer).halves * self.half_norms * self.norm_weights

    def layer_weights(self, layer: int) -> int:
        """Return the weights of one layer."""
        part = self.feed_forward.weights(self.hidden) if self.kind(layer).part else 0
        if self.experts is not None and self.has_experts(layer):
            part = self.experts.weights(self.hidden)
        return self.mixer_weights(layer) + part + self.norms_of_layer(layer)

    @property
    def embedding_weights(self) -> int:
        """Return the weights of tokens, positions and types of tokens."""
        weights = (self.vocabulary + self.positions + self.token_types) * self.hidden
        return weights + (self.norm_weights if self.is_encoder else 0)

    @property
    def head_weights(self) -> int:
        """Return the weights after the last layer, without those of the embedding."""
        weights = 0 if self.is_encoder else self.norm_weights
        weights += self.hidden * (self.hidden + 1) if self.has_pooler else 0
        return weights + (0 if self.is_tied or self.is_encoder else self.vocabulary * self.hidden)

    @property
    def weights(self) -> int:
        """Return the weights of the whole model."""
        layers = sum(self.layer_weights(layer) for layer in range(self.layers))
        return self.embedding_weights + layers + self.head_weights

    @property
    def active_weights(self) -> int:
        """Return the weights that one token uses; it uses its chosen experts and the shared ones."""
        if self.experts is None:
            return self.weights
        spared = self.experts.weights(self.hidden) - self.experts.active_weights(self.hidden)
        return self.weights - spared * sum(self.has_experts(layer) for layer in range(self.layers))


class PredictingModule(Model, frozen=True):
    """A layer that predicts one more token, with the embedding and the head of another model.

    The hidden state of a token and the embedding of the next one, both normed, are projected together.
    """

    @property
    def joining_weights(self) -> int:
        """Return the weights of the norms and of the projection, which every rank has."""
        return 2 * self.norm_weights + 2 * self.hidden * self.hidden


class VisionTower(Model, frozen=True):
    """An encoder of images: a transformer over patches, each of which sees all of its image.

    Neighbouring patches become a token of the language model, by products one after the other.
    """

    patch_values: int = 0  # of all colours of a patch
    patches: int = 1  # of a token
    image_patches: int = 0  # of an image, if all have the same size; 0: images of any size
    own_tokens: int = 0  # of an image, beside those of its patches
    projections: tuple[tuple[int, int], ...] = ()  # inputs and outputs of each product of a token
    other_weights: int = 0  # biases and norms before the first layer and after the last one

    @property
    def joining_weights(self) -> int:
        """Return the weights before the first layer and after the last one, which every rank has."""
        projected = sum(inputs * outputs for inputs, outputs in self.projections)
        return self.patch_values * self.hidden + projected + self.other_weights
