"""Random long jobs have the results that are kept."""

from __future__ import annotations

import pytest
from random_shown import check


def test_random_months_have_the_kept_results() -> None:
    check("services", "months", 3)
    check("commands", "spans", 4)


@pytest.mark.deep
def test_many_random_months_have_the_kept_results() -> None:
    check("services", "months")
    check("commands", "spans")
