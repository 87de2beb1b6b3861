"""Attention of ranks that share sequences: pairs of queries and keys, kernels, exchanges, in closed form."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from machines import network, system
from msgspec.structs import replace
from training_jobs import decoder, moved, rows_named, transformer

from et_sim.api import run
from et_sim.basics.errors import UsageError
from et_sim.trace import Trace, Workload
from et_sim.workloads import Plan, make_training
from et_sim.workloads.training.blocks import QuerySight, gathered_blocks, ring_blocks

METHODS = [
    {"context_attention": method, "context_balance": balance}
    for method in ("ring", "all-gather", "all-to-all")
    for balance in ("zigzag", "none")
]


def tokens_of(ranks: int, place: int, each: int, *, is_balanced: bool) -> list[int]:
    """Return the tokens of a sequence that a rank has."""
    if not is_balanced:
        return list(range(place * each, (place + 1) * each))
    half, last = each // 2, 2 * ranks - 1 - place
    return [*range(place * half, (place + 1) * half), *range(last * half, (last + 1) * half)]


def is_seen(sight: QuerySight, query: int, key: int) -> bool:
    whole = sight.document or sight.sequence
    if query // whole != key // whole:
        return False
    return not sight.is_causal or (key <= query and (not sight.window or key > query - sight.window))


@given(st.integers(1, 5), st.integers(1, 4), st.booleans(), st.booleans(), st.integers(1, 3))
def test_each_step_of_a_ring_has_the_pairs_that_the_mask_leaves_of_its_tokens(
    ranks: int, half: int, is_balanced: bool, is_causal: bool, documents: int
) -> None:
    each, whole = 2 * half, 2 * half * ranks
    sight = QuerySight(documents * whole, is_causal, document=whole if documents > 1 else 0)
    own = [
        [
            document * whole + token
            for document in range(documents)
            for token in tokens_of(ranks, place, each, is_balanced=is_balanced)
        ]
        for place in range(ranks)
    ]
    for place in range(ranks):
        for step, block in enumerate(ring_blocks(sight, ranks, place, is_balanced=is_balanced)):
            seen = [
                (query, key)
                for query in own[place]
                for key in own[(place - step) % ranks]
                if is_seen(sight, query, key)
            ]
            assert (block.pairs if block else 0) == len(seen)
            if block is not None and not block.is_causal:  # no masked scores are in the kernel
                assert block.all_queries * block.keys == block.pairs
                assert block.all_queries == len({query for query, _ in seen})
                assert block.keys_read == len({key for _, key in seen})


@given(
    st.integers(1, 4),
    st.integers(1, 6),
    st.booleans(),
    st.booleans(),
    st.integers(0, 9),
    st.sampled_from([0, 1, 2, 3]),
)
def test_gathered_keys_are_met_as_often_as_masks_leave_them(
    ranks: int, half: int, is_balanced: bool, is_causal: bool, window: int, parts: int
) -> None:
    sequence = 2 * half * ranks
    document = sequence // parts if parts and sequence % parts == 0 else 0
    sight = QuerySight(sequence, is_causal, window if is_causal else 0, document)
    whole = 0
    for place in range(ranks):
        blocks = gathered_blocks(sight, ranks, place, is_balanced=is_balanced)
        own = tokens_of(ranks, place, 2 * half, is_balanced=is_balanced)
        seen = sum(is_seen(sight, query, key) for query in own for key in range(sequence))
        assert sum(block.pairs for block in blocks) == seen
        assert sum(block.all_queries for block in blocks) == len(own)
        whole += seen
    assert whole == sight.pairs(sequence)


@given(st.integers(2, 8), st.integers(1, 64))
def test_a_zigzag_gives_all_ranks_the_same_pairs_and_half_blocks_behind_the_first(
    ranks: int, half: int
) -> None:
    sight = QuerySight(2 * half * ranks, is_causal=True)
    for place in range(ranks):
        first, *others = ring_blocks(sight, ranks, place, is_balanced=True)
        assert first is not None
        assert first.pairs == half * (2 * half + 1)
        assert {block.pairs for block in others if block} == {2 * half * half}
        assert len(others) == ranks - 1
        by_gathering = gathered_blocks(sight, ranks, place, is_balanced=True)
        assert sum(block.pairs for block in by_gathering) * ranks == sight.pairs(sight.sequence)


@given(st.integers(2, 8), st.integers(1, 64))
def test_in_order_each_rank_has_one_block_more_than_the_previous_one(ranks: int, each: int) -> None:
    sight = QuerySight(each * ranks, is_causal=True)
    for place in range(ranks):
        blocks = ring_blocks(sight, ranks, place, is_balanced=False)
        assert [block is not None for block in blocks] == [step <= place for step in range(ranks)]


def operations(workload: Workload) -> int:
    """Return the operations of attention's cores on all ranks."""
    counts = workload.ranks_per_template.tolist()
    of_each = [int(trace.num_ops[rows_named(trace, " attention")].sum()) for trace in workload.templates]
    return sum(count * each for count, each in zip(counts, of_each, strict=True))


