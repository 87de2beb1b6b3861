"""Closed forms of operations against counting, and shapes that are refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from et_sim.basics.errors import TraceError
from et_sim.basics.kernel_names import STRIDED
from et_sim.compute.operations import FORMS, causal_pairs, read_shape
from et_sim.trace import shapes

few = st.integers(1, 12)


@given(few, few)
def test_causal_pairs_are_those_of_a_mask_whose_last_query_sees_all_keys(queries: int, keys: int) -> None:
    seen = [(q, k) for q in range(queries) for k in range(keys) if k <= q + keys - queries]
    assert causal_pairs(queries, keys) == len(seen)


def of(text: str) -> tuple[int, int]:
    operation = read_shape(text, "").operation
    return operation.operations, operation.elements


def test_products_count_two_operations_for_each_multiplication() -> None:
    assert of(shapes.gemm(2, 3, 5)) == (2 * 2 * 3 * 5, 2 * 5 + 5 * 3 + 2 * 3)
    assert of(shapes.gemm(2, 3, 5, count=7)) == (7 * 60, 7 * 31)
    assert of(shapes.grouped_gemm(3, 5, (2, 4))) == (2 * 6 * 3 * 5, 6 * 5 + 2 * 5 * 3 + 6 * 3)


def test_a_convolution_is_the_product_of_its_windows_and_filters() -> None:
    assert of(shapes.convolution((5, 7), (3, 3), 4, 6, (2, 2))) == (
        2 * (2 * 3) * (3 * 3 * 4) * 6,
        5 * 7 * 4 + 36 * 6 + 6 * 6,
    )


def test_attention_reads_keys_of_shared_heads_once() -> None:
    every, shared = (shapes.attention(2, 8, 3, 5, 4, key_heads=heads) for heads in (8, 2))
    assert of(every)[0] == of(shared)[0] == 2 * 2 * 8 * 3 * 5 * (4 + 4)
    assert of(every)[1] - of(shared)[1] == 2 * 6 * 5 * (4 + 4)


def test_causal_attention_computes_half_and_moves_as_much() -> None:
    full, causal = (shapes.attention(1, 1, 100, 100, 8, causal=is_set) for is_set in (False, True))
    assert of(causal)[0] / of(full)[0] == pytest.approx(0.505)
    assert of(causal)[1] == of(full)[1]


def test_the_backward_pass_of_attention_has_five_products_for_two() -> None:
    forward, backward = (shapes.attention(2, 3, 16, 16, 8, backward=is_set) for is_set in (False, True))
    assert of(backward)[0] * 2 == of(forward)[0] * 5


def test_operations_without_products_count_their_elements() -> None:
    assert of(shapes.rmsnorm(10, 8)) == (4 * 80, 2 * 80 + 8)
    assert of(shapes.layernorm(10, 8)) == (7 * 80, 2 * 80 + 2 * 8)
    assert of(shapes.softmax(10, 8)) == (5 * 80, 2 * 80)
    assert of(shapes.elementwise(100, 2, 3)) == (300, 300)
    assert of(shapes.embedding(10, 8)) == (0, 2 * 80)
    assert read_shape(shapes.embedding(10, 8), "").operation.bytes(16) == 2 * 10 * 8 * 2 + 80


def test_every_kind_of_shape_has_an_operation() -> None:
    for kind, form in FORMS.items():
        operation = read_shape(" ".join([kind, *["8"] * len(form.numbers)]), "").operation
        assert (operation.kind, operation.elements > 0) == (kind, True)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("atention 1 1 1 1 1 1", "did you mean 'attention'?"),
        ("attention 1 1", "has 2 numbers (attention has 6 to 7: attention BATCH HEADS"),
        ("grouped_gemm 1 2", "has 2 numbers (grouped_gemm has 3 or more"),
        ("gemm 1 2 3 x 0", "has the size 0"),
        ("gemm 1 2 3 causal", "has 4 numbers"),
        ("gemm 1099511627776 1099511627776 1099511627776", "more than 2^62 operations"),
        ("conv 3 3 1 4 1 1 1 1", "the filter's width 4 is larger than the ifmap's, 3"),
    ],
)
def test_invalid_shapes_are_refused_in_one_sentence(text: str, sentence: str) -> None:
    with pytest.raises(TraceError) as error:
        read_shape(text, "trace.0.et")
    assert sentence in str(error.value)
    assert str(error.value).startswith("trace.0.et: ")


def test_forms_name_a_kernel_that_is_the_only_one() -> None:
    assert FORMS["elementwise"].text.endswith(f"[{STRIDED}]")
    assert FORMS["gemm"].text == "M N K [KERNEL]"
    assert FORMS["attention"].text.endswith(" [causal] [KERNEL]")
