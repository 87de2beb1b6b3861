"""Vision towers from `config.json`: weights as published, operations in closed form, and bad files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace
from test_model_families import tower as llama4_weights

from et_sim.basics.errors import UsageError
from et_sim.serving.images import Images
from et_sim.workloads import Plan, make_inference, read_model
from et_sim.workloads.models.model import VisionTower
from et_sim.workloads.models.vision import read_tower

SIGLIP = {
    "hidden_size": 1152,
    "image_size": 896,
    "intermediate_size": 4304,
    "num_attention_heads": 16,
    "num_hidden_layers": 27,
    "patch_size": 14,
}
LLAMA = {
    "hidden_size": 1408,
    "image_size": 336,
    "intermediate_size": 5632,
    "num_attention_heads": 16,
    "num_hidden_layers": 34,
    "patch_size": 14,
    "pixel_shuffle_ratio": 0.5,
    "projector_input_dim": 4096,
    "projector_output_dim": 4096,
    "vision_output_dim": 4096,
}
QWEN = {
    "depth": 27,
    "hidden_size": 1152,
    "in_channels": 3,
    "intermediate_size": 4304,
    "num_heads": 16,
    "num_position_embeddings": 2304,
    "out_hidden_size": 5120,
    "patch_size": 16,
    "spatial_merge_size": 2,
    "temporal_patch_size": 2,
}


def read(folder: Path, kind: str, hidden: int, vision: dict[str, Any], **keys: Any) -> VisionTower:
    content = {"model_type": kind, "text_config": {"hidden_size": hidden}, "vision_config": vision, **keys}
    path = folder / "config.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    return read_tower(str(path))


@pytest.mark.parametrize(
    ("name", "checkpoint"),
    [("gemma3-4b", 4_300_079_472), ("gemma3-12b", 12_187_325_040), ("gemma3-27b", 27_432_406_640)],
)
def test_checkpoints_of_gemma_are_the_language_model_and_the_tower(
    name: str, checkpoint: int, tmp_path: Path
) -> None:
    """Compare with the number of parameters on the checkpoints' pages."""
    text = read_model(name)
    found = read(tmp_path, "gemma3", text.hidden, SIGLIP)
    assert text.weights + found.weights + found.joining_weights == checkpoint


@pytest.mark.parametrize(
    ("preset", "kind", "vision"),
    [
        *((name, "gemma3", SIGLIP) for name in ("gemma3-4b", "gemma3-12b", "gemma3-27b")),
        *((name, "llama4", LLAMA) for name in ("llama4-scout", "llama4-maverick")),
        ("qwen3.5-27b", "qwen3_5", QWEN),
        ("qwen3.5-35b-a3b", "qwen3_5_moe", {**QWEN, "out_hidden_size": 2048}),
    ],
)
def test_presets_have_their_towers_and_no_remarks(
    preset: str, kind: str, vision: dict[str, Any], tmp_path: Path
) -> None:
    found, text = read_tower(preset), read_model(preset)
    named = {"name": found.name, "source": found.source}
    of_file = read(tmp_path, kind, text.hidden, vision)
    if kind != "gemma3":  # the files name the activation function of the others
        named["feed_forward"] = found.feed_forward
    assert replace(of_file, **named) == found
    assert found.remarks == text.remarks == ()
    assert found.name == f"the vision tower of {preset}"


def test_keys_that_a_tower_does_not_use_give_a_remark(tmp_path: Path) -> None:
    found = read(tmp_path, "gemma3", 2560, {**SIGLIP, "window_size": 112, "layer_norm_eps": 1e-6})
    assert found.remarks == (
        f'{tmp_path / "config.json"}, vision_config: the key "window_size": unknown, and not simulated',
    )


def test_weights_of_the_tower_of_llama_4_are_those_of_its_checkpoint(tmp_path: Path) -> None:
    found = read(tmp_path, "llama4", 5120, LLAMA)
    assert found.weights + found.joining_weights == llama4_weights()


@pytest.mark.parametrize(
    ("kind", "hidden", "vision", "tokens", "images", "seen"),
    [
        ("gemma3", 2560, SIGLIP, 512, 2, 4096),
        ("llama4", 5120, LLAMA, 432, 3, 577),
        ("qwen3_5", 5120, QWEN, 300, 1, 1200),
    ],
)
def test_each_patch_sees_all_of_its_image(
    kind: str, hidden: int, vision: dict[str, Any], tokens: int, images: int, seen: int, tmp_path: Path
) -> None:
    found = read(tmp_path, kind, hidden, vision)
    batch = Images(tokens, found).batch(2)
    assert (batch.prefill.segments, batch.tokens) == (2 * images, 2 * images * seen)
    trace = make_inference(found, Plan(), [batch]).trace(0)
    operations = np.asarray(trace.num_ops)
    names = np.array(trace.names)[np.asarray(trace.name)]
    attention = operations[[name.endswith("attention") for name in names]]
    assert attention.tolist() == [2 * 2 * 2 * images * seen**2 * found.hidden] * found.layers
    assert not any("causal" in trace.layer_shapes[row] for row in trace.layer_shape.tolist())
    projected = operations[["projection" in name for name in names]].sum()
    assert projected == sum(2 * 2 * tokens * inner * outer for inner, outer in found.projections)
    patches = operations[["patch embedding" in name for name in names]].sum()
    assert patches == 2 * 2 * images * seen * found.patch_values * found.hidden
    assert trace.names.count("scores all-gather") == 0


@pytest.mark.parametrize(
    ("kind", "change", "message"),
    [
        ("gemma3", {"patch_size": 15}, '"image_size" is 896 (give a multiple of the patch_size, 15)'),
        ("gemma3", {"hidden_size": None}, '"hidden_size" is missing'),
        ("llama4", {"pixel_shuffle_ratio": 0.3}, "give the reciprocal of a whole number"),
        ("gemma3", {"vision_use_head": True}, "a layer that joins all patches is not simulated"),
        ("llama4", {"vision_feature_layer": -2}, "outputs of inner layers are not simulated"),
        ("llama4", {"multi_modal_projector_bias": True}, "the last product has no bias"),
        ("llama4", {"vision_output_dim": 9}, "give the projector_output_dim, 4096"),
        ("qwen3_5", {"deepstack_visual_indexes": [8]}, "outputs of inner layers are not simulated"),
        ("qwen3_5", {"out_hidden_size": 9}, "give the hidden_size of the language model, 5120"),
        ("llama", {}, "the vision tower of a model of \"model_type\" 'llama' is not simulated"),
    ],
)
def test_towers_that_cannot_be_are_refused(
    kind: str, change: dict[str, Any], message: str, tmp_path: Path
) -> None:
    base = {"llama4": LLAMA, "qwen3_5": QWEN}.get(kind, SIGLIP)
    with pytest.raises(UsageError) as error:
        read(tmp_path, kind, 5120, {**base, **change})
    assert message in str(error.value)


def test_a_model_without_a_tower_takes_no_images() -> None:
    with pytest.raises(UsageError, match="it takes no images"):
        read_tower("llama3-8b")


@pytest.mark.parametrize(("tokens", "message"), [(0, "is 0"), (300, "such as 256"), (1000, "such as 1024")])
def test_tokens_that_are_no_images_are_refused(tokens: int, message: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=message):
        Images(tokens, read(tmp_path, "gemma3", 2560, SIGLIP))
