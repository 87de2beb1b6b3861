"""docs/timeline.md is what the registry of tables declares."""

from __future__ import annotations

import pytest
from timeline_page import timeline_page
from transcripts import REPOSITORY

from et_sim.tables.declaration import Column


def test_the_page_is_generated_from_the_registry() -> None:
    page = (REPOSITORY / "docs" / "timeline.md").read_text(encoding="utf-8")
    assert page == timeline_page(), "python tests/docs/timeline_page.py docs/timeline.md"


@pytest.mark.parametrize(
    ("column", "unit"), [("end_ns", "ns"), ("bytes", "bytes"), ("delta_bytes", "bytes"), ("node", "")]
)
def test_units_follow_from_names(column: str, unit: str) -> None:
    assert Column(column, "int64", "any").unit == unit
