"""Families of models: weights beside published figures, unknown keys, and costs of their layers."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from caches import cache_bytes
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from training_jobs import decoder, rows_named

from et_sim.basics.errors import EtSimError, UsageError
from et_sim.cli import main
from et_sim.trace import NodeKind
from et_sim.workloads import Batch, Model, Plan, Segment, make_inference, make_training, read_model
from et_sim.workloads.inference.batch import AttentionSight, sights
from et_sim.workloads.models.configuration import PRESETS, model_of, preset_names
from et_sim.workloads.models.keys import without_effect
from et_sim.workloads.models.model import ATTENTION, RECURRENCE, Experts, FeedForward, LayerKind, Recurrence
from et_sim.workloads.recurrence import SequenceChunks
from et_sim.workloads.training import blocks
from et_sim.workloads.training.operations import model_operations

SIGLIP = (34, 1408, 5632, 577)  # of Llama 4's vision tower: layers, width, inner width, positions


def predicting(model: Model, *, has_own_words: bool) -> int:
    """Return the weights of a module that predicts a further token: a layer with experts, and its inputs."""
    assert model.experts is not None
    hidden = model.hidden
    layer = model.attention.weights(hidden) + model.experts.weights(hidden) + 2 * hidden
    words = 2 * model.vocabulary * hidden if has_own_words else 0
    return layer + 2 * hidden * hidden + 3 * hidden + words


def tower() -> int:
    """Return the weights of Llama 4's vision tower, and of the projection to the language model."""
    layers, width, inner, positions = SIGLIP
    layer = 4 * (width + 1) * width + (width + 1) * inner + (inner + 1) * width + 4 * width
    ends = 3 * 14 * 14 * width + width + positions * width + 4 * width
    return layers * layer + ends + 5632 * 4096 + 4096 * 4096 + 4096 * 5120


# Published: sums of all tensors of the checkpoints, with the parts that the language model has not.
@pytest.mark.parametrize(
    ("name", "checkpoint", "others"),
    [
        ("glm-4.5", 358_337_791_296, lambda model: predicting(model, has_own_words=True)),
        ("glm-4.5-air", 110_468_824_832, lambda model: predicting(model, has_own_words=True)),
        ("qwen3-next-80b", 81_324_862_720, lambda model: predicting(model, has_own_words=False)),
        ("llama4-scout", 108_641_793_536, lambda _: tower()),
        ("llama4-maverick", 401_583_781_376, lambda _: tower()),
    ],
)
def test_checkpoints_have_the_language_model_and_its_other_parts(
    name: str, checkpoint: int, others: Any
) -> None:
    model = read_model(name)
    assert model.weights + others(model) == checkpoint


# As the makers state them, in billions; of gpt-oss and Nemotron, embeddings are stated apart.
@pytest.mark.parametrize(
    ("name", "total", "active"),
    [
        ("qwen3-30b-a3b", 30.5, 3.3),
        ("qwen3-235b-a22b", 235, 22),
        ("kimi-k2", 1026, 32.9),
        ("glm-4.5", 353, 33.6),
        ("minimax-m2", 229, 11),
        ("llama4-scout", 107.8, 17.2),
        ("llama4-maverick", 400.7, 17.2),
        ("qwen3-next-80b", 79.7, 3.9),
        ("nemotron-h-8b", 8.1, 8.1),
    ],
)
def test_active_weights_equal_published_ones(name: str, total: float, active: float) -> None:
    model = read_model(name)
    assert model.weights / 1e9 == pytest.approx(total, abs=0.06 if total < 200 else 0.6)
    assert model.active_weights / 1e9 == pytest.approx(active, abs=0.06 if active != 22 else 0.5)


def hybrid(kind: str, hidden: int, width: int, layers: int, words: int, **others: object) -> dict[str, Any]:
    """Return a file of a hybrid with Mamba-2, whose heads have 64 values, and 32 heads of attention."""
    return {
        "model_type": kind,
        "hidden_size": hidden,
        "intermediate_size": width,
        "num_hidden_layers": layers,
        "vocab_size": words,
        "max_position_embeddings": 4096,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "mamba_n_heads": hidden // 32,
        "mamba_d_head": 64,
        "mamba_d_state": 128,
        **others,
    }


