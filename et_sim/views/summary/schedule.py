"""The schedule of a run: for ranks that do the same, the times of each pass, and the bubble.

A block extends from the first to the last kernel of a pass, unless kernels of another one lie between. The
bubble is the share of the run in which a rank neither computes nor has a collective under way: it waits for
other stages, or for their messages. The textbook bubble is that of a pipeline of equal stages with as much
work, on a network that takes no time.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from msgspec import Struct

from et_sim.basics.unique import unique
from et_sim.basics.units import parse_ranks, plural, strided_ranks
from et_sim.views.run.columns import coded, integers, numbers
from et_sim.views.run.directory import RunDirectory
from et_sim.views.run.rows import TIMES, spans
from et_sim.views.run.selection import recorded_part

NEVER = np.iinfo(np.int64).max
UNKNOWN = -1


class Stages:
    """First arrivals, and starts of the first kernel, by actor."""

    def __init__(self, actors: int) -> None:
        self._arrived = np.full(actors, NEVER)
        self._source = np.full(actors, UNKNOWN)
        self._began = np.full(actors, NEVER)

    def received(self, actor: Any, peer: Any, end_ns: Any) -> None:
        """Record messages that arrived."""
        order = np.lexsort((peer, end_ns, actor))
        actor, peer, end_ns = actor[order], peer[order], end_ns[order]
        firsts = np.flatnonzero(np.diff(actor, prepend=-1))
        earlier = firsts[end_ns[firsts] < self._arrived[actor[firsts]]]
        self._arrived[actor[earlier]] = end_ns[earlier]
        self._source[actor[earlier]] = peer[earlier]

    def computed(self, actor: Any, start_ns: Any) -> None:
        """Record kernels that began."""
        np.minimum.at(self._began, actor, start_ns)

    def depths(self) -> list[int]:
        """Return the stage of each actor; -1 if messages form a cycle."""
        is_behind = (self._arrived <= self._began) & (self._source >= 0) & (self._arrived < NEVER)
        source = np.where(is_behind, self._source, UNKNOWN).tolist()
        depth: dict[int, int] = {}
        for actor in range(len(source)):
            way: list[int] = []
            at, seen = actor, set()
            while at != UNKNOWN and at not in depth and at not in seen:
                seen.add(at)
                way.append(at)
                at = source[at]
            is_circle = at in seen
            reached = UNKNOWN if is_circle else depth.get(at, -1)
            is_known = not is_circle and (at == UNKNOWN or reached >= 0)
            for stage in reversed(way):
                reached = reached + 1 if is_known else UNKNOWN
                depth[stage] = reached
        return [depth[actor] for actor in range(len(source))]


FORWARD, BACKWARD = "forward", "backward"
INPUTS, WEIGHTS = "backward-inputs", "backward-weights"
DIRECTIONS = (FORWARD, BACKWARD, INPUTS, WEIGHTS)
_NAME = re.compile(rf"({'|'.join(DIRECTIONS)}) (\d{{1,9}})(?: chunk (\d{{1,9}}))?(?= |$)")


class ScheduledPass(NamedTuple):
    """A micro-batch through one part of the model."""

    direction: str
    micro_batch: int
    chunk: int = 0

    @property
    def label(self) -> str:
        """Return the label: "3", and of a second chunk "3b"."""
        return f"{self.micro_batch}{_letter(self.chunk)}"


def named_pass(name: str | None) -> ScheduledPass | None:
    """Return the pass that a kernel of this name belongs to."""
    match = _NAME.match(name or "")
    return ScheduledPass(match[1], int(match[2]), int(match[3] or 0)) if match else None


def _letter(chunk: int) -> str:
    if chunk == 0:
        return ""
    return chr(ord("a") + chunk) if chunk < 26 else f".{chunk}"


MOST_ACTORS = 1024
COLUMNS = ("actor", "name", "kind", "peer", *TIMES)
SENDS = ("send", "receive")
NO_COMMUNICATION = ("compute", "host", "gap", "copy", "memory_load", "memory_store", "batch")


class WorkBlock(NamedTuple):
    """A pass, or other work, from its first to its last kernel."""

    start_ns: int
    end_ns: int
    work: ScheduledPass | None


class Exchange(Struct, frozen=True):
    """Communication of one kind that is under way."""

    start_ns: int
    end_ns: int
    kind: str

    @property
    def is_collective(self) -> bool:
        """Return whether it is not a message between two ranks."""
        return self.kind not in SENDS


class ScheduleRow(Struct, frozen=True):
    """Ranks that compute the same at the same times."""

    ranks: str
    rank_count: int
    blocks: tuple[WorkBlock, ...]
    exchanges: tuple[Exchange, ...]  # of the first rank
    exposed: tuple[tuple[int, int], ...]  # times of the first rank with collectives under way, and no kernel
    busy_ns: int
    exposed_ns: float  # of collectives, mean of the ranks
    work_ns: Mapping[str, int]  # of kernels, by direction


class PipelineSchedule(Struct, frozen=True, dict=True):
    """All rows, by stage if stages are known, and notes on parts that are not shown."""

    makespan_ns: int
    rows: tuple[ScheduleRow, ...]
    stages: int  # 0: unknown
    notes: tuple[str, ...]

    def bubble_of(self, row: ScheduleRow) -> float:
        """Return the share of the run without a kernel or a collective under way on the row's ranks."""
        return 1 - (row.busy_ns + row.exposed_ns) / self.makespan_ns if self.makespan_ns else 0.0

    @cached_property
    def bubble(self) -> float:
        """Return the mean bubble of all ranks."""
        return self._mean([self.bubble_of(row) for row in self.rows])

    @cached_property
    def exposed(self) -> float:
        """Return the share of time in which ranks have only collectives under way."""
        return self._mean([row.exposed_ns for row in self.rows]) / max(self.makespan_ns, 1)

    @cached_property
    def directions(self) -> tuple[str, ...]:
        """Return the directions that occur."""
        present = {block.work.direction for row in self.rows for block in row.blocks if block.work}
        return tuple(direction for direction in DIRECTIONS if direction in present)

    @cached_property
    def micro_batches(self) -> int:
        """Return the number of micro-batches."""
        return len({block.work.micro_batch for row in self.rows for block in row.blocks if block.work})

    @cached_property
    def chunks(self) -> int:
        """Return the number of parts of the model on a rank."""
        return 1 + max((b.work.chunk for row in self.rows for b in row.blocks if b.work), default=0)

    @cached_property
    def textbook_bubble(self) -> float | None:
        """Return the bubble of a textbook pipeline with as much work."""
        idle, busy = self.textbook_idle_ns, self._mean([row.busy_ns for row in self.rows])
        return idle / (idle + busy) if idle is not None and busy else None

    @cached_property
    def textbook_idle_ns(self) -> float | None:
        """Return (stages - 1) x (forward + backward) / chunks of waiting, less the time filled with gradients
        of weights.

        None unless the passes form one pipeline: every rank works once on each pass, and all begin with the
        same one.
        """
        firsts = {next((block.work for block in row.blocks if block.work), None) for row in self.rows}
        if not self.stages or len(firsts) > 1 or not all(self._is_whole(row) for row in self.rows):
            return None
        work = {way: self._mean([row.work_ns[way] for row in self.rows]) for way in DIRECTIONS}
        round_ns = sum(work[way] for way in (FORWARD, BACKWARD, INPUTS)) - work[WEIGHTS]
        return (self.stages - 1) * max(round_ns, 0) / self.micro_batches / self.chunks

    def _is_whole(self, row: ScheduleRow) -> bool:
        works = [block.work for block in row.blocks if block.work]
        return len(set(works)) == self.micro_batches * self.chunks * len(self.directions) == len(works)

    def _mean(self, of_rows: Sequence[float]) -> float:
        counts = [row.rank_count for row in self.rows]
        return sum(c * share for c, share in zip(counts, of_rows, strict=True)) / max(sum(counts), 1)


