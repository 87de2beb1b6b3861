"""docs/timeline.md is what the schemas say, and the schemas say enough."""

from __future__ import annotations

import pytest
from timeline_page import TABLES, timeline_page
from transcripts import REPOSITORY

from et_sim.timeline import tables


def test_the_page_is_generated_from_the_schemas() -> None:
    page = (REPOSITORY / "docs" / "timeline.md").read_text(encoding="utf-8")
    assert page == timeline_page(), "python tests/docs/timeline_page.py docs/timeline.md"


def test_no_table_is_left_out() -> None:
    in_module = {
        name for name in vars(tables) if name.endswith("_FIELDS") and name != "LAYER_OF_PHASE_FIELDS"
    }
    assert {f"{name.rstrip('s').upper()}_FIELDS" for name, _, _ in TABLES} == in_module


@pytest.mark.parametrize(
    ("column", "unit"), [("end_ns", "ns"), ("bytes", "bytes"), ("delta_bytes", "bytes"), ("node", "")]
)
def test_units_follow_from_names(column: str, unit: str) -> None:
    assert tables.unit_of(column) == unit
