"""Months of a job, many at once: from one interruption to the next.

A month consists of restarts and of training after them. Each iteration takes every month to its next event:
the failure of a part, the detection of an earlier one, the return of a node, or maintenance. Time since the
event before is then divided among causes.

Kept steps have two amounts: the seconds that they took, and their number on the healthy machine. A point that
a job can go back to is such a pair.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from msgspec import Struct

from et_sim.goodput.arrivals import Arrivals
from et_sim.goodput.cycles import Cycles, columns_of, place_at_other_speed, progress, time_for
from et_sim.goodput.nodes import Point, State
from et_sim.goodput.setting import PHASES, Loss, Setting


class Months(Struct, frozen=True):
    """The results of each month."""

    clock: Any  # seconds until the end
    kept: Any  # seconds in steps that were kept
    steps: Any  # number of kept steps, as of the healthy machine
    lost: Any  # seconds by month and cause
    lost_by_part: Any  # seconds by month and part: the restart after its failure and steps lost to it
    events: Any  # number of interruptions by month and part
    is_finished: Any  # whether the goal was reached
    course: list[tuple[float, float, int]]  # of the first month, if recorded: begin, end, cause or -1


def follow(
    setting: Setting, events: Arrivals, horizon: float, goal: float = 0.0, *, record: bool = False
) -> Months:
    """Follow months until the horizon or a goal of steps; `record` keeps the course of the first month."""
    return _Follower([setting], events, horizon, goal, record=record).run()


def follow_each(settings: Sequence[Setting], events: Arrivals, horizon: float) -> Months:
    """Follow the same months in each of some settings, which differ in checkpoints, restarts and spares.

    The results have the months of the first setting, then those of the second, …
    """
    columns = (np.tile(getattr(events, name), (len(settings), 1)) for name in Arrivals.__struct_fields__)
    return _Follower(settings, Arrivals(*columns), horizon, 0.0, record=False).run()


class _Follower:
    """The work of `follow`."""

    def __init__(
        self, settings: Sequence[Setting], events: Arrivals, horizon: float, goal: float, *, record: bool
    ) -> None:
        setting, of_each = settings[0], len(events.time) // len(settings)
        months, parts = len(events.time), len(setting.parts) + 1
        self._setting, self._events, self._horizon, self._goal = setting, events, horizon, goal
        self._state = State(settings, of_each)
        self._cycles, self._recovery = columns_of(settings, of_each)
        self._next = np.zeros(months, np.int64)
        self._running = np.ones(months, np.bool_)
        self._clock, self._lost = np.zeros(months), np.zeros((months, len(Loss)))
        self._lost_by_part = np.zeros((months, parts))
        self._events_by_part = np.zeros((months, parts), np.int64)
        self._is_finished = np.zeros(months, np.bool_)
        self._record, self._course = record, list[tuple[float, float, int]]()
        every = (*setting.parts,)
        self._nodes_of = np.array([*(part.nodes for part in every), 0])
        self._detection_of = np.array([*(part.detection for part in every), 0.0])
        self._repair_of = np.array([*(part.repair for part in every), 0.0])
        self._slow_step = np.array([*(part.slow_step for part in every), 0.0])
        self._corrupts = np.array([*(part.corrupts for part in every), False])
        lengths = [(setting.step, 1.0), *setting.fewer]
        self._step_with, self._share_with = (np.array(values) for values in zip(*lengths, strict=True))

    def run(self) -> Months:
        """Follow all months to their ends."""
        while self._running.any():
            self._advance()
        state = self._state
        kept = state.restored
        self._lost[:, Loss.SLOWER] = kept.seconds - kept.steps * self._setting.step
        return Months(
            self._clock,
            kept.seconds,
            kept.steps,
            self._lost,
            self._lost_by_part,
            self._events_by_part,
            self._is_finished,
            self._course,
        )

    def _advance(self) -> None:
        """Take each month to its next event."""
        state, rows = self._state, np.flatnonzero(self._running)
        arrival = self._events.time[rows, self._next[rows]]
        back, eviction = state.nodes.next_return()[rows], state.eviction[rows]
        now = np.minimum(np.minimum(arrival, back), np.minimum(eviction, self._horizon))
        ending = now == self._horizon
        if self._goal:
            done = self._finish_times(rows)
            reached = done <= now
            now, ending = np.where(reached, done, now), ending | reached
            self._is_finished[rows] |= reached
        is_arrival = ~ending & (now == arrival)
        is_return = ~ending & ~is_arrival & (now == back)
        is_eviction = ~(ending | is_arrival | is_return)
        self._end(rows[ending], now[ending])
        self._arrive(rows[is_arrival], now[is_arrival])
        self._return(rows[is_return], now[is_return])
        self._evict(rows[is_eviction], now[is_eviction])

    def _finish_times(self, rows: Any) -> Any:
        """Return the times at which the goal is reached without further events; steps that a restart finds
        are stored already.
        """
        state = self._state
        left = np.maximum(self._goal - state.restored.steps[rows], 0) / state.share[rows]
        needed = time_for(self._cycles.of(rows), state.step[rows], left)
        return state.begin[rows] + np.where(left > 0, needed, 0.0)

    def _trained(self, rows: Any, now: Any) -> Any:
        """Return the progress of training since the last restart."""
        state = self._state
        elapsed = np.maximum(now - state.begin[rows], 0.0)
        return progress(self._cycles.of(rows), state.step[rows], elapsed)

    def _point(self, rows: Any, steps: Any) -> Point:
        """Return the kept steps of a state in which some steps of training are kept."""
        state = self._state
        seconds = steps * state.step[rows] + np.where(steps > 0, state.extra[rows], 0.0)
        return Point(
            state.restored.seconds[rows] + seconds,
            state.restored.steps[rows] + steps * state.share[rows],
        )

    def _stored(self, rows: Any, done: Any) -> Point:
        """Return the newest point in storage."""
        old = Point(self._state.stored.seconds[rows], self._state.stored.steps[rows])
        return self._point(rows, done.stored).where(done.stored > 0, old)

    def _spent(self, rows: Any, now: Any, done: Any) -> Any:
        """Charge the phases and checkpoints since the last restart; return the seconds of all steps."""
        state = self._state
        ends = np.cumsum(state.phases[rows], axis=1)
        begins = ends - state.phases[rows]
        elapsed = (now - state.since[rows])[:, None]
        phases = np.clip(elapsed - begins, 0.0, state.phases[rows])
        self._lost[rows, :PHASES] += phases
        self._lost[rows, Loss.CHECKPOINT] += done.stall_seconds
        self._lost_by_part[rows, state.owner[rows]] += phases.sum(axis=1)
        steps = state.restored.seconds[rows] + done.step_seconds
        trained = done.step_seconds > 0
        if self._record and len(rows) and rows[0] == 0:
            self._note_course(phases[0], float(now[0]), float(state.since[0]))
        return steps + np.where(trained, state.extra[rows], 0.0)

    def _note_course(self, phases: Any, now: float, begin: float) -> None:
        """Record the phases and the training of the first month."""
        for cause in np.flatnonzero(phases).tolist():
            end = begin + float(phases[cause])
            self._course.append((begin, end, cause))
            begin = end
        if now > begin:
            self._course.append((begin, now, -1))

    def _end(self, rows: Any, now: Any) -> None:
        """End months; steps under way count as kept."""
        if not len(rows):
            return
        done = self._trained(rows, now)
        self._spent(rows, now, done)
        kept = self._point(rows, done.copied + done.open_steps)
        self._restore(rows, kept)
        self._clock[rows] = now
        self._running[rows] = False

    def _restore(self, rows: Any, point: Point) -> None:
        self._state.restored.seconds[rows], self._state.restored.steps[rows] = point

    def _arrive(self, rows: Any, now: Any) -> None:
        """Let the next drawn events of some months happen."""
        if not len(rows):
            return
        number = self._next[rows]
        part, since = self._events.part[rows, number], self._events.since[rows, number]
        self._next[rows] += 1
        is_planned = part == len(self._setting.parts)
        is_detection, corrupts, slows = since >= 0, self._corrupts[part], self._slow_step[part] > 0
        begins = corrupts & ~is_detection
        self._corrupt(rows[begins], now[begins])
        self._slow(rows[slows], now[slows], part[slows])
        state = self._state
        is_due = is_detection & state.is_corrupt[rows] & (since > state.cleared[rows])
        stops = ~corrupts & ~slows & ~is_planned
        for mask, act in ((stops, self._fail), (is_due, self._detect), (is_planned, self._maintain)):
            if mask.any():
                act(rows[mask], now[mask], part[mask])

    def _corrupt(self, rows: Any, now: Any) -> None:
        """Mark the newest checkpoint in storage as the last one before a corruption."""
        state = self._state
        is_new = ~state.is_corrupt[rows] & (now > state.begin[rows])
        rows, now = rows[is_new], now[is_new]
        if len(rows):
            clean = self._stored(rows, self._trained(rows, now))
            state.clean.seconds[rows], state.clean.steps[rows] = clean
            state.is_corrupt[rows] = True

    def _slow(self, rows: Any, now: Any, part: Any) -> None:
        """Make steps slower from the present place in the cycle; a second slow node changes nothing."""
        state = self._state
        is_new = ~np.isfinite(state.eviction[rows])
        rows, now, part = rows[is_new], now[is_new], part[is_new]
        state.eviction[rows] = now + self._detection_of[part]
        state.evicted_part[rows], state.slow_step[rows] = part, self._slow_step[part]
        is_training = now > state.begin[rows]
        training, at = rows[is_training], now[is_training]
        slower = np.maximum(state.step, state.slow_step)
        if len(training):
            done = self._trained(training, at)
            cycle, before = self._cycles.of(training), state.step[training]
            self._restart_cycle(training, at, done, before, slower[training], cycle)
        state.step[rows] = slower[rows]

    def _restart_cycle(self, rows: Any, at: Any, done: Any, before: Any, after: Any, cycle: Cycles) -> None:
        """Begin the count of time anew at the present cycle, as if it had passed at another speed."""
        state = self._state
        whole = cycle.copies * cycle.steps * before + cycle.stalls
        elapsed = at - state.begin[rows]
        cycles = np.floor(elapsed / whole)
        rest = elapsed - cycles * whole
        self._leave_cycles(rows, at, cycles, cycle)
        kept, stored = self._point(rows, cycles * cycle.copies * cycle.steps), self._stored(rows, done)
        self._restore(rows, kept)
        state.stored.seconds[rows], state.stored.steps[rows] = stored
        inside = progress(cycle, before, rest)
        state.extra[rows] = np.where(cycles > 0, 0.0, state.extra[rows])
        state.extra[rows] += inside.step_seconds * (1 - after / before)
        state.begin[rows] = at - place_at_other_speed(cycle, before, after, rest)

    def _leave_cycles(self, rows: Any, at: Any, cycles: Any, cycle: Cycles) -> None:
        """Charge the restart and the checkpoints of whole cycles, which are over."""
        state = self._state
        self._lost[rows, :PHASES] += state.phases[rows]
        self._lost[rows, Loss.CHECKPOINT] += cycles * cycle.stalls
        self._lost_by_part[rows, state.owner[rows]] += state.phases[rows].sum(axis=1)
        if self._record and rows[0] == 0:
            self._note_course(state.phases[0], float(at[0]), float(state.since[0]))
        state.since[rows], state.phases[rows] = at, 0.0

    def _fail(self, rows: Any, now: Any, part: Any) -> None:
        """Stop the step; go back to the newest copy that survives."""
        state, recovery = self._state, self._recovery
        done = self._trained(rows, now)
        spent = self._spent(rows, now, done)
        stored, nodes = self._stored(rows, done), self._nodes_of[part]
        in_memory = self._cycles.survives[rows] >= nodes
        point = self._point(rows, done.copied).where(in_memory, stored)
        self._lose(rows, part, Loss.STEPS, spent - point.seconds)
        state.stored.seconds[rows], state.stored.steps[rows] = stored
        is_clean = state.is_corrupt[rows] & (point.steps <= state.clean.steps[rows])
        self._clear(rows[is_clean], now[is_clean])
        self._restore(rows, point)
        phases = np.zeros((len(rows), PHASES))
        phases[:, Loss.DETECTION] = self._detection_of[part]
        phases[:, Loss.DRAIN] = recovery.drain[rows]
        phases[:, Loss.LOAD] = np.where(in_memory, recovery.memory_load[rows], recovery.load[rows])
        self._restart(rows, now, part, phases, nodes)

    def _lose(self, rows: Any, part: Any, cause: Loss, seconds: Any) -> None:
        self._lost[rows, cause] += seconds
        self._lost_by_part[rows, part] += seconds

    def _clear(self, rows: Any, now: Any) -> None:
        """Note that a corruption is undone."""
        self._state.is_corrupt[rows] = False
        self._state.cleared[rows] = now

    def _detect(self, rows: Any, now: Any, part: Any) -> None:
        """Go back to a checkpoint from before a corruption, and replace the node."""
        state = self._state
        spent = self._spent(rows, now, self._trained(rows, now))
        clean = Point(state.clean.seconds[rows], state.clean.steps[rows])
        self._lose(rows, part, Loss.CORRUPTION, spent - clean.seconds)
        state.stored.seconds[rows], state.stored.steps[rows] = clean
        self._restore(rows, clean)
        self._clear(rows, now)
        phases = np.zeros((len(rows), PHASES))
        phases[:, Loss.DRAIN] = self._recovery.drain[rows]
        phases[:, Loss.LOAD] = self._recovery.load[rows]
        self._restart(rows, now, part, phases, self._nodes_of[part])

    def _save(self, rows: Any, now: Any) -> Any:
        """Keep all steps by a checkpoint before an expected interruption; return its phases."""
        state = self._state
        done = self._trained(rows, now)
        self._spent(rows, now, done)
        point = self._point(rows, done.copied + done.open_steps)
        is_training = now > state.begin[rows]
        stored = point.where(is_training, self._stored(rows, done))
        state.stored.seconds[rows], state.stored.steps[rows] = stored
        self._restore(rows, point)
        phases = np.zeros((len(rows), PHASES))
        phases[:, Loss.CHECKPOINT] = np.where(is_training, self._recovery.write[rows], 0.0)
        phases[:, Loss.LOAD] = self._recovery.load[rows]
        return phases

    def _maintain(self, rows: Any, now: Any, part: Any) -> None:
        """Stop for planned maintenance."""
        phases = self._save(rows, now)
        phases[:, Loss.MAINTENANCE] = self._setting.maintenance
        self._restart(rows, now, part, phases, self._nodes_of[part])

    def _evict(self, rows: Any, now: Any) -> None:
        """Replace slow nodes."""
        if not len(rows):
            return
        state = self._state
        state.eviction[rows], state.slow_step[rows] = np.inf, 0.0
        part = state.evicted_part[rows]
        self._restart(rows, now, part, self._save(rows, now), self._nodes_of[part])

    def _return(self, rows: Any, now: Any) -> None:
        """Take missing nodes back; a job that trains stops for that."""
        if not len(rows):
            return
        state = self._state
        state.nodes.bring_back(rows, now)
        is_training = now > state.begin[rows]
        self._set_speed(rows[~is_training])
        rows, now = rows[is_training], now[is_training]
        if len(rows):
            owner = state.owner[rows]
            self._restart(
                rows, now, owner, self._save(rows, now), np.zeros(len(rows), np.int64), counts=False
            )

    def _restart(
        self, rows: Any, now: Any, part: Any, phases: Any, lost: Any, *, counts: bool = True
    ) -> None:
        """Begin a restart with these phases; others are added.

        An earlier restart may be under way: its failure must still be noticed, and its part be found.
        """
        state, recovery = self._state, self._recovery
        self._search(rows, now, part, phases)
        if counts:
            self._events_by_part[rows, part] += 1
        wait = state.nodes.replace(rows, now, lost, self._repair_of[part])
        state.ready[rows] = np.maximum(state.ready[rows], now + wait)
        phases[:, Loss.SCHEDULE] = recovery.schedule[rows]
        phases[:, Loss.START] = recovery.start[rows]
        phases[:, Loss.WARM_UP] = recovery.warm_up[rows]
        before = now + phases[:, : Loss.REPAIR].sum(axis=1)
        phases[:, Loss.REPAIR] = np.maximum(state.ready[rows] - before, 0.0)
        state.since[rows], state.phases[rows] = now, phases
        state.begin[rows] = now + phases.sum(axis=1)
        state.extra[rows] = 0.0
        self._set_speed(rows)

    def _search(self, rows: Any, now: Any, part: Any, phases: Any) -> None:
        """Extend the phases by the rest of an earlier search; the part whose search ends last owns them."""
        state = self._state
        begin = now + phases[:, Loss.CHECKPOINT]
        own = begin + phases[:, Loss.DETECTION] + phases[:, Loss.DRAIN]
        state.owner[rows] = np.where(state.found[rows] > own, state.owner[rows], part)
        phases[:, Loss.DETECTION] = np.maximum(phases[:, Loss.DETECTION], state.noticed[rows] - begin)
        state.noticed[rows] = begin + phases[:, Loss.DETECTION]
        phases[:, Loss.DRAIN] = np.maximum(phases[:, Loss.DRAIN], state.found[rows] - state.noticed[rows])
        state.found[rows] = state.noticed[rows] + phases[:, Loss.DRAIN]

    def _set_speed(self, rows: Any) -> None:
        """Set the time of a step, and its share of tokens, by missing and slow nodes."""
        state = self._state
        absent = state.nodes.absent()[rows]
        state.step[rows] = np.maximum(self._step_with[absent], state.slow_step[rows])
        state.share[rows] = self._share_with[absent]
