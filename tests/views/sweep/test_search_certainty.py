"""The last sentence of a search: what is certain of the points that were not evaluated."""

from __future__ import annotations

import pytest

from et_sim.views.sweep.summary import certainty

LESS, MORE = "makespan_ns", "tokens_per_s"
ENERGY, PRICE = "joules_per_million_tokens", "price_per_million_tokens"


@pytest.mark.parametrize(
    ("column", "left", "gap", "sentence"),
    [
        (LESS, 3, 0.1, "the makespan of the best one is at most 10.0% above that of any plan of the space"),
        (
            ENERGY,
            3,
            0.25,
            "the energy per million tokens of the best one is at most 25.0% above that of any plan of the"
            " space",
        ),
        (PRICE, 3, 0.0, "no plan of the space has less price per million tokens"),
        (MORE, 3, 0.012, "no plan of the space has more tokens/s than the best one by over 1.2%"),
        (MORE, 3, 0.0, "no plan of the space has more tokens/s"),
        (LESS, 3, None, "No evaluated point is better; points that were not evaluated may be."),
        (LESS, 0, 0.0, "No other point is better."),
    ],
)
def test_points_that_bounds_exclude_are_not_said_to_be_better(
    column: str, left: int, gap: float | None, sentence: str
) -> None:
    goal = (
        {"minimise": [], "maximise": [column]} if column == MORE else {"minimise": [column], "maximise": []}
    )
    proved = f"Certain: {sentence}, by their bounds." if gap is not None and left else sentence
    assert certainty({**goal, "left": left, "ruled_out": 0, "gap": gap}) == proved
