"""The state of months since their last interruptions, as columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from et_sim.goodput.nodes import Nodes
from et_sim.goodput.setting import PHASES, Setting


class Point(NamedTuple):
    """Kept steps of each month: their seconds, and their number on the healthy machine."""

    seconds: Any
    steps: Any

    def where(self, mask: Any, other: Point) -> Point:
        """Return another point where a mask is not set."""
        return Point(*(np.where(mask, mine, theirs) for mine, theirs in zip(self, other, strict=True)))


class State:
    """The state of all months since the last interruption."""

    def __init__(self, settings: Sequence[Setting], of_each: int) -> None:
        setting, months = settings[0], len(settings) * of_each
        zero = np.zeros(months)
        self.nodes = Nodes(settings, of_each)
        self.since = zero.copy()  # of the restart
        self.phases = np.zeros((months, PHASES))
        self.begin = zero.copy()  # of training, as if the first cycle had begun then
        self.ready = zero.copy()  # when enough nodes are usable
        self.noticed = zero.copy()  # when all failures are noticed
        self.found = zero.copy()  # when all failed parts are found, too
        self.extra = zero.copy()  # seconds of the first cycle beyond those at the present speed
        self.step = np.full(months, setting.step)
        self.share = np.ones(months)  # tokens of a step
        self.restored = Point(zero.copy(), zero.copy())  # kept before `begin`
        self.stored = Point(zero.copy(), zero.copy())
        self.clean = Point(zero.copy(), zero.copy())  # stored before the corruption
        self.is_corrupt = np.zeros(months, np.bool_)
        self.cleared = zero.copy() - 1.0  # when the last corruption was undone
        self.eviction = np.full(months, np.inf)  # of a slow node
        self.slow_step = zero.copy()  # with this node
        self.evicted_part = np.zeros(months, np.int32)
        self.owner = np.full(months, len(setting.parts), np.int32)  # the part that caused the restart
