"""Drafts are removed with all that they hold, and with nothing that is linked from them."""

from __future__ import annotations

from pathlib import Path

import pytest

from et_sim.basics.files import draft_folder, remove_folder


def test_a_folder_is_removed_with_its_content_but_not_with_what_links_in_it_lead_to(tmp_path: Path) -> None:
    kept, folder = tmp_path / "kept", tmp_path / "folder"
    kept.mkdir()
    (kept / "file").write_text("x")
    (folder / "a" / "b").mkdir(parents=True)
    (folder / "a" / "b" / "deep").write_text("x")
    (folder / "file").write_text("x")
    (folder / "to folder").symlink_to(kept)
    (folder / "a" / "to file").symlink_to(kept / "file")
    (folder / "to nothing").symlink_to(tmp_path / "nothing")
    remove_folder(folder)
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]
    assert (kept / "file").read_text() == "x"


def test_a_link_to_a_folder_stays_and_so_does_the_content_of_the_folder(tmp_path: Path) -> None:
    kept, link = tmp_path / "kept", tmp_path / ".out.draft-01234567"  # the name of an abandoned draft
    kept.mkdir()
    (kept / "file").write_text("x")
    link.symlink_to(kept)
    with draft_folder(tmp_path / "out"):
        pass
    assert (link / "file").read_text() == "x"


def test_removing_what_is_not_there_does_nothing(tmp_path: Path) -> None:
    remove_folder(tmp_path / "nothing")
    assert list(tmp_path.iterdir()) == []


def test_a_draft_is_removed_when_its_writer_fails(tmp_path: Path) -> None:
    def fails() -> None:
        with draft_folder(tmp_path / "target") as folder:
            (folder / "old" / "more").mkdir(parents=True)
            raise ValueError

    with pytest.raises(ValueError):  # noqa: PT011
        fails()
    assert list(tmp_path.iterdir()) == []
