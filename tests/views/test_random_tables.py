"""Every table of random runs is as kept: networks, protocols, failures, programs, memories and plans."""

from __future__ import annotations

import pytest
from random_runs import RANDOM
from random_shown import check


def test_tables_of_random_runs_are_as_kept() -> None:
    for kind in RANDOM:
        check("tables", kind, 1)


@pytest.mark.deep
@pytest.mark.parametrize("kind", RANDOM)
def test_tables_of_many_random_runs_are_as_kept(kind: str) -> None:
    check("tables", kind)
