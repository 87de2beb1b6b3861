"""Worker processes on this machine: each does many tasks, and is replaced when it ends or grows large.

They are started as programs of their own, not forked: no lock that a thread of this process holds is in them,
and a script that uses them needs no `__main__` guard. A worker reads how it begins and with what, then
receives tasks, and sends back each result when it is there. It ends when this process does, however that
happens. One that is stopped, by a signal or a debugger, is ended: what it had is done again.

Results do not depend on who works. Not here: any task.
"""

from __future__ import annotations

import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import suppress
from io import BytesIO
from multiprocessing.connection import Connection, wait
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from msgspec import Struct, field

from et_sim.basics.command_line import processors
from et_sim.basics.errors import EtSimError, UsageError
from et_sim.compiled.compile_queue import search_paths

PROGRAM = "et_sim.run.workers"
PACKAGE = Path(__file__).parents[1]
IS_POSIX = os.name == "posix"  # elsewhere, processes do not inherit sockets
AHEAD = 2  # tasks that a worker has at once, so that it never waits for the next one
LARGEST_BYTES = 2 << 30  # of a worker; one that is larger after a task is replaced
MOST_STARTS = 3  # of workers in a row that end without having done anything
LOOK_SECONDS = 1.0  # after which workers that send nothing are looked at: one that is stopped twice is ended
WORTH_SECONDS = 2.0  # of work that is left: half of it is more than a worker takes to begin
ENDED = "its worker process ended or was stopped, perhaps for want of memory"

Given = TypeVar("Given")
Item = TypeVar("Item")
Outcome = TypeVar("Outcome")
Begin = Callable[[Given], Callable[[Item], Outcome]]  # a function of a module, which processes find by name
Numbered = tuple[int, Any]  # the place of a task, and its result or refusal


class WorkerEndedError(UsageError):
    """The result of a task whose worker ended, as often as it was tried."""


def usual_workers() -> int:
    """One core is left to the rest of the machine."""
    return max(processors() - 1, 1)


def in_order(
    begin: Begin[Given, Item, Outcome],
    given: Given,
    tasks: Sequence[Item],
    *,
    do: Callable[[Item], Outcome] | None = None,
    seconds: float = 0.0,
    tell: Callable[[str], None] = lambda _: None,
) -> Iterator[Outcome]:
    """Yield the results of tasks that share nothing, in their order, or the first refusal in it.

    This process works, and others beside it where there are processors for them and enough is left to do.
    `do` is what `begin(given)` would be here, `seconds` what a task takes if that is known before. `tell` is
    told if a worker ends; what it had is done here.
    """
    do, start = do or begin(given), time.perf_counter()
    for number, task in enumerate(tasks):
        if number:
            seconds = (time.perf_counter() - start) / number
        left = tasks[number:]
        if seconds * len(left) >= WORTH_SECONDS and (pool := _pool(begin, given, len(left))):
            yield from _beside(pool, left, do, tell)
            return
        yield do(task)


class _Pickler(pickle.Pickler):
    """Sends mappings that nobody may change, too."""

    def reducer_override(self, value: Any) -> Any:
        """How a value is made anew."""
        return (_unchangeable, (dict(value),)) if type(value) is MappingProxyType else NotImplemented


def _unchangeable(content: dict[Any, Any]) -> MappingProxyType[Any, Any]:
    return MappingProxyType(content)


def pickled(value: Any) -> bytes:
    """As a worker takes it."""
    content = BytesIO()
    _Pickler(content).dump(value)
    return content.getvalue()


