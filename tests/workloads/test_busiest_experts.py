"""The busiest rank's experts in forward passes of inference, with and without copies."""

from __future__ import annotations

import json
from itertools import chain
from math import comb
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from training_jobs import decoder, moved, with_experts

import et_sim
from et_sim.basics.errors import FieldError
from et_sim.workloads import Batch, Plan, Segment, make_inference
from et_sim.workloads.inference.expert_loads import _chances, _copied, _packed, busiest_rank
from et_sim.workloads.models.model import Experts, FeedForward
from et_sim.workloads.training.expert_loads import loads_of

EIGHT = Experts(8, 2, FeedForward(64, is_gated=True))


def plan(**more: object) -> Plan:
    return Plan(**{"tensor": 1, "data": 4, "expert": 4, **more})


def listed(folder: Path, *loads: float) -> str:
    path = folder / "loads.json"
    path.write_text(json.dumps(loads))
    return str(path)


def test_even_loads_are_no_skew() -> None:
    for tokens in (1, 7, 1000):
        assert busiest_rank(EIGHT, plan(expert_skew="zipf:0"), tokens) == busiest_rank(EIGHT, plan(), tokens)


def test_many_tokens_use_the_experts_of_the_busiest_rank_by_their_loads(tmp_path: Path) -> None:
    """Check that a token takes an expert of load 3 with a chance of 1/2, and one of load 1 with 1/6."""
    skew = listed(tmp_path, 3, 3, 1, 1, 1, 1, 1, 1)
    assert busiest_rank(EIGHT, plan(expert_skew=skew), 600) == (2, 300, pytest.approx(2.0))
    # Two copies of each of the first two, with a chance of 1/4, go to ranks of their own.
    copied = busiest_rank(EIGHT, plan(expert_skew=skew, redundant_experts=4), 600)
    assert copied.experts == 3
    assert copied.excess < 1.2


def test_an_expert_has_at_most_all_tokens(tmp_path: Path) -> None:
    skew = listed(tmp_path, 1e9, *[1] * 7)
    found = busiest_rank(EIGHT, plan(expert_skew=skew), 700)
    assert found == (2, round(700 * (1 + 1 / 7) / 2), pytest.approx((1 + 1 / 7) / 0.5))


@given(st.lists(st.floats(0.01, 100), min_size=3, max_size=40), st.integers(1, 3))
def test_chances_keep_the_number_of_chosen_experts(loads: list[float], chosen: int) -> None:
    chances = _chances(loads, chosen)
    assert sum(chances) == pytest.approx(chosen)
    assert max(chances) <= 1
    open_ones = [chance / load for chance, load in zip(chances, loads, strict=True) if chance < 1]
    assert max(open_ones, default=0) == pytest.approx(min(open_ones, default=0))


@given(st.floats(0.1, 3), st.integers(0, 99), st.sampled_from([(2, 0), (4, 4), (4, 8), (8, 8)]))
def test_copies_share_loads_and_fill_all_places(skew: float, seed: int, layout: tuple[int, int]) -> None:
    ranks, redundant = layout
    chances = _chances([float(load) for load in loads_of(f"zipf:{skew}", seed, 16, 2)], 2)
    copies = _copied(chances, redundant)
    assert len(copies) == 16 + redundant
    assert sum(copies) == pytest.approx(2)
    assert max(copies) <= max(chances)
    places = _packed(copies, ranks, len(copies) // ranks)
    assert {len(place) for place in places} == {len(copies) // ranks}
    assert sorted(chain.from_iterable(places)) == sorted(copies)
    mean = 2 / ranks
    assert max(map(sum, places)) <= mean + max(copies)  # of the largest-first rule, while places are left


def test_a_pass_with_skew_takes_longer_and_with_copies_less() -> None:
    model, given = with_experts(sequence=4096), Batch.of([Segment(2048)])

    def took(**more: object) -> int:
        workload = make_inference(model, plan(**more), [given])
        return int(et_sim.simulate(workload, machine="h100-dgx:4").makespan_ns)

    even, skewed = took(), took(expert_skew="zipf:1.5")
    assert took(expert_skew="zipf:0") == even < skewed
    assert took(expert_skew="zipf:1.5", redundant_experts=8) < skewed


@pytest.mark.parametrize("exchange", ["hierarchical", "deepep"])
def test_exchanges_between_nodes_have_the_tokens_of_the_busiest_ranks(exchange: str, tmp_path: Path) -> None:
    """Check that the node with the only three experts that are taken gets all tokens."""
    model, given = with_experts(sequence=4096), Batch.of([Segment(600)])

    def tokens(**more: object) -> dict[str, int]:
        of = plan(expert_exchange=exchange, node_ranks=2, **more)
        sent = moved(make_inference(model, of, [given]).trace(0))
        row = 3 * (1 + 1) * 64 * 2  # bytes of a token there and back, in all layers with experts
        return {group: size // row for (group, kind), size in sent.items() if kind == "all_to_all"}

    even = tokens()
    assert tokens(expert_skew="zipf:0") == even
    few = tokens(expert_skew=listed(tmp_path, 1, 1, 1, 0, 0, 0, 0, 0))
    assert few["expert-rail"] == 2 * 600
    assert few["expert-node"] >= even["expert-node"]
    assert even["expert-rail"] == round(2 * 600 * (1 - comb(4, 2) / comb(8, 2)))
    copied = tokens(expert_skew=listed(tmp_path, 1, 1, 1, 0, 0, 0, 0, 0), redundant_experts=8)
    assert copied["expert-rail"] < few["expert-rail"]


def test_skews_that_cannot_be_are_refused() -> None:
    for model, options, refused in (
        (decoder(), {"expert_skew": "zipf:1", "expert": 1}, "no experts"),
        (with_experts(), {"expert_skew": "zipf:x"}, "zipf"),
    ):
        with pytest.raises(FieldError, match=refused):
            make_inference(model, plan(**options), [Batch.of([Segment(8)])])
