"""Orders of machine code are worked off in the order in which they came, the urgent ones first."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

from et_sim.compiled.orders import PATIENT, URGENT, Order, orders


def test_the_oldest_comes_first_and_nobody_waits_behind_what_was_ordered_later(tmp_path: Path) -> None:
    placed = [("second", URGENT, 20), ("first", URGENT, 10), ("last", PATIENT, 5), ("afterwards", URGENT, 30)]
    for name, ending, seconds in placed:
        file = (tmp_path / name).with_suffix(ending)
        file.write_bytes(pickle.dumps(Order(tmp_path / f"{name}.code", "module", "function", (), ())))
        os.utime(file, (seconds, seconds))
    made = [order.path.stem for _, order in orders(tmp_path)]
    assert made == ["first", "second", "afterwards", "last"]
    assert not list(tmp_path.iterdir())
