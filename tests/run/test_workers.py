"""Independent tasks: results in their order on any workers, and lost tasks are repeated."""

from __future__ import annotations

import os
import pickle
import signal
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import pytest

from et_sim.basics import errors
from et_sim.basics.errors import EtSimError, InputError, StallError
from et_sim.run import workers
from et_sim.run.workers import ENDED, WorkerPool, in_order

REFUSED, DEADLY = (3, 5), 2


def numbers_and_processes(given: int) -> Callable[[int], tuple[int, int]]:
    """Return a function that adds to a number and names its process."""
    return lambda number: (given + number, os.getpid())


def refusing(given: int) -> Callable[[int], int]:
    """Return a function that refuses some numbers."""

    def do(number: int) -> int:
        if number in REFUSED:
            raise InputError(f"{given + number} is refused", place="here", remedy="give another")
        return given + number

    return do


def looked_up(given: Mapping[int, str]) -> Callable[[int], str]:
    """Return a function that finds texts by number in a mapping that is read-only."""
    assert isinstance(given, MappingProxyType)
    return lambda number: given[number]


def deadly(owner: int) -> Callable[[int], int]:
    """Return a function that ends other processes than the owner at one number."""

    def do(number: int) -> int:
        if number == DEADLY and os.getpid() != owner:
            os._exit(9)
        return number

    return do


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return all workers that begin, on a machine with three processors, where every task uses workers."""
    started, start = list[Any](), WorkerPool._start

    def note(pool: WorkerPool) -> Any:
        started.append(start(pool))
        return started[-1]

    monkeypatch.setattr(WorkerPool, "_start", note)
    monkeypatch.setattr(workers, "WORTH_SECONDS", 0.0)
    monkeypatch.setattr(workers, "processors", lambda: 3)
    return started


def _all_ended(started: list[Any]) -> bool:
    return all(worker.process.poll() is not None for worker in started)


def test_results_have_the_order_of_tasks_on_any_workers(started: list[Any]) -> None:
    results = list(in_order(numbers_and_processes, 100, range(20)))
    assert [number for number, _ in results] == list(range(100, 120))
    at_work = {process for _, process in results}
    assert {worker.process.pid for worker in started} <= at_work
    assert os.getpid() in at_work
    assert len(started) == 2
    assert _all_ended(started)


def test_short_tasks_are_done_here(monkeypatch: pytest.MonkeyPatch, started: list[Any]) -> None:
    monkeypatch.setattr(workers, "WORTH_SECONDS", 1e9)
    assert {process for _, process in in_order(numbers_and_processes, 0, range(5))} == {os.getpid()}
    assert not started


def test_read_only_mappings_are_sent(started: list[Any]) -> None:
    given = MappingProxyType({0: "a", 1: "b", 2: "c"})
    assert list(in_order(looked_up, given, range(3))) == ["a", "b", "c"]
    assert started


def test_where_processes_inherit_no_sockets_this_one_works(
    monkeypatch: pytest.MonkeyPatch, started: list[Any]
) -> None:
    monkeypatch.setattr(workers, "IS_POSIX", False)
    assert {process for _, process in in_order(numbers_and_processes, 0, range(5))} == {os.getpid()}
    assert not started


def test_one_task_needs_no_other_process(started: list[Any]) -> None:
    assert list(in_order(numbers_and_processes, 0, range(1))) == [(0, os.getpid())]
    assert not started


def test_tasks_that_cannot_be_sent_are_done_here(started: list[Any]) -> None:
    assert list(in_order(lambda _: str, {}, range(3))) == ["0", "1", "2"]
    assert not started


def test_the_first_refusal_in_the_order_is_raised(started: list[Any]) -> None:
    results = in_order(refusing, 10, [0, 1, 5, 3, 4, 6])
    assert [next(results), next(results)] == [10, 11]
    with pytest.raises(InputError) as refusal:
        next(results)
    assert str(refusal.value) == "here: 15 is refused (give another)"
    assert started
    assert _all_ended(started)


def test_tasks_of_a_dead_worker_are_repeated_here_with_a_message(started: list[Any]) -> None:
    messages: list[str] = []
    tasks = [DEADLY, DEADLY, *range(6)]
    assert list(in_order(deadly, os.getpid(), tasks, notify=messages.append)) == tasks
    assert messages[0] == f"{ENDED}: going on without it"
    assert _all_ended(started)


def stopping(owner: int) -> Callable[[int], int]:
    """Return a function that stops other processes than the owner at one number."""

    def do(number: int) -> int:
        if number == DEADLY and os.getpid() != owner:
            os.kill(os.getpid(), signal.SIGSTOP)
        return number

    return do


def test_tasks_of_a_stopped_worker_are_done_here(started: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "LOOK_SECONDS", 0.05)
    messages: list[str] = []
    tasks = [DEADLY, DEADLY, *range(6)]
    assert list(in_order(stopping, os.getpid(), tasks, notify=messages.append)) == tasks
    assert _all_ended(started)


def test_a_worker_that_is_stopped_before_it_has_read_anything_blocks_no_process(
    started: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "LOOK_SECONDS", 0.05)
    start = WorkerPool._start

    def stopped(pool: WorkerPool) -> Any:
        worker = start(pool)
        worker.process.send_signal(signal.SIGSTOP)
        return worker

    monkeypatch.setattr(WorkerPool, "_start", stopped)
    large = MappingProxyType({number: str(number) * 1000 for number in range(2000)})
    tasks = range(8)
    assert list(in_order(looked_up, large, tasks)) == [large[number] for number in tasks]
    assert _all_ended(started)


def test_a_pool_whose_only_workers_are_stopped_reports_lost_tasks(
    monkeypatch: pytest.MonkeyPatch, started: list[Any]
) -> None:
    monkeypatch.setattr(workers, "LOOK_SECONDS", 0.05)
    pool = WorkerPool(workers.pickled((stopping, os.getpid())), 1)
    results = dict(done for some in pool.run([1, DEADLY, 3]) for done in some)
    pool.close()
    assert (results[0], results[2]) == (1, 3)
    assert isinstance(results[1], workers.WorkerEndedError)
    assert _all_ended(started)


def test_an_interruption_leaves_no_process_behind(started: list[Any]) -> None:
    def interrupted(_: int) -> tuple[int, int]:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(in_order(numbers_and_processes, 0, range(9), do=interrupted))
    assert len(started) == 2
    assert _all_ended(started)


def test_a_caller_that_stops_reading_leaves_no_process_behind(started: list[Any]) -> None:
    results: Any = in_order(numbers_and_processes, 0, range(9))
    next(results)
    results.close()
    assert _all_ended(started)


@pytest.mark.parametrize(
    "kind",
    [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, EtSimError)],
)
def test_refusals_are_the_same_in_another_process(kind: type[EtSimError]) -> None:
    error = kind("cause", place="place", remedy="remedy")
    if isinstance(error, StallError):
        error.report = "who waits for whom"
    arrived = pickle.loads(pickle.dumps(error))
    assert (type(arrived), vars(arrived), str(arrived)) == (kind, vars(error), str(error))
