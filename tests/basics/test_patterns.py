"""Patterns of names match as documented, in time proportional to both lengths."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from et_sim.basics.patterns import fits_pattern, fits_stars, matching

LETTERS = st.text("ab*?[", max_size=8)
ENDLESS_STARS = ["*a" * 40 + "*b", "*" * 200 + "b", "a*" * 60 + "b", "*?a" * 30 + "*b", "*[ab]" * 30 + "*c"]
ENDLESS_EXPRESSIONS = [
    "(a+)+b",
    "(a|a)*b",
    "(a|aa)+b",
    "((a*)*)*b",
    ".*" * 40 + "b",
    "(.*a){20}b",
    "(?:a?){30}a{30}b",
]
NAME = "a" * 20_000
SECONDS = 5.0  # of processor time; a search by backtracking would not end


@given(LETTERS, LETTERS)
def test_a_star_alone_matches_any_text(pattern: str, name: str) -> None:
    expected = re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), name, re.DOTALL) is not None
    assert fits_stars(pattern)(name) == expected


def test_brackets_and_question_marks_stand_for_letters_where_they_may() -> None:
    fits = fits_pattern("gpu[0-3].?")
    assert [fits(name) for name in ("gpu0.x", "gpu4.x", "gpu0.", "gpu0.xy")] == [True, False, False, False]
    assert [fits_stars("f<[?]>*")(name) for name in ("f<[?]> ab", "f<a>")] == [True, False]


def _took(begin: float) -> float:
    return time.process_time() - begin


@pytest.mark.parametrize("pattern", ENDLESS_STARS)
def test_patterns_with_many_stars_take_no_time(pattern: str) -> None:
    begin = time.process_time()
    assert not fits_pattern(pattern)(NAME)
    assert not fits_stars(pattern)(NAME)
    assert _took(begin) < SECONDS


@pytest.mark.parametrize("expression", ENDLESS_EXPRESSIONS)
def test_regular_expressions_within_each_other_take_no_time(expression: str) -> None:
    begin = time.process_time()
    assert matching(expression, [NAME, "aaab"]).tolist()[0] is False
    assert _took(begin) < SECONDS


def test_a_regular_expression_matches_a_whole_name_of_any_letters() -> None:
    names = ["ab", "b", "xab", "a\nb", "aéb", "a\udc80b", ""]
    assert matching("a.?b", names).tolist() == [True, False, False, True, True, True, False]
    assert matching("a|", names).tolist() == [False] * 6 + [True]
    assert matching("x", ()).tolist() == []


@pytest.mark.parametrize("expression", ["(", "a)|(?:b", r"(a)\1", "(?=a)b", "(?<!a)b", "a{5000}", "\udc80"])
def test_invalid_regular_expressions_of_re2_are_refused(expression: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - the message is RE2's
        matching(expression, ["a"])
