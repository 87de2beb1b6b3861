"""Random jobs, passes, plans and models have the kept traces, texts and refusals."""

from __future__ import annotations

import pytest
from random_shown import IN_TURN, check


def test_random_jobs_have_the_kept_results() -> None:
    check("commands", "steps", 15)
    check("commands", "jobs", 15)
    check("commands", "configs", 15)


@IN_TURN
@pytest.mark.parametrize("kind", ["steps", "jobs", "configs"])
def test_many_random_jobs_have_the_kept_results(kind: str, day: int) -> None:
    check("commands", kind, day=day)
