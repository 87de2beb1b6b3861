"""Families of models whose layers are alike, or differ in experts and windows, from the keys of a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import structs

from et_sim.basics.errors import UsageError
from et_sim.workloads.models.keys import ModelKeys
from et_sim.workloads.models.model import (
    EXPERTS,
    Attention,
    Experts,
    FeedForward,
    Index,
    Latent,
    LayerKind,
    Model,
)
from et_sim.workloads.models.windows import windows_of

YARN = "yarn"  # a way to turn queries and keys of sequences longer than those of the training
SPARSE = ("deepseek_v32", GLM_SPARSE := "glm_moe_dsa")  # families whose tokens see chosen ones only
CLIPPED = 12  # operations of a SiLU with a slope, its two limits, and an added one


def head_size(keys: ModelKeys, hidden: int, heads: int, *names: str) -> int:
    """Return the channels of a head; without a key, the hidden state divided by the heads."""
    is_given = any(keys.get(name) is not None for name in ("head_dim", *names))
    if not is_given and hidden % heads:
        raise UsageError(
            f"{heads} heads do not divide a width of {hidden}", place=keys.place, remedy='add "head_dim"'
        )
    return keys.number("head_dim", *names, default=hidden // heads)


def common(keys: ModelKeys, name: str) -> dict[str, Any]:
    """Return the fields of a model whose keys all families of decoders share."""
    return {
        "name": name,
        "source": keys.text("source"),
        "vocabulary": keys.number("vocab_size"),
        "hidden": keys.number("hidden_size"),
        "layers": keys.number("num_hidden_layers"),
        "sequence": keys.number("max_position_embeddings"),
        "is_tied": keys.flag("tie_word_embeddings", default=False),
    }


def grouped_attention(keys: ModelKeys, **more: Any) -> Attention:
    """Return attention whose heads may share keys and values."""
    hidden, heads = keys.number("hidden_size"), keys.number("num_attention_heads")
    key_heads = keys.number("num_key_value_heads", default=heads)
    size, is_scaled = head_size(keys, hidden, heads), has_rotary_factor(keys)
    return Attention(heads, key_heads, size, is_scaled=is_scaled, **more)


def has_rotary_factor(keys: ModelKeys) -> bool:
    """Return whether rotary positions scale queries and keys (YaRN), by a factor that is not 1.

    The factor follows from that of the sequence, or is the quotient of two such factors, which may be equal.
    """
    scaling = keys.get("rope_scaling") or keys.get("rope_parameters")
    if not isinstance(scaling, Mapping) or YARN not in (scaling.get("rope_type"), scaling.get("type")):
        return False
    stated, scale = scaling.get("attention_factor"), scaling.get("mscale")
    if stated is not None:
        return bool(stated != 1)
    return not (scale and scale == scaling.get("mscale_all_dim")) and scaling.get("factor") != 1


def gated(keys: ModelKeys, name: str) -> FeedForward:
    """Return a gated feed-forward part with the width of a key."""
    return FeedForward(keys.number(name), is_gated=True, operations=keys.activation("hidden_act"))


def sparse_layers(keys: ModelKeys, layers: int) -> tuple[LayerKind, ...]:
    """Return kinds of layers with experts in every layer, or every N-th, but not in listed ones."""
    step, dense = keys.number("decoder_sparse_step", default=1), keys.numbers("mlp_only_layers") or ()
    sparse = [layer for layer in range(layers) if (layer + 1) % step == 0 and layer not in dense]
    return with_experts(sparse, layers)


def with_experts(sparse: Sequence[int], layers: int) -> tuple[LayerKind, ...]:
    """Return kinds of layers with experts in some of them."""
    kinds = tuple(LayerKind(part=EXPERTS) if layer in sparse else LayerKind() for layer in range(layers))
    return kinds[:1] if len(set(kinds)) == 1 else kinds


def llama(keys: ModelKeys, name: str) -> Model:
    """Return Llama, or a model with its layers: Mistral, Qwen; with experts, Mixtral."""
    kind, fields = keys.text("model_type"), common(keys, name)
    is_biased = keys.flag("attention_bias", default=kind == "qwen2")
    part = structs.replace(gated(keys, "intermediate_size"), has_bias=keys.flag("mlp_bias", default=False))
    experts = None
    if kind == "mixtral":
        experts = Experts(keys.number("num_local_experts"), keys.number("num_experts_per_tok"), part)
    return Model(
        **fields,
        attention=grouped_attention(
            keys,
            has_bias=is_biased,
            has_output_bias=is_biased and kind != "qwen2",
            query_norm="head" if kind == "qwen3" else "",
        ),
        feed_forward=part,
        experts=experts,
        windows=windows_of(keys, fields["layers"]),
    )


def qwen3_moe(keys: ModelKeys, name: str) -> Model:
    """Return Qwen 3 with experts: heads of their own size, norms of queries and keys."""
    fields = common(keys, name)
    is_biased = keys.flag("attention_bias", default=False)
    return Model(
        **fields,
        attention=grouped_attention(keys, has_bias=is_biased, has_output_bias=is_biased, query_norm="head"),
        feed_forward=gated(keys, "intermediate_size"),
        experts=Experts(
            keys.number("num_experts", "num_local_experts"),
            keys.number("num_experts_per_tok"),
            gated(keys, "moe_intermediate_size"),
        ),
        kinds=sparse_layers(keys, fields["layers"]),
        windows=windows_of(keys, fields["layers"]),
    )


def gpt_oss(keys: ModelKeys, name: str) -> Model:
    """Return GPT-OSS: biases, attention sinks, a window in every other layer, clipped SwiGLU."""
    fields = common(keys, name)
    is_biased = keys.flag("attention_bias", default=True)
    expert = structs.replace(
        gated(keys, "intermediate_size"), has_bias=True, operations=CLIPPED, is_clipped=True
    )
    windows = windows_of(keys, fields["layers"], pattern=2)
    return Model(
        **fields,
        attention=grouped_attention(keys, has_bias=is_biased, has_output_bias=is_biased, has_sinks=True),
        feed_forward=expert,
        experts=Experts(
            keys.number("num_local_experts"),
            keys.number("num_experts_per_tok", "experts_per_token"),
            expert,
            has_bias=True,
        ),
        windows=windows,
    )


def nemotron(keys: ModelKeys, name: str) -> Model:
    """Return Nemotron: norms with shifts, and two matrices with a squared ReLU between them."""
    has_bias = keys.flag("attention_bias", default=False)
    return Model(
        **common(keys, name),
        attention=grouped_attention(keys, has_bias=has_bias, has_output_bias=has_bias),
        feed_forward=FeedForward(
            keys.number("intermediate_size"),
            is_gated=False,
            has_bias=keys.flag("mlp_bias", default=False),
            operations=keys.activation("hidden_act"),
        ),
        norm_vectors=2,
    )


def glm4_moe(keys: ModelKeys, name: str) -> Model:
    """Return GLM-4.5: biases of queries, keys and values; experts with a router bias in later layers."""
    has_norm = keys.flag("use_qk_norm", default=False)
    return Model(
        **common(keys, name),
        attention=grouped_attention(
            keys,
            has_bias=keys.flag("attention_bias", default=False),
            query_norm="head" if has_norm else "",
        ),
        feed_forward=gated(keys, "intermediate_size"),
        experts=_with_shared(keys, has_bias=True),
        next_tokens=keys.number("num_nextn_predict_layers", default=0, least=0),
    )


def _with_shared(keys: ModelKeys, *, has_bias: bool) -> Experts:
    """Return experts from the keys of DeepSeek's files."""
    keys.refuse("moe_layer_freq", 1, "layers between those with experts")
    dense, layers = keys.number("first_k_dense_replace", least=0), keys.number("num_hidden_layers")
    usual = ["dense"] * dense + ["sparse"] * (layers - dense)
    keys.refuse("mlp_layer_types", usual, "layers without experts after those with experts")
    return Experts(
        keys.number("n_routed_experts"),
        keys.number("num_experts_per_tok"),
        gated(keys, "moe_intermediate_size"),
        shared=keys.number("n_shared_experts", least=0),
        dense_layers=dense,
        has_bias=has_bias,
        groups=(groups := keys.number("n_group", default=1)),
        chosen_groups=keys.number("topk_group", default=groups),
    )


