"""Random servings have the results that are kept."""

from __future__ import annotations

import pytest
from random_shown import check


def test_random_servings_have_the_kept_results() -> None:
    check("services", "servings", 3)
    check("commands", "serves", 3)


@pytest.mark.deep
def test_many_random_servings_have_the_kept_results() -> None:
    check("services", "servings")
    check("commands", "serves")