def granite(hidden: int, width: int, shared: int, experts: int, chosen: int) -> dict[str, Any]:
    """Return a file of Granite 4."""
    others = {"shared_intermediate_size": shared, "num_local_experts": experts, "num_experts_per_tok": chosen}
    others |= {"position_embedding_type": "nope", "tie_word_embeddings": True}
    others |= {"layer_types": ["attention" if layer % 10 == 5 else "mamba" for layer in range(40)]}
    return hybrid("granitemoehybrid", hidden, width, 40, 100_352, **others)


BAMBA = hybrid("bamba", 4096, 14336, 32, 128_256, attn_layer_indices=[9, 18, 27])
GRANITE_SMALL, GRANITE_MICRO = granite(4096, 768, 1536, 72, 10), granite(2048, 8192, 8192, 0, 0)


# As the makers' model cards state them, in billions.
@pytest.mark.parametrize(
    ("content", "total", "active", "digits"),
    [
        (BAMBA, 9.78, 9.78, 2),
        (GRANITE_SMALL, 32, 9, 0),
        (GRANITE_MICRO, 3, 3, 0),
    ],
)
def test_hybrids_with_mamba_have_the_weights_of_their_model_cards(
    content: dict[str, Any], total: float, active: float, digits: int
) -> None:
    model = model_of(content, "config.json", "x")
    assert model.remarks == ()
    assert round(model.weights / 1e9, digits) == total
    assert round(model.active_weights / 1e9, digits) == active
    turns = [kind.has_rotary for kind in model.kinds if kind.mixer == ATTENTION]
    assert turns == ([True] * 3 if content is BAMBA else [False] * 4)


@pytest.mark.parametrize(
    ("content", "changed", "cause"),
    [
        (BAMBA, {"attn_layer_indices": [32]}, "give numbers below 32"),
        (BAMBA, {"mamba_d_head": 32}, "heads times mamba_d_head is mamba_expand times the width, 8192"),
        (BAMBA, {"mamba_proj_bias": True}, "biases of products"),
        (GRANITE_SMALL, {"shared_intermediate_size": 1000}, "give a multiple of the 768 of an expert"),
        (GRANITE_SMALL, {"normalization_function": "layernorm"}, "other norms"),
        (GRANITE_SMALL, {"num_experts_per_tok": 0}, "give a whole number from 1 up"),
    ],
)
def test_files_of_hybrids_with_mamba_are_checked(
    content: dict[str, Any], changed: dict[str, Any], cause: str
) -> None:
    with pytest.raises(UsageError, match=cause):
        model_of(content | changed, "config.json", "x")


def test_weights_without_embeddings_are_those_of_the_model_cards() -> None:
    """Correct published counts: gpt-oss includes the head without the embedding, Nemotron neither."""
    billions = {}
    for name in ("gpt-oss-20b", "gpt-oss-120b"):
        model = read_model(name)
        billions[name] = round((model.active_weights - model.embedding_weights) / 1e9, 2)
    for name in ("nemotron-4-15b", "nemotron-4-340b"):
        model = read_model(name)
        billions[name] = round((model.weights - 2 * model.embedding_weights) / 1e9, 1)
    assert billions == {
        "gpt-oss-20b": 3.61,
        "gpt-oss-120b": 5.13,
        "nemotron-4-15b": 12.5,
        "nemotron-4-340b": 331.6,
    }


