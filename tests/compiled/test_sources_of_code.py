"""The sources of machine code: which of them the digest and the stamp cover."""

from __future__ import annotations

from pathlib import Path

import pytest

from et_sim.compiled.sources import PACKAGE, SOURCE_FILES, is_covered, source_digest, source_stamp

OF_FOLDERS = ("trace/a.py", "plan/a.py", "network/inner/b.py", "engine/inner/most/c.py")
OTHERS = ("views/a.py", "engine/a.txt", "engine/__pycache__/a.py", "compiled/other.py")


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """Return a package of short sources."""
    for name in (*SOURCE_FILES, *OF_FOLDERS, *OTHERS):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("a")
    return tmp_path


def digest_of(package: Path) -> str:
    source_digest.cache_clear()
    return source_digest(package)


def test_the_digest_covers_all_sources_of_machine_code_in_folders_of_any_depth(package: Path) -> None:
    before = digest_of(package)
    assert digest_of(package) == before
    for name in (SOURCE_FILES[0], SOURCE_FILES[-1], *OF_FOLDERS, *OTHERS):
        (package / name).write_text("b")
        assert (digest_of(package) == before) == (name in OTHERS), name
        (package / name).write_text("a")
        assert digest_of(package) == before


def test_the_digest_differs_where_contents_move_from_one_source_to_another(package: Path) -> None:
    first, last = (package / folder / "a.py" for folder in ("plan", "trace"))  # one after the other
    first.write_text("aa")
    last.write_text("")
    before = digest_of(package)
    first.write_text("a")
    last.write_text("a")
    assert digest_of(package) != before


def test_the_stamp_changes_with_each_source(package: Path) -> None:
    for name in (SOURCE_FILES[0], *OF_FOLDERS):
        before = source_stamp(package)
        assert source_stamp(package) == before
        (package / name).write_text("longer")
        assert source_stamp(package) != before


def test_sources_in_the_folders_are_covered_and_others_are_not() -> None:
    assert is_covered(PACKAGE / "engine" / "calendar" / "clock.py")
    assert not is_covered(PACKAGE / "views" / "__init__.py")
