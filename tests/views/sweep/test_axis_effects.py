"""Effects of the values of an axis, places where the bottleneck changes, and marks along an axis."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise, product
from typing import Any

import pytest

from et_sim.views.sweep.scales import LAST, axis_scale
from et_sim.views.sweep.summary import Effect, Turn, effects_of, turns_of


def rows_of(values: list[Any]) -> list[dict[str, Any]]:
    """Return two points for each value, in an order that is not theirs."""
    return [
        {"x": value, "makespan_ns": 100 * place + more}
        for more in (0, 11)
        for place, value in reversed([*enumerate(values)])
    ]


@pytest.mark.parametrize("count", [1, 2, 12])
def test_each_of_up_to_twelve_numbers_has_its_own_effect(count: int) -> None:
    values = [3 * number for number in range(count)]
    expected = [
        Effect("x", value, value, 2, 100 * place, 100 * place + 6) for place, value in enumerate(values)
    ]
    assert effects_of(rows_of(values), "x") == expected


@pytest.mark.parametrize("count", [13, 16, 31])
def test_more_numbers_have_effects_in_eight_ranges_of_nearly_equal_size(count: int) -> None:
    effects = effects_of(rows_of([float(number) for number in range(count)]), "x")
    sizes = [int(effect.until - effect.value) + 1 for effect in effects]
    assert (len(effects), sum(sizes)) == (8, count)
    assert max(sizes) - min(sizes) <= 1
    for before, after in pairwise(effects):
        assert after.value == before.until + 1
    for effect, size in zip(effects, sizes, strict=True):
        mean = 100 * (effect.value + effect.until) / 2 + 5.5
        assert (effect.points, effect.least_ns) == (2 * size, 100 * effect.value)
        assert effect.mean_ns == pytest.approx(mean, abs=0.5)


def test_words_have_effects_of_their_own_in_the_order_of_the_sweep() -> None:
    words = [f"word {20 - number}" for number in range(20)]
    assert [effect.value for effect in effects_of(rows_of(words)[::-1], "x")] == words


def test_turns_are_counted_among_neighbours_that_are_equal_in_all_else() -> None:
    places = product((1, 2, 4), ("a", "b", "c"))
    rows = [{"x": x, "y": y, "bottleneck": "net" if x > 1 and y != "c" else "work"} for x, y in places]
    assert turns_of(rows[::-1], ["x", "y"], "x") == [Turn("x", 1, 2, "work", "net", 2, 3)]
    of_words = turns_of(rows, ["x", "y"], "y")
    assert of_words == [Turn("y", "b", "c", "net", "work", 2, 3)]


def test_turns_between_two_values_are_ordered_by_how_often_they_occur() -> None:
    becomes = ["d", "c", "c", "b"]
    rows = [
        {"x": x, "y": y, "bottleneck": now}
        for y, end in enumerate(becomes)
        for x, now in ((1, "a"), (5, end))
    ]
    turns = turns_of(rows, ["x", "y"], "x")
    assert [(turn.becomes, turn.times, turn.of) for turn in turns] == [("c", 2, 4), ("b", 1, 4), ("d", 1, 4)]
    assert Counter(turn.bottleneck for turn in turns) == {"a": 3}


@pytest.mark.parametrize(("count", "marks"), [(10, 10), (11, 6)])
def test_each_of_up_to_ten_numbers_has_a_mark_and_more_have_marks_at_round_numbers(
    count: int, marks: int
) -> None:
    values = [10 * number for number in range(count)]
    scale = axis_scale("x", values)
    assert len(scale.marks) == marks
    assert (scale.marks[0], scale.marks[-1]) == ((0, "0"), (LAST, str(values[-1])))
    assert {place for place, _ in scale.marks} <= {*scale.places}
