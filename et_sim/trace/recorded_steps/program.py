"""Traces of recorded steps: each rank repeats its operations in their order, and waits for others again.

Operations depend on each other as in Megatron's schedules. Computations of a rank follow each other in their
recorded order; a message follows the last one of its direction, a receive comes before its computation and
after the one before, a send after its computation; gradients are reduced after the last computation. Every
operation of several ranks is a wait for its participants, followed by its work: a barrier, or a message of a
byte in each direction where two stages exchange data. Steps begin together.

Ranks are numbered by replica, then by stage: the stages of a replica are neighbours.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from msgspec import Struct, structs

from et_sim.trace.builder import TraceBuilder
from et_sim.trace.columns import IntColumn, Trace
from et_sim.trace.recorded_steps.table import (
    BACKWARD,
    BACKWARD_RECEIVE,
    BACKWARD_SEND,
    CLIP,
    EMBEDDING,
    FORWARD,
    FORWARD_RECEIVE,
    FORWARD_SEND,
    GARBAGE,
    GATHER,
    NORMS,
    OPTIMIZER,
    SCATTER,
    StepRecording,
)
from et_sim.trace.recorded_steps.work import PARTNERS, TOGETHER, Work

Key = tuple[str, int]  # kind, and number within the step
_MESSAGES = {FORWARD: (FORWARD_RECEIVE, FORWARD_SEND), BACKWARD: (BACKWARD_RECEIVE, BACKWARD_SEND)}
_AFTER = (GARBAGE, NORMS, EMBEDDING, SCATTER, CLIP, OPTIMIZER)


class Program(Struct, frozen=True, eq=False):
    """The traces of all ranks, whose operations take any work."""

    structure: tuple[Trace, ...]
    nodes: tuple[IntColumn, ...]  # rows of the operations of each trace
    places: tuple[IntColumn, ...]  # and their places among all values of the work, kind by kind

    def traces(self, work: Work) -> Iterator[Trace]:
        """Yield the trace of each rank with these durations."""
        values = np.concatenate([of_kind.reshape(-1) for of_kind in work.values()])
        for trace, nodes, places in zip(self.structure, self.nodes, self.places, strict=True):
            nanos, micros = trace.duration_ns.copy(), trace.duration_us.copy()
            nanos[nodes] = values[places]
            micros[nodes] = (values[places] + 500) // 1000
            yield structs.replace(trace, duration_ns=nanos, duration_us=micros)


def program_of(recording: StepRecording, *, with_gaps: bool = False) -> Program:
    """Return the program of the ranks; `with_gaps` keeps the time between operations that no operation
    explains, such as that of the host.
    """
    first, places = 0, {}
    for kind, operations in recording.kinds.items():
        places[kind] = first + np.arange(operations.start.size).reshape(operations.start.shape)
        first += operations.start.size
    ranks = [
        _Rank(recording, places, (replica, stage), with_gaps)
        for replica in range(recording.replicas)
        for stage in range(recording.stages)
    ]
    structure = tuple(rank.trace() for rank in ranks)
    return Program(
        structure,
        tuple(np.array(rank.nodes, np.int64) for rank in ranks),
        tuple(np.array(rank.places, np.int64) for rank in ranks),
    )


def rank_in_trace(recording: StepRecording, replica: int, stage: int) -> int:
    """Return the number of the trace of a rank."""
    return replica * recording.stages + stage


class _Rank:
    """The trace of one rank while it is built."""

    def __init__(
        self, recording: StepRecording, places: Work, place: tuple[int, int], with_gaps: bool
    ) -> None:
        self.recording = recording
        self.replica, self.stage = place
        self.with_gaps = with_gaps
        self.nodes, self.places = list[int](), list[int]()
        self.build = TraceBuilder(source=recording.source)
        self.place_of = {kind: values[:, self.replica, at] for kind, values, at in self._own(places)}
        starts = {kind: found.start for kind, found in recording.kinds.items()}
        self.start = {kind: values[:, self.replica, at] for kind, values, at in self._own(starts)}
        self.build.process_groups(self._groups())

    def _own(self, values: dict[str, IntColumn]) -> Iterator[tuple[str, IntColumn, int]]:
        """Yield the kinds of operations that this stage has, and its place among the stages with them."""
        for kind, of_kind in values.items():
            stages = self.recording.kinds[kind].stages
            if self.stage in stages:
                yield kind, of_kind, stages.index(self.stage)

    def trace(self) -> Trace:
        """Build the trace of all steps."""
        last: list[int] = []
        for place, number in enumerate(self.recording.steps):
            last = _Step(self, place, self.barrier(f"step {number}", last)).add()
        self.barrier("end", last)
        return self.build.build()

    def barrier(self, name: str, after: list[int], group: str = "") -> int:
        """Add a barrier of a group."""
        return self.build.collective("barrier", 0, group, name=name, after=after, concurrent=True)

    def _groups(self) -> dict[str, list[int]]:
        """Return the members of each group that this rank belongs to."""
        everyone = list(range(self.recording.replicas * self.recording.stages))
        groups = dict[str, list[int]]()
        for kind in TOGETHER:
            members = self.members(kind) if kind in self.place_of else []
            if self.rank in members and 1 < len(members) < len(everyone):
                groups[self.group(kind)] = members
        return groups

    @property
    def rank(self) -> int:
        """Return the number of this trace."""
        return rank_in_trace(self.recording, self.replica, self.stage)

    def members(self, kind: str) -> list[int]:
        """Return the ranks that take part in this rank's operations of a kind."""
        replicas, stages = [self.replica], [self.stage]
        if kind in PARTNERS:
            stages = [self.stage, self.stage + self._way(kind)]
        elif kind in TOGETHER:
            replicas = list(range(self.recording.replicas)) if 1 in TOGETHER[kind] else replicas
            stages = list(self.recording.kinds[kind].stages) if 2 in TOGETHER[kind] else stages
        places = ((replica, stage) for stage in stages for replica in replicas)
        return sorted(rank_in_trace(self.recording, *place) for place in places)

    @staticmethod
    def _way(kind: str) -> int:
        return 1 if kind in (FORWARD_SEND, BACKWARD_RECEIVE) else -1

    def group(self, kind: str) -> str:
        """Return the name of the group of this rank's operations of a kind; all ranks have the name ""."""
        members = self.members(kind)
        if len(members) == self.recording.replicas * self.recording.stages:
            return ""
        if kind == EMBEDDING:
            return f"embedding of replica {self.replica}"
        return f"replicas of stage {self.stage}"