def content_of(name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((PRESETS / f"{name}.json").read_text())
    return content


def test_an_unknown_key_is_named_in_a_remark() -> None:
    content = content_of("qwen3-8b")
    assert model_of(content | {"rope_theta": 1e6, "new_thing": None}, "config.json", "x").remarks == (
        'config.json: the key "new_thing": unknown, and not simulated',
    )
    assert model_of(content | {"rms_norm_eps": 1e-6, "torch_dtype": "bfloat16"}, "c", "x").remarks == ()
    many = {f"thing_{number}": 1 for number in range(9)}
    (remark,) = model_of(content | many, "config.json", "x").remarks
    assert '"thing_5" and 3 more: unknown' in remark


@pytest.mark.parametrize(
    ("scaling", "is_scaled"),
    [
        (None, False),
        ({"rope_type": "llama3", "factor": 8.0}, False),
        ({"rope_type": "yarn", "factor": 32.0}, True),
        ({"type": "yarn", "factor": 4.0}, True),
        ({"type": "yarn", "factor": 1.0}, False),
        ({"rope_type": "yarn", "factor": 40, "mscale": 1.0, "mscale_all_dim": 1.0}, False),
        ({"rope_type": "yarn", "factor": 40, "mscale": 1.0, "mscale_all_dim": 0.5}, True),
        ({"rope_type": "yarn", "factor": 32.0, "attention_factor": 1.0}, False),
    ],
)
def test_positions_have_a_factor_if_yarn_gives_one(scaling: object, is_scaled: bool) -> None:
    for key in ("rope_scaling", "rope_parameters"):
        model = model_of(content_of("qwen3-8b") | {key: scaling}, "config.json", "x")
        assert model.attention.is_scaled == is_scaled
        assert model.remarks == ()


def test_gpt_oss_is_the_only_preset_with_a_factor_of_positions() -> None:
    scaled = [name for name in preset_names() if read_model(name).attention.is_scaled]
    assert scaled == ["gpt-oss-120b", "gpt-oss-20b"]


def test_no_key_without_effect_is_one_that_a_preset_needs() -> None:
    needed = {"hidden_size", "head_dim", "sliding_window", "num_experts_per_tok", "moe_intermediate_size"}
    assert not needed & without_effect()


def test_remarks_and_long_sequences_are_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(content_of("qwen3-0.6b") | {"new_thing": 2}))
    assert main(["plan", "--model", str(path), "--micro-batches", "1"]) == 0
    message = capsys.readouterr().err
    assert '"new_thing": unknown, and not simulated' in message
    assert "sequences of 40,960 tokens, the longest that its file allows; --sequence sets" in message
    plan = ["plan", "--model", "qwen3-0.6b", "--micro-batches", "1", "--sequence", "4096"]
    assert main(plan) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("name", ["llama4-scout", "gemma3-27b"])
def test_a_language_model_within_a_larger_file_is_read(name: str) -> None:
    text = {key: value for key, value in content_of(name).items() if key != "vision_config"}
    kind = text["model_type"].removesuffix("_text")
    whole = {"model_type": kind, "text_config": text, "vision_config": {"hidden_size": 1408}}
    model = model_of(whole, "config.json", name)
    assert model.weights == read_model(name).weights
    simulated = "only --image-tokens of serve and make prefill simulates this part of the model"
    assert model.remarks == (f'config.json: "vision_config": {simulated}',)


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("llama4-scout", {"model_type": "llama4"}, 'key "text_config" is missing'),
        ("llama4-scout", {"no_rope_layers": [1, 0]}, 'key "no_rope_layers" is [1, 0] (give 48 numbers'),
        ("gemma3-27b", {"final_logit_softcapping": 30.0}, "capped scores: only None is simulated"),
        ("nemotron-h-8b", {"hybrid_override_pattern": "M-X"}, "the pattern of layers has 'X'"),
        ("nemotron-h-8b", {"hybrid_override_pattern": "M-"}, "the pattern has 2 layers"),
        ("nemotron-h-8b", {"n_groups": 7}, "128 heads of states cannot share 7 heads of keys evenly"),
        ("nemotron-4-15b", {"hidden_act": "cosine"}, "key \"hidden_act\" is 'cosine' (known: silu"),
        (
            "qwen3-next-80b",
            {"shared_expert_intermediate_size": 700},
            "give a multiple of the 512 of an expert",
        ),
        ("qwen3-30b-a3b", {"mlp_only_layers": [-1]}, "give a list of whole numbers from 0 up"),
        ("minimax-m2", {"shared_intermediate_size": 8}, "shared experts: only 0 is simulated"),
        ("minimax-m2", {"qk_norm_type": "none"}, "known: per_layer, per_head"),
        ("glm-4.5", {"moe_layer_freq": 2}, "layers between those with experts"),
    ],
)
def test_a_file_that_makes_no_sense_is_refused(name: str, change: dict[str, Any], message: str) -> None:
    with pytest.raises(EtSimError) as caught:
        model_of(content_of(name) | change, "config.json", name)
    assert message in str(caught.value)


