"""Names of collective algorithms: each spelling is parsed and printed again, and other names are refused."""

from __future__ import annotations

import pytest

from et_sim.collectives import parse_algorithm
from et_sim.collectives.names import FAMILIES, parse_name, spellings


@pytest.mark.parametrize("spelled", spellings())
def test_every_listed_name_is_parsed_and_spelled_like_that(spelled: str) -> None:
    name = spelled.replace("<W>", "7")
    assert str(parse_name(name)) == name
    assert parse_algorithm(name).family in FAMILIES


@pytest.mark.parametrize(
    ("given", "normal"), [("direct04", "direct4"), ("direct-1", "direct"), ("oneDirect01", "oneDirect1")]
)
def test_windows_have_one_spelling(given: str, normal: str) -> None:
    assert str(parse_name(given)) == normal


@pytest.mark.parametrize(
    "name",
    [
        "",
        "one",
        "onering",
        "Ring",
        "ring2",
        "direct0",
        "direct-2",
        "oneInNetwork",
        "direct٣",
        "direct4 ",
        "tree",
    ],
)
def test_other_names_are_no_algorithms(name: str) -> None:
    assert parse_name(name) is None
