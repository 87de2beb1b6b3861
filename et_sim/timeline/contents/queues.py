"""What packets met at ports over time, who paused whom, and what held messages up.

The columns of queues.arrow, pauses.arrow and flows.arrow.

Not here: how it is added up (`et_sim.engine.observe.queues`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from et_sim.engine.outcome import Outcome
from et_sim.engine.state.queue_tables import PER_PORT, WIDTH
from et_sim.timeline.content import Content, Texts, not_negative
from et_sim.timeline.output_filter import OutputFilter
from et_sim.timeline.recorded import RecordedRun

ROWS_AT_ONCE = 1 << 16
ENDS = ("source", "target", "bytes", "begin_ns", "left_ns", "arrived_ns")
HOLDS = ("packets", "sent_again", "timeouts", "window_ns", "rate_ns", "paused_ns")
HAPPENED = ("filled", "deepest", "lost", "marked", "pauses", "paused_ns")


def queues_content(run: RecordedRun, output_filter: OutputFilter) -> Content | None:
    """queues.arrow: of every port the slices in which anything happens."""
    if run.outcome.queues is None:
        return None
    return Content(_slices(run.outcome, output_filter))


def _slices(outcome: Outcome, output_filter: OutputFilter) -> Iterator[dict[str, Any]]:
    queues, resources = outcome.queues, outcome.resources
    assert queues is not None
    assert resources is not None
    per_port, width = int(queues.grid[PER_PORT]), 1 << int(queues.grid[WIDTH])
    actors = output_filter.actors(outcome.plan.actor_of_rank)
    at_once = max(ROWS_AT_ONCE // per_port, 1) * per_port
    for begin in range(0, len(queues.slices), at_once):
        part = queues.slices[begin : begin + at_once]
        which = np.flatnonzero(np.any([part[name] > 0 for name in HAPPENED], axis=0))
        port, start_ns, part = (begin + which) // per_port, which % per_port * width, part[which]
        cut = np.minimum(start_ns + width, np.maximum(outcome.end_ns, start_ns))
        # Acknowledgements may come after the run.
        end_ns = np.where((cut == start_ns) | (part["paused_ns"] > cut - start_ns), start_ns + width, cut)
        mask = output_filter.mask(actors, resources.actor[port], start_ns, end_ns)
        keep = slice(None) if mask is None else mask
        columns = {
            "resource": port,
            "start_ns": start_ns,
            "end_ns": end_ns,
            "mean_bytes": part["filled"] / np.maximum(end_ns - start_ns, 1),
            "deepest_bytes": part["deepest"],
            "most_messages": part["messages"] if outcome.ports is not None else np.full(len(part), -1),
            "lost": part["lost"],
            "marked": part["marked"],
            "pauses": part["pauses"],
            "paused_ns": part["paused_ns"],
        }
        yield {
            "link": Texts(resources.port[port][keep], resources.port_names),
            "tier": Texts(resources.tier[port][keep], resources.tier_names),
            **{name: not_negative(values[keep]) for name, values in columns.items()},
        }


def pauses_content(run: RecordedRun, output_filter: OutputFilter) -> Content | None:
    """pauses.arrow."""
    if run.ports is None:
        return None
    return Content(_pauses(run, output_filter))


def _pauses(run: RecordedRun, output_filter: OutputFilter) -> Iterator[dict[str, Any]]:
    resources = run.outcome.resources
    assert run.ports is not None
    assert resources is not None
    actors = output_filter.actors(run.outcome.plan.actor_of_rank)
    for every in run.ports.pauses.blocks():
        mask = output_filter.mask(actors, resources.actor[every["port"]], every["asked_ns"], every["end_ns"])
        part = every if mask is None else every[mask]
        egress = part["egress"]
        names = np.where(egress < 0, -1, resources.port[egress])
        figures = ("asked_ns", "begin_ns", "end_ns", "egress_bytes", "egress_depth")
        yield {
            "link": Texts(resources.port[part["port"]], resources.port_names),
            "egress": Texts(names, resources.port_names),
            **{name: not_negative(part[name]) for name in figures},
        }


def flows_content(run: RecordedRun, output_filter: OutputFilter) -> Content | None:
    """flows.arrow."""
    if run.ports is None or run.outcome.ports is None:
        return None
    return Content(_flows(run, output_filter))


def _flows(run: RecordedRun, output_filter: OutputFilter) -> Iterator[dict[str, Any]]:
    actor_of_rank = run.outcome.plan.actor_of_rank
    actors = output_filter.actors(actor_of_rank)
    assert run.ports is not None
    for every, links in run.ports.flows():
        mask = output_filter.mask(
            actors, actor_of_rank[every["source"]], every["begin_ns"], every["arrived_ns"]
        )
        keep = slice(None) if mask is None else mask
        part, ways = every[keep], links[keep]
        length = np.maximum(part["arrived_ns"] - part["begin_ns"], 1)
        yield {
            **{name: not_negative(part[name]) for name in ENDS + HOLDS},
            "bytes_per_ns": part["bytes"] / length,
            "mean_queue_ns": part["queued_ns"] / np.maximum(part["packets"], 1),
            "last_queue_ns": part["last_queued_ns"],
            "way": [" ".join(map(str, (one for one in way if one >= 0))) for way in ways.tolist()],
        }
