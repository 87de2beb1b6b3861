"""Declarations of observers: functions that do something only in runs that record what they observe.

For example,

    when_recorded = observes(describes_causes)

    @when_recorded
    def server_freed(run: Run, server_row: int) -> None:
        run.causes.servers[server_row] = current_cause(run)

declares a function that does this if `describes_causes(run)`, else nothing. An event of several observers
calls them in turn: `chunk_done = together(tie_rules.chunk_done, causes.chunk_done)`.

Where tables without rows make the condition a constant, machine code has neither the observer nor its calls.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from et_sim.compiled.tables_by_reference import works_on_tables

Event = ParamSpec("Event")
Result = TypeVar("Result")


def observes(
    condition: Callable[[Any], bool], otherwise: Any = None
) -> Callable[[Callable[Event, Result]], Callable[Event, Result]]:
    """Return a decorator of observers for runs that meet a condition; in others, they return `otherwise`."""

    def declared(function: Callable[Event, Result]) -> Callable[Event, Result]:
        observer: Any = works_on_tables(function)

        @works_on_tables
        def observes_event(tables: Any, *about: Any) -> Any:
            if condition(tables):
                return observer(tables, *about)
            return otherwise

        observes_event.__name__, observes_event.__doc__ = function.__name__, function.__doc__
        declared: Any = observes_event
        return declared

    return declared


def together(*observers: Callable[Event, None]) -> Callable[Event, None]:
    """Return a function that calls several observers, one after the other."""
    first: Any = observers[0]
    if len(observers) == 1:
        return first
    rest: Any = together(*observers[1:])

    @works_on_tables
    def both(tables: Any, *about: Any) -> None:
        first(tables, *about)
        rest(tables, *about)

    all_of_them: Any = both
    return all_of_them
