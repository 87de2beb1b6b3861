"""The users' page on profiles is generated, and has an example of every correction."""

from __future__ import annotations

from pathlib import Path

from profiles_page import corrections_without_example, profiles_page

PAGE = Path(__file__).parents[2] / "docs" / "profiles.md"


def test_the_committed_page_is_the_generated_one() -> None:
    command = "python tests/docs/profiles_page.py docs/profiles.md"
    assert PAGE.read_text(encoding="utf-8") == profiles_page(), f"run: {command}"


def test_every_correction_has_an_example() -> None:
    assert corrections_without_example() == []
