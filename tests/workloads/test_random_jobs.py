"""Random jobs, passes, plans and models have the kept traces, texts and refusals."""

from __future__ import annotations

import pytest
from random_shown import check


def test_random_jobs_have_the_kept_results() -> None:
    check("commands", "steps", 15)
    check("commands", "jobs", 15)
    check("commands", "configs", 15)


@pytest.mark.deep
@pytest.mark.parametrize("kind", ["steps", "jobs", "configs"])
def test_many_random_jobs_have_the_kept_results(kind: str) -> None:
    check("commands", kind)
