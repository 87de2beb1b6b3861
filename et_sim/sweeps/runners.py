"""What evaluates the points of a sweep: this process (`Alone`), or others (`pool`, `cluster`).

A runner gives back every task once, finished or lost, in any order. Not here: what becomes of them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Protocol

from msgspec import Struct

from et_sim.basics.errors import EtSimError
from et_sim.sweeps.evaluate import Evaluator, Task
from et_sim.sweeps.journal import Finished
from et_sim.sweeps.space import Space

FAILED = (
    "failed"  # the status of a point that was lost: it is no result, and is tried again by the next sweep
)
MOST_ATTEMPTS = 2  # of a point whose worker ended


class Lost(Struct, frozen=True):
    """A task without a result, for a reason that lies with the machine, or a mistake of this program."""

    digest: str
    reason: str

    def finished(self) -> Finished:
        """As a row."""
        return Finished(self.digest, {"status": FAILED, "error": self.reason, "warnings": []}, 0.0)


Done = Finished | Lost


class Runner(Protocol):
    """Evaluates tasks; closing the iterator ends what is under way."""

    def run(self, tasks: Sequence[Task]) -> Iterator[Sequence[Done]]:
        """Some tasks after others, as they are done."""

    def close(self) -> None:
        """No more tasks."""


def attempt(evaluator: Evaluator, task: Task) -> Done:
    """One task; errors that would be those of every task are raised."""
    begin = time.perf_counter()
    try:
        row = evaluator.row(task)
    except EtSimError:
        raise
    except MemoryError:
        return Lost(task.digest, "this needs more memory than there is")
    except Exception as error:  # one point must not stop the others
        return Lost(task.digest, f"et-sim failed: {type(error).__name__}: {error}")
    return Finished(task.digest, row, round(time.perf_counter() - begin, 6))


class Alone(Struct, frozen=True):
    """This process, one point after the other."""

    space: Space

    def run(self, tasks: Sequence[Task]) -> Iterator[Sequence[Done]]:
        """Each by itself."""
        evaluator = Evaluator(self.space)
        for task in tasks:
            yield [attempt(evaluator, task)]

    def close(self) -> None:
        """Nothing waits."""