def minimax_m2(keys: ModelKeys, name: str) -> Model:
    """Return MiniMax-M2: norms over all heads of queries and keys; experts with a router bias everywhere."""
    keys.refuse("attn_type_list", [1] * keys.number("num_hidden_layers"), "linear attention")
    keys.refuse("shared_intermediate_size", 0, "shared experts")
    norms = {"per_layer": "whole", "per_head": "head"}
    norm = keys.get("qk_norm_type") or "per_layer"
    if norm not in norms:
        raise keys.fault("qk_norm_type", norm, f"known: {', '.join(norms)}")
    expert, has_norm = gated(keys, "intermediate_size"), keys.flag("use_qk_norm", default=True)
    modules = keys.number("num_mtp_modules", default=0, least=0)
    is_predicting = keys.flag("use_mtp", default=modules > 0)
    layers_of_module = keys.number("mtp_transformer_layers", default=1, least=0)
    return Model(
        **common(keys, name),
        attention=grouped_attention(keys, query_norm=norms[norm] if has_norm else ""),
        feed_forward=expert,
        experts=Experts(
            keys.number("num_local_experts"), keys.number("num_experts_per_tok"), expert, has_bias=True
        ),
        next_tokens=modules * layers_of_module * is_predicting,
    )


def deepseek(keys: ModelKeys, name: str) -> Model:
    """Return DeepSeek: attention with compressed keys and values; experts, some of them shared."""
    heads = keys.number("num_attention_heads")
    keys.number("num_key_value_heads", default=heads)  # no effect with compressed keys
    is_compressed = keys.get("q_lora_rank") is not None or not keys.is_named("q_lora_rank")
    keys.refuse("attention_bias", False, "biases of compressed attention")
    latent = Latent(
        query_rank=keys.number("q_lora_rank") if is_compressed else 0,
        value_rank=keys.number("kv_lora_rank"),
        rotary_size=keys.number("qk_rope_head_dim"),
        value_size=keys.number("v_head_dim"),
    )
    size = keys.number("qk_nope_head_dim")
    keys.refuse("qk_head_dim", size + latent.rotary_size, "heads of another size than the sum of both parts")
    for redundant in ("head_dim", "q_head_dim"):
        keys.get(redundant)
    return Model(
        **common(keys, name),
        attention=Attention(heads, heads, size, latent=latent, index=_index(keys, latent)),
        feed_forward=gated(keys, "intermediate_size"),
        experts=_with_shared(keys, has_bias=_has_router_bias(keys)),
        next_tokens=keys.number("num_nextn_predict_layers", default=0, least=0),
    )


