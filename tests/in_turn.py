"""Cases of the deep suite that take turns: each runs on one of several days."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest


def of_other_days(items: list[pytest.Item], short: set[int], seed: int) -> set[int]:
    """Return the ids of cases beyond the short suite that run with other seeds than this one."""
    found, cases = set(), Counter[tuple[Path, str]]()
    for item in items:
        if (mark := item.get_closest_marker("in_turn")) and id(item) not in short:
            day = mark.kwargs.get("day")
            if day is None:
                day = cases[test_of(item)]
                cases[test_of(item)] += 1
            if (seed - day) % mark.kwargs["days"]:
                found.add(id(item))
    return found


def test_of(item: pytest.Item) -> tuple[Path, str]:
    """Return the test of which an item is a case."""
    return item.path, getattr(item, "originalname", item.name)
