"""The last sentence of a search: what is certain of the points that were not evaluated."""

from __future__ import annotations

import pytest

from et_sim.views.sweep.summary import certainty


@pytest.mark.parametrize(
    ("left", "gap", "sentence"),
    [
        (3, 0.1, "Certain: no plan of the space is better by more than 10.0%, by their bounds."),
        (3, 0.0, "Certain: no plan of the space is better, by their bounds."),
        (3, None, "No evaluated point is better; points that were not evaluated may be."),
        (0, 0.0, "No other point is better."),
    ],
)
def test_points_that_bounds_exclude_are_not_said_to_be_better(
    left: int, gap: float | None, sentence: str
) -> None:
    search = {"minimise": ["makespan_ns"], "maximise": [], "left": left, "ruled_out": 0, "gap": gap}
    assert certainty(search) == sentence
