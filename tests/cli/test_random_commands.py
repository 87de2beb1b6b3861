"""Random command lines on small inputs have the kept outputs and refusals."""

from __future__ import annotations

import pytest
from random_shown import check


def test_random_commands_have_the_kept_results() -> None:
    check("commands", "uses", 6)
    check("commands", "looks", 1)
    check("commands", "tools", 6)
    check("commands", "topologies", 12)
    check("commands", "mistakes", 12)


@pytest.mark.deep
def test_many_random_commands_have_the_kept_results() -> None:
    check("commands", "uses")
    check("commands", "looks")
    check("commands", "tools")
    check("commands", "topologies")
    check("commands", "mistakes")
