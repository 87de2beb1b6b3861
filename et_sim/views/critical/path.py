"""The critical path: the chain of events that decided how long a run took, and the causes of its time.

It is followed backwards from the last event, each time to the latest predecessor. An event begins when this
predecessor ends, so the times along the chain add up to the makespan, to the nanosecond.

If an event on the chain waited in a queue for a link, a remote memory or a side of a bus, the chain continues
with the events ahead of it. Their time counts as queueing while it waited.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from msgspec import Struct

from et_sim.basics.unique import groups_of, unique
from et_sim.tables.declaration import COPY, OPAQUE_KINDS
from et_sim.views.critical.events import KINDS, NONE, QUEUES, SWITCHES, PathNodes, is_kind
from et_sim.views.critical.record import Chain, PathRecord

CAUSES = (
    "compute",
    "contention",
    "host",
    "gap",
    "latency",
    "serialisation",
    "queueing",
    "window",
    "resending",
    "endpoint",
    "reduction",
    "library",
    "memory",
    "bus",
    "switch",
    "replayed",
    "other",
    "idle",
)
_OTHERWISE = {"switch_rate": "switch", "packet_queue": "queueing", "late_start": "idle"}  # kinds -> causes
_OF_LINKS = {  # times of links, memory levels and switches, in the terms of links
    "latency": "latency",
    "serialisation": "serialisation",
    "switch": "latency",
    "switch_rate": "serialisation",
    "packet_queue": "queueing",
}
NO_OPERATION = ("", "outside of nodes", None)  # for late starts


class PathHop(Struct, frozen=True):
    """A part of the chain that belongs to one operation: a node, or a collective on all its actors."""

    kind: str
    name: str
    group: str | None
    actors: tuple[int, ...]  # in the order of the path
    start_ns: int
    end_ns: int
    messages: int
    after: str  # the last thing it waited for
    causes: dict[str, int]

    def as_dict(self) -> dict[str, Any]:
        """Return the hop for `--json`."""
        return {name: getattr(self, name) for name in self.__struct_fields__} | {"actors": list(self.actors)}


class CriticalPath:
    """The chain from the beginning of the run to its end."""

    def __init__(self, record: PathRecord) -> None:
        self.record, self.chain = record, record.chain
        self.spent_ns = self.chain.end_ns - self.chain.start_ns
        self.node = self.chain.node
        self.queued_ns = _queued(self.chain, record.makespan_ns)

    def __len__(self) -> int:
        """Return the number of its events."""
        return len(self.chain)

    def is_kind(self, *names: str) -> Any:
        """Return which of its events are of these kinds."""
        return is_kind(self.chain.kind, *names)

    @property
    def makespan_ns(self) -> int:
        """Return the length of the chain."""
        return self.record.makespan_ns

    @cached_property
    def cause(self) -> Any:
        """Return the cause of every event of the chain except queueing, as an index into CAUSES."""
        named = [_OTHERWISE.get(name, name) for name in KINDS]
        of_kind = np.array([CAUSES.index(name if name in CAUSES else "other") for name in named])
        of_node = np.append(self.causes_of_nodes(), NONE)[self.node]  # the last: no node
        is_memory = self.is_kind("latency", "serialisation") & (of_node == CAUSES.index("memory"))
        is_node = self.is_kind("node") & (self.node != NONE)
        return np.where(is_memory | is_node, of_node, of_kind[self.chain.kind])

    def causes_of_nodes(self) -> Any:
        """Return the cause that the duration of every node counts as."""
        nodes = self.record.nodes
        of_kind = np.array([_cause_of_kind(kind or "") for kind in nodes.kind.texts])
        modelled = np.array([text == "modelled" for text in nodes.treatment.texts])
        cause = of_kind[nodes.kind.codes]
        # Computation in a modelled collective is a step of a custom program.
        is_custom = (cause == CAUSES.index("replayed")) & modelled[nodes.treatment.codes]
        return np.where(is_custom, CAUSES.index("compute"), cause)

    def by_cause(self) -> dict[str, int]:
        """Return nanoseconds by cause; they add up to the makespan."""
        return {name: int(ns) for name, ns in zip(CAUSES, self._sums(slice(None)), strict=True) if ns}

    def _sums(self, part: Any) -> Any:
        queued = self.queued_ns[part]
        sums = np.bincount(self.cause[part], self.spent_ns[part] - queued, len(CAUSES)).astype(np.int64)
        sums[CAUSES.index("queueing")] += queued.sum()
        return sums

    def by_operation(self) -> list[tuple[str, str, str | None, int]]:
        """Return (kind, name, group, nanoseconds) of operations, the longest first."""
        return list(self._operations)

    @cached_property
    def _operations(self) -> tuple[tuple[str, str, str | None, int], ...]:
        nodes, sums = self.record.nodes, np.bincount(self.node + 1, self.spent_ns).astype(np.int64)
        totals: dict[tuple[str, str, str | None], int] = {}
        for row in np.flatnonzero(sums).tolist():
            key = NO_OPERATION if row == 0 else operation_of(nodes, row - 1)
            totals[key] = totals.get(key, 0) + int(sums[row])
        every = ((*key, ns) for key, ns in totals.items())
        return tuple(sorted(every, key=lambda operation: (-operation[3], operation[:2], operation[2] or "")))

    def by_group(self) -> list[tuple[str, int]]:
        """Return (communicator group, nanoseconds) of collectives, the longest first."""
        totals: dict[str, int] = {}
        for _, _, group, ns in self.by_operation():
            if group is not None:
                totals[group] = totals.get(group, 0) + ns
        return sorted(totals.items(), key=lambda entry: (-entry[1], entry[0]))

    def by_link(self) -> list[dict[str, Any]]:
        """Return latency, serialisation and waiting by class of links and of switches, in order.

        The latency is None if some of it belongs to links of several classes together.
        """
        link = self.chain.link
        together = self.is_kind("latency") & (link.codes == len(link.texts) - 1)
        links = []
        for code in unique(link.codes).tolist():
            name, on = link.texts[code], link.codes == code
            if name is None:
                continue
            named: dict[str, Any] = {"latency": 0, "serialisation": 0}
            named["queueing"] = int(self.queued_ns[on].sum())
            for kind, cause in _OF_LINKS.items():
                of_kind = on & self.is_kind(kind)
                named[cause] += int((self.spent_ns - self.queued_ns)[of_kind].sum())
            if together.any() and not self.is_kind(*SWITCHES)[on].any():
                named["latency"] = None
            links.append({"link": name, **named})
        return links

    def by_single_link(self) -> list[dict[str, Any]]:
        """Return serialisation and waiting by link of the link model, the longest first."""
        record, resource, at = self.record, self.chain.resource, self._on_single_links()
        links = groups_of(resource[at])
        columns = resource[at][links.first], links.sums(self.spent_ns[at]), links.sums(self.queued_ns[at])
        entries = [
            {"link": record.link_names[place], "serialisation": took - waited, "queueing": waited}
            for place, took, waited in zip(*(column.tolist() for column in columns), strict=True)
        ]
        return sorted(entries, key=lambda link: (-link["serialisation"] - link["queueing"], link["link"]))

    def by_message(self) -> list[dict[str, Any]]:
        """Return each message of the chain with its limiting link and its times, if messages share links."""
        record, chain = self.record, self.chain
        if record.is_exact:
            return []
        return [
            {
                "link": record.link_names[int(chain.resource[row])],
                "start_ns": int(chain.start_ns[row]),
                "end_ns": int(chain.end_ns[row]),
            }
            for row in self._on_single_links().tolist()
        ]

    def _on_single_links(self) -> Any:
        """Return where the chain is on a link that has an index."""
        resource = self.chain.resource
        at = np.flatnonzero(self.is_kind("serialisation") & (resource != NONE))
        self.record.check_links(resource[at])
        return at

    def hops(self) -> list[PathHop]:
        """Return the chain, operation by operation."""
        return list(self._hops)

    @cached_property
    def _hops(self) -> tuple[PathHop, ...]:
        nodes, timed = self.record.nodes, np.flatnonzero(self.spent_ns > 0)
        if not len(timed):
            return ()
        code = _hop_codes(nodes, self.node[timed])
        firsts = np.flatnonzero(np.diff(code, prepend=code[0] - 1))
        sums, messages = (
            self._sums_of_hops(timed, firsts),
            _messages(self.is_kind("latency", "serialisation")[timed], firsts),
        )
        parts = zip(firsts.tolist(), [*firsts[1:].tolist(), len(timed)], sums, messages.tolist(), strict=True)
        return tuple(self._hop(timed, *part) for part in parts)

    def _sums_of_hops(self, timed: Any, firsts: Any) -> Any:
        """Return the time of each hop by cause; hops begin at these indices into the timed events."""
        hop = np.zeros(len(timed), np.int64)
        hop[firsts[1:]] = 1
        hop, queued = np.cumsum(hop), self.queued_ns[timed]
        sums = np.zeros((len(firsts), len(CAUSES)), np.int64)
        np.add.at(sums, (hop, self.cause[timed]), self.spent_ns[timed] - queued)
        np.add.at(sums[:, CAUSES.index("queueing")], hop, queued)
        return sums

    def _hop(self, timed: Any, first: int, end: int, sums: Any, messages: int) -> PathHop:
        chain, nodes = self.chain, self.record.nodes
        part, node = timed[first:end], int(self.node[timed[first]])
        kind, name, group = ("", "late start", None) if node == NONE else _named(nodes, node)
        before = chain.kind[timed[first - 1] + 1 if first else 0 : part[0] + 1]
        return PathHop(
            kind=kind,
            name=name,
            group=group,
            actors=tuple(dict.fromkeys(chain.actor[part].tolist())),
            start_ns=int(chain.start_ns[part[0]]),
            end_ns=int(chain.end_ns[part[-1]]),
            messages=messages,
            after=_after(nodes, before, node),
            causes={cause: ns for cause, ns in zip(CAUSES, sums.tolist(), strict=True) if ns},
        )


def _queued(chain: Chain, makespan_ns: int) -> Any:
    """Return, for every event of the chain, how long a later event of the chain waited behind it."""
    queued = np.zeros(len(chain), np.int64)
    waits, since = is_kind(chain.kind, *QUEUES).tolist(), makespan_ns
    start, end, other_end = chain.start_ns.tolist(), chain.end_ns.tolist(), chain.other_end_ns.tolist()
    for at in range(len(chain) - 1, -1, -1):
        if waits[at] and other_end[at] != NONE:
            since = min(since, other_end[at])
        queued[at] = max(end[at] - max(start[at], since), 0) if since < end[at] else 0
        if start[at] <= since:
            since = makespan_ns
    return queued


def _cause_of_kind(kind: str) -> int:
    """Return the cause that the duration of a node of this kind counts as."""
    if kind in ("compute", "host", "gap"):
        return CAUSES.index(kind)
    if kind == COPY:
        return CAUSES.index("compute")
    if kind in OPAQUE_KINDS:
        return CAUSES.index("host")
    if kind.startswith("memory_"):
        return CAUSES.index("memory")
    return CAUSES.index("other" if kind in ("metadata", "invalid", "") else "replayed")


def _named(nodes: Any, row: int) -> tuple[str, str, str | None]:
    kind, name = nodes.kind.texts[nodes.kind.codes[row]], nodes.name.texts[nodes.name.codes[row]]
    return str(kind), str(name), nodes.group.texts[nodes.group.codes[row]]


def operation_of(nodes: Any, row: int) -> tuple[str, str, str | None]:
    """Return (kind, name stem, group) of a node."""
    kind, _, group = _named(nodes, row)
    return kind, str(nodes.stem.texts[nodes.stem.codes[row]]), group


def codes_at(column: Any, node: Any) -> Any:
    """Return the codes of texts of nodes; NONE for events without node."""
    return np.append(column.codes, NONE)[node]


def _hop_codes(nodes: Any, node: Any) -> Any:
    """Return a number for every row that is equal for neighbours of one hop."""
    is_collective = np.array([*(text is not None for text in nodes.group.texts), False])
    group, name = codes_at(nodes.group, node), codes_at(nodes.name, node)
    joint = is_collective[group] & (node != NONE)
    of_name = name * len(nodes.group.texts) + group
    return np.where(joint, -2 - of_name, node)


def _messages(flying: Any, firsts: Any) -> Any:
    """Return the number of messages of each hop; each has a serialisation, or only a latency."""
    begins = flying.copy()
    begins[1:] &= ~flying[:-1]
    begins[firsts] = flying[firsts]
    return np.add.reduceat(begins.astype(np.int64), firsts)


AFTER = (
    ("server_queue", "a busy memory"),
    ("link_queue", "a busy link"),
    ("receive", "a message"),
    ("chunk_start", "room in a queue"),
)
STARTED = {"lane": "its lane", "dependency": "a dependency", "begin": "nothing"}


def _after(nodes: PathNodes, kinds: Any, node: int) -> str:
    """Return what a hop waited for: the cause of its node's start, or a wait on the way to it."""
    names = {KINDS[code] for code in kinds.tolist()}
    if "node_start" in names and node != NONE:
        cause = nodes.start_cause
        return STARTED.get(cause.texts[cause.codes[node]] or "", "")
    return next((text for name, text in AFTER if name in names), "")