def test_files_set_the_kinds_of_layers() -> None:
    gemma, scout, maverick = (read_model(name) for name in ("gemma3-27b", "llama4-scout", "llama4-maverick"))
    assert [gemma.window(layer) for layer in range(7)] == [1024] * 5 + [0, 1024]
    long = replace(scout, sequence=32_768)
    assert [long.window(layer) for layer in range(4)] == [8192] * 3 + [0]
    assert [scout.kind(layer).has_rotary for layer in range(4)] == [True] * 3 + [False]
    assert all(scout.has_experts(layer) for layer in range(48))
    assert [maverick.has_experts(layer) for layer in range(4)] == [False, True, False, True]
    following = read_model("qwen3-next-80b")
    assert [following.kind(layer).mixer for layer in range(4)] == [RECURRENCE] * 3 + [ATTENTION]
    hybrid = Counter(read_model("nemotron-h-8b").kinds)
    assert sorted(hybrid.values()) == [4, 24, 24]
    assert read_model("deepseek-v3").next_tokens == 1
    assert read_model("glm-4.5").next_tokens == 1


def hybrid(**given: Any) -> Model:
    """Return a model with recurrences, attention, a feed-forward part and experts, all powers of two."""
    states = Recurrence(8, 4, 16, 8, 4, has_delta_rule=given.pop("has_delta_rule", False), chunk=8)
    model = decoder(**given)
    return replace(
        model,
        experts=Experts(8, 2, FeedForward(32, is_gated=True)),
        kinds=(
            LayerKind(RECURRENCE, ""),
            LayerKind(ATTENTION, "feed-forward"),
            LayerKind("", "experts"),
            LayerKind(RECURRENCE, "experts"),
        ),
        recurrence=states,
    )


@pytest.mark.parametrize("has_delta_rule", [False, True])
@pytest.mark.parametrize(
    "plan",
    [{}, {"tensor": 2, "sequence_parallel": True, "expert": 2}, {"data": 2, "zero": 3}, {"pipeline": 2}],
)
def test_hybrids_are_trained_under_any_plan(plan: dict[str, Any], has_delta_rule: bool) -> None:
    model = hybrid(has_delta_rule=has_delta_rule)
    workload = make_training(model, Plan(micro_batches=2, **plan))
    trace = workload.templates[0]
    assert np.count_nonzero(rows_named(trace, "recurrence in")) > 0
    assert workload.step is not None
    assert workload.step.model_operations == model_operations(model, Plan(micro_batches=2, **plan))


