"""Worker processes on this machine: each handles many tasks, and is replaced when it ends or grows large.

Workers are started as programs of their own, not forked: they inherit no lock of a thread of this process,
and a script that uses them needs no `__main__` guard. A worker reads its function with arguments, then
receives tasks, and sends back each result. It ends when this process does, however that happens. A worker
that is stopped, by a signal or a debugger, is ended, and its tasks are repeated.

Results do not depend on the workers.
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
from et_sim.basics.starting import keep_freed_memory
from et_sim.compiled.compile_queue import search_paths

PROGRAM = "et_sim.run.workers"
PACKAGE = Path(__file__).parents[1]
IS_POSIX = os.name == "posix"  # elsewhere, processes do not inherit sockets
AHEAD = 2  # tasks of a worker at a time, so that it never waits for the next one
LARGEST_BYTES = 2 << 30  # size of a worker above which it is replaced after a task
MOST_STARTS = 3  # of workers in a row that end without a result
LOOK_SECONDS = 1.0  # after this, silent workers are checked: one that is stopped twice is ended
WORTH_SECONDS = 2.0  # remaining work: half of it takes longer than the start of a worker
ENDED = "its worker process ended or was stopped, perhaps for want of memory"

Given = TypeVar("Given")
Item = TypeVar("Item")
Outcome = TypeVar("Outcome")
Begin = Callable[[Given], Callable[[Item], Outcome]]  # a function of a module, which processes find by name
Numbered = tuple[int, Any]  # the index of a task, and its result or refusal


class WorkerEndedError(UsageError):
    """The result of a task whose workers ended in all attempts."""


def usual_workers() -> int:
    """Return the number of processors less one, which is left to the rest of the machine."""
    return max(processors() - 1, 1)


def in_order(
    begin: Begin[Given, Item, Outcome],
    given: Given,
    tasks: Sequence[Item],
    *,
    do: Callable[[Item], Outcome] | None = None,
    seconds: float = 0.0,
    notify: Callable[[str], None] = lambda _: None,
) -> Iterator[Outcome]:
    """Yield the results of independent tasks in order, or the first refusal.

    This process works, and so do others if there are processors for them and enough work is left. `do` is
    `begin(given)` in this process, `seconds` the time of a task if it is known. `notify` receives a message
    if a worker ends; its tasks are repeated here.
    """
    do, start = do or begin(given), time.perf_counter()
    for number, task in enumerate(tasks):
        if number:
            seconds = (time.perf_counter() - start) / number
        left = tasks[number:]
        if seconds * len(left) >= WORTH_SECONDS and (pool := _pool(begin, given, len(left))):
            yield from _with_pool(pool, left, do, notify)
            return
        yield do(task)


class _Pickler(pickle.Pickler):
    """A pickler that supports read-only mappings."""

    def reducer_override(self, value: Any) -> Any:
        """Return the way to rebuild a value."""
        return (_unchangeable, (dict(value),)) if type(value) is MappingProxyType else NotImplemented


def _unchangeable(content: dict[Any, Any]) -> MappingProxyType[Any, Any]:
    return MappingProxyType(content)


def pickled(value: Any) -> bytes:
    """Serialise a value for a worker."""
    content = BytesIO()
    _Pickler(content).dump(value)
    return content.getvalue()


def _pool(begin: Begin[Any, Any, Any], given: Any, tasks: int) -> WorkerPool | None:
    """Return as many workers as processors, tasks and memory allow besides this process; None if there are
    none, or if the inputs cannot be sent."""
    from et_sim.engine.containers import available_bytes

    most = min(processors(), tasks) - 1 if IS_POSIX else 0
    workers = most and min(most, available_bytes() // 2 // max(_memory_bytes(), 1))
    try:
        return WorkerPool(pickled((begin, given)), workers, attempts=1) if workers else None
    except (TypeError, AttributeError, pickle.PicklingError):
        return None


def _with_pool(
    pool: WorkerPool, tasks: Sequence[Any], do: Callable[[Any], Any], notify: Callable[[str], None]
) -> Iterator[Any]:
    arrived: dict[int, Any] = {}
    running = pool.run(tasks, do)
    try:
        for number, task in enumerate(tasks):
            while number not in arrived and (some := next(running, None)) is not None:
                kept = [done for done in some if not isinstance(done[1], WorkerEndedError)]
                arrived.update(kept)
                if len(kept) < len(some):
                    notify(f"{ENDED}: going on without it")
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
    lost_task: bool = False  # another process took a sent task: its result is dropped
    was_stopped: bool = False  # at the last check

    def end(self) -> None:
        self.connection.close()
        self.process.kill()
        self.process.wait()


class WorkerPool(Struct):
    """A pool of worker processes."""

    opening: bytes  # a worker's function with arguments, pickled
    workers: int
    attempts: int = 2  # attempts at a task whose worker ends
    _idle: list[_Worker] = field(default_factory=list)

    def run(
        self, tasks: Sequence[Any], do: Callable[[Any], Any] | None = None
    ) -> Generator[Sequence[Numbered], None, None]:
        """Yield results with the indices of their tasks, as they finish; with `do`, this process works
        too."""
        left = deque(enumerate(tasks))
        attempts: Counter[int] = Counter()
        working: dict[Any, _Worker] = {}
        in_vain = 0
        try:
            while left or working:
                self._engage(working, left)
                done: list[Numbered] = []
                if do is not None and (own := left.popleft() if left else _taken_back(working.values())):
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
                        self._leave(worker, may_stay=not (is_large or worker.lost_task))
                if done:
                    yield done
        finally:
            for worker in working.values():
                worker.end()

    def _engage(self, working: dict[Any, _Worker], left: deque[Numbered]) -> None:
        """Start as many workers as there are tasks for, up to the limit."""
        while left and len(working) < self.workers:
            worker = self._idle.pop() if self._idle else self._start()
            working[worker.connection] = worker
            _feed(worker, left)

    def _given_back(self, worker: _Worker, left: deque[Numbered], attempts: Counter[int]) -> list[Numbered]:
        """Queue the tasks of an ended worker again; return the current one as lost after its last attempt."""
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
        """Keep a worker for the next call, or end it."""
        if may_stay:
            self._idle.append(worker)
        else:
            worker.end()

    def close(self) -> None:
        """End idle workers."""
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
        # A thread of its own: a worker that does not read must not block this process.
        threading.Thread(target=_open, args=(process, self.opening), daemon=True).start()
        return _Worker(process, connection)


def _open(process: subprocess.Popen[bytes], opening: bytes) -> None:
    """Write a worker's opening; a worker that has ended is detected when results are read."""
    assert process.stdin is not None
    with suppress(OSError), process.stdin as pipe:
        pipe.write(opening)


