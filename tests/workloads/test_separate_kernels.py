"""Kernels that engines run by themselves: their bytes, their places, and the ones that each word adds."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from training_jobs import decoder, with_experts, with_latent_attention

from et_sim.basics.engine_names import OF_EXPERTS, OF_LATENT, OF_LAYERS, SEPARATE
from et_sim.serving.engines.reading import read_engine
from et_sim.trace.workload import MadeFor
from et_sim.workloads import Batch, Model, Plan, Segment, make_inference
from et_sim.workloads.inference.forward import run_by
from et_sim.workloads.inference.separate import words_for
from et_sim.workloads.models.model import Experts

TOKENS, PROMPTS = Batch.of([Segment(1, 30)] * 6), Batch.of([Segment(40), Segment(24)])
HIDDEN, HEADS, LAYERS, VALUE = 64, 8, 4, 2
LATENT = with_latent_attention()  # queries of 24 and keys of 16 values, 4 of them rotated
BLOCKS, TENSORS = Plan(products="fp8-block", computes="bf16,fp8"), Plan(products="fp8", computes="bf16,fp8")
BOTH = Plan(data=2, expert=2, tflops=1)


def kernels(
    model: Model, batch: Batch, words: tuple[str, ...] = (), plan: Plan | None = None
) -> list[tuple[str, int, int]]:
    """Return the last part of the name, the operations and the bytes of each kernel of the first rank."""
    workload = make_inference(model, plan or Plan(), [batch], run_by("sglang", separate=words))
    trace = workload.templates[0]
    found = []
    for row in range(len(trace)):
        if trace.has("num_ops", row):
            name = trace.names[int(trace.name[row])].removeprefix("forward 0 ")
            found.append((name, int(trace.num_ops[row]), int(trace.tensor_bytes[row])))
    return found


def added(model: Model, batch: Batch, word: str, plan: Plan | None = None) -> Counter[tuple[str, int, int]]:
    """Return the kernels that a word adds; it takes none away."""
    few, many = (Counter(kernels(model, batch, words, plan)) for words in ((), (word,)))
    assert not few - many
    return many - few


def by_name(found: Counter[tuple[str, int, int]]) -> dict[str, list[int]]:
    """Return the bytes of each kernel by its name within a layer."""
    names: dict[str, list[int]] = {}
    for (name, _, size), count in found.items():
        names.setdefault(name.split(" ", 2)[-1], []).extend([size] * count)
    return names


def stored(values: int) -> int:
    return values + -(-values // 32)


@pytest.mark.parametrize(("plan", "word"), [(BLOCKS, "casts"), (TENSORS, "tensor-casts")])
@pytest.mark.parametrize("batch", [TOKENS, PROMPTS])
def test_inputs_of_each_product_in_fp8_are_read_and_written_in_8_bits(
    plan: Plan, word: str, batch: Batch
) -> None:
    widths = {"qkv": HIDDEN, "attention output": HIDDEN, "feed-forward up": HIDDEN}
    widths["feed-forward down"] = 4 * HIDDEN
    assert by_name(added(decoder(), batch, word, plan)) == {
        f"{name} cast": [VALUE * batch.tokens * width + stored(batch.tokens * width)] * LAYERS
        for name, width in widths.items()
    }
    other = {"casts": "tensor-casts", "tensor-casts": "casts"}[word]
    assert not added(decoder(), batch, other, plan)
    assert not added(decoder(), batch, word)  # values are not cast


@pytest.mark.parametrize(("dispatch", "first"), [("fp8", "to experts cast"), ("values", "experts up cast")])
def test_experts_are_cast_twice_where_deepep_brings_the_tokens_of_prompts(dispatch: str, first: str) -> None:
    plan = replace(BOTH, products="fp8-block", computes="bf16,fp8", node_ranks=2, dispatch=dispatch)
    model = with_experts()
    for exchange, batch, count in (("deepep", PROMPTS, 1), ("deepep", TOKENS, 0), ("all-to-all", PROMPTS, 0)):
        names = by_name(added(model, batch, "casts", replace(plan, expert_exchange=exchange)))
        of_experts = {name: len(sizes) for name, sizes in names.items() if "experts" in name}
        assert of_experts == (dict.fromkeys((first, "experts down cast"), 3) if count else {})
        if count and dispatch == "fp8":
            values = batch.tokens * HIDDEN
            assert names["to experts cast"] == [VALUE * values + stored(values)] * 3


def test_tokens_are_not_cast_for_experts_that_get_and_multiply_values() -> None:
    plan = replace(BOTH, expert_exchange="deepep", node_ranks=2)
    assert not added(with_experts(), PROMPTS, "casts", plan)


def test_a_norm_reads_and_writes_the_sum_of_layers_too() -> None:
    few, many = kernels(decoder(), TOKENS), kernels(decoder(), TOKENS, ("residuals",))
    assert [name for name, *_ in few] == [name for name, *_ in many]
    larger = {
        name.split(" ", 2)[-1]: after - before
        for (name, _, before), (_, _, after) in zip(few, many, strict=True)
    }
    extra = 2 * TOKENS.tokens * HIDDEN * VALUE
    assert {name: size for name, size in larger.items() if size} == {
        "attention norm": extra,
        "feed-forward norm": extra,
    }


def test_heads_are_rotated_and_keys_and_values_written() -> None:
    rotated = 2 * TOKENS.tokens * 2 * HIDDEN * VALUE  # queries and keys, read and written
    assert by_name(added(decoder(), TOKENS, "rotary")) == {"rotary": [rotated] * LAYERS}
    assert by_name(added(decoder(), TOKENS, "cache")) == {"cache": [rotated] * LAYERS}
    for word in OF_LATENT:
        assert not added(decoder(), TOKENS, word)


def test_compressed_keys_have_few_rotated_values_and_one_cached_row() -> None:
    latent = LATENT.attention.latent
    assert latent is not None
    rotated = 2 * VALUE * TOKENS.tokens * (HEADS + 1) * latent.rotary_size
    for word in ("rotary", "latent-rotary"):
        assert by_name(added(LATENT, TOKENS, word)) == {"rotary": [rotated] * LAYERS}
    cached = 2 * VALUE * TOKENS.tokens * (latent.value_rank + latent.rotary_size)
    assert by_name(added(LATENT, TOKENS, "cache")) == {"cache": [cached] * LAYERS}
    norms = 2 * VALUE * TOKENS.tokens * (latent.query_rank + latent.value_rank)
    assert by_name(added(LATENT, TOKENS, "latent-norms")) == {"latent norms": [norms] * LAYERS}


@pytest.mark.parametrize(("query_rank", "plan"), [(24, Plan(lora_rank=8)), (0, Plan())])
def test_norms_of_compressed_values_do_not_depend_on_joined_products(query_rank: int, plan: Plan) -> None:
    latent = replace(LATENT.attention.latent, query_rank=query_rank)
    model = replace(LATENT, attention=replace(LATENT.attention, latent=latent))
    size = 2 * VALUE * TOKENS.tokens * (query_rank + latent.value_rank)
    assert by_name(added(model, TOKENS, "latent-norms", plan)) == {"latent norms": [size] * LAYERS}


def test_keys_of_prompts_are_put_together_and_those_of_tokens_are_not() -> None:
    attention, latent = LATENT.attention, LATENT.attention.latent
    assert latent is not None
    of_head = 2 * attention.head_size + latent.rotary_size + 2 * latent.rotary_size
    sizes = by_name(added(LATENT, PROMPTS, "keys"))["keys"]
    assert len(sizes) == LAYERS
    assert all(0 <= size - PROMPTS.tokens * HEADS * of_head * VALUE < 2 * VALUE for size in sizes)
    assert not added(LATENT, TOKENS, "keys")


def test_outputs_that_came_back_are_added_to_the_shared_expert() -> None:
    size = 3 * TOKENS.tokens * HIDDEN * VALUE
    assert by_name(added(with_experts(), TOKENS, "sums", BOTH)) == {"sum of experts": [size] * 3}
    assert not added(with_experts(), TOKENS, "sums")  # one all-reduce adds all of them
    alone = replace(with_experts(), experts=replace(with_experts().experts, shared=0))
    assert not added(alone, TOKENS, "sums", BOTH)


def test_a_shared_expert_that_joins_the_others_computes_and_moves_as_much() -> None:
    few, many = (Counter(kernels(with_experts(), TOKENS, words)) for words in ((), ("joined-shared",)))
    assert not any("shared expert" in name for name, *_ in many)
    for at in (1, 2):
        assert sum(each[at] * count for each, count in few.items()) == sum(
            each[at] * count for each, count in many.items()
        )
    assert sum(few.values()) - sum(many.values()) == 3 * 3  # two products and the activation, by layer


@pytest.mark.parametrize("plan", [BOTH, Plan(tensor=2, expert=2)])
def test_a_shared_expert_on_other_ranks_than_the_others_does_not_join(plan: Plan) -> None:
    assert kernels(with_experts(), TOKENS, (), plan) == kernels(
        with_experts(), TOKENS, ("joined-shared",), plan
    )


def test_a_shared_expert_of_two_widths_or_in_other_numbers_does_not_join() -> None:
    experts = with_experts().experts
    assert isinstance(experts, Experts)
    wide = replace(with_experts(), experts=replace(experts, shared=2))
    fp8 = Plan(expert_products="fp8", computes="bf16,fp8")
    for model, plan in ((wide, Plan()), (with_experts(), fp8)):
        assert kernels(model, TOKENS, (), plan) == kernels(model, TOKENS, ("joined-shared",), plan)


@pytest.mark.parametrize("batch", [TOKENS, PROMPTS])
def test_padded_experts_have_blocks_for_any_choices_of_the_tokens(batch: Batch) -> None:
    plan, model = replace(BLOCKS, tensor=2), with_experts()
    count, chosen, inner = model.experts.count, model.experts.chosen, model.experts.expert.width // 2
    blocks = -(-(batch.tokens * chosen + count * 127) // 128)
    rows = 128 * count * round(blocks / count)
    every = kernels(model, batch, ("padded-experts",), plan)
    down = [operations for name, operations, _ in every if name.endswith(" experts down")]
    assert down == [2 * rows * HIDDEN * inner] * 3
    values = kernels(model, batch, ("padded-experts",), Plan(tensor=2))
    assert values == kernels(model, batch, (), Plan(tensor=2))


def test_experts_in_blocks_are_padded_on_few_ranks_unless_deepep_counts_their_rows() -> None:
    words, model = ("casts", "padded-experts"), with_experts()
    for plan in (Plan(tensor=4), Plan(tensor=8, expert=2)):
        assert words_for(words, model, replace(plan, products=BLOCKS.products)) == words
        assert words_for(words, model, plan) == ("casts",)
    for plan in (Plan(tensor=8), Plan(data=2, expert=2, expert_exchange="deepep")):
        assert words_for(words, model, replace(plan, products=BLOCKS.products)) == ("casts",)
    assert words_for(words, LATENT, BLOCKS) == ("casts",)


@given(words=st.sets(st.sampled_from(SEPARATE)), is_prompt=st.booleans())
def test_words_do_not_depend_on_each_other(words: set[str], is_prompt: bool) -> None:
    words -= {"joined-shared", "residuals", "padded-experts"}  # these change kernels, the others add some
    batch = PROMPTS if is_prompt else TOKENS
    model, plan = LATENT, BLOCKS
    none = Counter(kernels(model, batch, (), plan))
    whole = Counter(kernels(model, batch, tuple(sorted(words)), plan)) - none
    parts: Counter[Any] = Counter()
    for word in words - {"rotary", "latent-rotary"}:
        parts += added(model, batch, word, plan)
    if words & {"rotary", "latent-rotary"}:
        parts += added(model, batch, "rotary", plan)
    assert whole == parts


@pytest.mark.parametrize(("name", "casts"), [("sglang", 4), ("trtllm", 4), ("vllm", 0)])
def test_engines_without_fused_casts_cast_inputs_of_products_with_one_scale_by_kernels(
    name: str, casts: int
) -> None:
    found = by_name(Counter(kernels(decoder(), TOKENS, read_engine(name).separate, TENSORS)))
    assert sum(len(sizes) for kernel, sizes in found.items() if kernel.endswith(" cast")) == casts * LAYERS


def test_engines_have_known_words_with_a_source_and_the_workload_states_them() -> None:
    assert {*OF_LAYERS, *OF_LATENT, *OF_EXPERTS} == set(SEPARATE)
    for name in ("sglang", "trtllm", "vllm"):
        engine = read_engine(name)
        assert set(engine.separate) <= set(SEPARATE)
        assert "separate" in engine.sources
    written = MadeFor("sglang", engine="sglang", separate=("casts", "sums")).as_written()
    assert written["separate"] == ["casts", "sums"]
    assert "separate" not in MadeFor("sglang").as_written()
