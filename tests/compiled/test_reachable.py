"""Calls and branches that the tables of a run exclude are removed before compilation; all others stay."""

from __future__ import annotations

from typing import Any

import pytest
from numba import types
from numba.core import ir

from et_sim.compiled.decorators import mark_of, works_on_tables
from et_sim.compiled.reachable import Reachable
from et_sim.compiled.tables_type import TablesType

NUMBERS = types.Array(types.int64, 1, "C")


@works_on_tables
def _is_on(tables: Any) -> bool:
    return len(tables.on) > 0 and tables.numbers[0] == 1


@works_on_tables
def _note(tables: Any, row: int) -> None:
    if _is_on(tables):
        tables.numbers[row] = 1


@works_on_tables
def _note_all(tables: Any, *about: Any) -> None:
    _note(tables, *about)


def _steps(tables: Any) -> int:
    _note_all(tables, 1)
    for row in range(len(tables.numbers)):
        if tables.numbers[row] > 0:
            _note(tables, row)
    return 3


def _with(*on: types.Type) -> TablesType:
    return TablesType("here", "Some", (("on", types.Tuple(on)), ("numbers", NUMBERS)))


def _helpers_named_in(graph: Any) -> set[str]:
    assigned = (made for block in graph.blocks.values() for made in block.body if isinstance(made, ir.Assign))
    names = (made.value for made in assigned if isinstance(made.value, ir.Global))
    return {name.name for name in names if mark_of(name.value)}


def test_calls_that_do_nothing_with_an_empty_tuple_are_left_out() -> None:
    assert _helpers_named_in(Reachable().graph(_steps, (_with(),))) == set()


def test_calls_are_kept_where_only_values_decide() -> None:
    reachable = Reachable()
    kinds = (_with(types.int64),)
    assert _helpers_named_in(reachable.graph(_steps, kinds)) == {"_note", "_note_all"}
    assert reachable.helpers_of(_steps, kinds) == len((_note, _note_all, _is_on))


@pytest.mark.parametrize(("on", "decides"), [((), False), ((types.int64,), True)])
def test_branches_are_left_out_if_types_decide(on: tuple[types.Type, ...], decides: bool) -> None:
    blocks = Reachable().graph(_note, (_with(*on), None)).blocks.values()
    assert any(isinstance(block.terminator, ir.Branch) for block in blocks) == decides