def _end_stopped(workers: Iterable[_Worker]) -> None:
    """End workers that were stopped at the last check, and still are.

    Ctrl-Z also stops this process: after it continues, workers may be stopped for a moment longer.
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
    while left and len(worker.tasks) < AHEAD and not worker.lost_task:
        task = left.popleft()
        worker.tasks.append(task)
        with suppress(ConnectionError):
            worker.connection.send(task[1])


def _taken_back(workers: Iterable[_Worker]) -> Numbered | None:
    """Return the first task that no worker has begun, for this process when it is idle."""
    waiting = [worker for worker in workers if len(worker.tasks) > 1]
    if not waiting:
        return None
    worker = min(waiting, key=lambda worker: worker.tasks[-1][0])
    worker.lost_task = True
    return worker.tasks.pop()


def _attempted(do: Callable[[Any], Any], task: Any) -> Any:
    """Return the result, or the refusal."""
    try:
        return do(task)
    except EtSimError as error:
        return error


def _received(worker: _Worker) -> tuple[Any, int] | None:
    """Return a result and the worker's memory; None if the worker has ended."""
    try:
        result, memory = worker.connection.recv()
    except (EOFError, ConnectionError):
        return None
    return result, memory


STATUS = Path("/proc/self/statm")
PAGE_BYTES = 4096


def main(descriptor: int) -> None:
    """Handle tasks until no more arrive."""
    keep_freed_memory()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes; the parent decides
    with Connection(descriptor) as connection:
        try:
            begin, given = pickle.load(sys.stdin.buffer)
            do = begin(given)
            while True:
                result = _attempted(do, connection.recv())
                connection.send((result, _memory_bytes()))
        except (EOFError, ConnectionError, pickle.UnpicklingError):  # the parent has ended
            return


def _memory_bytes() -> int:
    """Return the memory of this process; 0 if the system does not state it."""
    try:
        return int(STATUS.read_text(encoding="ascii").split()[1]) * PAGE_BYTES
    except (OSError, ValueError, IndexError):
        return 0


if __name__ == "__main__":
    main(int(sys.argv[1]))
