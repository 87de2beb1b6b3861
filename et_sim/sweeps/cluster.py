"""Workers of a Dask cluster: they receive the design space once, and return results as they finish.

Workers with another version of et-sim are refused before anything begins. Tasks of a lost worker are repeated
by others.
"""

from __future__ import annotations

import json
import threading
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from msgspec import Struct

from et_sim.basics.errors import EtSimError, UsageError
from et_sim.basics.files import is_file
from et_sim.sweeps.digests import program_digest
from et_sim.sweeps.evaluate import MOST_ATTEMPTS, Done, Evaluator, Lost, PointTask, attempt
from et_sim.sweeps.space import Space
from et_sim.version import __version__

CONNECT_SECONDS = 10
AT_ONCE = 8  # points of a batch, which share overheads
AHEAD = 2  # batches for each thread, so that it never waits for the next one
_ONE_AT_A_TIME = threading.Lock()  # of the threads of a worker


class Scheduler(Struct):
    """A scheduler by its address, or by its file."""

    space: Space
    where: str
    _client: Any = None  # from the first task on
    _shared: Any = None  # the space at the workers

    def run(self, tasks: Sequence[PointTask]) -> Iterator[Sequence[Done]]:
        """Yield results as they finish."""
        if self._client is None:
            self._client = _connected(self.where)
            _check_versions(self._client)
        yield from self._run(self._client, tasks)

    def close(self) -> None:
        """Leave the cluster."""
        if self._client is not None:
            self._client.close()
            self._client = self._shared = None

    def _share(self) -> None:
        self._shared = self._client.scatter(self.space, broadcast=True, hash=False)

    def _run(self, client: Any, tasks: Sequence[PointTask]) -> Iterator[Sequence[Done]]:
        from distributed import as_completed

        wanted = AHEAD * max(sum(client.nthreads().values()), 1)
        left = deque(_batches(tasks, wanted))
        attempts: Counter[str] = Counter()
        if self._shared is None:
            self._share()
        under_way: dict[Any, list[PointTask]] = {}  # by future
        arriving = as_completed([], loop=client.loop)

        def submit() -> None:
            batch = left.popleft()
            future = client.submit(work, self._shared, batch, program_digest(), pure=False)
            under_way[future] = batch
            arriving.add(future)

        try:
            for _ in range(min(len(left), wanted)):
                submit()
            for future in arriving:
                batch = under_way.pop(future)
                if future.status == "finished":
                    done = future.result()
                    if isinstance(done, str):
                        raise UsageError(done)
                    yield done
                else:  # the workers ended, or lost the scattered space
                    lost = _again(batch, attempts, left, _reason(future))
                    if left:
                        self._share()
                    if lost:
                        yield lost
                if left:
                    submit()
        finally:
            client.cancel([*under_way], force=True)


def _again(
    batch: list[PointTask], attempts: Counter[str], left: deque[list[PointTask]], reason: str
) -> list[Lost]:
    """Queue tasks without a result again, each by itself; return those that reached the limit of attempts."""
    lost = []
    for task in batch:
        attempts[task.digest] += 1
        if attempts[task.digest] > MOST_ATTEMPTS:
            lost.append(Lost(task.digest, f"lost with its workers: {reason}"))
        else:
            left.append([task])
    return lost


def _batches(tasks: Sequence[PointTask], wanted: int) -> Iterator[list[PointTask]]:
    """Yield batches; a small number of tasks is split into enough batches for all threads."""
    size = max(min(AT_ONCE, len(tasks) // wanted), 1)
    for first in range(0, len(tasks), size):
        yield list(tasks[first : first + size])


def _reason(future: Any) -> str:
    error = future.exception() if future.status == "error" else None
    return str(error).splitlines()[0] if error is not None and str(error) else future.status


def work(space: Space, tasks: Sequence[PointTask], program: str) -> Sequence[Done] | str:
    """Evaluate a batch on a worker; a text is a refusal that holds for all batches."""
    if program != program_digest():
        return (
            f"a worker runs another et-sim than this one: install {__version__} everywhere, and sweep again"
        )
    with _ONE_AT_A_TIME:
        try:
            return [attempt(_evaluator(space), task) for task in tasks]
        except EtSimError as error:
            return str(error)


@lru_cache(1)
def _evaluator(space: Space) -> Evaluator:
    return Evaluator(space)


def about_program() -> tuple[str, str]:
    """Return version and digest of the program of this process."""
    return __version__, program_digest()


def check_cluster(where: str) -> None:
    """Refuse a cluster that no point could be sent to."""
    with _connected(where) as client:
        _check_versions(client)


def _check_versions(client: Any) -> None:
    """Refuse a cluster without workers, or with workers that run another program."""
    try:
        client.wait_for_workers(1, timeout=CONNECT_SECONDS)
    except TimeoutError:
        raise UsageError(
            "the cluster has no workers", remedy="start some with: dask worker ADDRESS"
        ) from None
    answers = client.run(about_program, on_error="return")
    for worker, answer in sorted(answers.items()):
        if isinstance(answer, OSError):  # it is being lost; the tasks of others compare programs as well
            continue
        if isinstance(answer, BaseException):
            raise UsageError(
                f"worker {worker} cannot run et-sim: {answer}",
                remedy="install et-sim[cluster] in the environment of the workers",
            )
        if tuple(answer) != about_program():
            version = answer[0]
            other = f"et-sim {version}" if version != __version__ else f"et-sim {version} with other sources"
            raise UsageError(
                f"worker {worker} runs {other}, and this is et-sim {__version__}",
                remedy="install the same version everywhere",
            )


def _connected(where: str) -> Any:
    """Return a client."""
    try:
        from distributed import Client
    except ImportError:
        raise UsageError("--dask needs Dask", remedy="pip install 'et-sim[cluster]'") from None
    try:
        if is_file(Path(where)):
            json.loads(Path(where).read_text(encoding="utf-8"))
            return Client(scheduler_file=where, timeout=CONNECT_SECONDS, set_as_default=False)
        if "://" in where:
            return Client(where, timeout=CONNECT_SECONDS, set_as_default=False)
    except (OSError, ValueError) as error:
        raise UsageError(
            f"there is no Dask scheduler at {where}: {str(error).partition(chr(10))[0] or 'no answer'}",
            remedy="start one with: dask scheduler",
        ) from None
    raise UsageError(
        f"{where!r} is no address and no file", remedy="give tcp://HOST:PORT, or the scheduler's file"
    )
