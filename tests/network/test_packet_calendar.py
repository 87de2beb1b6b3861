"""Events of the packet model come in the order of time and planning, whether buckets hold them or a heap."""

from __future__ import annotations

import random

import pytest

from et_sim.network.packet.calendar import (
    delay_all,
    drop,
    first_source,
    is_planned,
    new_calendar,
    order_of,
    planned,
    set_event,
    time_of,
    with_timers,
)

STEPS, DELAY = 300, (500, 7)


@pytest.mark.seeds(deep=100, exhaustive=2000, at_a_time=20)
def test_the_first_of_all_events_comes_first(seeds: range) -> None:
    used = 0
    for seed in seeds:
        draw = random.Random(seed)
        ports, timers, grain = draw.choice((3, 10, 40)), draw.choice((0, 5)), draw.choice((1, 10, 1000))
        calendar = with_timers(new_calendar(ports, draw.choice((1, 50, 3000))), timers)
        calendar.turn["least_heap"] = draw.choice((0, 1, 4))
        events: dict[int, tuple[int, int]] = {}
        now = 0
        for order in range(STEPS):
            source, action = draw.randrange(ports + timers), draw.random()
            if action < 0.6 or source not in events:
                ahead = draw.choice((0, 1, 5, 100, 2000, 100_000)) // grain * grain
                events[source] = now + ahead, draw.choice((order, -order))
                set_event(calendar, source, *events[source], now)
            elif action < 0.7:
                drop(calendar, source)
                del events[source]
            elif action < 0.72:
                delay_all(calendar, *DELAY)
                events = {row: (key + DELAY[0], tie + DELAY[1]) for row, (key, tie) in events.items()}
            used += int(calendar.turn[0].count)
            assert planned(calendar) == len(events)
            assert [row for row in range(ports + timers) if is_planned(calendar, row)] == sorted(events)
            if events:
                first = first_source(calendar)
                assert events[first] == min(events.values())
                assert (time_of(calendar, first), order_of(calendar, first)) == events[first]
                now = draw.choice((now, events[first][0]))
    assert used > 0