def schedule_of(run: RunDirectory, chosen: Mapping[int, str] | None = None) -> PipelineSchedule | None:
    """Return the schedule; None if no kernel is named by a pass. `chosen`: actors, with some of their
    ranks."""
    first = next(run.batches("timeline", ("name",)), None)
    if first is None:
        return None
    works = [named_pass(name) for name in (*first["name"].dictionary.to_pylist(), None)]
    if not any(works):
        return None
    reader = _Reader(run, works, chosen)
    return reader.schedule() if reader.has_passes else None


class _Reader:
    """The kernels and exchanges of some actors, in columns."""

    def __init__(
        self, run: RunDirectory, works: Sequence[ScheduledPass | None], chosen: Mapping[int, str] | None
    ) -> None:
        self.run = run
        self.makespan = int(run.summary["makespan_ns"])
        known = sorted({work for work in works if work})
        self.works = (*known, None)
        number = {work: code for code, work in enumerate(self.works)}
        self.code_of_name = np.array([number[work] for work in works], np.int64)
        self.actors = run.actors().select(["actor", "ranks"]).to_pylist()
        self.is_shown = np.zeros(len(self.actors), np.bool_)
        if chosen is None:
            self.is_shown[np.linspace(0, len(self.actors) - 1, MOST_ACTORS).astype(np.int64)] = True
        else:
            self.is_shown[[*chosen]] = True
            for actor, ranks in chosen.items():
                self.actors[actor]["ranks"] = ranks
        self.stages = Stages(len(self.actors))
        self.kinds: tuple[str, ...] = ()
        kernels: list[tuple[Any, ...]] = []
        exchanges: list[tuple[Any, ...]] = []
        for batch in run.batches("timeline", COLUMNS):
            self._take(batch, kernels, exchanges)
        self.kernels = _by_actor_and_time(kernels)
        self.exchanges = _by_actor_and_time(exchanges)

    @property
    def has_passes(self) -> bool:
        """Return whether a kernel belongs to a pass."""
        return bool((self.kernels[3] < len(self.works) - 1).any())

    def _take(self, batch: Any, kernels: list[tuple[Any, ...]], exchanges: list[tuple[Any, ...]]) -> None:
        self.kinds = (*batch["kind"].dictionary.to_pylist(), "")
        kind, actor = coded(batch["kind"]), numbers(batch["actor"]).astype(np.int64)
        times = spans(batch, self.makespan)
        start, end = times.start, times.end
        is_kernel = _is_one_of(self.kinds, ("compute",))[kind]
        receives = np.flatnonzero(_is_one_of(self.kinds, ("receive",))[kind])
        peer = integers(batch["peer"], missing=-1)
        self.stages.received(actor[receives], peer[receives], end[receives])
        self.stages.computed(actor[is_kernel], start[is_kernel])
        shown = self.is_shown[actor]
        rows = np.flatnonzero(is_kernel & shown & (end > start))
        code = self.code_of_name[coded(batch["name"])[rows]]
        kernels.append((actor[rows], start[rows], end[rows], code))
        moves = ~_is_one_of(self.kinds, NO_COMMUNICATION)[kind] & shown
        rows = np.flatnonzero(moves & (end > times.moved))
        exchanges.append((actor[rows], times.moved[rows], end[rows], kind[rows]))

    def schedule(self) -> PipelineSchedule:
        """Return rows by stage and, in each stage, by rank."""
        alike: dict[bytes, list[int]] = {}
        for actor in np.flatnonzero(self.is_shown).tolist():
            _, start, end, code = _of_actor(self.kernels, actor)
            alike.setdefault(start.tobytes() + end.tobytes() + code.tobytes(), []).append(actor)
        depth = self.stages.depths()
        ordered = sorted(alike.values(), key=lambda members: (depth[members[0]], members[0]))
        rows = [self._row(members) for members in ordered]
        working = [
            actor for members, row in zip(ordered, rows, strict=True) if row.blocks for actor in members
        ]
        kept = recorded_part(self.run)
        known = not kept and all(depth[actor] >= 0 for actor in working)
        notes = [f"the run holds only nodes of {kept}"] if kept else []
        if len(self.actors) > MOST_ACTORS:
            notes.append(f"{MOST_ACTORS:,} of {plural(len(self.actors), 'actor')} are shown")
        stages = 1 + max((depth[actor] for actor in working), default=0) if known else 0
        return PipelineSchedule(self.makespan, tuple(row for row in rows if row.blocks), stages, tuple(notes))

    def _row(self, members: Sequence[int]) -> ScheduleRow:
        _, start, end, code = _of_actor(self.kernels, members[0])
        of_actors = [
            [rank for piece in parse_ranks(self.actors[actor]["ranks"]) for rank in piece]
            for actor in members
        ]
        ranks = [rank for of_actor in of_actors for rank in of_actor]
        exposed = [self._exposed(actor, start, end) for actor in members]
        spent = sum(len(of) * int((e - s).sum()) for of, (s, e) in zip(of_actors, exposed, strict=True))
        work_ns = dict.fromkeys(DIRECTIONS, 0)
        for number in unique(code).tolist():
            work = self.works[number]
            if work is not None:
                here = code == number
                work_ns[work.direction] += int((end[here] - start[here]).sum())
        return ScheduleRow(
            strided_ranks(ranks),
            len(ranks),
            self._blocks(start, end, code),
            self._exchanges(members[0]),
            tuple(zip(*(side.tolist() for side in exposed[0]), strict=True)),
            _covered(start, end),
            spent / len(ranks),
            work_ns,
        )

    def _blocks(self, start: Any, end: Any, code: Any) -> tuple[WorkBlock, ...]:
        if not len(code):
            return ()
        firsts = np.flatnonzero(np.diff(code, prepend=-1))
        ends = np.maximum.reduceat(end, firsts)
        blocks = zip(start[firsts].tolist(), ends.tolist(), code[firsts].tolist(), strict=True)
        return tuple(WorkBlock(begin, until, self.works[number]) for begin, until, number in blocks)

    def _exposed(self, actor: int, start: Any, end: Any) -> tuple[Any, Any]:
        """Return when a collective is under way, but none of the kernels with these times."""
        _, begin, until, kind = _of_actor(self.exchanges, actor)
        is_one = ~_is_one_of(self.kinds, SENDS)[kind]
        begin, until = begin[is_one], until[is_one]
        at = np.concatenate((start, end, begin, until))
        order = np.argsort(at, kind="stable")
        kernel, collective = (
            np.cumsum(np.repeat(steps, (len(start), len(end), len(begin), len(until)))[order])
            for steps in ((1, -1, 0, 0), (0, 0, 1, -1))
        )
        at = at[order]
        is_exposed = (kernel[:-1] == 0) & (collective[:-1] > 0) & (at[1:] > at[:-1])
        return at[:-1][is_exposed], at[1:][is_exposed]

    def _exchanges(self, actor: int) -> tuple[Exchange, ...]:
        _, start, end, kind = _of_actor(self.exchanges, actor)
        exchanges = zip(start.tolist(), end.tolist(), kind.tolist(), strict=True)
        return tuple(Exchange(begin, until, self.kinds[number]) for begin, until, number in exchanges)


def _is_one_of(kinds: Sequence[str], wanted: Sequence[str]) -> Any:
    return np.array([kind in wanted for kind in kinds], np.bool_)


def _by_actor_and_time(parts: Sequence[tuple[Any, ...]]) -> tuple[Any, ...]:
    """Concatenate columns, and sort them by actor, start and end."""
    columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
    order = np.lexsort((columns[2], columns[1], columns[0]))
    return tuple(column[order] for column in columns)


def _of_actor(columns: tuple[Any, ...], actor: int) -> tuple[Any, ...]:
    begin, end = np.searchsorted(columns[0], (actor, actor + 1))
    return tuple(column[begin:end] for column in columns)


def _covered(start: Any, end: Any) -> int:
    """Return the time that intervals, sorted by start, cover."""
    if not len(start):
        return 0
    reached = np.concatenate((start[:1], np.maximum.accumulate(end)[:-1]))
    return int(np.maximum(end - np.maximum(start, reached), 0).sum())
