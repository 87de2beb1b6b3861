"""Records of a run, kept in a file on their way from the engine to a table, so that memory stays flat.

Not here: what the records are.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from et_sim.engine.state.cause_tables import CAUSAL_EVENT
from et_sim.engine.state.queue_tables import FLOW, FLOWS_LOGGED, PAUSE, WAY, Queues
from et_sim.engine.state.records import PHASE_LOG
from et_sim.engine.state.traffic_tables import MESSAGE_LOG
from et_sim.timeline.output_filter import EVERYTHING, OutputFilter

IN_MEMORY = 1 << 24  # bytes
AT_A_TIME = 1 << 18  # records


class Spool:
    """Records of one type, in the order in which they came."""

    def __init__(self, dtype: np.dtype[Any]) -> None:
        self._dtype = dtype
        self._file = tempfile.SpooledTemporaryFile(max_size=IN_MEMORY)  # noqa: SIM115 (lives as long as this)
        self.count = 0

    def clear(self) -> None:
        """Forget them: the run begins again."""
        self._file.seek(0)
        self._file.truncate()
        self.count = 0

    def add(self, records: Any) -> None:
        """Take a block of them."""
        self._file.write(np.ascontiguousarray(records).tobytes())
        self.count += len(records)

    def blocks(self) -> Iterator[Any]:
        """Yield all of them, block by block."""
        self._file.seek(0)
        while content := self._file.read(AT_A_TIME * self._dtype.itemsize):
            yield np.frombuffer(content, self._dtype)
        self._file.seek(0, 2)

    def pieces(self) -> Callable[[int], Any]:
        """Return a function that reads the next `count` rows, from the first on."""
        self._file.seek(0)
        return lambda count: np.frombuffer(self._file.read(count * self._dtype.itemsize), self._dtype)


class CausalEvents(Spool):
    """All causal events of a run, in the order in which they came about."""

    def __init__(self) -> None:
        super().__init__(CAUSAL_EVENT)


class Phases(Spool):
    """All phases of a run, in the order in which they ended."""

    def __init__(self) -> None:
        super().__init__(PHASE_LOG)


class PortRecord:
    """Pauses in the order in which they ended, then those that did not; and messages, as they arrived."""

    def __init__(self) -> None:
        self.pauses, self._flows, self._ways = Spool(PAUSE), Spool(FLOW), Spool(np.dtype(np.int32))
        self._links = 0

    def clear(self) -> None:
        """Forget all: the run begins again."""
        for spool in (self.pauses, self._flows, self._ways):
            spool.clear()

    def add(self, queues: Queues, pauses: Any) -> None:
        """Take what is in the buffers."""
        self._links, count = int(queues.grid[WAY]), int(queues.logged[FLOWS_LOGGED])
        self.pauses.add(pauses)
        self._flows.add(queues.flows[:count])
        self._ways.add(queues.ways[: count * self._links].astype(np.int32))

    def flows(self) -> Iterator[tuple[Any, Any]]:
        """Messages, block by block, and the links on their ways; negative behind the last."""
        ways = self._ways.pieces()
        for block in self._flows.blocks():
            yield block, ways(len(block) * self._links).reshape(len(block), self._links)


class MessageSpool(Spool):
    """All messages of a run that are kept: on the link model in the order of arrival, else of departure."""

    def __init__(self, output_filter: OutputFilter = EVERYTHING) -> None:
        super().__init__(MESSAGE_LOG)
        self._filter = output_filter
        self._actors: Any = None

    def begin(self, actor_of_rank: Any) -> None:
        """A run begins, perhaps again: forget all messages."""
        self.clear()
        self._actors = self._filter.actors(actor_of_rank)

    def add(self, records: Any) -> None:
        """Take a block of them."""
        times = records["ready_ns"], records["arrived_ns"]
        mask = self._filter.mask(self._actors, records["actor"], *times)
        super().add(records if mask is None else records[mask])
