"""Random files of models: keys of several families, and formats of weights."""

from __future__ import annotations

from random import Random
from typing import Any

from random_commands import Line

SMALL_GPT2 = {
    "model_type": "gpt2",
    "n_embd": 128,
    "n_head": 4,
    "n_layer": 2,
    "vocab_size": 512,
    "n_positions": 64,
}
SMALL_MIXTRAL = {
    "model_type": "mixtral",
    "hidden_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 256,
    "vocab_size": 512,
    "max_position_embeddings": 256,
    "num_local_experts": 4,
    "num_experts_per_tok": 2,
}
LLAMA = {
    **dict.fromkeys(("hidden_size", "intermediate_size"), 256),
    "model_type": "llama",
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": 512,
    "max_position_embeddings": 256,
}
LATENT = {
    **LLAMA,
    "model_type": "deepseek_v3",
    "first_k_dense_replace": 1,
    "q_lora_rank": 64,
    "kv_lora_rank": 32,
    "qk_nope_head_dim": 32,
    "qk_rope_head_dim": 16,
    "v_head_dim": 32,
    "moe_intermediate_size": 64,
    "n_routed_experts": 8,
    "n_shared_experts": 1,
    "num_experts_per_tok": 2,
}
WINDOWS = {
    **LLAMA,
    "model_type": "gemma3_text",
    "num_key_value_heads": 2,
    "head_dim": 64,
    "sliding_window": 64,
    "num_hidden_layers": 4,
}
CHANGES: tuple[dict[str, Any], ...] = (
    {"num_key_value_heads": 2},
    {"num_key_value_heads": 3},
    {"head_dim": 32},
    {"tie_word_embeddings": True},
    {"attention_bias": True, "mlp_bias": True},
    {"sliding_window": 16},
    {"sliding_window": None},
    {"layer_types": ["full_attention", "sliding_attention"]},
    {"num_hidden_layers": 3},
    {"num_hidden_layers": 0},
    {"hidden_size": "many"},
    {"model_type": "lama"},
    {"torch_dtype": "float32"},
    {"num_nextn_predict_layers": 1},
    {"hidden_act": "gelu"},
    {"n_routed_experts": 6},
    {"n_group": 2, "topk_group": 1},
    {"sliding_window_pattern": 2},
    {"rope_scaling": {"type": "yarn", "factor": 4}},
    {"vocab_size": 1},
)
EXCLUDED = (
    *("lm_head", "self_attn", "model.layers.0", "*.mlp.*", "re:.*down_proj", "re:(", "mlp.shared_experts"),
    *("model.layers.1.mlp.experts", "self_attn.o_proj"),
)


def quantization(draw: Random) -> dict[str, Any]:
    """Return how a file states the formats of its weights, now and then with a mistake."""

    def some(given: dict[str, Any], share: float = 0.5) -> dict[str, Any]:
        return {name: value for name, value in given.items() if draw.random() < share}

    bits = draw.choice((4, 8))
    scheme = {"num_bits": bits, "type": draw.choice(("int", "float"))}
    scheme |= some({"strategy": draw.choice(("block", "channel", "group", "tensor"))})
    scheme |= some({"group_size": draw.choice((32, 128, -1, None)), "block_structure": [64, 64]}, 0.4)
    inputs = some(
        {
            "input_activations": draw.choice(
                ({"num_bits": 8}, {"num_bits": 16}, {}, None, {"num_bits": None}, {"num_bits": "8"})
            )
        }
    )
    group = {"weights": scheme, **inputs, "targets": [draw.choice(("Linear", "Linear", "re:.*mlp.*"))]}
    found = draw.choice(
        (
            {
                "quant_method": "fp8",
                **some({"weight_block_size": draw.choice(([128, 128], [64, 32], [128]))}),
            },
            {"quant_method": "fbgemm_fp8"},
            {"quant_method": "mxfp4"},
            {"quant_method": draw.choice(("awq", "gptq")), "bits": bits}
            | some({"group_size": draw.choice((-1, 64)), "zero_point": True, "sym": draw.random() < 0.5}),
            {"quant_method": "modelopt", "quant_algo": draw.choice(("FP8", "NVFP4", "W4A16_AWQ", "FP9"))}
            | some({"group_size": 16}),
            *({"quant_method": "compressed-tensors", "config_groups": {"group_0": group}},) * 3,
            {"quant_method": draw.choice(("fp7", "bitsandbytes"))},
        )
    )
    excluded = draw.sample(EXCLUDED, draw.randint(1, 3))
    found |= some({draw.choice(("ignore", "modules_to_not_convert", "exclude_modules")): excluded})
    found |= some({"kv_cache_quant_algo": draw.choice(("FP8", "INT8", "NVFP4", "FP7"))}, 0.3)
    return found | some({"kv_cache_scheme": {"type": draw.choice(("float", "int")), "num_bits": 8}}, 0.2)


def configs(draw: Random) -> Line:
    """Return a pass or a plan of a model whose file has any keys of its family, and formats of weights."""
    model: dict[str, Any] = dict(draw.choice((LLAMA, LATENT, LATENT, WINDOWS, SMALL_MIXTRAL)))
    for change in draw.sample(CHANGES, draw.choice((0, 0, 1, 1, 2))):
        model |= change
    if draw.random() < 0.7:
        name = draw.choice(("quantization_config", "quantization_config", "hf_quant_config"))
        found = quantization(draw)
        model[name] = {"quantization": found} if name == "hf_quant_config" and draw.random() < 0.5 else found
    kind = draw.choice(("prefill", "decode", "plan"))
    axes = draw.choice(("", "", "--tp 2", "--dp 2", "--pp 2"))
    words = {
        "prefill": f"make prefill --model model.json --prompt 40 {axes} --json -o run/job",
        "decode": f"make decode --model model.json --context 30 {axes} --json -o run/job",
        "plan": f"plan llm --model model.json --sequence 64 {axes}",
    }
    return Line(words[kind], 0, kind, files={"model.json": model})
