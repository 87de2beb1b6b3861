"""Constraints are decided as in Python, and no other expression is evaluated."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from et_sim.basics.errors import InputError
from et_sim.sweeps.expressions import parse_condition

AXES = ("tp", "pp", "network.bandwidth[0]", "system.preferred-dataset-splits", "model")
NUMBERS = st.integers(-20, 20).map(str) | st.sampled_from(["tp", "pp"])
VALUES = {
    "tp": 4,
    "pp": 3,
    "network.bandwidth[0]": 2.5,
    "system.preferred-dataset-splits": 8,
    "model": "link",
}


def _arithmetic(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    pairs = st.tuples(inner, st.sampled_from(["+", "-", "*", "/", "//", "%"]), inner)
    several = st.tuples(st.sampled_from(["min", "max"]), inner, inner)
    return pairs.map(lambda p: f"({p[0]} {p[1]} {p[2]})") | several.map(lambda m: f"{m[0]}({m[1]}, {m[2]})")


TERMS = st.recursive(NUMBERS, _arithmetic, max_leaves=6)
COMPARISONS = st.tuples(TERMS, st.sampled_from(["<", "<=", "==", "!=", ">", ">="]), TERMS).map(" ".join)
CONDITIONS = st.recursive(
    COMPARISONS,
    lambda inner: (
        st.tuples(inner, st.sampled_from(["and", "or"]), inner).map(lambda c: f"({' '.join(c)})")
        | inner.map(lambda c: f"(not {c})")
    ),
    max_leaves=4,
)


@given(CONDITIONS)
def test_a_condition_holds_as_in_python(text: str) -> None:
    condition = parse_condition(text, AXES)
    try:
        expected = eval(text, {"__builtins__": {"min": min, "max": max}}, {"tp": 4, "pp": 3})
    except ZeroDivisionError:
        with pytest.raises(InputError, match="cannot be decided"):
            condition.holds(VALUES)
        return
    assert condition.holds(VALUES) is expected


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("network.bandwidth[0] < 3 and system.preferred-dataset-splits == 8", True),
        ("system.preferred-dataset-splits-tp == 4", True),
        ("model == 'link' or model == 'tp'", True),
        ("'network.bandwidth[0]' == model", False),
        ("1 < tp <= 4", True),
        ("True", True),
    ],
)
def test_names_of_axes_may_have_dots_and_hyphens(text: str, holds: bool) -> None:
    assert parse_condition(text, AXES).holds(VALUES) is holds


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('true')",
        "tp.real == 4",
        "[tp for tp in (1,)]",
        "(lambda: 1)() == 1",
        "tp ** 9999999 > 1",
        "max(*model)",
        "min(key=tp)",
        "tp <",
        "",
        "tp = 4",
        "(" * 400 + "1" + ")" * 400,
        "tp " * 500,
        "tp == None",
        "tp is 4",
        "tp in model",
        "min > 1",
        "min(max, 2) > 1",
        "tp(2) > 1",
    ],
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"constraint"):
        parse_condition(text, AXES)


def test_a_refusal_calls_axes_by_their_names() -> None:
    with pytest.raises(InputError, match=re.escape("has 'tp ** 2' in it")):
        parse_condition("tp ** 2 == 4", AXES)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("tp / (pp - 3) > 1", "division by zero"),
        ("tp < model", "not supported"),
        ("model * 1000000 == model", "is no number"),
        ("tp * pp", "neither true nor false"),
    ],
)
def test_an_undecidable_condition_names_its_values(text: str, why: str) -> None:
    with pytest.raises(InputError, match=why) as refusal:
        parse_condition(text, AXES).holds(VALUES)
    assert "with " in str(refusal.value)


def test_a_name_that_is_no_axis_is_answered_with_the_nearest() -> None:
    with pytest.raises(InputError, match="did you mean 'tp'"):
        parse_condition("tpp == 1", AXES)


def test_a_condition_without_names_needs_no_axis() -> None:
    assert parse_condition("1 < 2", ()).holds({}) is True
    with pytest.raises(InputError, match="names 'tp', which is no axis"):
        parse_condition("tp < 2", ())
