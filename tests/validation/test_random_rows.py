"""Random measured rows have the kept predictions, remarks and refusals."""

from __future__ import annotations

import pytest
from random_shown import check


def test_random_rows_have_the_kept_results() -> None:
    check("commands", "checks", 3)


@pytest.mark.deep
def test_many_random_rows_have_the_kept_results() -> None:
    check("commands", "checks")
