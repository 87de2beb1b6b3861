"""Numbers of inference: files state them, options replace them; bytes of weights, products and caches."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from caches import cache_bytes_of_stage
from training_jobs import decoder, rows_named, with_experts, with_latent_attention

from et_sim.basics.errors import UsageError
from et_sim.basics.kernel_names import BLOCK_SCALES, NARROW_WEIGHTS
from et_sim.trace import Trace
from et_sim.workloads import Batch, Model, Plan, Segment, make_inference
from et_sim.workloads.inference.memory import matrices, weight_bytes_of_stage
from et_sim.workloads.inference.numbers import check_cache_type
from et_sim.workloads.models.configuration import model_of, read_model
from et_sim.workloads.models.formats import FORMATS, FP8_BLOCK, INT4, MXFP4, NVFP4, WeightFormat
from et_sim.workloads.models.quantization import is_named

SMALL: dict[str, Any] = {
    "model_type": "qwen3_moe",
    "hidden_size": 512,
    "num_hidden_layers": 2,
    "vocab_size": 1024,
    "max_position_embeddings": 4096,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "intermediate_size": 1024,
    "moe_intermediate_size": 256,
    "num_experts": 8,
    "num_experts_per_tok": 2,
}


def small(**more: Any) -> Model:
    return model_of({**SMALL, **more}, "config.json", "small")


def one_pass(model: Model, plan: Plan, *segments: Segment) -> Trace:
    return make_inference(model, plan, [Batch.of(segments)]).templates[0]


@pytest.mark.parametrize(
    ("form", "size"),
    [
        (FORMATS["fp8"], 1024 * 512 + 4),
        (FP8_BLOCK, 1024 * 512 + 8 * 4 * 4),
        (NVFP4, 1024 * 512 // 2 + 1024 * 512 // 16),
        (MXFP4, 1024 * 512 // 2 + 1024 * 512 // 32),
        (INT4, 1024 * 512 // 2 + 1024 * 512 // 128 * 2),
        (WeightFormat(4, (1, 32), 20), 1024 * 512 // 2 + 1024 * 512 // 32 * 20 // 8),
        (WeightFormat(8, (1, 0)), 1024 * 512 + 1024 * 4),
    ],
)
def test_a_matrix_takes_its_numbers_and_its_scales(form: WeightFormat, size: int) -> None:
    assert form.bytes(1024, 512) == size


def of_group(inputs: Any) -> dict[str, Any]:
    """Return a group of all modules in 8 bits, whose inputs are as stated."""
    group = {"targets": ["Linear"], "weights": {"num_bits": 8, "type": "float"}, "input_activations": inputs}
    return {"quant_method": "compressed-tensors", "config_groups": {"group_0": group}}


STATED: list[tuple[dict[str, Any], WeightFormat, str]] = [
    ({"quant_method": "fp8", "weight_block_size": [128, 128]}, FP8_BLOCK, ""),
    ({"quant_method": "fp8", "activation_scheme": "static"}, FORMATS["fp8"], ""),
    ({"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn"]}, MXFP4, ""),
    (
        {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True},
        WeightFormat(4, (1, 128), 20),
        "",
    ),
    ({"quant_method": "gptq", "bits": 4, "group_size": 64, "sym": True}, WeightFormat(4, (1, 64), 16), ""),
    ({"quant_method": "modelopt", "quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8"}, NVFP4, "fp8"),
    (
        {
            "quant_method": "compressed-tensors",
            "config_groups": {
                "group_0": {
                    "targets": ["Linear"],
                    "weights": {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32},
                    "input_activations": None,
                }
            },
            "ignore": ["lm_head", "re:.*self_attn.*", "re:.*shared_experts.*"],
            "kv_cache_scheme": None,
        },
        WeightFormat(4, (1, 32), 16),
        "",
    ),
    *(
        (of_group(inputs), WeightFormat(8, (0, 0), computes=computes), "")
        for inputs, computes in (
            ({"num_bits": 8}, "fp8"),
            ({"num_bits": None}, "fp8"),
            ({"num_bits": 9}, ""),
            (None, ""),
        )
    ),
]


@pytest.mark.parametrize(("stated", "form", "cache"), STATED)
def test_a_file_states_the_format_of_weights_and_the_type_of_the_cache(
    stated: dict[str, Any], form: WeightFormat, cache: str
) -> None:
    model = small(quantization_config=stated)
    assert model.formats_of(1).of("experts down") == form
    assert model.cache_type == cache
    attention_is_kept = "self_attn" in json.dumps(stated)
    assert model.formats_of(0).of("qkv") == (None if attention_is_kept else form)
    assert model.remarks == ()


def test_modules_keep_values_layer_by_layer() -> None:
    excluded = ["model.layers.0.self_attn.q_proj", "lm_head", "model.layers.1.mlp.gate"]
    model = small(quantization_config={"quant_method": "fp8", "modules_to_not_convert": excluded})
    first, second = model.formats
    assert first.of("qkv") is None
    assert second.of("qkv") == first.of("attention output") == second.of("experts up") == FORMATS["fp8"]
    kept = 512 * (8 + 2 * 4) * 64
    plain, stated = (weight_bytes_of_stage(one, Plan(), 0) for one in (small(), model))
    products = sum(matrix.weights for layer in (0, 1) for matrix in matrices(model, Plan(), layer))
    scales = 4 * (1 + 2 * (1 + 2 * 8))
    assert plain - stated == products - kept - scales


def test_a_file_beside_states_numbers(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(SMALL))
    stated = {
        "quantization": {"quant_algo": "FP8", "exclude_modules": ["lm_head"], "kv_cache_quant_algo": "FP8"}
    }
    (tmp_path / "hf_quant_config.json").write_text(json.dumps(stated))
    model = read_model(str(tmp_path / "config.json"))
    assert model.formats_of(0).of("qkv") == FORMATS["fp8"]
    assert model.cache_type == "fp8"


@pytest.mark.parametrize(
    ("stated", "message"),
    [
        ({"quant_method": "bitsandbytes"}, "quant_method"),
        ({"quant_method": "modelopt", "quant_algo": "FP3"}, "quant_algo"),
        ({"quant_method": "fp8", "weight_block_size": [128]}, "weight_block_size"),
        ({"quant_method": "fp8", "modules_to_not_convert": ["re:("]}, "no regular expression"),
        ({"quant_method": "compressed-tensors"}, "config_groups"),
        (of_group({"num_bits": "8"}), "num_bits"),
        ([], "quantization_config"),
    ],
)
def test_numbers_that_are_not_known_are_refused(stated: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        small(quantization_config=stated)


def test_patterns_name_modules_and_all_within() -> None:
    module = "model.layers.3.mlp.experts.0.up_proj"
    for pattern in ("re:.*experts", "model.layers.3.*", "model.layers.*.mlp", "model.layers.3", "up_proj"):
        assert is_named(pattern, module)
    for pattern in ("re:experts", "model.layers.30", "mlp.up_proj", "gate", "model.layers.*.mlp.gate"):
        assert not is_named(pattern, module)


@pytest.mark.parametrize("word", FORMATS)
def test_products_compute_in_the_type_of_weights_where_the_device_has_it(word: str) -> None:
    form, tokens = FORMATS[word], 3
    of_values, of_type = (
        one_pass(small(), Plan(products=word, computes=types), *[Segment(1, 5)] * tokens)
        for types in ("bf16,fp16", "bf16,fp8,fp4")
    )
    row = np.flatnonzero(rows_named(of_type, "layer 0 attention output"))[0]
    read, written = form.bytes(512, 512), tokens * 512 * 2
    assert of_values.tensor_bytes[row] == read + tokens * 512 * 2 + written
    assert of_values.datatypes[of_values.datatype[row]] == "bf16"
    if form.computes:
        assert of_type.tensor_bytes[row] == read + form.input_bytes(tokens, 512) + written
        assert of_type.datatypes[of_type.datatype[row]] == form.computes
    assert of_values.num_ops.tolist() == of_type.num_ops.tolist()


@pytest.mark.parametrize(
    ("word", "types", "kernel"),
    [
        ("mxfp4", "bf16,fp8", ""),  # Triton's kernel
        ("mxfp4", "bf16,fp8,fp4", BLOCK_SCALES),
        ("int4", "bf16,fp8", NARROW_WEIGHTS),
        ("fp8-block", "bf16,fp8", BLOCK_SCALES),
        ("fp8-block", "bf16", ""),
        ("fp8", "bf16,fp8", ""),
        ("values", "bf16,fp8", ""),
    ],
)
def test_kernels_of_experts_are_those_for_their_numbers(word: str, types: str, kernel: str) -> None:
    plan = Plan(expert_products=word, computes=types)
    trace = one_pass(small(), plan, *[Segment(1, 5)] * 3)
    (shape,) = {trace.layer_shapes[shape] for shape in trace.layer_shape[rows_named(trace, "experts up")]}
    assert [each for each in (NARROW_WEIGHTS, BLOCK_SCALES) if each in shape.split()] == [kernel] * bool(
        kernel
    )


def test_options_state_numbers_of_dense_products_and_of_experts_apart() -> None:
    model = small(quantization_config={"quant_method": "fp8", "weight_block_size": [128, 128]})
    plan = Plan(products="values", expert_products="mxfp4")
    trace = one_pass(model, plan, Segment(1, 5))
    plain = one_pass(small(), Plan(), Segment(1, 5))
    qkv, up = (np.flatnonzero(rows_named(trace, f"layer 0 {name}"))[0] for name in ("qkv", "experts up"))
    assert trace.tensor_bytes[qkv] == plain.tensor_bytes[qkv]
    assert trace.tensor_bytes[up] == 2 * (MXFP4.bytes(512, 512) + 512 + 512 // 32 + 512 * 2)
    experts = 2 * 8 * (MXFP4.bytes(512, 512) + MXFP4.bytes(512, 256) - 3 * 512 * 256 * 2)
    assert weight_bytes_of_stage(model, plan, 0) == weight_bytes_of_stage(small(), Plan(), 0) + experts


@pytest.mark.parametrize(("name", "gib"), [("gpt-oss-120b", 60.8), ("gpt-oss-20b", 12.8)])
def test_checkpoints_are_as_large_as_published(name: str, gib: float) -> None:
    assert weight_bytes_of_stage(read_model(name), Plan(), 0) / 2**30 == pytest.approx(gib, abs=0.05)


def test_fp8_in_blocks_takes_a_byte_for_each_weight_of_layers_and_its_scale() -> None:
    model = read_model("deepseek-v3")
    products = sum(one.weights for layer in range(61) for one in matrices(model, Plan(), layer))
    kept = model.weights - products
    scales = -(-products // 128**2) * 4
    assert weight_bytes_of_stage(model, Plan(), 0) == pytest.approx(products + scales + 2 * kept, rel=1e-5)


@pytest.mark.parametrize("model", [decoder(), with_experts(), with_latent_attention(), small()])
def test_weights_in_values_take_their_number_of_bytes(model: Model) -> None:
    assert weight_bytes_of_stage(model, Plan(), 0) == 2 * model.weights


def test_ranks_repeat_heads_of_keys_and_compressed_projections() -> None:
    names = {}
    for tensor in (1, 2, 8):
        names[tensor] = {matrix.name: matrix.weights for matrix in matrices(small(), Plan(tensor=tensor), 0)}
    assert names[2]["qkv"] * 2 == names[1]["qkv"]
    assert names[8]["qkv"] == 512 * 64 * (1 + 2)  # 4 heads of keys on 8 ranks
    whole, share = (
        {m.name: m.weights for m in matrices(with_latent_attention(), Plan(tensor=t), 0)} for t in (1, 4)
    )
    assert share["key-value down"] == whole["key-value down"]
    assert 4 * share["key-value up"] == whole["key-value up"]


def test_a_cache_in_fewer_bits_is_read_and_kept_so() -> None:
    plans = Plan(), Plan(cache_type="fp8"), Plan(cache_type="fp4")
    size = [cache_bytes_of_stage(small(), plan, 0) for plan in plans]
    assert size == [2 * 2 * 4 * 64 * 2, 2 * 2 * 4 * 64, 2 * 4 * 64]
    traces = [one_pass(small(), plan, Segment(1, 99)) for plan in plans]
    read = [int(trace.tensor_bytes[rows_named(trace, "decode attention")].sum()) for trace in traces]
    assert read[0] - read[1] == 100 * (size[0] - size[1])
    assert read[1] - read[2] == 100 * (size[1] - size[2])


def test_a_cache_that_the_device_lacks_is_refused() -> None:
    check_cache_type(small(), Plan(cache_type="fp8"), ("bf16", "fp8"), "h100")
    with pytest.raises(UsageError, match="a100 computes in bf16"):
        check_cache_type(small(), Plan(cache_type="fp8"), ("bf16",), "a100")
