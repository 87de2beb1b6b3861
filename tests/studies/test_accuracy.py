"""Predictions of what was measured are as near as the page says, or nearer."""

from __future__ import annotations

import json

import pytest
from accuracy import KEPT, PAGE, line_of, mapes, quick_rows

from et_sim.validation.predictions import predictions
from et_sim.validation.rows import read_rows, shipped

GROWTH = 1.05
LEAST = 0.1  # percent, for lines that are nearly exact


def test_every_measurement_that_travels_along_stands_on_the_page() -> None:
    text = PAGE.read_text(encoding="utf-8")
    names = {line_of(row).name for path in shipped() for row in read_rows(path) if row.job is not None}
    assert [name for name in sorted(names) if name not in text] == []


@pytest.mark.deep
def test_no_error_has_grown_by_a_twentieth() -> None:
    kept = json.loads(KEPT.read_text(encoding="utf-8"))
    result = mapes(list(predictions(quick_rows())))
    assert result.keys() == kept.keys()
    grown = {name: (kept[name], off) for name, off in result.items() if off > GROWTH * kept[name] + LEAST}
    assert grown == {}