@pytest.mark.parametrize("how", METHODS, ids=str)
@pytest.mark.parametrize("model", [{}, {"is_encoder": True}], ids=["causal", "encoder"])
@pytest.mark.parametrize("context", [2, 4])
def test_ranks_together_have_the_operations_of_one_rank(
    how: dict[str, Any], model: dict[str, Any], context: int
) -> None:
    plan = Plan(micro_batches=2, batch=3)
    alone = operations(make_training(decoder(**model), plan))
    assert operations(make_training(decoder(**model), replace(plan, context=context, **how))) == alone


@pytest.mark.parametrize("how", [{"context": 2, **how} for how in METHODS] + [{}], ids=str)
@pytest.mark.parametrize("document", [4, 8, 16])
def test_attention_within_documents_costs_as_much_as_separate_documents(
    how: dict[str, Any], document: int
) -> None:
    model = decoder()
    workload = make_training(model, Plan(document_tokens=document, micro_batches=1, **how))
    pairs = 32 // document * document * (document + 1) // 2
    sizes = 7 * model.attention.head_size
    assert operations(workload) == 2 * pairs * model.attention.heads * sizes * model.layers


def test_documents_that_lie_whole_on_a_rank_are_sequences_of_their_own() -> None:
    shapes = {shape for shape in transformer(document_tokens=8).trace(0).layer_shapes if "attention" in shape}
    assert shapes == {"attention 4 8 8 8 8 8 causal", "attention_backward 4 8 8 8 8 8 causal"}


def shapes_of(trace: Trace, ending: str) -> list[str]:
    """Return the shapes of a layer's nodes whose names have an ending, in order."""
    rows = np.flatnonzero(rows_named(trace, ending)).tolist()
    return [
        trace.layer_shapes[trace.layer_shape[row]]
        for row in rows
        if "layer 0" in trace.names[trace.name[row]]
    ]


def test_kernels_have_the_shapes_of_their_blocks() -> None:
    ring = transformer(context=2, micro_batches=1).trace(0)
    forward = ["attention 1 8 8 16 16 8 causal", "attention 1 8 8 16 8 8"]
    assert shapes_of(ring, " attention")[:2] == forward
    gathered = transformer(context=2, micro_batches=1, context_attention="all-gather").trace(0)
    forward = ["attention 1 8 8 8 16 8 causal", "attention 1 8 8 8 24 8 causal"]  # of the second rank
    assert shapes_of(gathered, " attention")[:2] == forward
    heads = transformer(context=2, micro_batches=1, context_attention="all-to-all").trace(0)
    assert shapes_of(heads, " attention")[:1] == ["attention 1 4 4 32 32 8 causal"]
    last = transformer(context=2, micro_batches=1, context_balance="none").trace(1)
    assert shapes_of(last, " attention")[1] == "attention 1 8 8 16 16 8"


@pytest.mark.parametrize("balance", ["zigzag", "none"])
def test_a_ring_passes_keys_on_and_backward_their_gradients_back_to_their_owner(balance: str) -> None:
    context, layers, keys = 4, 4, 2 * 64 * 32 // 4 * 2
    for trace in transformer(context=context, micro_batches=3, context_balance=balance).templates:
        each = (context - 1) + (context - 1) + context
        assert moved(trace)["", "send"] == 3 * layers * each * keys
        sizes = Counter(trace.comm_bytes[rows_named(trace, "keys send")].tolist())
        assert sizes == {keys: 3 * layers * each}


