"""A model from a `config.json`, in the form in which checkpoints are published on Hugging Face.

Keys that say nothing about dimensions are left alone, since such files have many of them; what is needed and
missing is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from et_sim.basics.errors import UsageError, brief, did_you_mean
from et_sim.workloads import models
from et_sim.workloads.models.model import Attention, Experts, FeedForward, Latent, Model

PRESETS = Path(__file__).parent / "presets"
MOST = 10**9


class _Keys(Struct, frozen=True):
    """The keys of one file."""

    content: Mapping[str, Any]
    place: str

    def number(self, *names: str, default: int | None = None, least: int = 1) -> int:
        """The first key that is there."""
        name = next((spelling for spelling in names if self.content.get(spelling) is not None), None)
        if name is None:
            if default is None:
                raise UsageError(f'key "{names[0]}" is missing', place=self.place, remedy="add it, a number")
            return default
        value = self.content[name]
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= MOST:
            raise UsageError(
                f'key "{name}" is {value!r}', place=self.place, remedy=f"give a whole number from {least} up"
            )
        return value

    def flag(self, name: str, *, default: bool) -> bool:
        """A truth value."""
        value = self.content.get(name, default)
        if not isinstance(value, bool):
            raise UsageError(f'key "{name}" is {value!r}', place=self.place, remedy="give true or false")
        return value

    def text(self, name: str) -> str:
        """A word."""
        value = self.content.get(name, "")
        if not isinstance(value, str):
            raise UsageError(f'key "{name}" is {value!r}', place=self.place, remedy="give a text")
        return value


_SLIDING, _FULL = "sliding_attention", "full_attention"


def _windows(keys: _Keys, layers: int) -> tuple[int, ...]:
    """What each layer's attention sees, as Mistral, Qwen and Gemma say it."""
    is_given = keys.content.get("sliding_window") is not None
    is_said = is_given or "use_sliding_window" in keys.content
    if not is_said and _SLIDING in (_layer_types(keys, layers) or ()):
        raise UsageError(
            f'key "layer_types" has {_SLIDING}, and "sliding_window" is missing',
            place=keys.place,
            remedy="add it, a number of tokens",
        )
    if not is_given or not _uses_windows(keys):
        return ()
    window, types = keys.number("sliding_window"), _layer_types(keys, layers)
    if types is not None:
        return tuple(window if layer_type == _SLIDING else 0 for layer_type in types)
    if keys.content.get("max_window_layers") is not None:
        first = keys.number("max_window_layers", least=0)
        return tuple(window if layer >= first else 0 for layer in range(layers))
    if keys.content.get("sliding_window_pattern") is not None:
        return (*(window,) * (keys.number("sliding_window_pattern") - 1), 0)
    return (window,)


def _uses_windows(keys: _Keys) -> bool:
    """Qwen 2 alone does not unless its file says so."""
    return keys.flag("use_sliding_window", default=keys.text("model_type") != "qwen2")


def _layer_types(keys: _Keys, layers: int) -> list[str] | None:
    types = keys.content.get("layer_types")
    if types is None:
        return None
    if not isinstance(types, list) or len(types) != layers:
        raise UsageError(
            f'key "layer_types" is no list of {layers} words', place=keys.place, remedy="name each layer's"
        )
    if unknown := next((layer_type for layer_type in types if layer_type not in (_SLIDING, _FULL)), None):
        raise UsageError(
            f'key "layer_types" has {brief(repr(unknown))}',
            place=keys.place,
            remedy=f"known: {_SLIDING}, {_FULL}",
        )
    return types


def _refuse_windows(keys: _Keys) -> None:
    if keys.content.get("sliding_window") is not None and _uses_windows(keys):
        raise UsageError(
            f'key "sliding_window" is given, and {keys.text("model_type")} has none',
            place=keys.place,
            remedy="leave it out",
        )


def preset_names() -> tuple[str, ...]:
    """The models whose dimensions come with et-sim."""
    return models.preset_names(PRESETS)


def read_model(name: str) -> Model:
    """A preset by its name, or the model that a file describes."""
    stem, path, content = models.content_of(PRESETS, name, "config.json")
    return model_of(content, str(path), stem)


def model_of(content: Any, place: str, name: str) -> Model:
    """The model that the content of a file describes."""
    if not isinstance(content, Mapping):
        raise UsageError("is no JSON object", place=place, remedy="give a model's config.json")
    keys = _Keys(content, place)
    kind = keys.text("model_type")
    if kind not in _FORMS:
        remedy = did_you_mean(kind, tuple(_FORMS)) or f"known: {', '.join(_FORMS)}"
        cause = f'key "model_type" is {kind!r}' if kind else 'key "model_type" is missing'
        raise UsageError(cause, place=place, remedy=remedy)
    if _FORMS[kind] is not _llama:
        _refuse_windows(keys)
    model = _FORMS[kind](keys, keys.text("name") or name)
    _check(model, place)
    return model


def _check(model: Model, place: str) -> None:
    attention, experts = model.attention, model.experts
    if attention.heads % attention.key_heads:
        raise UsageError(
            f"{attention.heads} heads cannot share {attention.key_heads} heads of keys and values evenly",
            place=place,
            remedy="num_attention_heads must be a multiple of num_key_value_heads",
        )
    if experts is not None and experts.chosen > experts.count:
        raise UsageError(
            f"a token takes {experts.chosen} of {experts.count} experts",
            place=place,
            remedy="num_experts_per_tok is at most the number of experts",
        )
    if experts is not None:
        _check_groups(experts, place)


