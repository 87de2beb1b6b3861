"""Sequences of names are aligned wherever they meet, however often they repeat themselves."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from converters.pytorch.alignment import NameSequence, align
from converters.pytorch.untimed import find_cycle


def sequence(names: list[int], numbers: list[int] | None = None) -> NameSequence:
    return NameSequence(np.array(names, np.int64), np.array(numbers or [-1] * len(names), np.int64))


STEP = [1, 2, 3, 4, 2, 3, 5, 6, 7, 2, 8, 9, 1, 1, 4]


def test_equal_sequences_match_whole() -> None:
    here, there = align(sequence(STEP * 20), sequence(STEP * 20))
    assert here.tolist() == there.tolist() == list(range(len(STEP) * 20))


def test_sequence_numbers_choose_the_iteration() -> None:
    numbers = [100 + at if at % 3 == 0 else -1 for at in range(30 * len(STEP))]
    start = 11 * len(STEP)
    part = slice(start, start + len(STEP))
    here, there = align(sequence(STEP, numbers[part]), sequence(STEP * 30, numbers))
    assert here.tolist() == list(range(len(STEP)))
    assert there.tolist() == list(range(start, start + len(STEP)))


def test_without_numbers_the_first_of_equal_iterations_is_taken() -> None:
    _, there = align(sequence(STEP), sequence([50, 51, 52, *STEP * 30]))
    assert there.tolist() == list(range(3, 3 + len(STEP)))


def test_a_sequence_that_begins_earlier_than_the_other_is_aligned_too() -> None:
    long = list(range(100, 160))
    here, there = align(sequence(long), sequence(long[20:]))
    assert (here - there == 20).all()
    assert len(here) == 40


@given(st.lists(st.integers(0, 5), min_size=30, max_size=200), st.data())
def test_matches_are_equal_and_ascend(names: list[int], data: st.DataObject) -> None:
    kept = [at for at in range(len(names)) if data.draw(st.integers(0, 9)) > 0]
    ours, theirs = sequence([names[at] for at in kept]), sequence(names)
    here, there = align(ours, theirs)
    assert (ours.name[here] == theirs.name[there]).all()
    assert (np.diff(here) > 0).all()
    assert (np.diff(there) > 0).all()


@given(st.sets(st.integers(0, 299), max_size=12))
def test_few_missing_elements_cost_no_more_than_their_surroundings(missing: set[int]) -> None:
    names = [(at * 7919) % 1009 for at in range(300)]
    kept = [at for at in range(300) if at not in missing]
    here, _ = align(sequence([names[at] for at in kept]), sequence(names))
    assert len(here) >= len(kept) - 4 * len(missing)


def test_a_circle_of_callers_is_found_and_is_the_shortest() -> None:
    none = -1
    assert find_cycle(np.array([none, 0, 1, 2])) == []
    assert sorted(find_cycle(np.array([none, 4, 1, 2, 3, 6, 5, 0]))) == [5, 6]
    assert find_cycle(np.array([none, 1])) == [1]
