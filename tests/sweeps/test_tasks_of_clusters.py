"""Tasks at the workers of a cluster, by a client in place of Dask: how many at a time, and the lost ones."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import Any

import pytest

from et_sim.basics.errors import UsageError
from et_sim.sweeps import cluster
from et_sim.sweeps.evaluate import MOST_ATTEMPTS, Lost, PointTask

THREADS = {"tcp://one": 2, "tcp://two": 1}
AT_A_TIME = 6  # two batches for each thread
PROGRAM = "digest"


class _Arriving:
    """Futures in the order of their submission."""

    def __init__(self, futures: Sequence[Any], loop: str) -> None:
        assert (list(futures), loop) == ([], "loop")
        self._futures = deque[Any]()

    def add(self, future: Any) -> None:
        self._futures.append(future)

    def __iter__(self) -> Iterator[Any]:
        while self._futures:
            yield self._futures.popleft()


class _Future:
    """A batch that ends with an answer: results or a refusal, an error, or nothing."""

    def __init__(self, client: _Client, answer: Any) -> None:
        self._client, self._answer = client, answer
        self.status = "error" if isinstance(answer, Exception) else "lost" if answer is None else "finished"

    def result(self) -> Any:
        self._client.under_way -= 1
        return self._answer

    def exception(self) -> Exception:
        assert isinstance(self._answer, Exception)
        return self._answer


class _Client:
    """A client whose workers give the answers that are listed by digest, and else results: the digests."""

    loop = "loop"
    threads = THREADS

    def __init__(self, answers: dict[str, list[Any]]) -> None:
        self.answers = answers
        self.shared = 0
        self.under_way = 0
        self.most_under_way = 0
        self.cancelled: list[Any] = []
        self.closed = 0

    def nthreads(self) -> dict[str, int]:
        return self.threads

    def scatter(self, space: Any, **_: Any) -> Any:
        self.shared += 1
        return space, self.shared

    def submit(self, work: Any, shared: Any, batch: list[PointTask], program: str, *, pure: bool) -> _Future:
        assert (work, program, pure) == (cluster.work, PROGRAM, False)
        assert shared == ("space", self.shared)
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        digests = [task.digest for task in batch]
        of_batch = [self.answers[digest].pop(0) for digest in digests if self.answers.get(digest)]
        return _Future(self, of_batch[0] if of_batch else digests)

    def close(self) -> None:
        self.closed += 1

    def cancel(self, futures: list[Any], force: bool) -> None:
        assert force
        self.cancelled = futures


@pytest.fixture(autouse=True)
def _dask(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("distributed")
    vars(module)["as_completed"] = _Arriving
    monkeypatch.setitem(sys.modules, "distributed", module)
    monkeypatch.setattr(cluster, "program_digest", lambda: PROGRAM)


def _tasks(count: int) -> list[PointTask]:
    return [PointTask(f"{number:03}", ()) for number in range(count)]


def _all(client: _Client, count: int) -> list[Any]:
    space: Any = "space"
    scheduler = cluster.Scheduler(space, "tcp://x", _client=client)
    return [done for batch in scheduler.run(_tasks(count)) for done in batch]


@pytest.mark.parametrize(("count", "most"), [(1, 1), (5, 5), (6, 6), (200, AT_A_TIME)])
def test_every_thread_has_two_batches_until_few_are_left(count: int, most: int) -> None:
    client = _Client({})
    assert _all(client, count) == [task.digest for task in _tasks(count)]
    assert (client.most_under_way, client.shared, client.cancelled) == (most, 1, [])


def test_workers_that_are_about_to_come_get_two_batches_of_eight() -> None:
    client, space = _Client({}), "space"
    client.threads = {}
    scheduler = cluster.Scheduler(space, "tcp://x", _client=client)  # type: ignore[arg-type]
    assert [len(batch) for batch in scheduler.run(_tasks(40))] == [8] * 5
    assert client.most_under_way == 2


def test_a_cluster_is_connected_and_checked_at_the_first_task_and_again_once_it_was_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clients: list[tuple[str, _Client]] = []
    checked: list[_Client] = []

    def connected(where: str) -> _Client:
        clients.append((where, _Client({})))
        return clients[-1][1]

    monkeypatch.setattr(cluster, "_connected", connected)
    monkeypatch.setattr(cluster, "_check_versions", checked.append)
    space: Any = "space"
    scheduler = cluster.Scheduler(space, "tcp://x")
    scheduler.close()
    for _ in range(2):
        for _ in range(2):
            assert [*scheduler.run(_tasks(1))] == [["000"]]
        scheduler.close()
    assert [where for where, _ in clients] == ["tcp://x"] * 2
    assert checked == [client for _, client in clients]
    assert [(client.shared, client.closed) for client in checked] == [(1, 1)] * 2


def test_the_space_is_sent_once_for_all_tasks_and_again_after_workers_are_gone() -> None:
    client, space = _Client({}), "space"
    scheduler = cluster.Scheduler(space, "tcp://x", _client=client)  # type: ignore[arg-type]
    for _ in range(2):
        assert len([*scheduler.run(_tasks(3))]) == 3
    assert client.shared == 1
    client.answers["001"] = [None]
    assert sorted(digest for batch in scheduler.run(_tasks(3)) for digest in batch) == ["000", "001", "002"]
    assert client.shared == 2


@pytest.mark.parametrize(
    ("answer", "reason"),
    [(OSError("gone\nfar away"), "gone"), (OSError(""), "error"), (None, "lost")],
)
def test_a_task_that_is_lost_too_often_is_given_up_and_others_of_its_batch_are_repeated(
    answer: Any, reason: str
) -> None:
    client = _Client({"007": [answer] * (MOST_ATTEMPTS + 1)})
    found = _all(client, 96)
    [lost] = [done for done in found if isinstance(done, Lost)]
    assert lost == Lost("007", f"lost with its workers: {reason}")
    others = [done for done in found if not isinstance(done, Lost)]
    assert sorted(others) == [task.digest for task in _tasks(96) if task.digest != "007"]


def test_a_task_that_is_lost_as_often_as_may_be_has_its_result() -> None:
    assert _all(_Client({"000": [None] * MOST_ATTEMPTS}), 2) == ["001", "000"]


def test_a_refusal_of_a_worker_ends_the_sweep_and_the_tasks_under_way() -> None:
    client = _Client({"000": ["another et-sim"]})
    with pytest.raises(UsageError, match="another et-sim"):
        _all(client, 90)
    assert len(client.cancelled) == AT_A_TIME - 1
