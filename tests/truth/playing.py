"""A player of programs on a machine: a small discrete-event simulator, the reference of these tests.

Threads are coroutines, streams are queues of work, transfers are places where ranks meet. It shares no code
with et-sim and the converter. `recording` writes recordings of played programs.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from program import (
    Await,
    Begin,
    Call,
    End,
    Exchange,
    Host,
    Launch,
    Machine,
    Program,
    Query,
    Record,
    Signal,
    Sleep,
    Synchronize,
    Transfer,
    WaitEvent,
    Work,
)


class Moment:
    """A point in time that is not known yet, and the callbacks that wait for it."""

    def __init__(self) -> None:
        self.at: int | None = None
        self.waiting: list[Callable[[], None]] = []


Pauses: TypeAlias = Generator[int | Moment, None, None]  # so long, or until then


@dataclass
class HostEvent:
    """A call of a thread, with its times."""

    thread: int
    category: str
    name: str
    begin: int
    end: int = -1
    step: Any = None
    correlation: int = -1
    parent: int = -1  # place of the call around it
    waited: tuple[str, int, int] | None = None  # how, stream (-1: all), correlation of the event's recording


@dataclass
class DeviceEvent:
    """Work of a stream, with its times."""

    stream: int
    work: Work
    begin: int
    end: int
    correlation: int
    launched_in: int  # place of the innermost call at the launch


@dataclass
class Played:
    """The events of one rank."""

    host: list[HostEvent] = field(default_factory=list)
    device: list[DeviceEvent] = field(default_factory=list)

    @property
    def end(self) -> int:
        return max([e.end for e in self.host] + [e.end for e in self.device])

    @property
    def begin(self) -> int:
        return min([e.begin for e in self.host] + [e.begin for e in self.device])


def play(program: Program, machine: Machine) -> list[Played]:
    """Return the events of each rank on this machine."""
    return _World(program, machine).run()


class _World:
    def __init__(self, program: Program, machine: Machine) -> None:
        self.machine = machine
        self.now = 0
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._count = 0
        self._meetings: dict[Any, tuple[list[int], Moment]] = {}
        self._living = 0
        self.ranks = [_Process(self, number, rank) for number, rank in enumerate(program.ranks)]
        for process, rank in zip(self.ranks, program.ranks, strict=True):
            for thread, steps in rank.threads.items():
                self.start(process.thread(thread, steps), rank.starts)

    def run(self) -> list[Played]:
        while self._queue:
            self.now, _, action = heapq.heappop(self._queue)
            action()
        if self._living:
            raise AssertionError(f"{self._living} threads or streams of the program wait forever")
        return [process.played for process in self.ranks]

    def at(self, moment: int, action: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._queue, (moment, self._count, action))

    def happens(self, moment: Moment) -> None:
        moment.at = self.now
        for action in moment.waiting:
            self.at(self.now, action)
        moment.waiting.clear()

    def start(self, pauses: Pauses, at: int) -> None:
        self._living += 1

        def go_on() -> None:
            for pause in pauses:
                if isinstance(pause, int):
                    self.at(self.now + pause, go_on)
                    return
                if pause.at is None:
                    pause.waiting.append(go_on)
                    return
            self._living -= 1

        self.at(at, go_on)

    def meet(self, transfer: Transfer) -> Moment:
        """Return the moment of the end, which is the same for all members; one more member has begun."""
        arrived, ends = self._meetings.setdefault(transfer.key, ([], Moment()))
        arrived.append(1)
        if len(arrived) == len(transfer.ranks):
            lasts = self.machine.transfer_ns(transfer.lasts)
            self.at(self.now + lasts, lambda: self.happens(ends))
        return ends


class _Process:
    def __init__(self, world: _World, number: int, rank: Any) -> None:
        self.world, self.number, self.rank = world, number, rank
        self.played = Played()
        self.flags: dict[str, Moment] = {}
        self.events: dict[str, tuple[Moment, int, int]] = {}  # happened, stream, correlation of its recording
        self.streams: dict[int, _Stream] = {}
        self.correlation = 100

    def flag(self, name: str) -> Moment:
        return self.flags.setdefault(name, Moment())

    def stream(self, number: int) -> _Stream:
        if number not in self.streams:
            self.streams[number] = _Stream(self, number)
        return self.streams[number]

    def _host(self, lasts: int) -> int:
        return self.world.machine.host_ns(self.number, lasts)

    def thread(self, thread: int, steps: list[Any]) -> Pauses:
        """Run one thread of the host."""
        world, log = self.world, self.played.host
        opened: list[int] = []

        def call(name: str, step: Any, category: str = "cuda_runtime") -> HostEvent:
            event = HostEvent(
                thread, category, name, world.now, step=step, parent=opened[-1] if opened else -1
            )
            if category == "cuda_runtime":
                self.correlation += 1
                event.correlation = self.correlation
            log.append(event)
            return event

        for step in steps:
            match step:
                case Begin():
                    call(step.name, step, step.category)
                    opened.append(len(log) - 1)
                case End():
                    log[opened.pop()].end = world.now
                case Host():
                    yield self._host(step.lasts)
                case Call():
                    event = call(step.name, step)
                    yield self._host(step.lasts)
                    event.end = world.now
                case Launch():
                    event = call(step.name, step)
                    lasts = self._host(step.lasts)
                    yield lasts // 2
                    done = self.stream(step.stream).put(step.work, event.correlation, event.parent)
                    yield lasts - lasts // 2
                    if step.waits >= 0:
                        yield done
                        yield self._host(step.waits)
                    event.end = world.now
                case Record():
                    event = call("cudaEventRecord", step)
                    happened = self.stream(step.stream).mark()
                    self.events[step.event] = happened, step.stream, event.correlation
                    yield self._host(step.lasts)
                    event.end = world.now
                case WaitEvent():
                    event = call("cudaStreamWaitEvent", step)
                    happened, stream, recorded = self.events[step.event]
                    event.waited = "Stream Wait Event", stream, recorded
                    self.stream(step.stream).wait(happened, step.turn)
                    yield self._host(step.lasts)
                    event.end = world.now
                case Synchronize():
                    yield from self._synchronize(step, call(step.name, step))
                case Query():
                    happened, stream, recorded = self.events[step.event]
                    while True:
                        event = call("cudaEventQuery", step)
                        yield self._host(step.lasts)
                        event.end = world.now
                        event.waited = "Event Sync", stream, recorded
                        if happened.at is not None:
                            break
                        yield self._host(step.pause)
                case Signal():
                    world.happens(self.flag(step.flag))
                case Await():
                    flag = self.flag(step.flag)
                    if flag.at is None:
                        yield flag
                        yield self._host(step.wakes)
                case Sleep():
                    yield step.lasts
                case Exchange():
                    yield world.meet(step.transfer)

    def _synchronize(self, step: Synchronize, event: HostEvent) -> Pauses:
        if step.event:
            happened, stream, recorded = self.events[step.event]
            event.waited = "Event Sync", stream, recorded
            waits = [happened]
        elif step.stream >= 0:
            event.waited = "Stream Sync", step.stream, -1
            waits = [self.stream(step.stream).mark()]
        else:
            event.waited = "Context Sync", -1, -1
            waits = [stream.mark() for stream in self.streams.values()]
        yield self._host(step.lasts)
        yield from waits
        yield self._host(step.after)
        event.end = self.world.now


class _Stream:
    """A queue of the device; each entry begins when the one before has ended."""

    def __init__(self, process: _Process, number: int) -> None:
        self._process, self._world, self._number = process, process.world, number
        self._last: Moment = Moment()  # when all so far will be done
        self._last.at = 0
        self._not_before = 0  # the earliest begin after earlier work and events

    def put(self, work: Work, correlation: int, launched_in: int) -> Moment:
        """Return the end of launched work."""
        machine, rank = self._world.machine, self._process.number
        ready = self._world.now + machine.delay_ns(rank, work.latency)

        def run() -> Pauses:
            begin = max(ready, self._not_before + machine.delay_ns(rank, work.turn))
            yield max(0, begin - self._world.now)
            begin = self._world.now
            if work.transfer is None:
                yield machine.kernel_ns(rank, work.lasts)
            else:
                yield self._world.meet(work.transfer)
            self._not_before = self._world.now
            self._process.played.device.append(
                DeviceEvent(self._number, work, begin, self._world.now, correlation, launched_in)
            )

        return self._append(run())

    def wait(self, happened: Moment, turn: int) -> None:
        """Let work that is launched from now on wait for an event."""
        turn = self._world.machine.delay_ns(self._process.number, turn)

        def run() -> Pauses:
            yield happened
            assert happened.at is not None
            self._not_before = max(self._not_before, happened.at + turn)

        self._append(run())

    def mark(self) -> Moment:
        """Return the end of all work launched so far."""
        return self._last

    def _append(self, entry: Pauses) -> Moment:
        before, done = self._last, Moment()
        self._last = done

        def run() -> Pauses:
            yield before
            yield from entry
            self._world.happens(done)

        self._world.start(run(), self._world.now)
        return done
