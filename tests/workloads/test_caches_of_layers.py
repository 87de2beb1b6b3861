"""Caches and attention by kind of layer: windows, states, chosen tokens; closed forms."""

from __future__ import annotations

import numpy as np
import pytest
from caches import cache_bytes
from machines import network, system
from msgspec.structs import replace
from training_jobs import decoder, rows_named, with_latent_attention

from et_sim.api import run
from et_sim.basics.errors import UsageError
from et_sim.serving.batcher import Batcher, Policy
from et_sim.serving.requests import Request
from et_sim.serving.sequences import ServedSequence
from et_sim.trace import Trace
from et_sim.workloads import Batch, Model, Plan, Segment, make_inference, make_training, read_model
from et_sim.workloads.inference.batch import AttentionSight, sights
from et_sim.workloads.inference.memory import SequenceCache, layer_bytes, matrices, weight_bytes_of_stage
from et_sim.workloads.inference.mixers import BOTH_DOWN, KEY_VALUE_DOWN, QUERY_DOWN
from et_sim.workloads.inference.transfers import ReplicaPlace, SentCache, make_transfers, messages
from et_sim.workloads.models.configuration import model_of
from et_sim.workloads.models.model import Index
from et_sim.workloads.training.layers import ModelLayers

SPARSE = with_latent_attention()
SPARSE = replace(SPARSE, attention=replace(SPARSE.attention, index=Index(4, 16, 8)))
INDEX_BITS = 16 * 8 + 32


def one_pass(model: Model, *segments: Segment, plan: Plan | None = None) -> Trace:
    batch = Batch.of(segments, sights=sights(model))
    return make_inference(model, plan or Plan(), [batch]).templates[0]


def of(trace: Trace, name: str) -> tuple[int, int]:
    rows = rows_named(trace, f" {name}")
    return int(trace.num_ops[rows].sum()), int(trace.tensor_bytes[rows].sum())


@pytest.mark.parametrize(
    ("name", "tokens", "size"),
    [
        ("gpt-oss-120b", 100, 36 * 100 * 2 * 8 * 64 * 2),
        ("gpt-oss-120b", 8192, 18 * (8192 + 128) * 2 * 8 * 64 * 2),
        ("gemma3-27b", 8192, (10 * 8192 + 52 * 1024) * 2 * 16 * 128 * 2),
        ("llama4-scout", 20_000, (12 * 20_000 + 36 * 8192) * 2 * 8 * 128 * 2),
        ("qwen3-next-80b", 8192, 12 * 8192 * 2 * 2 * 256 * 2 + 36 * (32 * 128 * 128 * 4 + 3 * 8192 * 2)),
        ("nemotron-h-8b", 1000, 4 * 1000 * 2 * 8 * 128 * 2 + 24 * (128 * 128 * 64 * 4 + 3 * 10_240 * 2)),
        ("deepseek-v3", 8192, 61 * 8192 * 576 * 2),
        ("deepseek-v3.2", 8192, 61 * 8192 * (576 * 2 + 128 + 4)),
    ],
)
def test_a_sequence_keeps_what_its_layers_see(name: str, tokens: int, size: int) -> None:
    assert SequenceCache.of(read_model(name), Plan()).bytes(tokens) == size


def test_units_count_blocks_of_layers_and_states() -> None:
    for name in ("gpt-oss-20b", "qwen3-next-80b", "llama3-8b", "gemma3-4b", "deepseek-v3.2"):
        cache = SequenceCache.of(read_model(name), Plan(tensor=2))
        units = cache.in_units(16)
        for tokens in (1, 16, 17, 100, 5000):
            assert units.of(tokens) * units.unit_bytes == cache.bytes(tokens, 16)
        assert units.tokens(units.all_of(1600)) == 1600
        assert cache.is_plain == (name in ("llama3-8b", "deepseek-v3.2"))


