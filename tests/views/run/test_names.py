"""Only counters are removed from names; shortened names still differ; columns without space are named."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from et_sim.views.run.names import stems
from et_sim.views.text import cut, distinct

KERNELS = (
    "sm80_xmma_gemm_f16f16_f16f32_f32_tn_n_tilesize128x64x32_stage5",
    "sm80_xmma_gemm_f16f16_f16f32_f32_tn_n_tilesize128x64x32_stage4",
    "sm80_xmma_gemm_f16f16_f16f32_f32_tn_n_tilesize128x128x32_stage4",
    "void at::native::vectorized_elementwise_kernel<4, at::native::add>",
    "void at::native::vectorized_elementwise_kernel<5, at::native::add>",
    "ampere_sgemm_128x64_nn",
    "volta_gemm_128_64_nn",
    "volta_gemm_128_32_nn",
    "AddmmBackward0",
    "AddmmBackward1",
)


def test_layers_and_steps_are_counted() -> None:
    assert stems(["layer 0 up", "layer 1 up", "h.3.attn", "h.5.attn", "h.6.attn"]) == [
        "layer # up",
        "layer # up",
        "h.#.attn",
        "h.#.attn",
        "h.#.attn",
    ]
    assert stems(["step_1/layer 0", "step_1/layer 2", "step_1/layer 1"])[0] == "step_1/layer #"


def test_a_number_that_never_changes_is_part_of_the_name() -> None:
    assert stems(["all_reduce.0", "stage 7 forward"]) == ["all_reduce.0", "stage 7 forward"]


def test_kernels_keep_all_their_numbers() -> None:
    assert stems(KERNELS) == list(KERNELS)


def test_names_beside_others_have_the_same_stems() -> None:
    assert stems(["layer 3"], beside=["layer 3", "layer 4"]) == stems(["layer 4"], beside=["layer 3"])


def test_many_different_numbers_count_with_gaps_too() -> None:
    names = [f"node {number * number}" for number in range(40)]
    assert set(stems(names)) == {"node #"}
    assert stems(names[::10]) == names[::10]


@given(st.lists(st.text("ab0123 ._x<", max_size=12), max_size=12))
def test_stems_do_not_depend_on_the_order_and_differ_from_names_in_numbers_only(names: list[str]) -> None:
    stem_of = dict(zip(names, stems(names), strict=True))
    assert dict(zip(names[::-1], stems(names[::-1]), strict=True)) == stem_of
    for name, stem in stem_of.items():
        assert "".join(c for c in stem if c not in "#0123") == "".join(c for c in name if c not in "0123")


def test_names_that_are_cut_still_differ() -> None:
    short = distinct(KERNELS, 24)
    assert len(set(short)) == len(KERNELS)
    assert max(map(len, short)) <= 24
    assert cut("forward of the embedding", 12) == "forwar…dding"


@given(st.lists(st.text("abc", max_size=30), max_size=8), st.integers(8, 30))
def test_cut_names_have_room(names: list[str], width: int) -> None:
    for name, short in zip(names, distinct(names, width), strict=True):
        assert len(short) <= width
        assert short == name or len(name) > width
