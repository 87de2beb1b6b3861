"""Interpreted functions on tables get stand-ins for arrays, and have the same effects as on arrays."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from et_sim.compiled.interpreted import interpret
from et_sim.compiled.tables_by_reference import Tables

ROW = np.dtype([("time", "i8"), ("kind", "i2"), ("share", "f8")])


@dataclass(frozen=True, slots=True)
class Inner(Tables):
    grid: Any


@dataclass(frozen=True, slots=True)
class Outer(Tables):
    rows: Any
    numbers: Any
    watch: Any
    inner: Inner


def _outer() -> Outer:
    rows = np.zeros(4, ROW).view(np.recarray)
    rows["time"] = range(4)
    return Outer(rows, np.arange(5, dtype=np.int32), (1,), Inner(np.arange(6, dtype=np.int16).reshape(2, 3)))


def shuffle(tables: Outer, by: int) -> int:
    first, last = tables.rows[0], tables.rows[len(tables.rows) - 1]
    first.time += last.time * by
    first.kind = len(tables.watch)
    first.share = first.time / 4
    tables.rows[2].time = tables.numbers[1] + tables.inner.grid[1, 2]
    tables.numbers[4] = -by
    tables.inner.grid[0, tables.inner.grid.shape[1] - 1] = 7
    return tables.rows[0].time


def test_stand_ins_leave_the_same_content_in_the_arrays_as_the_function() -> None:
    with_stand_ins, on_arrays = _outer(), _outer()
    assert interpret(shuffle, (with_stand_ins, 10)) == shuffle(on_arrays, 10) == 30
    assert with_stand_ins.rows.tolist() == on_arrays.rows.tolist()
    assert with_stand_ins.numbers.tolist() == on_arrays.numbers.tolist()
    assert with_stand_ins.inner.grid.tolist() == on_arrays.inner.grid.tolist()


def test_repeated_reads_of_a_record_give_one_object() -> None:
    def same(tables: Outer) -> int:
        row = tables.rows[1]
        row.kind = 5
        return int(tables.rows[1] is row and tables.rows[1].kind == 5)

    assert interpret(same, (_outer(),)) == 1


def test_arrays_that_are_no_tables_are_passed_unchanged() -> None:
    values = np.arange(3)
    assert interpret(lambda given: given is values, (values,))


@pytest.mark.parametrize(
    "reads",
    [
        lambda tables: tables.rows[-1].time,
        lambda tables: tables.inner.grid[0, -1],
        lambda tables: tables.inner.grid.__setitem__((-1, 0), 7),
    ],
)
def test_a_row_below_0_is_refused_and_not_taken_from_the_end(reads: Callable[[Any], Any]) -> None:
    with pytest.raises(IndexError, match="row -1 of a table does not exist: rows count from 0"):
        interpret(reads, (_outer(),))