@given(st.integers(1, 3), st.sampled_from([8, 32, 128]), st.booleans())
def test_products_of_chunks_are_those_of_the_published_programs(
    sequences: int, length: int, has_delta_rule: bool
) -> None:
    """Count scores within a chunk and their sums, and products that write and read a state, by token."""
    states = Recurrence(8, 4, 16, 8, 4, has_delta_rule=has_delta_rule, chunk=8)
    kernels = {
        kernel.name: kernel.operations for kernel in SequenceChunks(states, sequences, length, 2).forward()
    }
    tokens, heads, groups, key, value, chunk = sequences * length, 8, 4, 16, 8, 8
    found = sum(number for name, number in kernels.items() if name.startswith("chunk"))
    if has_delta_rule:
        within = 2 * chunk * (3 * key + 2 * value) + 2 * chunk * max(chunk // 6, 1)
        assert found == tokens * heads * (within + 6 * key * value)
    else:
        assert found == tokens * (2 * groups * chunk * key + heads * (2 * chunk * value + 4 * key * value))


def test_operations_of_hybrids_count_attention_where_there_is_any() -> None:
    model = hybrid()
    tokens, sequence = 2 * 32, 32
    looked_up = model.vocabulary * model.hidden
    scores = 6 * 2 * sequence * sequence * 8 * 16
    states = 3 * 2 * 7 * (8 * 16 * 8) * tokens
    assert model_operations(model, Plan(micro_batches=2)) == (
        6 * (model.active_weights - looked_up) * tokens + scores + states
    )


@given(st.integers(1, 40), st.integers(1, 50))
def test_a_query_sees_its_chunk_only(sequence: int, chunk: int) -> None:
    seen = [
        (query, key)
        for query in range(sequence)
        for key in range(query + 1)
        if key // chunk == query // chunk
    ]
    assert blocks.QuerySight(sequence, is_causal=True, document=chunk).pairs(sequence) == len(seen)


@given(st.integers(1, 30), st.integers(0, 30), st.integers(1, 20), st.booleans())
def test_passes_see_as_many_keys_as_their_windows_hold(
    tokens: int, before: int, window: int, in_chunks: bool
) -> None:
    seen = [
        (query, key)
        for query in range(before, before + tokens)
        for key in range(query + 1)
        if (key // window == query // window if in_chunks else key > query - window)
    ]
    sight = AttentionSight(window, in_chunks)
    prefill, decode = Batch.of([Segment(tokens, before)], sights=[sight]).seen(sight)
    load = decode if tokens == 1 and before else prefill
    assert load.pairs == len(seen)
    first = min(key for _, key in seen)
    assert load.keys == before + tokens - first


def test_windows_make_decoding_read_less() -> None:
    model = read_model("gpt-oss-20b")
    batch = Batch.of([Segment(1, 4000)] * 4, sights=sights(model))
    trace = make_inference(model, Plan(), [batch]).templates[0]
    sizes = trace.tensor_bytes[rows_named(trace, "decode attention")].tolist()
    each = 4 * 2 * 64 * 2  # four tokens' keys and values, or queries and outputs, of one head
    assert sizes == [each * (64 + 8 * seen) for _ in range(12) for seen in (128, 4001)]
    with pytest.raises(UsageError, match="the batch lacks their number of keys"):
        make_inference(model, Plan(), [Batch.of([Segment(1, 4000)])])


@pytest.mark.parametrize(
    "name", ["nemotron-h-8b", "qwen3-next-80b", "llama4-scout", "gemma3-27b", "minimax-m2"]
)
@pytest.mark.parametrize("tensor", [1, 2])
def test_prompts_and_tokens_pass_through_every_family(name: str, tensor: int) -> None:
    model = read_model(name)
    batch = Batch.of([Segment(300), Segment(1, 9000)], sights=sights(replace(model, sequence=16_384)))
    trace = make_inference(replace(model, sequence=16_384), Plan(tensor=tensor), [batch]).templates[0]
    weighted = trace.num_ops[trace.kind == NodeKind.COMP].sum() * tensor
    assert weighted >= 2 * (model.active_weights - 2 * model.embedding_weights) * 301


def test_only_attention_caches_tokens() -> None:
    assert cache_bytes(read_model("nemotron-h-8b")) == 4 * 2 * 8 * 128 * 2


def test_states_are_read_and_written_by_each_token() -> None:
    model = read_model("nemotron-h-8b")
    trace = make_inference(model, Plan(), [Batch.of([Segment(1, 100)] * 8)]).templates[0]
    rows = rows_named(trace, "state update")
    states, more = 8 * 128 * 64 * 128, 8 * (64 * 128 * 2 + 2 * 8 * 128)
    assert trace.tensor_bytes[rows].tolist() == [2 * 4 * states + 2 * more] * 24


def test_states_are_no_business_of_context_parallel_ranks() -> None:
    with pytest.raises(UsageError, match="lacks the state of the tokens before its own"):
        make_training(hybrid(), Plan(context=2))


def test_layers_that_differ_cannot_be_made_more(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--model", "qwen3-next-80b", "--layers", "4", "--sequence", "4096"]) == 2
    assert "layers of qwen3-next-80b differ in kind" in capsys.readouterr().err