def _check_groups(experts: Experts, place: str) -> None:
    groups, chosen = experts.groups, experts.chosen_groups
    if experts.count % groups or not chosen <= groups or chosen * experts.count // groups < experts.chosen:
        raise UsageError(
            f"a token takes {experts.chosen} experts of {chosen} of {groups} groups, which share"
            f" {experts.count} experts",
            place=place,
            remedy="n_group divides n_routed_experts, and topk_group of these have enough experts",
        )


def _head_size(keys: _Keys, hidden: int, heads: int) -> int:
    if keys.content.get("head_dim") is None and hidden % heads:
        raise UsageError(
            f"a width of {hidden} is not divided by {heads} heads", place=keys.place, remedy='add "head_dim"'
        )
    return keys.number("head_dim", default=hidden // heads)


def _common(keys: _Keys, name: str) -> dict[str, Any]:
    """What all files call the same."""
    return {"name": name, "source": keys.text("source"), "vocabulary": keys.number("vocab_size")}


def _llama(keys: _Keys, name: str) -> Model:
    """Llama, and what has its layers: Mistral, Qwen; with experts, Mixtral."""
    hidden, heads = keys.number("hidden_size"), keys.number("num_attention_heads")
    is_biased = keys.flag("attention_bias", default=keys.text("model_type") == "qwen2")
    width = keys.number("intermediate_size")
    experts = None
    if keys.text("model_type") == "mixtral":
        experts = Experts(
            keys.number("num_local_experts"),
            keys.number("num_experts_per_tok"),
            FeedForward(width, is_gated=True),
        )
    layers = keys.number("num_hidden_layers")
    return Model(
        **_common(keys, name),
        hidden=hidden,
        layers=layers,
        sequence=keys.number("max_position_embeddings"),
        attention=Attention(
            heads,
            keys.number("num_key_value_heads", default=heads),
            _head_size(keys, hidden, heads),
            has_bias=is_biased,
            has_output_bias=is_biased and keys.text("model_type") != "qwen2",
        ),
        feed_forward=FeedForward(width, is_gated=True),
        experts=experts,
        is_tied=keys.flag("tie_word_embeddings", default=False),
        windows=_windows(keys, layers),
    )


def _gpt2(keys: _Keys, name: str) -> Model:
    """GPT-2, and GPT-3, which has the same layers."""
    hidden, heads = keys.number("n_embd", "hidden_size"), keys.number("n_head", "num_attention_heads")
    return Model(
        **_with_learned_positions(keys, name, hidden, heads, keys.number("n_positions")),
        layers=keys.number("n_layer", "num_hidden_layers"),
        feed_forward=FeedForward(keys.number("n_inner", default=4 * hidden), is_gated=False, has_bias=True),
        is_tied=keys.flag("tie_word_embeddings", default=True),
    )


def _bert(keys: _Keys, name: str) -> Model:
    """An encoder."""
    hidden, heads = keys.number("hidden_size"), keys.number("num_attention_heads")
    return Model(
        **_with_learned_positions(keys, name, hidden, heads, keys.number("max_position_embeddings")),
        layers=keys.number("num_hidden_layers"),
        feed_forward=FeedForward(keys.number("intermediate_size"), is_gated=False, has_bias=True),
        is_tied=True,
        is_encoder=True,
        token_types=keys.number("type_vocab_size", default=2),
        has_pooler=True,
    )


def _with_learned_positions(
    keys: _Keys, name: str, hidden: int, heads: int, positions: int
) -> dict[str, Any]:
    """What models have in common in which every position has a vector, and every layer biases and dropout."""
    attention = Attention(heads, heads, _head_size(keys, hidden, heads), has_bias=True, has_output_bias=True)
    return {
        **_common(keys, name),
        "hidden": hidden,
        "sequence": positions,
        "attention": attention,
        "positions": positions,
        "norm_vectors": 2,
        "has_dropout": True,
    }


def _deepseek(keys: _Keys, name: str) -> Model:
    """Attention with compressed keys and values; experts, some of which all tokens take."""
    heads = keys.number("num_attention_heads")
    is_compressed = keys.content.get("q_lora_rank", 0) is not None  # null: queries are not
    latent = Latent(
        query_rank=keys.number("q_lora_rank") if is_compressed else 0,
        value_rank=keys.number("kv_lora_rank"),
        rotary_size=keys.number("qk_rope_head_dim"),
        value_size=keys.number("v_head_dim"),
    )
    return Model(
        **_common(keys, name),
        hidden=keys.number("hidden_size"),
        layers=keys.number("num_hidden_layers"),
        sequence=keys.number("max_position_embeddings"),
        attention=Attention(heads, heads, keys.number("qk_nope_head_dim"), latent=latent),
        feed_forward=FeedForward(keys.number("intermediate_size"), is_gated=True),
        experts=Experts(
            keys.number("n_routed_experts"),
            keys.number("num_experts_per_tok"),
            FeedForward(keys.number("moe_intermediate_size"), is_gated=True),
            shared=keys.number("n_shared_experts", least=0),
            dense_layers=keys.number("first_k_dense_replace", least=0),
            has_bias=keys.text("topk_method") == "noaux_tc",
            groups=(groups := keys.number("n_group", default=1)),
            chosen_groups=keys.number("topk_group", default=groups),
        ),
        is_tied=keys.flag("tie_word_embeddings", default=False),
    )


_FORMS: Mapping[str, Callable[[_Keys, str], Model]] = {
    "gpt2": _gpt2,
    "llama": _llama,
    "mistral": _llama,
    "qwen2": _llama,
    "mixtral": _llama,
    "bert": _bert,
    "deepseek_v2": _deepseek,
    "deepseek_v3": _deepseek,
}
