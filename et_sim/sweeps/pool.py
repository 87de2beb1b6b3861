"""Worker processes on this machine: each evaluates many points, and is replaced when it ends or grows large.

They are started as programs of their own, not forked, so that a script that sweeps needs no `__main__` guard.

A worker receives a design space, then tasks, and sends back each result when it is there. It ends when the
sweep's process does, however that happens.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from et_sim.basics.command_line import processors
from et_sim.basics.errors import EtSimError, UsageError
from et_sim.compiled.orders import search_paths
from et_sim.sweeps.digests import PACKAGE
from et_sim.sweeps.evaluate import MOST_ATTEMPTS, Done, Evaluator, Lost, Task, attempt
from et_sim.sweeps.space import Space

PROGRAM = "et_sim.sweeps.pool"
AHEAD = 2  # tasks that a worker has at once, so that it never waits for the next one
LARGEST_BYTES = 2 << 30  # of a worker; one that is larger after a point is replaced
MOST_STARTS = 3  # of workers in a row that end without having done anything
ENDED = "its worker process ended, perhaps for want of memory"


def usual_workers() -> int:
    """One core is left to the rest of the machine."""
    return max(processors() - 1, 1)


class _Worker(Struct, eq=False):
    process: subprocess.Popen[bytes]
    connection: Connection[Any, Any]
    tasks: deque[Task] = field(default_factory=deque)  # the first one is under way
    done: int = 0

    def end(self) -> None:
        self.connection.close()
        self.process.kill()
        self.process.wait()


class WorkerPool(Struct):
    """Some worker processes."""

    space: Space
    workers: int
    _idle: list[_Worker] = field(default_factory=list)

    def run(self, tasks: Sequence[Task]) -> Iterator[Sequence[Done]]:
        """As they are done."""
        left = deque(tasks)
        attempts: Counter[str] = Counter()
        working: dict[Any, _Worker] = {}
        in_vain = 0
        try:
            while left or working:
                self._engage(working, left)
                done: list[Done] = []
                for ready in wait(list(working)):
                    worker = working[ready]
                    received = _received(worker)
                    if received is None:
                        in_vain = 0 if worker.done else in_vain + 1
                        if in_vain == MOST_STARTS:
                            raise UsageError(
                                "worker processes end as soon as they begin", remedy="try --workers 1"
                            )
                        done += _given_back(worker, left, attempts)
                    else:
                        result, memory = received
                        worker.tasks.popleft()
                        worker.done += 1
                        done.append(result)
                        if memory > LARGEST_BYTES:
                            left.extendleft(reversed(worker.tasks))
                            worker.tasks.clear()
                        else:
                            _feed(worker, left)
                    if received is None or not worker.tasks:
                        del working[ready]
                        self._leave(worker, may_stay=received is not None and memory <= LARGEST_BYTES)
                if done:
                    yield done
        finally:
            for worker in working.values():
                worker.end()

    def _engage(self, working: dict[Any, _Worker], left: deque[Task]) -> None:
        """As many workers as there are to be, if there is work for them."""
        while left and len(working) < self.workers:
            worker = self._idle.pop() if self._idle else self._start()
            working[worker.connection] = worker
            _feed(worker, left)

    def _leave(self, worker: _Worker, *, may_stay: bool) -> None:
        """A worker without tasks waits for those of the next call, if it is fit for them."""
        if may_stay:
            self._idle.append(worker)
        else:
            worker.end()

    def close(self) -> None:
        """End the workers that wait."""
        while self._idle:
            self._idle.pop().end()

    def _start(self) -> _Worker:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            environment = {
                **os.environ,
                "PYTHONPATH": os.pathsep.join((str(PACKAGE.parent), *search_paths())),
            }
            descriptor = theirs.fileno()
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", PROGRAM, str(descriptor)],
                stdin=subprocess.DEVNULL,
                pass_fds=(descriptor,),
                env=environment,
            )
            connection: Connection[Any, Any] = Connection(ours.detach())
        with suppress(ConnectionError):  # it has ended: noticed when it is asked for results
            connection.send(self.space)
        return _Worker(process, connection)


def _feed(worker: _Worker, left: deque[Task]) -> None:
    while left and len(worker.tasks) < AHEAD:
        task = left.popleft()
        worker.tasks.append(task)
        with suppress(ConnectionError):
            worker.connection.send(task)


def _received(worker: _Worker) -> tuple[Done, int] | None:
    """A result and the worker's memory; None: it has ended."""
    try:
        done, memory = worker.connection.recv()
    except (EOFError, ConnectionError):
        return None
    if isinstance(done, str):
        raise UsageError(done)
    return done, memory


def _given_back(worker: _Worker, left: deque[Task], attempts: Counter[str]) -> list[Done]:
    """Tasks of a worker that ended are done again, but what it was at only so often."""
    lost: list[Done] = []
    if worker.tasks:
        first = worker.tasks[0]
        attempts[first.digest] += 1
        if attempts[first.digest] >= MOST_ATTEMPTS:
            worker.tasks.popleft()
            lost.append(Lost(first.digest, ENDED))
    left.extendleft(reversed(worker.tasks))
    return lost


STATUS = Path("/proc/self/statm")
PAGE_BYTES = 4096


def main(descriptor: int) -> None:
    """Work until no more tasks arrive."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes: the sweep's decides
    with Connection(descriptor) as connection:
        try:
            evaluator = Evaluator(connection.recv())
            while True:
                task = connection.recv()
                try:
                    done = attempt(evaluator, task)
                except EtSimError as error:
                    connection.send((str(error), 0))
                    return
                connection.send((done, _memory_bytes()))
        except (EOFError, ConnectionError):  # the sweep has ended
            return


def _memory_bytes() -> int:
    """How much memory this process has; 0 where the system does not say."""
    try:
        return int(STATUS.read_text(encoding="ascii").split()[1]) * PAGE_BYTES
    except (OSError, ValueError, IndexError):
        return 0


if __name__ == "__main__":
    main(int(sys.argv[1]))
