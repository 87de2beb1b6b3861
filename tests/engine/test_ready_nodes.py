"""Ready nodes are issued in ascending order: within a lane, and among all free lanes."""

from __future__ import annotations

import heapq
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from et_sim.engine.nodes import ready
from et_sim.engine.state.run import LANES_IN_USE, NONE

NODES = 20


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return an actor with three lanes; only lanes in `free` may issue."""
    made = SimpleNamespace(
        lanes=[SimpleNamespace(ready=0) for _ in range(3)],
        actors=[SimpleNamespace(ready=0)],
        nodes=[SimpleNamespace(heap=NONE) for _ in range(3 * NODES)],
        free=set(range(3)),
        plan=SimpleNamespace(
            actors=[SimpleNamespace(template=0, node_first=0)],
            templates=[SimpleNamespace(node_first=0)],
            nodes=[SimpleNamespace(lane=number % 3) for number in range(NODES)],
            settings={LANES_IN_USE: 3},
        ),
    )
    monkeypatch.setattr(ready, "heap_first", lambda _, __, lane: lane * NODES)
    monkeypatch.setattr(ready, "lane_row", lambda _, __, lane: lane)
    monkeypatch.setattr(ready, "is_unlimited", lambda *_: True)
    monkeypatch.setattr(ready, "can_issue", lambda _, __, lane: lane in made.free and made.lanes[lane].ready)
    return made


@pytest.mark.parametrize("seed", range(20))
def test_a_lane_gives_its_nodes_in_ascending_order(run: Any, seed: int) -> None:
    draw, expected = Random(seed), list[int]()
    numbers = list(range(0, NODES, 3))
    draw.shuffle(numbers)
    while numbers or expected:
        if numbers and (not expected or draw.random() < 0.6):
            heapq.heappush(expected, numbers[-1])
            ready.push_ready(run, 0, numbers.pop())
        else:
            assert ready.pop_ready(run, 0, 0) == heapq.heappop(expected)
        assert run.lanes[0].ready == run.actors[0].ready == len(expected)


def test_the_free_lane_with_the_lowest_node_is_next(run: Any) -> None:
    assert ready.lowest_free_lane(run, 0) == NONE
    for node in (3, 13, 1, 8):
        ready.push_ready(run, 0, node)
    assert ready.lowest_free_lane(run, 0) == 1
    run.free = {0, 2}
    assert ready.lowest_free_lane(run, 0) == 0
    ready.pop_ready(run, 0, 0)
    assert ready.lowest_free_lane(run, 0) == 2