def _has_router_bias(keys: ModelKeys) -> bool:
    """Return whether scores of experts have a bias that is not trained; GLM's files do not state it."""
    return (keys.text("topk_method") or ("noaux_tc" if keys.text("model_type") == GLM_SPARSE else "")) == (
        "noaux_tc"
    )


def _index(keys: ModelKeys, latent: Latent) -> Index | None:
    """Return the index of sparse attention, in families that have one."""
    if keys.text("model_type") not in SPARSE:
        return None
    if not latent.query_rank:
        raise keys.fault("q_lora_rank", None, "add it: the index uses compressed queries")
    return Index(keys.number("index_n_heads"), keys.number("index_head_dim"), keys.number("index_topk"))


def gpt2(keys: ModelKeys, name: str) -> Model:
    """Return GPT-2, or GPT-3, which has the same layers."""
    hidden, heads = keys.number("n_embd", "hidden_size"), keys.number("n_head", "num_attention_heads")
    operations = keys.activation("activation_function")
    width = keys.number("n_inner", default=4 * hidden)
    return Model(
        **_with_learned_positions(keys, name, hidden, heads, keys.number("n_positions")),
        layers=keys.number("n_layer", "num_hidden_layers"),
        feed_forward=FeedForward(width, is_gated=False, has_bias=True, operations=operations),
        is_tied=keys.flag("tie_word_embeddings", default=True),
        has_dropout=keys.drops("resid_pdrop", "embd_pdrop"),
    )


def bert(keys: ModelKeys, name: str) -> Model:
    """Return BERT, an encoder."""
    hidden, heads = keys.number("hidden_size"), keys.number("num_attention_heads")
    operations = keys.activation("hidden_act")
    return Model(
        **_with_learned_positions(keys, name, hidden, heads, keys.number("max_position_embeddings")),
        layers=keys.number("num_hidden_layers"),
        feed_forward=FeedForward(
            keys.number("intermediate_size"), is_gated=False, has_bias=True, operations=operations
        ),
        is_tied=True,
        is_encoder=True,
        token_types=keys.number("type_vocab_size", default=2),
        has_pooler=True,
        has_dropout=keys.drops("hidden_dropout_prob"),
    )


def _with_learned_positions(
    keys: ModelKeys, name: str, hidden: int, heads: int, positions: int
) -> dict[str, Any]:
    """Return fields of models with a vector for every position and biases in every layer."""
    attention = Attention(heads, heads, head_size(keys, hidden, heads), has_bias=True, has_output_bias=True)
    return {
        "name": name,
        "source": keys.text("source"),
        "vocabulary": keys.number("vocab_size"),
        "hidden": hidden,
        "sequence": positions,
        "attention": attention,
        "positions": positions,
        "norm_vectors": 2,
    }
