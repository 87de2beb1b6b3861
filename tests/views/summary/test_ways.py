"""Paths of messages in the summary, and links that a hash loads unevenly."""

from __future__ import annotations

from typing import Any

import pytest

from et_sim.machine.networks import Routing
from et_sim.views.run.topology import TierUse
from et_sim.views.summary.ways import WAYS, imbalance_notes, routing_text


def summary(name: str, *, is_default: bool = False, actors: int | None = None) -> dict[str, Any]:
    return {"routing": {"name": name, "is_default": is_default, "actors_by_hash": actors}}


def tier(name: str, used: float, most: float, links: int | None = 8) -> TierUse:
    return TierUse(name, links, 1, used, most, (used,), 0, 1)


def test_every_routing_has_a_sentence() -> None:
    assert set(WAYS) == {routing.value for routing in Routing}


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({}, ""),
        ({"routing": None}, ""),
        (summary("shortest", is_default=True), ""),
        (summary("dimension-order", is_default=True), ""),
        (
            summary("spread", is_default=True),
            "messages spread evenly over equal ways (routing: spread, the default)",
        ),
        (summary("destination"), "of equal ways, the number of the target picks one (routing: destination)"),
        (
            summary("ecmp", actors=64),
            "of equal ways, a hash of source and target picks one (routing: ecmp); the hash differs by rank,"
            " and 64 actors are simulated",
        ),
        (summary("ecmp", actors=1), "of equal ways, a hash of source and target picks one (routing: ecmp)"),
    ],
)
def test_ways_are_named_unless_there_is_no_choice(given: dict[str, Any], text: str) -> None:
    assert routing_text(given) == text


def test_imbalance_is_the_fullest_link_by_the_mean_of_its_tier() -> None:
    tiers = [tier("leaf to spine", 0.5, 0.75), tier("NPUs to leaf", 0.4, 0.4), tier("?", 0.5, 0.9, None)]
    notes = imbalance_notes(summary("ecmp"), tiers)
    assert notes == ["imbalance: the fullest link by the mean of its tier, 1.50 in leaf to spine"]
    assert imbalance_notes(summary("spread"), tiers) == []
    assert imbalance_notes({}, tiers) == []
