"""A model from a `config.json`, in the form in which checkpoints are published on Hugging Face.

`model_type` determines the keys of the file and their meaning (`families`, `mixed`). A language model within
a larger file is the object "text_config". A missing key is an error; an unknown key becomes a remark on the
model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from et_sim.basics.errors import InputError, UsageError, did_you_mean
from et_sim.basics.files import is_file
from et_sim.documents.reading import parse_json
from et_sim.workloads import models
from et_sim.workloads.models import families, mixed
from et_sim.workloads.models.keys import VISION, ModelKeys
from et_sim.workloads.models.model import Experts, Model
from et_sim.workloads.models.quantization import BESIDE, IN_FILE, stored_numbers
from et_sim.workloads.models.windows import refuse_windows

PRESETS = Path(__file__).parent / "presets"
LONG_SEQUENCE = 32_768  # tokens; few train with longer ones


def preset_names() -> tuple[str, ...]:
    """Return the names of the models that come with et-sim."""
    return models.preset_names(PRESETS)


def read_model(name: str) -> Model:
    """Return a preset by its name, or the model that a file describes."""
    stem, path, content = models.content_of(PRESETS, name, "config.json")
    beside = path.with_name(f"{BESIDE}.json")
    if isinstance(content, dict) and IN_FILE not in content and is_file(beside):
        content[BESIDE] = parse_json(beside.read_text("utf-8-sig"), str(beside), InputError)
    if path.parent == PRESETS and isinstance(content, dict):
        content = {key: value for key, value in content.items() if key != VISION}
    return model_of(content, str(path), stem)


def model_of(content: Any, place: str, name: str) -> Model:
    """Return the model that the content of a file describes."""
    if not isinstance(content, Mapping):
        raise UsageError("is no JSON object", place=place, remedy="give a model's config.json")
    keys = ModelKeys(content, place)
    kind, name = keys.text("model_type"), keys.text("name") or name
    if kind not in _FORMS:
        remedy = did_you_mean(kind, tuple(_FORMS)) or f"known: {', '.join(_FORMS)}"
        cause = f'key "model_type" is {kind!r}' if kind else 'key "model_type" is missing'
        raise UsageError(cause, place=place, remedy=remedy)
    inner = keys
    if kind in _WITH_TEXT or (kind in _MAY_HAVE_TEXT and keys.is_named("text_config")):
        inner = keys.inner("text_config")
        inner.text("model_type")
        for shared in ("source", "tie_word_embeddings"):
            if keys.is_named(shared) and not inner.is_named(shared):
                inner = ModelKeys({**inner.content, shared: content[shared]}, inner.place, inner.used)
    if kind not in _WITH_WINDOWS:
        refuse_windows(inner)
    model = _FORMS[kind](inner, name)
    _check(model, place)
    holder = inner if inner.content.get(IN_FILE) is not None else keys
    stored = stored_numbers(holder, model.layers)
    model = replace(model, formats=stored.formats, cache_type=stored.cache)
    remarks = (*keys.remarks(), *(inner.remarks() if inner is not keys else ()))
    return replace(model, remarks=remarks)


def remark_on_sequence(model: Model) -> str | None:
    """Return a remark if training takes a long sequence length from the file."""
    if model.sequence <= LONG_SEQUENCE:
        return None
    return (
        f"{model.name}: sequences of {model.sequence:,} tokens, the longest that its file allows;"
        " --sequence sets another length"
    )


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
    states = model.recurrence
    if states is not None and states.heads % states.key_heads:
        raise UsageError(
            f"{states.heads} heads of states cannot share {states.key_heads} heads of keys evenly",
            place=place,
            remedy="the number of heads must be a multiple of that of keys, or groups",
        )


def _check_groups(experts: Experts, place: str) -> None:
    groups, chosen = experts.groups, experts.chosen_groups
    if experts.count % groups or not chosen <= groups or chosen * experts.count // groups < experts.chosen:
        raise UsageError(
            f"a token takes {experts.chosen} experts of {chosen} of {groups} groups, which share"
            f" {experts.count} experts",
            place=place,
            remedy="n_group divides n_routed_experts; topk_group groups have enough experts for a token",
        )


_FORMS: Mapping[str, Callable[[ModelKeys, str], Model]] = {
    "gpt2": families.gpt2,
    "llama": families.llama,
    "mistral": families.llama,
    "qwen2": families.llama,
    "qwen3": families.llama,
    "mixtral": families.llama,
    "qwen3_moe": families.qwen3_moe,
    "gpt_oss": families.gpt_oss,
    "nemotron": families.nemotron,
    "glm4_moe": families.glm4_moe,
    "minimax_m2": families.minimax_m2,
    "bert": families.bert,
    "deepseek_v2": families.deepseek,
    "deepseek_v3": families.deepseek,
    "kimi_k2": families.deepseek,
    "kimi_k25": families.deepseek,
    "deepseek_v32": families.deepseek,
    "glm_moe_dsa": families.deepseek,
    "llama4": mixed.llama4,
    "llama4_text": mixed.llama4,
    "gemma3": mixed.gemma3,
    "gemma3_text": mixed.gemma3,
    "qwen3_next": mixed.qwen3_next,
    **dict.fromkeys(("qwen3_5", "qwen3_5_text", "qwen3_5_moe", "qwen3_5_moe_text"), mixed.qwen3_next),
    "nemotron_h": mixed.nemotron_h,
    **dict.fromkeys(("bamba", "granitemoehybrid"), mixed.mamba_hybrid),
}
_WITH_TEXT = ("llama4", "gemma3", "kimi_k25")  # the language model is an object within the file
_MAY_HAVE_TEXT = ("qwen3_5", "qwen3_5_moe")  # likewise in some files
_WITH_WINDOWS = (
    "llama",
    "mistral",
    "qwen2",
    "qwen3",
    "mixtral",
    "qwen3_moe",
    "gpt_oss",
    "gemma3",
    "gemma3_text",
)
