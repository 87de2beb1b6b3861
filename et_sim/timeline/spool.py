"""Records of a run, kept in a file between the engine and a table, so that memory stays flat."""

from __future__ import annotations

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
    """Records of one type, in order of arrival."""

    def __init__(self, dtype: np.dtype[Any]) -> None:
        from tempfile import SpooledTemporaryFile

        self._dtype = dtype
        self._file = SpooledTemporaryFile(max_size=IN_MEMORY)  # noqa: SIM115 (lives as long as this)
        self.count = 0

    def clear(self) -> None:
        """Remove all records, because the run begins again."""
        self._file.seek(0)
        self._file.truncate()
        self.count = 0

    def add(self, records: Any) -> None:
        """Add a block of records."""
        self._file.write(np.ascontiguousarray(records).tobytes())
        self.count += len(records)

    def blocks(self) -> Iterator[Any]:
        """Yield all records, block by block."""
        self._file.seek(0)
        while content := self._file.read(AT_A_TIME * self._dtype.itemsize):
            yield np.frombuffer(content, self._dtype)
        self._file.seek(0, 2)

    def pieces(self) -> Callable[[int], Any]:
        """Return a function that reads the next `count` records from the first on."""
        self._file.seek(0)
        return lambda count: np.frombuffer(self._file.read(count * self._dtype.itemsize), self._dtype)


class CausalEvents(Spool):
    """Causal events of a run in order of occurrence."""

    def __init__(self) -> None:
        super().__init__(CAUSAL_EVENT)


class Phases(Spool):
    """Phases of a run, in order of their ends."""

    def __init__(self) -> None:
        super().__init__(PHASE_LOG)


class PortRecord:
    """Pauses in order of their ends, then those without an end; and messages in order of arrival."""

    def __init__(self) -> None:
        self.pauses, self._flows, self._ways = Spool(PAUSE), Spool(FLOW), Spool(np.dtype(np.int32))
        self._links = 0

    def clear(self) -> None:
        """Remove all records, because the run begins again."""
        for spool in (self.pauses, self._flows, self._ways):
            spool.clear()

    def add(self, queues: Queues, pauses: Any) -> None:
        """Add the contents of the buffers."""
        self._links, count = int(queues.grid[WAY]), int(queues.logged[FLOWS_LOGGED])
        self.pauses.add(pauses)
        self._flows.add(queues.flows[:count])
        self._ways.add(queues.ways[: count * self._links].astype(np.int32))

    def flows(self) -> Iterator[tuple[Any, Any]]:
        """Yield messages block by block, with the links of their paths, negative after the last."""
        ways = self._ways.pieces()
        for block in self._flows.blocks():
            yield block, ways(len(block) * self._links).reshape(len(block), self._links)


class MessageSpool(Spool):
    """Messages of a run: on the link model in the order of arrival, else of departure."""

    def __init__(self, output_filter: OutputFilter = EVERYTHING) -> None:
        super().__init__(MESSAGE_LOG)
        self._filter = output_filter
        self._actors: Any = None

    def begin(self, actor_of_rank: Any) -> None:
        """Remove all messages, because a run begins."""
        self.clear()
        self._actors = self._filter.actors(actor_of_rank)

    def add(self, records: Any) -> None:
        """Add a block of messages."""
        times = records["ready_ns"], records["arrived_ns"]
        mask = self._filter.mask(self._actors, records["actor"], *times)
        super().add(records if mask is None else records[mask])