def _pool(begin: Begin[Any, Any, Any], given: Any, tasks: int) -> WorkerPool | None:
    """As many workers as there are processors, tasks and memory for, besides this process; None: there are
    none, or what is given cannot be sent to them."""
    from et_sim.engine.containers import available_bytes

    most = min(processors(), tasks) - 1 if IS_POSIX else 0
    workers = most and min(most, available_bytes() // 2 // max(_memory_bytes(), 1))
    try:
        return WorkerPool(pickled((begin, given)), workers, attempts=1) if workers else None
    except (TypeError, AttributeError, pickle.PicklingError):
        return None


def _beside(
    pool: WorkerPool, tasks: Sequence[Any], do: Callable[[Any], Any], tell: Callable[[str], None]
) -> Iterator[Any]:
    arrived: dict[int, Any] = {}
    running = pool.run(tasks, do)
    try:
        for number, task in enumerate(tasks):
            while number not in arrived and (some := next(running, None)) is not None:
                kept = [done for done in some if not isinstance(done[1], WorkerEndedError)]
                arrived.update(kept)
                if len(kept) < len(some):
                    tell(f"{ENDED}: going on without it")
                    running.close()
            result = arrived.pop(number) if number in arrived else do(task)
            if isinstance(result, EtSimError):
                raise result
            yield result
    finally:
        running.close()
        pool.close()


class _Worker(Struct, eq=False):
    process: subprocess.Popen[bytes]
    connection: Connection[Any, Any]
    tasks: deque[Numbered] = field(default_factory=deque)  # the first one is under way
    done: int = 0
    is_robbed: bool = False  # of a task that was sent: its result is of no interest
    was_stopped: bool = False  # when it was looked at

    def end(self) -> None:
        self.connection.close()
        self.process.kill()
        self.process.wait()


class WorkerPool(Struct):
    """Some worker processes."""

    opening: bytes  # how a worker begins and with what, pickled
    workers: int
    attempts: int = 2  # at a task, whose worker ends
    _idle: list[_Worker] = field(default_factory=list)

    def run(
        self, tasks: Sequence[Any], do: Callable[[Any], Any] | None = None
    ) -> Generator[Sequence[Numbered], None, None]:
        """Results by the places of their tasks, as they are done; with `do`, this process works, too."""
        left = deque(enumerate(tasks))
        attempts: Counter[int] = Counter()
        working: dict[Any, _Worker] = {}
        in_vain = 0
        try:
            while left or working:
                self._engage(working, left)
                done: list[Numbered] = []
                if do is not None and (own := left.popleft() if left else _robbed(working.values())):
                    done.append((own[0], _attempted(do, own[1])))
                readable = wait(list(working), 0 if done else LOOK_SECONDS)
                if not readable and not done:
                    _end_stopped(working.values())
                for ready in readable:
                    worker = working[ready]
                    received = _received(worker)
                    if received is None:
                        in_vain = 0 if worker.done else in_vain + 1
                        if in_vain == MOST_STARTS:
                            raise UsageError(
                                "worker processes end as soon as they begin", remedy="try --workers 1"
                            )
                        done += self._given_back(worker, left, attempts)
                    else:
                        result, memory = received
                        done.append((worker.tasks.popleft()[0], result))
                        worker.done += 1
                        if memory > LARGEST_BYTES:
                            left.extendleft(reversed(worker.tasks))
                            worker.tasks.clear()
                        else:
                            _feed(worker, left)
                    if received is None or not worker.tasks:
                        del working[ready]
                        is_large = received is None or memory > LARGEST_BYTES
                        self._leave(worker, may_stay=not (is_large or worker.is_robbed))
                if done:
                    yield done
        finally:
            for worker in working.values():
                worker.end()

    def _engage(self, working: dict[Any, _Worker], left: deque[Numbered]) -> None:
        """As many workers as there are to be, if there is work for them."""
        while left and len(working) < self.workers:
            worker = self._idle.pop() if self._idle else self._start()
            working[worker.connection] = worker
            _feed(worker, left)

    def _given_back(self, worker: _Worker, left: deque[Numbered], attempts: Counter[int]) -> list[Numbered]:
        """Tasks of a worker that ended are done again, but what it was at only so often."""
        lost: list[Numbered] = []
        if worker.tasks:
            number = worker.tasks[0][0]
            attempts[number] += 1
            if attempts[number] >= self.attempts:
                worker.tasks.popleft()
                lost.append((number, WorkerEndedError(ENDED)))
        left.extendleft(reversed(worker.tasks))
        return lost

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
            blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # for the worker, see `main`
            try:
                process = subprocess.Popen(
                    [sys.executable, "-P", "-m", PROGRAM, str(descriptor)],
                    stdin=subprocess.PIPE,
                    pass_fds=(descriptor,),
                    env=environment,
                )
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
            connection: Connection[Any, Any] = Connection(ours.detach())
        # A thread of its own: a worker that does not read must not keep this process.
        threading.Thread(target=_open, args=(process, self.opening), daemon=True).start()
        return _Worker(process, connection)


def _open(process: subprocess.Popen[bytes], opening: bytes) -> None:
    """Write how a worker begins; one that has ended is noticed when it is asked for results."""
    assert process.stdin is not None
    with suppress(OSError), process.stdin as pipe:
        pipe.write(opening)


def _end_stopped(workers: Iterable[_Worker]) -> None:
    """End workers that were stopped when they were looked at before, and still are.

    Ctrl-Z stops this process, too: when both go on, workers may be stopped for a moment longer.
    """
    for worker in workers:
        is_stopped = _is_stopped(worker.process.pid)
        if is_stopped and worker.was_stopped:
            worker.process.kill()
        worker.was_stopped = is_stopped


def _is_stopped(process: int) -> bool:
    if not hasattr(os, "waitid"):
        return False
    with suppress(ChildProcessError):
        return os.waitid(os.P_PID, process, os.WSTOPPED | os.WNOHANG | os.WNOWAIT) is not None
    return False


def _feed(worker: _Worker, left: deque[Numbered]) -> None:
    while left and len(worker.tasks) < AHEAD and not worker.is_robbed:
        task = left.popleft()
        worker.tasks.append(task)
        with suppress(ConnectionError):
            worker.connection.send(task[1])


def _robbed(workers: Iterable[_Worker]) -> Numbered | None:
    """Return the first task that a worker has not begun, for this process, which has nothing else to do."""
    waiting = [worker for worker in workers if len(worker.tasks) > 1]
    if not waiting:
        return None
    worker = min(waiting, key=lambda worker: worker.tasks[-1][0])
    worker.is_robbed = True
    return worker.tasks.pop()


def _attempted(do: Callable[[Any], Any], task: Any) -> Any:
    """Return the result, or what is refused."""
    try:
        return do(task)
    except EtSimError as error:
        return error


def _received(worker: _Worker) -> tuple[Any, int] | None:
    """Return a result and the worker's memory; None: it has ended."""
    try:
        result, memory = worker.connection.recv()
    except (EOFError, ConnectionError):
        return None
    return result, memory


STATUS = Path("/proc/self/statm")
PAGE_BYTES = 4096


def main(descriptor: int) -> None:
    """Work until no more tasks arrive."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes: the one that waits decides
    with Connection(descriptor) as connection:
        try:
            begin, given = pickle.load(sys.stdin.buffer)
            do = begin(given)
            while True:
                result = _attempted(do, connection.recv())
                connection.send((result, _memory_bytes()))
        except (EOFError, ConnectionError, pickle.UnpicklingError):  # the process that waits has ended
            return


def _memory_bytes() -> int:
    """How much memory this process has; 0 where the system does not say."""
    try:
        return int(STATUS.read_text(encoding="ascii").split()[1]) * PAGE_BYTES
    except (OSError, ValueError, IndexError):
        return 0


if __name__ == "__main__":
    main(int(sys.argv[1]))
