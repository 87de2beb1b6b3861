"""Every message of a run, on its way from the engine to messages.arrow.

Of a part of a run, only the messages that are kept go into the file on the way.

Not here: when messages are logged (`engine.traffic`), and what the rows add up to (`views`).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np

from et_sim.engine.drive import Outcome
from et_sim.engine.traffic_tables import MESSAGE_LOG, Sent
from et_sim.timeline.keep import EVERYTHING, Keep, both
from et_sim.timeline.spool import Spool
from et_sim.trace.workload import Workload

SENT_NAMES = tuple(sent.name.lower() for sent in Sent)
SAME = ("actor", "peer", "chunk", "phase", "step", "dimension", "bytes")
TIMES = ("ready_ns", "sent_ns", "start_ns", "left_ns", "arrived_ns")


class Messages(Spool):
    """All messages of a run that are kept: on the link model in the order of arrival, else of departure."""

    def __init__(self, keep: Keep = EVERYTHING) -> None:
        super().__init__(MESSAGE_LOG)
        self._keep = keep
        self._actors: Any = None

    def begin(self, actor_of_rank: Any) -> None:
        """A run begins, perhaps again: forget all messages."""
        self.clear()
        self._actors = self._keep.actors(actor_of_rank)

    def add(self, records: Any) -> None:
        """Take a block of them."""
        mask = kept_messages(records, self._keep, self._actors)
        super().add(records if mask is None else records[mask])


def kept_messages(log: Any, keep: Keep, actors: Any) -> Any:
    """Which messages are kept, as a mask: those of these actors that were under way then. None: all."""
    touched = keep.touches(log["ready_ns"], log["arrived_ns"])
    return both(None if actors is None else actors[log["actor"]], touched)


class MessageSource:
    """Makes the columns of messages.arrow."""

    def __init__(self, messages: Messages, outcome: Outcome, workload: Workload) -> None:
        self._messages, self._plan, self._workload = messages, outcome.plan, workload
        self._has_contention = outcome.has_contention

    def blocks(self, keep: Keep) -> Iterator[dict[str, Any]]:
        """Columns of all messages that are kept, block by block; -1 stands for none."""
        plan, actors = self._plan, keep.actors(self._plan.actor_of_rank)
        for every in self._messages.blocks():
            mask = kept_messages(every, keep, actors)
            log = every if mask is None else every[mask]
            first = plan.templates["node_first"][plan.actors["template"][log["actor"]]]
            waited = log["waited_ns"] if self._has_contention else np.full(len(log), -1)
            yield {
                **{name: log[name] for name in SAME + TIMES},
                "kind": log["what"].astype(np.int8),
                "node": self._node_ids[first + log["node"]],
                "link_wait_ns": waited,
            }

    @cached_property
    def _node_ids(self) -> Any:
        return np.concatenate([trace.node_id for trace in self._workload.templates]).astype(np.uint64)
