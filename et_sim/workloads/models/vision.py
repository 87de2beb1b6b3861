"""Vision towers of `config.json`: the object "vision_config", and how its patches become tokens.

A tower is a transformer over the patches of an image, each of which sees all of them. Some neighbouring
patches become a token of the language model, by one product or several.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from msgspec.structs import replace

from et_sim.basics.errors import UsageError
from et_sim.workloads import models
from et_sim.workloads.models.configuration import PRESETS
from et_sim.workloads.models.keys import ACTIVATIONS, MOST, VISION, ModelKeys
from et_sim.workloads.models.model import Attention, FeedForward, VisionTower

INNER = "outputs of inner layers are not simulated"
GELU = ACTIVATIONS["gelu"]  # of towers whose file names no activation function


def read_tower(name: str) -> VisionTower:
    """Return the vision tower of the model that a file describes."""
    stem, path, content = models.content_of(PRESETS, name, "config.json")
    keys = ModelKeys(content if isinstance(content, Mapping) else {}, str(path))
    kind = keys.text("model_type")
    if not keys.is_named(VISION):
        raise UsageError(
            f'{stem} has no "{VISION}", so it takes no images',
            place=str(path),
            remedy="give the config.json of a model that does, or leave out --image-tokens",
        )
    if kind not in _FORMS:
        raise UsageError(
            f'the vision tower of a model of "model_type" {kind!r} is not simulated',
            place=str(path),
            remedy=f"known: {', '.join(_FORMS)}",
        )
    vision = keys.inner(VISION)
    vision.text("model_type")
    tower = _FORMS[kind](keys, vision, f"the vision tower of {stem}")
    return replace(tower, remarks=vision.remarks())


def _tower(keys: ModelKeys, name: str, layers: int, heads: int, patch: int, **more: Any) -> VisionTower:
    hidden = keys.number("hidden_size")
    if hidden % heads:
        raise keys.fault("hidden_size", hidden, f"give a multiple of the {heads} heads")
    width = keys.number("intermediate_size")
    operations = keys.activation("hidden_act") if keys.get("hidden_act") is not None else GELU
    size = hidden // heads
    return VisionTower(
        name=name,
        source=keys.place,
        hidden=hidden,
        layers=layers,
        vocabulary=0,
        attention=Attention(heads, heads, size, has_bias=True, has_output_bias=True),
        feed_forward=FeedForward(width, is_gated=False, has_bias=True, operations=operations),
        norm_vectors=2,
        patch_values=keys.number("num_channels", "in_channels", default=3) * patch**2,
        **more,
    )


def _text(keys: ModelKeys) -> ModelKeys:
    """Return the keys of the language model."""
    return keys.inner("text_config") if keys.is_named("text_config") else keys


def _grid(keys: ModelKeys) -> tuple[int, int]:
    """Return the size of a patch, and the patches of an image."""
    image, patch = keys.number("image_size"), keys.number("patch_size")
    if image % patch:
        raise keys.fault("image_size", image, f"give a multiple of the patch_size, {patch}")
    return patch, (image // patch) ** 2


def _gemma3(keys: ModelKeys, vision: ModelKeys, name: str) -> VisionTower:
    """Return SigLIP, whose patches are averaged before the projection."""
    patch, patches = _grid(vision)
    tokens = keys.number("mm_tokens_per_image", default=256)
    if patches % tokens:
        raise keys.fault(
            "mm_tokens_per_image", tokens, f"give a divisor of the {patches} patches of an image"
        )
    vision.refuse("vision_use_head", False, "a layer that joins all patches is not simulated")
    layers, heads = vision.number("num_hidden_layers"), vision.number("num_attention_heads")
    hidden = _text(keys).number("hidden_size")
    ends = {"positions": patches, "sequence": patches, "image_patches": patches, "patches": patches // tokens}
    width = vision.number("hidden_size")
    return _tower(
        vision, name, layers, heads, patch, **ends, projections=((width, hidden),), other_weights=2 * width
    )


def _llama4(keys: ModelKeys, vision: ModelKeys, name: str) -> VisionTower:
    """Return the tower of Llama 4: tiles with a token of their own, and three products for each token."""
    patch, patches = _grid(vision)
    ratio = vision.get("pixel_shuffle_ratio")
    if not isinstance(ratio, float) or not 0 < ratio <= 1 or (1 / ratio) % 1:
        raise vision.fault("pixel_shuffle_ratio", ratio, "give the reciprocal of a whole number, as in 0.5")
    vision.refuse("multi_modal_projector_bias", False, "the last product has no bias")
    vision.refuse("vision_feature_layer", -1, INNER)
    vision.refuse("vision_feature_select_strategy", "default", "the token of a tile itself is left out")
    joined = round(1 / ratio) ** 2
    if patches % joined:
        raise vision.fault("pixel_shuffle_ratio", ratio, f"{patches} patches are no multiple of {joined}")
    width, inner = vision.number("hidden_size"), vision.number("projector_input_dim")
    outer, seen = vision.number("projector_output_dim"), vision.number("vision_output_dim")
    if seen != outer:
        raise vision.fault("vision_output_dim", seen, f"give the projector_output_dim, {outer}")
    hidden = _text(keys).number("hidden_size")
    ends = {"positions": patches + 1, "sequence": patches + 1, "image_patches": patches, "patches": joined}
    return _tower(
        vision,
        name,
        vision.number("num_hidden_layers"),
        vision.number("num_attention_heads"),
        patch,
        **ends,
        own_tokens=1,
        token_types=1,
        projections=((joined * width, inner), (inner, outer), (outer, hidden)),
        other_weights=2 * width,
    )


def _qwen(keys: ModelKeys, vision: ModelKeys, name: str) -> VisionTower:
    """Return the tower of Qwen 3.5, whose images have any size; a patch is of two frames."""
    if vision.numbers("deepstack_visual_indexes"):
        value = vision.get("deepstack_visual_indexes")
        raise vision.fault("deepstack_visual_indexes", value, INNER)
    width, joined = vision.number("hidden_size"), vision.number("spatial_merge_size") ** 2
    frames, positions = vision.number("temporal_patch_size"), vision.number("num_position_embeddings")
    hidden = _text(keys).number("hidden_size")
    if (outer := vision.number("out_hidden_size")) != hidden:
        raise vision.fault("out_hidden_size", outer, f"give the hidden_size of the language model, {hidden}")
    found = _tower(
        vision,
        name,
        vision.number("depth"),
        vision.number("num_heads"),
        vision.number("patch_size"),
        positions=positions,
        sequence=MOST,
        patches=joined,
        projections=((joined * width, joined * width), (joined * width, hidden)),
        other_weights=width + joined * width + hidden,
    )
    return replace(found, patch_values=found.patch_values * frames)


_FORMS: Mapping[str, Callable[[ModelKeys, ModelKeys, str], VisionTower]] = {
    "gemma3": _gemma3,
    "gemma3_text": _gemma3,
    "llama4": _llama4,
    "llama4_text": _llama4,
    "qwen3_5": _qwen,
    "qwen3_5_text": _qwen,
    "qwen3_5_moe": _qwen,
    "qwen3_5_moe_text": _qwen,
}
