"""The calendar: times in order, and an index whose places are as many as times need."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from et_sim.engine.calendar import clock
from et_sim.engine.containers import empty_index, grow_pool
from et_sim.engine.state.records import CLOCK, SLOT
from et_sim.engine.state.run import NONE
from et_sim.plan.records import table

ROWS = 64


def calendar_without_times() -> Any:
    state = table(CLOCK, 1)
    state["slot_places"], state["free_slots"]["head"] = 1, NONE
    slots = grow_pool(table(SLOT, 0), state[0].free_slots, ROWS, is_ample=False)
    return SimpleNamespace(
        clock=state,
        slots=slots,
        slot_index=empty_index(len(slots)),
        heap_time=np.zeros(len(slots), np.int64),
        heap_slot=np.zeros(len(slots), np.int32),
    )


@given(st.lists(st.one_of(st.none(), st.integers(0, 1 << 40)), max_size=ROWS))
def test_the_earliest_of_all_open_times_comes_first(steps: list[int | None]) -> None:
    """Open slots of times, or take the first one (None)."""
    run, slot_of = calendar_without_times(), dict[int, int]()
    for time in steps:
        if time is not None:
            slot_of[time] = clock._slot_at(run, time)
        elif slot_of:
            taken = clock._pop_time(run)
            assert taken == slot_of.pop(min(slot_of))
            clock._close_slot(run, taken)
        assert {time: clock._slot_at(run, time) for time in slot_of} == slot_of
    assert run.clock[0].times == len(slot_of)


def test_the_index_uses_about_as_many_places_as_there_are_open_times() -> None:
    run = calendar_without_times()
    for number in range(20):
        clock._slot_at(run, number * number)
    assert run.clock[0].slot_places == 32 < len(run.slot_index)
    assert (run.slot_index[32:] == NONE).all()
