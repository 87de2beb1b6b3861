"""Random conversions and edits have the kept traces and refusals."""

from __future__ import annotations

import pytest
from random_shown import check


def test_random_conversions_have_the_kept_results() -> None:
    check("commands", "conversions", 5)


@pytest.mark.deep
def test_many_random_conversions_have_the_kept_results() -> None:
    check("commands", "conversions")
