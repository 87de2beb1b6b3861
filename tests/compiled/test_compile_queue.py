"""Orders of machine code are worked off in the order in which they came; how far one is, is noted."""

from __future__ import annotations

import os
from pathlib import Path

from et_sim.compiled.compile_queue import (
    PATIENT,
    PROGRESS,
    URGENT,
    Order,
    note_progress,
    noted_progress,
    orders,
)


def test_the_oldest_comes_first_and_nobody_waits_behind_what_was_ordered_later(tmp_path: Path) -> None:
    placed = [("second", URGENT, 20), ("first", URGENT, 10), ("last", PATIENT, 5), ("afterwards", URGENT, 30)]
    for name, ending, seconds in placed:
        file = (tmp_path / name).with_suffix(ending)
        file.write_bytes(Order(tmp_path / f"{name}.code", "module", "function", (), ()).as_bytes())
        file.chmod(0o600)
        os.utime(file, (seconds, seconds))
    made = [Order.from_bytes(content).path.stem for _, content in orders(tmp_path)]
    assert made == ["first", "second", "afterwards", "last"]
    assert not list(tmp_path.iterdir())


def test_the_share_that_was_noted_is_read_for_the_file_in_the_making_only(tmp_path: Path) -> None:
    note_progress(tmp_path / "simulate-1.code", 0.25)
    assert noted_progress(tmp_path / "simulate-1.code") == 0.25
    assert noted_progress(tmp_path / "simulate-2.code") == 0.0


def test_who_reads_while_another_share_is_noted_reads_a_whole_one(tmp_path: Path) -> None:
    note_progress(tmp_path / "simulate-1.code", 0.25)
    with (tmp_path / PROGRESS).open() as reader:
        note_progress(tmp_path / "simulate-1.code", 0.5)
        assert reader.read() == "simulate-1.code 0.25"