def test_a_batcher_grows_sequences_by_units() -> None:
    units = SequenceCache.of(read_model("gpt-oss-20b"), Plan()).in_units(16)
    plain, bounded = (Batcher(Policy(block=16), 40, each) for each in (None, units))
    assert plain.fits(640)
    assert not plain.fits(641)
    assert bounded.fits((40 - 8) * 16)
    assert not bounded.fits((40 - 8) * 16 + 1)
    sequence = ServedSequence(Request(0, 0, 16, 100), produced=1, cached=16, blocks=2)
    bounded.running.append(sequence)
    bounded.free -= 2
    assert [share.sequence for share in bounded.single_tokens()] == [sequence]
    assert (sequence.blocks, bounded.free) == (4, 36)


def test_chosen_tokens_bound_the_pairs_and_the_keys_of_single_tokens() -> None:
    sight = AttentionSight(8, is_chosen=True)
    for tokens in range(1, 20):
        for before in range(20):
            pairs = sum(min(before + at + 1, 8) for at in range(tokens))
            assert sight.of_prompt(tokens, before) == (before + tokens, pairs)
    assert [sight.of_token(before) for before in (0, 7, 8, 1000)] == [1, 8, 8, 8]


def test_an_index_scores_all_pairs_and_attention_sees_the_chosen_ones() -> None:
    heads, width, rank = 8, 16 + 4, 16
    trace = one_pass(SPARSE, Segment(1, 29), Segment(1, 3))
    scores, read = of(trace, "index scores")
    assert scores == 4 * 2 * (30 + 4) * 4 * 16
    assert read == 4 * (2 * 4 * 16 + (30 + 4) * INDEX_BITS // 8 + (30 + 4) * 4)
    assert of(trace, "index choice")[1] == 4 * (30 + 4) * 4
    seen = 8 + 4
    operations, moved = of(trace, "decode attention")
    assert operations == 4 * 2 * seen * heads * (width + rank)
    assert moved == 4 * (2 * heads * (width + rank) + seen * width) * 2
    prompt = one_pass(SPARSE, Segment(30))
    assert of(prompt, "index scores")[0] == 4 * 2 * (30 * 31 // 2) * 4 * 16
    pairs = 8 * 9 // 2 + 22 * 8
    assert of(prompt, "prefill attention")[0] == 4 * 2 * pairs * heads * (width + rank)


def test_products_of_an_index_are_on_every_tensor_parallel_rank() -> None:
    added = weight_bytes_of_stage(SPARSE, Plan(tensor=4), 0) - weight_bytes_of_stage(
        with_latent_attention(), Plan(tensor=4), 0
    )
    matrix = 24 * 4 * 16 + 64 * 16 + 64 * 4
    assert added == 4 * (matrix + 2 * 16 // 4) * 2
    assert SPARSE.weights - with_latent_attention().weights == 4 * (matrix + 2 * 16)
    named = {one.name: one.weights for one in matrices(SPARSE, Plan(tensor=8), 0)}
    assert named["index queries"] == 24 * 4 * 16
    assert cache_bytes(SPARSE) == 4 * (20 * 16 + INDEX_BITS) // 8


def test_chosen_tokens_are_refused_in_training() -> None:
    with pytest.raises(UsageError, match="attention to chosen tokens"):
        make_training(SPARSE, Plan())


def test_a_long_context_costs_an_index_more_and_attention_no_more() -> None:
    short, long = (one_pass(SPARSE, Segment(1, before)) for before in (20, 31))
    assert of(short, "decode attention") == of(long, "decode attention")
    assert of(short, "index scores") < of(long, "index scores")


@pytest.mark.parametrize(
    "name", ["gpt-oss-20b", "qwen3-next-80b", "deepseek-v3.2", "llama3-8b", "nemotron-h-8b"]
)
def test_a_transfer_moves_the_cache_of_a_sequence(name: str) -> None:
    model = read_model(name)
    for tokens in (10, 5000):
        for tensor in (1, 2):
            source, target = ReplicaPlace(Plan(tensor=2), 0), ReplicaPlace(Plan(tensor=tensor), 2)
            sent = messages(model, source, target, tokens)
            size = sum(bits for (_, receiver), bits in sent.items() if receiver == 2)
            assert size == 8 * SequenceCache.of(model, target.plan).bytes(tokens)
    workload, _ = make_transfers([(model, SentCache(source, target, 10))], 4)
    machine = {"system": system(), "network": network(["FullyConnected"], [4])}
    assert run(workload, **machine).summary()["status"] == "complete"


def test_the_language_model_is_an_object_within_the_file_or_the_file() -> None:
    inner = {
        "model_type": "qwen3_5_text",
        "hidden_size": 64,
        "num_hidden_layers": 4,
        "intermediate_size": 128,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "linear_num_value_heads": 4,
        "linear_num_key_heads": 2,
        "linear_key_head_dim": 16,
        "linear_value_head_dim": 16,
        "linear_conv_kernel_dim": 4,
        "vocab_size": 128,
        "max_position_embeddings": 256,
    }
    flat = model_of({**inner, "model_type": "qwen3_5"}, "config.json", "flat")
    within = model_of(
        {"model_type": "qwen3_5", "text_config": inner, "image_token_id": 1}, "config.json", "flat"
    )
    assert replace(within, remarks=()) == flat
    assert within.remarks == ()
    assert flat.experts is None
    assert [flat.has_attention(layer) for layer in range(4)] == [False, False, False, True]


def test_stages_without_a_cache_do_not_limit_it() -> None:
    model = read_model("nemotron-h-8b")
    caches = [SequenceCache.of(model, Plan(pipeline=52), place) for place in range(52)]
    assert {cache.bytes(1) for cache in caches} > {0}
    assert np.sum([cache.bytes(77) for cache in caches]) == SequenceCache.of(model, Plan()).bytes(77)
    assert decoder().recurrence is None


@pytest.mark.parametrize(
    "name",
    [
        "llama3-8b",
        "gpt-oss-20b",
        "deepseek-v3",
        "qwen3-next-80b",
        "nemotron-h-8b",
        "llama4-scout",
        "gemma3-4b",
    ],
)
@pytest.mark.parametrize("tensor", [1, 2, 4, 8])
def test_products_of_a_pass_are_the_matrices_that_a_rank_keeps(name: str, tensor: int) -> None:
    """Compare columns and inner sides, layer by layer; products of experts are other kernels."""
    model, plan = read_model(name), Plan(tensor=tensor, products="values")
    trace = one_pass(model, Segment(9), plan=plan)
    found: dict[tuple[str, str], tuple[int, int]] = {}
    for number, shape in zip(trace.name.tolist(), trace.layer_shape.tolist(), strict=True):
        words = trace.layer_shapes[shape].split()
        if words and words[0] == "gemm":
            where, _, product = trace.names[number].rpartition(" layer ")[2].partition(" ")
            found[where, product] = int(words[2]), int(words[3])
    for layer in range(model.layers):
        kept = {
            matrix.name: (matrix.outputs, matrix.inputs)
            for matrix in matrices(model, plan, layer)
            if not matrix.name.startswith("experts")
        }
        if (str(layer), BOTH_DOWN) in found:
            (queries, inputs), (keys, of_keys) = kept.pop(QUERY_DOWN), kept.pop(KEY_VALUE_DOWN)
            assert inputs == of_keys
            kept[BOTH_DOWN] = queries + keys, inputs
        assert {name: found[str(layer), name] for name in kept} == kept


@pytest.mark.parametrize(
    "name", ["gpt2", "gpt-oss-20b", "gemma3-4b", "deepseek-v3", "llama4-maverick", "qwen3.5-35b-a3b"]
)
@pytest.mark.parametrize("plan", [Plan(), Plan(tensor=2, pipeline=2), Plan(tensor=4, expert=4, lora_rank=8)])
def test_weights_of_a_stage_are_those_of_its_ends_and_of_each_layer(name: str, plan: Plan) -> None:
    model = read_model(name)
    plan = plan if model.experts is not None else replace(plan, expert=1)
    ends = ModelLayers(model, plan)
    for stage in range(plan.pipeline):
        part = plan.part(model, stage, 0)
        more = ends.embedding_weights * part.has_embedding + ends.head_weights * part.has_head
        each = [layer_bytes(model, plan, layer) for layer in part.all_layers]
        assert weight_bytes_of_stage(model, plan, stage) == more * plan.value_bytes + sum(each)
