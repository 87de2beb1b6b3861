"""Changes of local memory: the columns of memory.arrow."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from et_sim.memory import CLASSES
from et_sim.tables.kinds import CAPACITY
from et_sim.timeline.content import Content, Texts, unless
from et_sim.timeline.memory import EVENTS, MemorySource, events_of, until_next
from et_sim.timeline.output_filter import OutputFilter
from et_sim.timeline.recorded import RecordedRun


def memory_content(run: RecordedRun, output_filter: OutputFilter) -> Content | None:
    """memory.arrow; of a window also the last change before it, which says what is in use then."""
    source = run.measurement.memory
    if source is None:
        return None
    there = {} if run.capacity_bytes is None else {CAPACITY: str(run.capacity_bytes)}
    return Content(_memory_blocks(run, source, output_filter), there)


def _memory_blocks(
    run: RecordedRun, source: MemorySource, output_filter: OutputFilter
) -> Iterator[dict[str, Any]]:
    actors = output_filter.actors(run.measurement.actor_of_rank)
    for rows, found in run.measurement.changes_of_memory():
        mask = output_filter.mask(actors, found.owner, found.time_ns, until_next(found))
        found = found if mask is None else found.where(mask)
        yield {
            "actor": found.owner,
            "time_ns": found.time_ns,
            "event": Texts(events_of(found), EVENTS),
            "tensor": Texts(found.tensor, source.names),
            "class": Texts(source.classes[found.tensor], CLASSES),
            "node": unless(rows.node_id[found.node], found.node < 0),
            "delta_bytes": found.delta_bytes,
            "alive_bytes": found.alive_bytes,
        }
