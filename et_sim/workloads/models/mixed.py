"""Families of models with layers of several kinds: windows, chunks, recurrences, experts."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from msgspec import structs

from et_sim.basics.errors import UsageError, brief
from et_sim.workloads.models.families import common, gated, grouped_attention, head_size, sparse_layers
from et_sim.workloads.models.keys import ModelKeys
from et_sim.workloads.models.model import (
    ATTENTION,
    EXPERTS,
    FEED_FORWARD,
    RECURRENCE,
    Attention,
    Experts,
    FeedForward,
    LayerKind,
    Model,
    Recurrence,
)
from et_sim.workloads.models.windows import CHUNKED, FULL, LINEAR, layer_types, windows_of

DELTA_CHUNK = 64  # tokens, in the published kernels of the gated delta rule
#: Defaults of keys that published files of Gemma 3 leave out.
GEMMA3: Mapping[str, int] = MappingProxyType(
    {
        "vocab_size": 262_208,
        "max_position_embeddings": 131_072,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 256,
    }
)
MAMBA = "mamba"  # a layer with Mamba-2, in the files of Bamba and Granite
GEMMA3_PATTERN = 6  # every sixth layer sees all tokens


def gemma3(keys: ModelKeys, name: str) -> Model:
    """Return Gemma 3: four norms in a layer, norms of queries and keys, windows in five of six layers."""
    for key, usual in GEMMA3.items():
        keys.number(key, default=usual)
    completed = ModelKeys({**GEMMA3, "tie_word_embeddings": True, **keys.content}, keys.place, keys.used)
    fields = common(completed, name)
    for capping in ("attn_logit_softcapping", "final_logit_softcapping"):
        keys.refuse(capping, None, "capped scores")
    keys.refuse("use_bidirectional_attention", False, "attention in both directions")
    has_bias = keys.flag("attention_bias", default=False)
    return Model(
        **fields,
        attention=grouped_attention(
            completed, has_bias=has_bias, has_output_bias=has_bias, query_norm="head"
        ),
        feed_forward=FeedForward(
            keys.number("intermediate_size"),
            is_gated=True,
            operations=keys.activation("hidden_activation", "hidden_act"),
        ),
        windows=windows_of(keys, fields["layers"], pattern=GEMMA3_PATTERN),
        half_norms=2,
    )


def llama4(keys: ModelKeys, name: str) -> Model:
    """Return Llama 4: attention within chunks; every fourth layer sees all tokens, without rotary."""
    fields = common(keys, name)
    layers = fields["layers"]
    turned = keys.numbers("no_rope_layers") or ()  # 1: the layer turns positions
    interval = keys.number("no_rope_layer_interval", default=4)
    if not turned:
        turned = tuple(int((layer + 1) % interval != 0) for layer in range(layers))
    if len(turned) != layers:
        raise keys.fault("no_rope_layers", list(turned), f"give {layers} numbers, or none")
    types = layer_types(keys, layers, (CHUNKED, FULL)) or [CHUNKED if turn else FULL for turn in turned]
    chunk = keys.number("attention_chunk_size", default=0)
    sparse, step = keys.numbers("moe_layers"), keys.number("interleave_moe_layer_step", default=1)
    sparse = tuple(range(step - 1, layers, step)) if sparse is None else sparse
    expert, has_bias = gated(keys, "intermediate_size"), keys.flag("attention_bias", default=False)
    return Model(
        **fields,
        attention=grouped_attention(
            keys,
            has_bias=has_bias,
            has_output_bias=has_bias,
            query_norm="plain" if keys.flag("use_qk_norm", default=True) else "",
        ),
        feed_forward=gated(keys, "intermediate_size_mlp"),
        experts=Experts(
            keys.number("num_local_experts"), keys.number("num_experts_per_tok"), expert, shared=1
        ),
        kinds=tuple(
            LayerKind(part=EXPERTS if layer in sparse else FEED_FORWARD, has_rotary=bool(turned[layer]))
            for layer in range(layers)
        ),
        windows=tuple(chunk if word == CHUNKED else 0 for word in types) if chunk else (),
        in_chunks=True,
    )


def qwen3_next(keys: ModelKeys, name: str) -> Model:
    """Return Qwen3-Next, or Qwen 3.5: gated delta rule, and gated attention in every fourth layer."""
    fields = common(keys, name)
    layers, interval = fields["layers"], keys.number("full_attention_interval", default=4)
    types = layer_types(keys, layers, (LINEAR, FULL))
    types = types or [FULL if (layer + 1) % interval == 0 else LINEAR for layer in range(layers)]
    experts = _experts_with_gate(keys) if keys.number("num_experts", default=0, least=0) else None
    parts = sparse_layers(keys, layers) if experts or keys.get("mlp_only_layers") else (LayerKind(),)
    has_bias = keys.flag("attention_bias", default=False)
    attention = grouped_attention(
        keys,
        has_bias=has_bias,
        has_output_bias=has_bias,
        query_norm="head",
        has_gate=keys.flag("attn_output_gate", default=True),
    )
    has_width = experts is None or keys.get("intermediate_size") is not None
    return Model(
        **fields,
        attention=attention,
        feed_forward=gated(keys, "intermediate_size" if has_width else "moe_intermediate_size"),
        experts=experts,
        kinds=tuple(
            LayerKind(RECURRENCE if word == LINEAR else ATTENTION, parts[layer % len(parts)].part)
            for layer, word in enumerate(types)
        ),
        recurrence=Recurrence(
            heads=keys.number("linear_num_value_heads"),
            key_heads=keys.number("linear_num_key_heads"),
            key_size=keys.number("linear_key_head_dim"),
            value_size=keys.number("linear_value_head_dim"),
            convolution=keys.number("linear_conv_kernel_dim"),
            has_delta_rule=True,
            chunk=DELTA_CHUNK,
        ),
        next_tokens=keys.number("num_nextn_predict_layers", "mtp_num_hidden_layers", default=0, least=0),
    )


def _experts_with_gate(keys: ModelKeys) -> Experts:
    expert = gated(keys, "moe_intermediate_size")
    return Experts(
        keys.number("num_experts"),
        keys.number("num_experts_per_tok"),
        expert,
        shared=_shared(keys, "shared_expert_intermediate_size", expert),
        has_shared_gate=True,
    )


def _shared(keys: ModelKeys, name: str, expert: FeedForward) -> int:
    """Return the shared width of a key as a number of experts."""
    width = keys.number(name, default=0, least=0)
    if width % expert.width:
        raise keys.fault(name, width, f"give a multiple of the {expert.width} of an expert")
    return width // expert.width


_BLOCKS: Mapping[str, LayerKind] = MappingProxyType(
    {
        "M": LayerKind(RECURRENCE, ""),
        "*": LayerKind(ATTENTION, "", has_rotary=False),
        "-": LayerKind("", FEED_FORWARD),
        "E": LayerKind("", EXPERTS),
        "mamba": LayerKind(RECURRENCE, ""),
        "attention": LayerKind(ATTENTION, "", has_rotary=False),
        "mlp": LayerKind("", FEED_FORWARD),
        "moe": LayerKind("", EXPERTS),
    }
)


def nemotron_h(keys: ModelKeys, name: str) -> Model:
    """Return Nemotron-H: each layer is Mamba-2, attention, a feed-forward part or experts."""
    for bias in ("use_bias", "mamba_proj_bias", "mlp_bias"):
        keys.refuse(bias, False, "biases of products")
    kinds = _pattern(keys)
    heads, has_bias = keys.number("num_attention_heads"), keys.flag("attention_bias", default=False)
    layers = keys.number("num_hidden_layers", default=len(kinds))
    if layers != len(kinds):
        raise keys.fault("num_hidden_layers", layers, f"the pattern has {len(kinds)} layers")
    completed = ModelKeys({"num_hidden_layers": layers, **keys.content}, keys.place, keys.used)
    fields = common(completed, name)
    part = FeedForward(
        keys.number("intermediate_size"),
        is_gated=False,
        operations=keys.activation("mlp_hidden_act"),
    )
    mamba_heads = keys.number("mamba_num_heads")
    keys.number("expand", default=2)  # the width follows from heads and their size
    keys.activation("mamba_hidden_act")
    return Model(
        **fields,
        attention=Attention(
            heads,
            keys.number("num_key_value_heads", default=heads),
            head_size(keys, fields["hidden"], heads, "attention_head_dim"),
            has_bias=has_bias,
            has_output_bias=has_bias,
        ),
        feed_forward=part,
        experts=_experts_of_blocks(keys, part) if any(kind.part == EXPERTS for kind in kinds) else None,
        kinds=kinds,
        recurrence=Recurrence(
            heads=mamba_heads,
            key_heads=keys.number("n_groups"),
            key_size=keys.number("ssm_state_size"),
            value_size=keys.number("mamba_head_dim"),
            convolution=keys.number("conv_kernel"),
            has_delta_rule=False,
            chunk=keys.number("chunk_size", default=256),
            has_convolution_bias=keys.flag("use_conv_bias", default=True),
        ),
    )


def mamba_hybrid(keys: ModelKeys, name: str) -> Model:
    """Return Bamba or Granite 4: Mamba-2 or attention, and a feed-forward part or experts, in each layer."""
    for bias in ("mamba_proj_bias", "mlp_bias"):
        keys.refuse(bias, False, "biases of products")
    keys.refuse("normalization_function", "rmsnorm", "other norms")
    fields, has_bias = common(keys, name), keys.flag("attention_bias", default=False)
    kind, turns = keys.text("model_type"), keys.get("position_embedding_type")
    count = keys.number("num_local_experts", default=0, least=0)
    chosen = keys.number("num_experts_per_tok", default=0, least=min(count, 1))
    has_shared = keys.get("shared_intermediate_size") is not None
    expert, experts = gated(keys, "intermediate_size"), None
    if count:
        experts = Experts(count, chosen, expert, shared=_shared(keys, "shared_intermediate_size", expert))
    part = EXPERTS if count else FEED_FORWARD
    layer = {
        MAMBA: LayerKind(RECURRENCE, part),
        ATTENTION: LayerKind(ATTENTION, part, has_rotary=kind == "bamba" or turns == "rope"),
    }
    return Model(
        **fields,
        attention=grouped_attention(keys, has_bias=has_bias, has_output_bias=has_bias),
        feed_forward=gated(keys, "shared_intermediate_size") if has_shared and not count else expert,
        experts=experts,
        kinds=tuple(layer[word] for word in _mamba_layers(keys, fields["layers"])),
        recurrence=_mamba(keys, fields["hidden"]),
    )


def _mamba_layers(keys: ModelKeys, layers: int) -> list[str]:
    """Return a word for each layer; the file may name the layers with attention by number."""
    places = keys.numbers("attn_layer_indices") or ()
    if any(place >= layers for place in places):
        raise keys.fault("attn_layer_indices", list(places), f"give numbers below {layers}")
    types = layer_types(keys, layers, (MAMBA, ATTENTION))
    return types or [ATTENTION if layer in places else MAMBA for layer in range(layers)]


def _mamba(keys: ModelKeys, hidden: int) -> Recurrence:
    """Return Mamba-2 from keys that begin with mamba_."""
    heads, inner = keys.number("mamba_n_heads"), keys.number("mamba_expand", default=2) * hidden
    if inner % heads or keys.get("mamba_d_head") not in (None, "auto", inner // heads):
        remedy = f"heads times mamba_d_head is mamba_expand times the width, {inner}"
        raise keys.fault("mamba_n_heads", heads, remedy)
    return Recurrence(
        heads=heads,
        key_heads=keys.number("mamba_n_groups", default=1),
        key_size=keys.number("mamba_d_state"),
        value_size=inner // heads,
        convolution=keys.number("mamba_d_conv", default=4),
        has_delta_rule=False,
        chunk=keys.number("mamba_chunk_size", default=256),
        has_convolution_bias=keys.flag("mamba_conv_bias", default=True),
    )


def _experts_of_blocks(keys: ModelKeys, part: FeedForward) -> Experts:
    expert = structs.replace(part, width=keys.number("moe_intermediate_size"))
    keys.refuse("moe_latent_size", None, "experts of compressed tokens")
    count = keys.number("n_shared_experts", default=1, least=0)
    width = keys.number("moe_shared_expert_intermediate_size", default=expert.width)
    if width % expert.width:
        raise keys.fault(
            "moe_shared_expert_intermediate_size",
            width,
            f"give a multiple of the {expert.width} of an expert",
        )
    return Experts(
        keys.number("n_routed_experts"),
        keys.number("num_experts_per_tok"),
        expert,
        shared=count * width // expert.width,
        has_bias=True,
    )


def _pattern(keys: ModelKeys) -> tuple[LayerKind, ...]:
    """Return the kinds of layers, from a letter or a word for each."""
    words = keys.get("layers_block_type") or keys.get("hybrid_override_pattern")
    keys.used.add("hybrid_override_pattern")
    if not isinstance(words, str | list) or not words:
        raise keys.fault("hybrid_override_pattern", words, "give a letter for each layer: M, *, - or E")
    if unknown := next((word for word in words if word not in _BLOCKS), None):
        raise UsageError(
            f"the pattern of layers has {brief(repr(unknown))}",
            place=keys.place,
            remedy=f"known: {' '.join(_BLOCKS)}",
        )
    return tuple(_BLOCKS[word] for word in words)
