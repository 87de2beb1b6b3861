"""How far compiling is, as the process that compiles notes it for those that wait."""

from __future__ import annotations

from pathlib import Path

from et_sim.compiled.orders import PROGRESS, note_progress, noted_progress


def test_the_share_that_was_noted_is_read_for_the_file_in_the_making_only(tmp_path: Path) -> None:
    note_progress(tmp_path / "simulate-1.code", 0.25)
    assert noted_progress(tmp_path / "simulate-1.code") == 0.25
    assert noted_progress(tmp_path / "simulate-2.code") == 0.0


def test_who_reads_while_another_share_is_noted_reads_a_whole_one(tmp_path: Path) -> None:
    note_progress(tmp_path / "simulate-1.code", 0.25)
    with (tmp_path / PROGRESS).open() as reader:
        note_progress(tmp_path / "simulate-1.code", 0.5)
        assert reader.read() == "simulate-1.code 0.25"
