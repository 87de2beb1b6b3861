"""Observers act only in runs with their record, and each event reaches all of its observers."""

from __future__ import annotations

import ast
import inspect
from collections import Counter
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from numba import types

from et_sim.compiled.reachable import Reachable
from et_sim.compiled.tables_by_reference import works_on_tables
from et_sim.compiled.tables_type import TablesType
from et_sim.engine import observe
from et_sim.engine.observe import events, facade, tie_rules, ties
from et_sim.engine.observe.observers import observes, together
from et_sim.engine.state.run import NONE

UNOBSERVED = ("events", "facade", "observers")  # modules without observers


@dataclass
class Book:
    """Tables; `kept` is empty if no record is made."""

    kept: tuple[int, ...]
    rows: list[int]


@works_on_tables
def _is_kept(book: Any) -> bool:
    return len(book.kept) > 0


@observes(_is_kept)
def _noted(book: Any, row: int, _place: int) -> None:
    book.rows[0] = row


@observes(_is_kept, otherwise=-1)
def _counted(book: Any, row: int, place: int) -> int:
    book.rows[1] += place
    return row


def test_an_observer_acts_if_its_condition_holds() -> None:
    book = Book((1,), [0, 0])
    assert (_noted(book, 7, 1), _counted(book, 8, 2), book.rows) == (None, 8, [7, 2])


def test_an_observer_does_nothing_otherwise() -> None:
    book = Book((), [0, 0])
    assert (_noted(book, 7, 1), _counted(book, 8, 2), book.rows) == (None, -1, [0, 0])


@pytest.mark.parametrize("kept", [(), (types.int64,)], ids=["not recorded", "recorded"])
def test_machine_code_has_an_observer_only_if_the_tables_have_its_record(
    kept: tuple[types.Type, ...],
) -> None:
    rows = types.Array(types.int64, 1, "C")
    tables = TablesType("here", "Book", (("kept", types.Tuple(kept)), ("rows", rows)))
    reached = Reachable().called(together(_noted, _noted), (tables, None, None))
    assert reached.is_idle == (kept == ())


def test_an_event_reaches_all_of_its_observers_in_their_order() -> None:
    calls: list[tuple[str, int]] = []
    event = together(*(lambda _, row, name=name: calls.append((name, row)) for name in "abc"))
    event(None, 5)
    assert calls == [("a", 5), ("b", 5), ("c", 5)]


def _defined_in(path: Path) -> set[str]:
    """Return public functions of a module, imported ones not included."""
    functions = (node for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef))
    return {function.name for function in functions if not function.name.startswith("_")}


def test_the_facade_hides_no_observer_behind_another_of_its_name() -> None:
    paths = [path for path in Path(observe.__path__[0]).glob("*.py") if path.stem not in UNOBSERVED]
    count = Counter(name for path in paths for name in _defined_in(path))
    shared = {name for name, modules in count.items() if modules > 1}
    modules = [import_module(f"{observe.__name__}.{path.stem}") for path in paths]
    hiding = {
        name for name in shared for module in modules if getattr(module, name, None) is getattr(events, name)
    }
    assert (hiding, "chunk_done" in shared) == (set(), True)
    assert {name for path in paths for name in _defined_in(path)} - set(vars(events)) <= _helpers_of_slices()


def test_the_facade_offers_every_event_and_nothing_else() -> None:
    offered = {name for name in vars(events) if not name.startswith("_")}
    assert all(getattr(facade, name) is getattr(events, name) for name in offered)
    for missing in ("no_event", "__path__"):
        with pytest.raises(AttributeError, match=missing):
            getattr(facade, missing)


def _helpers_of_slices() -> set[str]:
    """Return functions of `link_slices`, which has no observers."""
    return _defined_in(Path(inspect.getfile(import_module(f"{observe.__name__}.link_slices"))))


def test_messages_of_a_member_are_grouped_by_their_place_in_the_period(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Check that steps of one place have one peer, by direction, and repeat a period later."""
    groups = list[int]()
    monkeypatch.setattr(ties, "begin_arrival", lambda _run, _actor, group: groups.append(group))
    program = SimpleNamespace(tree_first=NONE, step_period=4, own_steps=0, step_first=0)
    plan = SimpleNamespace(members=[SimpleNamespace(actor=0)], programs=[program])
    run: Any = SimpleNamespace(plan=plan)
    for step_key in range(2 * 8):
        ties._begin_step(run, 0, step_key, 0)
    assert groups[:8] == groups[8:]
    assert len(set(groups)) == 8


def test_free_places_decide_nothing_on_a_lane_without_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tie_rules, "may_change_places", lambda _, moment: moment.is_now)
    lane = SimpleNamespace(freed=SimpleNamespace(is_now=True, origin=7))
    mark = SimpleNamespace(mark=SimpleNamespace(is_now=False))
    clocks = [SimpleNamespace(origin=5) for _ in range(2)]
    for is_limited, clock in enumerate(clocks):
        run: Any = SimpleNamespace(clock=[clock], lane_marks=[lane])
        tie_rules._needs_lane(run, 0, mark, is_limited)
    assert clocks[0].origin == 5 != clocks[1].origin
