"""The dimensions of collectives, and the division of dimensions between model and data."""

from __future__ import annotations

from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from et_sim.basics.errors import InputError
from et_sim.layerfile import Keyword, LayerPhase, LogicalDimensions, logical_dimensions
from et_sim.layerfile.dimensions import CollectiveReach, flags_of, reach_of

F, T = False, True


@pytest.mark.parametrize(
    ("sizes", "group", "logical"),
    [
        ((4, 4), 1, LogicalDimensions((4, 4), (0, 1), (F, F), (T, T))),
        ((4, 4), 2, LogicalDimensions((2, 2, 4), (0, 0, 1), (T, F, F), (F, T, T))),
        ((4, 4), 4, LogicalDimensions((4, 4), (0, 1), (T, F), (F, T))),
        ((4, 4), 6, LogicalDimensions((4, 1, 4), (0, 1, 1), (T, T, F), (F, F, T))),  # as 1.0 splits it
        ((4, 4), 8, LogicalDimensions((4, 2, 2), (0, 1, 1), (T, T, F), (F, F, T))),
        ((4, 4), 16, LogicalDimensions((4, 4), (0, 1), (T, T), (F, F))),
        ((4, 4), 32, LogicalDimensions((4, 4), (0, 1), (F, F), (T, T))),
        ((1, 4, 2), 4, LogicalDimensions((1, 4, 2), (0, 1, 2), (T, T, F), (F, F, T))),
    ],
)
def test_a_group_takes_the_first_dimensions(
    sizes: tuple[int, ...], group: int, logical: LogicalDimensions
) -> None:
    assert logical_dimensions(sizes, group) == logical


@pytest.mark.parametrize(("sizes", "group"), [((4, 4), 3), ((8,), 3), ((2, 6), 10)])
def test_a_group_with_which_1_0_never_ends_is_refused(sizes: tuple[int, ...], group: int) -> None:
    with pytest.raises(InputError, match=f"a model-parallel group of {group} NPUs would split dimension"):
        logical_dimensions(sizes, group)


@given(st.lists(st.integers(1, 12), min_size=1, max_size=4), st.integers(1, 200))
def test_logical_dimensions_hold_all_npus_and_each_is_model_or_data(sizes: list[int], group: int) -> None:
    try:
        logical = logical_dimensions(sizes, group)
    except InputError:
        return
    assert prod(logical.sizes) == prod(sizes)
    for physical, size in enumerate(sizes):
        parts = [part for part, of in zip(logical.sizes, logical.physical, strict=True) if of == physical]
        assert prod(parts) == size
    assert all(model != data for model, data in zip(logical.model, logical.data, strict=True))
    shared = prod(size for size, model in zip(logical.sizes, logical.model, strict=True) if model)
    if 1 < group <= prod(sizes) and prod(sizes) % group == 0 and len(sizes) == 1:
        assert shared == group


@pytest.mark.parametrize(
    ("keyword", "layer", "forward", "weight"),
    [
        (Keyword.DATA, 1, CollectiveReach.NO_NPU, CollectiveReach.ALL),
        (Keyword.MODEL, 1, CollectiveReach.ALL, CollectiveReach.NO_NPU),
        (Keyword.HYBRID_DATA_MODEL, 1, CollectiveReach.FIRST, CollectiveReach.OTHERS),
        (Keyword.HYBRID_MODEL_DATA, 1, CollectiveReach.OTHERS, CollectiveReach.FIRST),
        (Keyword.HYBRID_DLRM, 0, CollectiveReach.ALL, CollectiveReach.ALL),
        (Keyword.HYBRID_DLRM_ENHANCED, 1, CollectiveReach.NO_NPU, CollectiveReach.ALL),
        (Keyword.HYBRID_TRANSFORMER, 1, CollectiveReach.MODEL, CollectiveReach.DATA),
    ],
)
def test_keywords_determine_the_reach_of_collectives(
    keyword: Keyword, layer: int, forward: CollectiveReach, weight: CollectiveReach
) -> None:
    reaches = [reach_of(keyword, layer, None, phase) for phase in LayerPhase]
    assert reaches == [forward, forward, weight]


def test_a_customized_layer_has_the_reach_of_its_own_keyword() -> None:
    own = reach_of(Keyword.HYBRID_CUSTOMIZED, 3, Keyword.HYBRID_MODEL_DATA, LayerPhase.FORWARD)
    assert own == CollectiveReach.OTHERS


@pytest.mark.parametrize(
    ("reach", "flags"),
    [
        (CollectiveReach.NO_NPU, (F, F, F)),
        (CollectiveReach.ALL, (T, T, T)),
        (CollectiveReach.FIRST, (T, F, F)),
        (CollectiveReach.OTHERS, (F, T, T)),
    ],
)
def test_reaches_are_flags_of_dimensions(reach: CollectiveReach, flags: tuple[bool, ...]) -> None:
    assert flags_of(reach, 3) == flags
