"""Random command lines on small inputs have the kept outputs and refusals."""

from __future__ import annotations

import pytest
from random_shown import check


def test_random_commands_have_the_kept_results() -> None:
    check("commands", "uses", 6)
    check("commands", "looks", 1)


@pytest.mark.deep
def test_many_random_commands_have_the_kept_results() -> None:
    check("commands", "uses")
    check("commands", "looks")
