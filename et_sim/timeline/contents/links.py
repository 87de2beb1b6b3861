"""How busy links are, their numbers, what packets met at ports: links.arrow, resources.arrow, ports.arrow.

Not here: queues over time (`queues`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from et_sim.engine.outcome import Outcome
from et_sim.engine.state.resources import NOBODY, Ends
from et_sim.engine.state.traffic_tables import BITS, PER_LINK, SHIFT
from et_sim.tables.kinds import DIMENSION_SIZES, SHARED_LINKS
from et_sim.timeline.content import Content, Texts, not_negative
from et_sim.timeline.output_filter import OutputFilter
from et_sim.timeline.recorded import RecordedRun


def ports_content(run: RecordedRun, _: OutputFilter) -> Content | None:
    """ports.arrow; always all of them."""
    ports = run.outcome.ports
    if ports is None:
        return None
    resources = ports.resources
    columns = {
        "link": Texts(resources.port, resources.port_names),
        "tier": Texts(resources.tier, resources.tier_names),
        **{name: not_negative(values) for name, values in ports.columns.items()},
    }
    return Content(iter([columns]))


def resources_content(run: RecordedRun, _: OutputFilter) -> Content | None:
    """resources.arrow; always all of them."""
    resources = run.outcome.resources
    if resources is None:
        return None
    columns = {
        "resource": np.arange(len(resources), dtype=np.int32),
        "actor": not_negative(resources.actor),
        "dimension": resources.dimension,
        "link": Texts(resources.port, resources.port_names),
        "links": resources.links_like(run.outcome.plan.actor_of_rank).astype(np.int32),
        "tier": Texts(resources.tier, resources.tier_names),
        "bytes_per_ns": np.ma.masked_equal(resources.bytes_per_ns, 0),
        **_ends(resources.ends, len(resources)),
    }
    sizes = {DIMENSION_SIZES: " ".join(map(str, resources.sizes))} if resources.sizes else {}
    return Content(iter([columns]), sizes)


def _ends(ends: Ends | None, count: int) -> dict[str, Any]:
    """Devices at both ends of every link, and the rows in which they are drawn."""
    if ends is None:
        none = np.full(count, NOBODY, np.int32)
        ends = Ends(none, none, (), np.zeros(0, np.int32))
    found: dict[str, Any] = {}
    for side, device in (("source", ends.source), ("target", ends.target)):
        rows = np.append(ends.rows, NOBODY)[device]
        found |= {side: Texts(device, ends.names), f"{side}_row": not_negative(rows.astype(np.int32))}
    return found


ROWS_AT_ONCE = 1 << 16


class LinkSource:
    """Makes the columns of links.arrow: of every link the slices in which anything happens."""

    def __init__(self, outcome: Outcome) -> None:
        traffic, self._plan = outcome.run.traffic, outcome.plan
        self._slices = traffic.slices
        self._per_link, self._shift, self._bits = (int(traffic.grid[at]) for at in (PER_LINK, SHIFT, BITS))
        self._end_ns, self._has_contention = outcome.end_ns, outcome.has_contention
        assert outcome.resources is not None
        self._resources = outcome.resources

    def blocks(self, output_filter: OutputFilter) -> Iterator[dict[str, Any]]:
        """Columns of all slices that are kept, link by link; -1 stands for none."""
        at_once = max(ROWS_AT_ONCE // self._per_link, 1) * self._per_link
        actors = output_filter.actors(self._plan.actor_of_rank)
        for begin in range(0, len(self._slices), at_once):
            part = self._slices[begin : begin + at_once]
            marks = ("busy_ns", "bytes", "messages", "waiting")
            which = np.flatnonzero(np.any([part[name] > 0 for name in marks], axis=0))
            columns = self._columns(part[which], (begin + which) // self._per_link, which % self._per_link)
            mask = output_filter.mask(actors, columns["actor"], columns["start_ns"], columns["end_ns"])
            kept = {name: not_negative(c if mask is None else c[mask]) for name, c in columns.items()}
            texts = {"link": self._resources.port_names, "tier": self._resources.tier_names}
            yield kept | {name: Texts(np.ma.getdata(kept[name]), names) for name, names in texts.items()}

    def _columns(self, slices: Any, link: Any, number: Any) -> dict[str, Any]:
        resources, width = self._resources, 1 << self._shift >> self._bits
        none, start_ns = np.full(len(link), -1), number * width
        end_ns = np.minimum(start_ns + width, np.maximum(self._end_ns, start_ns))
        if self._has_contention:  # acknowledgements may come after the run
            goes_on = (end_ns == start_ns) | (slices["busy_ns"] >> self._bits > end_ns - start_ns)
            end_ns = np.where(goes_on, start_ns + width, end_ns)
        at_once = (slices["busy_ns"] + slices["waited_ns"]) / (np.maximum(end_ns - start_ns, 1) << self._bits)
        most_at_once = slices["waiting"] + (slices["busy_ns"] > 0)
        return {
            "actor": resources.actor[link],
            "dimension": resources.dimension[link],
            "link": resources.port[link],
            "tier": resources.tier[link],
            "start_ns": start_ns,
            "end_ns": end_ns,
            "busy_ns": slices["busy_ns"] >> self._bits,
            "bytes": slices["bytes"],
            "messages": slices["messages"],
            "wait_ns": slices["waited_ns"] >> self._bits if resources.are_links else none,
            "longest_wait_ns": slices["longest_ns"] >> self._bits if resources.are_links else none,
            "most_waiting": slices["waiting"] if resources.are_links else none,
            "mean_at_once": at_once,
            "most_at_once": most_at_once if resources.are_links else none,
        }


def links_content(run: RecordedRun, output_filter: OutputFilter) -> Content | None:
    """links.arrow."""
    if not len(run.outcome.run.traffic.slices):
        return None
    resources = run.outcome.resources
    is_shared = resources is not None and resources.are_shared
    metadata = {SHARED_LINKS: "yes"} if is_shared else {}
    return Content(LinkSource(run.outcome).blocks(output_filter), metadata)
