"""Messages: the columns of messages.arrow.

Not here: when messages are logged (`et_sim.engine.observe.traffic`).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np

from et_sim.engine.outcome import Outcome
from et_sim.engine.state.traffic_tables import Sent
from et_sim.timeline.content import Content, Texts, not_negative, unless
from et_sim.timeline.output_filter import OutputFilter
from et_sim.timeline.recorded import RecordedRun
from et_sim.timeline.spool import MessageSpool, kept_messages
from et_sim.trace.workload import Workload

SENT_NAMES = tuple(sent.name.lower() for sent in Sent)
SAME = ("actor", "peer", "chunk", "phase", "step", "dimension", "bytes")
TIMES = ("ready_ns", "sent_ns", "start_ns", "left_ns", "arrived_ns")


class MessageSource:
    """Makes the columns of messages.arrow."""

    def __init__(self, messages: MessageSpool, outcome: Outcome, workload: Workload) -> None:
        self._messages, self._plan, self._workload = messages, outcome.plan, workload
        self._has_contention = outcome.has_contention

    def blocks(self, output_filter: OutputFilter) -> Iterator[dict[str, Any]]:
        """Columns of all messages that are kept, block by block; -1 stands for none."""
        plan, actors = self._plan, output_filter.actors(self._plan.actor_of_rank)
        for every in self._messages.blocks():
            mask = kept_messages(every, output_filter, actors)
            log = every if mask is None else every[mask]
            first = plan.templates["node_first"][plan.actors["template"][log["actor"]]]
            waited = log["waited_ns"] if self._has_contention else np.full(len(log), -1)
            yield {
                **{name: not_negative(log[name]) for name in SAME + TIMES},
                "kind": Texts(log["what"].astype(np.int8), SENT_NAMES),
                "node": unless(self._node_ids[first + np.maximum(log["node"], 0)], log["node"] < 0),
                "link_wait_ns": not_negative(waited),
            }

    @cached_property
    def _node_ids(self) -> Any:
        return np.concatenate([trace.node_id for trace in self._workload.templates]).astype(np.uint64)


def messages_content(run: RecordedRun, output_filter: OutputFilter) -> Content | None:
    """messages.arrow."""
    if run.messages is None:
        return None
    return Content(MessageSource(run.messages, run.outcome, run.workload).blocks(output_filter))
