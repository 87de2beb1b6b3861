"""Random calibrations have the kept figures and refusals."""

from __future__ import annotations

import pytest
from random_shown import check


def test_random_calibrations_have_the_kept_results() -> None:
    check("commands", "fits", 4)
    check("commands", "logs", 3)
    check("commands", "varied", 2)


@pytest.mark.deep
def test_many_random_calibrations_have_the_kept_results() -> None:
    check("commands", "fits")
    check("commands", "logs")
    check("commands", "varied")
