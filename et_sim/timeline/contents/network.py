"""Tables of the network: links, resources, ports, queues, pauses and flows.

They hold the use of links, the packets at ports, pauses between ports, and the delays of messages.
`et_sim.engine.observe` sums them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from et_sim.engine.state.resources import NO_OWNER, LinkEnds
from et_sim.engine.state.traffic_tables import BITS, PER_LINK, SHIFT
from et_sim.tables.declaration import DIMENSION_SIZES, SHARED_LINKS
from et_sim.timeline.content import Block, TableContent, Texts, whole
from et_sim.timeline.recorded import RecordedRun

ROWS_AT_ONCE = 1 << 16
ON_LINKS = ("busy_ns", "bytes", "messages", "waiting")  # a slice has events if one of these is above 0
AT_PORTS = ("filled", "deepest", "lost", "marked", "pauses", "paused_ns")
OF_FLOWS: tuple[str, ...] = ("source", "target", "bytes", "begin_ns", "left_ns", "arrived_ns")
OF_FLOWS += ("packets", "sent_again", "timeouts", "window_ns", "rate_ns", "paused_ns")


def _named(resources: Any, which: Any = slice(None)) -> dict[str, Texts]:
    """Return the names of links and of their tiers."""
    return {
        "link": Texts(resources.port[which], resources.port_names),
        "tier": Texts(resources.tier[which], resources.tier_names),
    }


def ports_content(run: RecordedRun) -> TableContent | None:
    """Return ports.arrow, which is never filtered."""
    ports = run.outcome.ports
    return None if ports is None else whole(_named(ports.resources) | ports.columns)


def resources_content(run: RecordedRun) -> TableContent | None:
    """Return resources.arrow, which is never filtered."""
    resources = run.outcome.resources
    if resources is None:
        return None
    named = resources.by_name(run.outcome.plan.actor_of_rank)
    rates = resources.bytes_per_ns[named.row]
    texts = tuple(dict.fromkeys(text for text in named.ranks if text is not None))
    number = {None: NO_OWNER} | {text: at for at, text in enumerate(texts)}
    columns = {
        "resource": np.arange(len(named.row), dtype=np.int32),
        "stand_in": named.row.astype(np.int32),
        "actor": named.actor,
        "ranks": Texts(np.array([number[text] for text in named.ranks], np.int32), texts),
        "dimension": resources.dimension[named.row],
        "link": Texts(named.port, resources.port_names),
        "tier": Texts(resources.tier[named.row], resources.tier_names),
        "links": named.links.astype(np.int32),
        "bytes_per_ns": np.where(rates == 0, np.nan, rates),
        **_ends(named.ends, len(named.row)),
    }
    return whole(columns, {DIMENSION_SIZES: " ".join(map(str, resources.sizes))} if resources.sizes else {})


def _ends(ends: LinkEnds | None, count: int) -> dict[str, Any]:
    """Return the devices at both ends of every link, and the rows in which they are drawn."""
    if ends is None:
        none = np.full(count, NO_OWNER, np.int32)
        ends = LinkEnds(none, none, (), np.zeros(0, np.int32))
    columns: dict[str, Any] = {}
    for side, device in (("source", ends.source), ("target", ends.target)):
        rows = np.append(ends.rows, NO_OWNER)[device]
        columns |= {side: Texts(device, ends.names), f"{side}_row": rows.astype(np.int32)}
    return columns


def _slices(slices: Any, per_link: int, marks: Sequence[str]) -> Iterator[tuple[Any, Any, Any]]:
    """Yield the slices with events, their links, and their numbers."""
    at_once = max(ROWS_AT_ONCE // per_link, 1) * per_link
    for begin in range(0, len(slices), at_once):
        part = slices[begin : begin + at_once]
        which = np.flatnonzero(np.any([part[name] > 0 for name in marks], axis=0))
        yield part[which], (begin + which) // per_link, which % per_link


def links_content(run: RecordedRun) -> TableContent | None:
    """Return links.arrow."""
    resources = run.outcome.resources
    if resources is None or not len(run.outcome.run.traffic.slices):
        return None
    return TableContent(_links(run, resources), {SHARED_LINKS: "yes"} if resources.are_shared else {})


def _links(run: RecordedRun, resources: Any) -> Iterator[Block]:
    outcome, traffic = run.outcome, run.outcome.run.traffic
    per_link, shift, bits = (int(traffic.grid[at]) for at in (PER_LINK, SHIFT, BITS))
    width = 1 << shift >> bits
    for part, link, number in _slices(traffic.slices, per_link, ON_LINKS):
        start_ns = number * width
        end_ns = np.minimum(start_ns + width, np.maximum(outcome.end_ns, start_ns))
        if outcome.has_contention:  # acknowledgements may come after the run
            goes_on = (end_ns == start_ns) | (part["busy_ns"] >> bits > end_ns - start_ns)
            end_ns = np.where(goes_on, start_ns + width, end_ns)
        of_links = {
            "wait_ns": part["waited_ns"] >> bits,
            "longest_wait_ns": part["longest_ns"] >> bits,
            "most_waiting": part["waiting"],
            "most_at_once": part["waiting"] + (part["busy_ns"] > 0),
        }
        sums = part["busy_ns"] + part["waited_ns"]
        columns = {
            "resource": link,
            "actor": resources.actor[link],
            "dimension": resources.dimension[link],
            **_named(resources, link),
            "start_ns": start_ns,
            "end_ns": end_ns,
            "busy_ns": part["busy_ns"] >> bits,
            "bytes": _of_each(resources.members, link, part["bytes"]),
            "messages": part["messages"],
            "mean_at_once": sums / (np.maximum(end_ns - start_ns, 1) << bits),
            **(of_links if resources.are_links else dict.fromkeys(of_links, np.full(len(link), -1))),
        }
        yield Block(columns, columns["actor"], start_ns, end_ns)


def _of_each(members: Any, link: Any, sizes: Any) -> Any:
    """Return the bytes of each link of trunks, slice by slice; their sums are rounded down."""
    if members is None or not len(link):
        return sizes
    is_first = np.append(True, link[1:] != link[:-1])
    first, so_far = np.flatnonzero(is_first), np.cumsum(sizes)
    so_far -= np.repeat((so_far - sizes)[first], np.diff(np.append(first, len(link))))
    shares = so_far // members[link]
    return np.where(is_first, shares, shares - np.roll(shares, 1))


def queues_content(run: RecordedRun) -> TableContent | None:
    """Return queues.arrow: the slices with events of every port."""
    resources = run.outcome.resources
    if run.outcome.queues is None or resources is None:
        return None
    return TableContent(_queues(run, run.outcome.queues, resources))


def _queues(run: RecordedRun, queues: Any, resources: Any) -> Iterator[Block]:
    from et_sim.engine.state.queue_tables import PER_PORT, WIDTH

    outcome, width = run.outcome, 1 << int(queues.grid[WIDTH])
    for part, port, number in _slices(queues.slices, int(queues.grid[PER_PORT]), AT_PORTS):
        start_ns = number * width
        cut = np.minimum(start_ns + width, np.maximum(outcome.end_ns, start_ns))
        # Acknowledgements may come after the run.
        end_ns = np.where((cut == start_ns) | (part["paused_ns"] > cut - start_ns), start_ns + width, cut)
        columns = {
            "resource": port,
            **_named(resources, port),
            "start_ns": start_ns,
            "end_ns": end_ns,
            "mean_bytes": part["filled"] / np.maximum(end_ns - start_ns, 1),
            "deepest_bytes": part["deepest"],
            "most_messages": part["messages"] if outcome.ports is not None else np.full(len(part), -1),
            **{name: part[name] for name in ("lost", "marked", "pauses", "paused_ns")},
        }
        yield Block(columns, resources.actor[port], start_ns, end_ns)


def pauses_content(run: RecordedRun) -> TableContent | None:
    """Return pauses.arrow."""
    return None if run.ports is None else TableContent(_pauses(run.ports, run.outcome.resources))


def _pauses(ports: Any, resources: Any) -> Iterator[Block]:
    for part in ports.pauses.blocks():
        port, egress = part["port"], part["egress"]
        columns = {
            "link": Texts(resources.port[port], resources.port_names),
            "egress": Texts(np.where(egress < 0, -1, resources.port[egress]), resources.port_names),
            **{name: part[name] for name in ("asked_ns", "begin_ns", "end_ns")},
            **{name: part[name] for name in ("egress_bytes", "egress_depth")},
        }
        yield Block(columns, resources.actor[port], part["asked_ns"], part["end_ns"])


def flows_content(run: RecordedRun) -> TableContent | None:
    """Return flows.arrow."""
    if run.ports is None or run.outcome.ports is None:
        return None
    return TableContent(_flows(run.ports, run.outcome.plan.actor_of_rank))


def _flows(ports: Any, actor_of_rank: Any) -> Iterator[Block]:
    for part, ways in ports.flows():
        columns = {
            **{name: part[name] for name in OF_FLOWS},
            "bytes_per_ns": part["bytes"] / np.maximum(part["arrived_ns"] - part["begin_ns"], 1),
            "mean_queue_ns": part["queued_ns"] / np.maximum(part["packets"], 1),
            "last_queue_ns": part["last_queued_ns"],
            "way": np.array(
                [" ".join(str(link) for link in way if link >= 0) for way in ways.tolist()], object
            ),
        }
        yield Block(columns, actor_of_rank[part["source"]], part["begin_ns"], part["arrived_ns"])