def test_gathering_takes_all_keys_before_each_pass_and_reduces_all_gradients() -> None:
    keys = 2 * 64 * 32 // 4 * 2
    for balance in ("zigzag", "none"):
        how = {"context_attention": "all-gather", "context_balance": balance}
        for trace in transformer(context=4, micro_batches=3, **how).templates:
            assert trace.comm_bytes[rows_named(trace, "keys all-gather")].tolist() == [keys] * 3 * 4 * 2
            reduced = trace.comm_bytes[rows_named(trace, "gradients of keys reduce-scatter")].tolist()
            assert reduced == [4 * keys] * 3 * 4


def test_outputs_of_all_blocks_but_the_first_are_merged_in_four_bytes() -> None:
    trace = transformer(context=4, micro_batches=1, batch=5).trace(0)
    rows = trace.tensor_bytes[rows_named(trace, "forward 0 layer 0 outputs merged")].tolist()
    whole, half = 5 * 8, 5 * 4  # queries, as the middle rank has them: two steps with all, one with half
    logarithms = 3 * 4 * 8
    expected = [
        whole * (64 * (2 + 2 + 4) + logarithms),
        whole * (64 * (4 + 2 + 4) + logarithms),
        half * (64 * (4 + 2 + 2) + logarithms),
    ]
    assert rows == expected


def test_ranks_differ_only_where_their_work_does() -> None:
    """Expect further templates in a ring, whose ends have neighbours at other distances."""
    count = {
        tuple(how.values()): len(transformer(context=4, sequence=40, **how).templates) for how in METHODS
    }
    assert count == {
        ("ring", "zigzag"): 3,
        ("ring", "none"): 4,
        ("all-gather", "zigzag"): 1,
        ("all-gather", "none"): 4,
        ("all-to-all", "zigzag"): 1,
        ("all-to-all", "none"): 1,
    }


@pytest.mark.parametrize("how", METHODS, ids=str)
def test_folded_ranks_of_a_context_axis_end_as_unfolded_ones(how: dict[str, Any]) -> None:
    workload = transformer(context=4, tensor=2, micro_batches=2, tflops=0.01, **how)
    folded, unfolded = (
        run(workload, system=system(profile="corrected"), network=network(["Switch"], [8]), fold=fold)
        for fold in (True, False)
    )
    assert folded.finish_ns.tolist() == unfolded.finish_ns.tolist()


@pytest.mark.parametrize("balance", ["zigzag", "none"])
def test_a_ring_hides_its_messages_behind_attention_but_for_the_last_gradients_of_a_layer(
    balance: str,
) -> None:
    def end(bandwidth: float) -> int:
        return run(
            transformer(context=4, micro_batches=1, sequence=512, tflops=1e-3, context_balance=balance),
            system=system(profile="corrected"),
            network=network(["FullyConnected"], [4], bandwidth=bandwidth),
        ).makespan_ns

    message = 512 // 4 * 2 * 64 * 2  # keys and values of a rank, in bytes, and at 1 GB/s in ns
    weights = 4 * 12 * 64 * 64 + 2 * 128 * 64  # of layers, embedding and head
    replicas = 2 * 2 * weights * 3 // 4  # bytes of their gradients that a ring of replicas exchanges
    hidden = end(1) - end(1e6)
    assert hidden < 4 * 2 * message + replicas  # of ten messages in each of four layers


def test_without_balance_the_last_rank_is_the_longest() -> None:
    ends = {
        balance: run(
            transformer(context=4, micro_batches=1, sequence=1024, tflops=1e-4, context_balance=balance),
            system=system(profile="corrected"),
            network=network(["Switch"], [4], bandwidth=1000),
        ).makespan_ns
        for balance in ("zigzag", "none")
    }
    assert ends["none"] > 1.3 * ends["zigzag"]


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"context_attention": "rings"}, "context_attention is \"rings\" (did you mean 'ring'?"),
        ({"context_balance": "zigzags"}, "context_balance is \"zigzags\" (did you mean 'zigzag'?"),
        (
            {"context": 32},
            "tokens of a sequence: 32 is not a multiple of 64, the number of pieces of a zigzag",
        ),
        (
            {"document_tokens": 5},
            "tokens of a sequence: 32 is not a multiple of 5, the number of tokens of a document",
        ),
        (
            {"document_tokens": 2, "context": 2},
            "tokens of a document: 2 is not a multiple of 4, the number of pieces of a zigzag",
        ),
    ],
)
def test_attention_that_ranks_cannot_share_is_refused(how: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        make_training(decoder(), Plan(**how))
    assert message in str(caught.value)