class _Step:
    """The operations of one step of a rank."""

    def __init__(self, rank: _Rank, place: int, begin: int) -> None:
        self.rank = rank
        self.begin = begin
        self.place = place
        self.nodes: dict[Key, int] = {}
        self.ends: dict[Key, int] = {}

    def add(self) -> list[int]:
        """Add the operations and return those that no other follows."""
        if GATHER in self.rank.place_of:
            self._chain(GATHER, [])
        order = self._order()
        for place, key in enumerate(order):
            self._pass(order, place, key)
        last = [order[-1]]
        for kind in _AFTER:
            if kind in self.rank.place_of:
                last = self._chain(kind, last)
        sends = [self.nodes[key] for key in self.nodes if key[0] in PARTNERS]
        return [self.nodes[last[0]], *sends]

    def _order(self) -> list[Key]:
        """Return the computations in their recorded order."""
        keys = [
            (int(start), number, kind)
            for kind in (FORWARD, BACKWARD)
            for number, start in enumerate(self.rank.start[kind][self.place].tolist())
        ]
        return [(kind, number) for _, number, kind in sorted(keys)]

    def _chain(self, kind: str, after: list[Key]) -> list[Key]:
        for number in range(self.rank.place_of[kind].shape[1]):
            self._operation((kind, number), after)
            after = [(kind, number)]
        return after

    def _pass(self, order: list[Key], place: int, key: Key) -> None:
        """Add a computation with the messages before and after it."""
        kind, number = key
        receive, send = _MESSAGES[kind]
        # the first message of the backward passes is posted before the last forward pass
        posted = order[place - 2 : place - 1] if key == (BACKWARD, 0) and place >= 2 else []
        inputs = order[place - 1 : place] if place else []
        if receive in self.rank.place_of:
            earlier = [(kind, number - 1)] if number else []
            self._operation((receive, number), [*earlier, *self._last(receive, number), *posted])
            inputs.append((receive, number))
        if kind == FORWARD and number == 0 and GATHER in self.rank.place_of:
            inputs.append((GATHER, self.rank.place_of[GATHER].shape[1] - 1))
        self._operation(key, inputs)
        if send in self.rank.place_of:
            self._operation((send, number), [key, *self._last(send, number), *posted])

    @staticmethod
    def _last(kind: str, number: int) -> list[Key]:
        return [(kind, number - 1)] if number else []

    def _operation(self, key: Key, after: list[Key]) -> None:
        """Add an operation after others: the wait for its participants, if it has any, and its work."""
        kind, number = key
        rank, place = self.rank, self.place
        begins = [self.nodes[earlier] for earlier in after] or [self.begin]
        start = int(rank.start[kind][place, number])
        if rank.with_gaps:
            gap = start - max((self.ends[earlier] for earlier in after), default=0)
            if gap > 0:
                begins = [rank.build.compute("gap", nanos=gap, after=begins, concurrent=True)]
            found = rank.recording.kinds[kind]
            self.ends[key] = int(found.end[place, rank.replica, found.stages.index(rank.stage), number])
        begins = self._meeting(key, begins)
        # the nodes of a trace are its rows: they are numbered from 0
        self.nodes[key] = rank.build.compute(kind, nanos=0, after=begins, concurrent=True)
        rank.nodes.append(self.nodes[key])
        rank.places.append(int(rank.place_of[kind][place, number]))

    def _meeting(self, key: Key, begins: list[int]) -> list[int]:
        """Add the wait for the other participants of an operation; return the nodes that its work follows."""
        kind, number = key
        rank, build = self.rank, self.rank.build
        members = rank.members(kind)
        if len(members) < 2:
            return begins
        if kind not in PARTNERS:
            return [rank.barrier(f"wait for {kind}", begins, rank.group(kind))]
        (partner,) = (member for member in members if member != rank.rank)
        count = rank.place_of[kind].shape[1]
        tag = 2 * (self.place * count + number) + (kind in (BACKWARD_SEND, BACKWARD_RECEIVE))
        build.send(partner, 1, tag, name=f"ready for {kind}", after=begins)
        return [build.receive(partner, 1, tag, name=f"wait for {kind}", after=begins)]
