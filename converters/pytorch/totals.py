"""What became of a rank's recordings, in figures: those of its windows added up.

A recording that is converted as a whole is a single window.

Not here: the conversion, and the figures in words (`report`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from converters.pytorch.columns import DeviceTrace
from converters.pytorch.graph import Column, Graph, Link, Role, no_ends
from converters.pytorch.linking import Links
from converters.pytorch.longest_path import path_times
from converters.pytorch.nesting import NONE
from converters.pytorch.path_steps import InMemory, PathSteps, Steps
from converters.pytorch.rank import ConvertedRank
from converters.pytorch.tally import NAMED as EXAMPLES
from et_sim.trace.columns import NodeKind

_NAMED = 5
_KINDS = (NodeKind.METADATA, NodeKind.COMP, NodeKind.COLL, NodeKind.SEND, NodeKind.RECV)
_COSTS = ("kernels", "with_operations", "operations", "with_bytes", "bytes")


def report_on(rank: ConvertedRank, inputs: list[str], output: str, size_bytes: int) -> dict[str, Any]:
    """Everything there is to say about a rank that was converted as a whole."""
    totals = Totals()
    totals.add(rank)
    return totals.report(inputs, output, size_bytes)


@dataclass(slots=True)
class Totals:
    """Takes the windows of a rank in their order."""

    steps: PathSteps = field(default_factory=InMemory)
    _about: dict[str, Any] = field(default_factory=dict)  # what is the same for all of them
    _dropped: dict[str, int] = field(default_factory=dict)
    _groups: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    _linkage: _Linkage | None = None
    _nodes: Counter[NodeKind] = field(default_factory=Counter)
    _roles: Any = field(default_factory=lambda: np.zeros((len(Role), 2), np.int64))
    _dependencies: Any = field(default_factory=lambda: np.zeros(len(Link), np.int64))
    _communication: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    _costs: Counter[str] = field(default_factory=Counter)
    _remarks: Counter[str] = field(default_factory=Counter)
    _examples: dict[str, list[str]] = field(default_factory=dict)
    _left_out: Counter[str] = field(default_factory=Counter)
    _time: _Time = field(default_factory=lambda: _Time())

    def add(self, rank: ConvertedRank, ends_of: Callable[[Column], Column] = no_ends) -> Column:
        """Take a window; gives when its nodes end when replayed. `ends_of` says it of earlier ones."""
        self._about = {
            "rank": rank.rank if rank.rank >= 0 else None,
            "schema": rank.host.schema if rank.host is not None else None,
            "timed": rank.is_timed,
        }
        self._groups, self._dropped = rank.groups, _dropped(rank)
        graph = rank.graph
        if rank.links is not None and rank.host is not None and rank.device is not None:
            self._linkage = self._linkage or _Linkage(rank.links.method)
            self._linkage.add(rank.links, rank)
        self._nodes += _nodes(rank)
        duration = graph.end_ns - graph.start_ns
        for role in np.unique(graph.role).tolist():
            of_role = graph.role == role
            self._roles[role] += (int(of_role.sum()), int(duration[of_role].sum()))
        self._dependencies += np.bincount(graph.kind, minlength=len(Link))
        self._add_communication(rank)
        self._costs.update(_costs(rank))
        self._remarks.update(rank.tally.counts)
        for what, examples in rank.tally.examples.items():
            named = self._examples.setdefault(what, [])
            named += [one for one in examples if one not in named][: EXAMPLES - len(named)]
        self._left_out.update(rank.left_out_events)
        ends, decisive = graph.replayed(ends_of)
        if rank.is_timed:
            self._time.add(rank, ends)
            deciding = graph.before[decisive] if len(graph.before) else decisive
            self.steps.put(Steps(graph.first, duration, graph.role, np.where(decisive >= 0, deciding, NONE)))
        return ends

    def report(self, inputs: list[str], output: str, size_bytes: int) -> dict[str, Any]:
        """Everything there is to say."""
        return {
            "inputs": inputs,
            "output": output,
            "output_bytes": size_bytes,
            **self._about,
            "linkage": self._linkage.as_dict() if self._linkage is not None else None,
            "nodes": {kind.name: self._nodes[kind] for kind in _KINDS if self._nodes[kind]},
            "roles": {
                _plain_name(role): {"nodes": nodes, "ns": ns}
                for role, (nodes, ns) in zip(Role, self._roles.tolist(), strict=True)
                if nodes
            },
            "dependencies": {
                link.label: count
                for link, count in zip(Link, self._dependencies.tolist(), strict=True)
                if count
            },
            "groups": {name: list(ranks) for name, ranks in self._groups.items()},
            "communication": list(self._communication.values()),
            "costs": {what: self._costs[what] for what in _COSTS},
            "time": self._time.as_dict(self.steps) if self._about["timed"] else None,
            "remarks": {
                what: {"count": count, "examples": self._examples.get(what, [])}
                for what, count in sorted(self._remarks.items())
            },
            "not_converted": {**self._dropped, **self._left_out},
        }

    def _add_communication(self, rank: ConvertedRank) -> None:
        """By operation and group, in the order of their first."""
        rows = np.flatnonzero(rank.communication != NONE)
        duration = (rank.graph.end_ns - rank.graph.start_ns)[rows].tolist()
        for which, took in zip(rank.communication[rows].tolist(), duration, strict=True):
            one = rank.communications[which]
            key = one.operation.label, one.group
            entry = self._communication.setdefault(
                key, {"operation": key[0], "group": key[1], "count": 0, "bytes": 0, "measured_ns": 0}
            )
            entry["count"] += 1
            entry["bytes"] += one.comm_bytes
            entry["measured_ns"] += took


@dataclass(slots=True)
class _Linkage:
    """How many operators of the two recordings found each other, and the first that did not."""

    method: str
    linked: int = 0
    host_operators: int = 0
    device_operators: int = 0
    host_orphans: list[tuple[int, str]] = field(default_factory=list)  # ids and names, the lowest ids
    device_orphans: list[str] = field(default_factory=list)

    def add(self, links: Links, rank: ConvertedRank) -> None:
        host, device = rank.host, rank.device
        assert host is not None
        assert device is not None
        self.linked += links.linked
        self.host_operators += links.host_operators
        self.device_operators += links.device_operators
        orphans = links.host_orphans
        orphans = orphans[np.argsort(host.node_id[orphans], kind="stable")[:_NAMED]].tolist()
        found = [(int(host.node_id[row]), host.names[host.name[row]]) for row in orphans]
        self.host_orphans = sorted(self.host_orphans + found)[:_NAMED]
        for name in _first_names(device, rank.device_orphans):
            if name not in self.device_orphans and len(self.device_orphans) < _NAMED:
                self.device_orphans.append(name)

    def as_dict(self) -> dict[str, Any]:
        told = {name: getattr(self, name) for name in self.__slots__}
        told["host_orphans"] = [f'node {number} "{name}"' for number, name in self.host_orphans]
        return {**told, "method": self.method if self.linked else "nothing fits"}


@dataclass(slots=True)
class _Time:
    """Measured against replayed."""

    measured_ns: int = 0
    replayed_ns: int = 0
    last: int = NONE  # number of the node that ends last when replayed
    late: int = 0
    early: int = 0
    busy_ns: int = 0
    busy_until_ns: int = 0
    longest_gap: dict[str, Any] | None = None

    def add(self, rank: ConvertedRank, ends: Column) -> None:
        graph = rank.graph
        self.measured_ns = max(self.measured_ns, rank.measured_ns)
        if len(ends) and (self.last == NONE or int(ends.max()) > self.replayed_ns):
            self.last, self.replayed_ns = graph.first + int(np.argmax(ends)), int(ends.max())
        self.late += int((ends > graph.end_ns).sum())
        self.early += int((ends < graph.end_ns).sum())
        self._add_busy(graph)
        gap = _longest_gap(rank)
        if gap is not None and (self.longest_gap is None or gap["ns"] > self.longest_gap["ns"]):
            self.longest_gap = gap

    def _add_busy(self, graph: Graph) -> None:
        """Time in which some device worked."""
        rows = np.flatnonzero((graph.work != NONE) & (graph.role != Role.COMMUNICATION))
        if len(rows):
            until = np.maximum.accumulate(np.maximum(graph.end_ns[rows], self.busy_until_ns))
            before = np.insert(until[:-1], 0, self.busy_until_ns)
            self.busy_ns += int(np.maximum(until - np.maximum(graph.start_ns[rows], before), 0).sum())
            self.busy_until_ns = int(until[-1])

    def as_dict(self, steps: PathSteps) -> dict[str, Any]:
        return {
            "measured_ns": self.measured_ns,
            "replayed_ns": self.replayed_ns,
            "difference_ns": self.replayed_ns - self.measured_ns,
            "late_nodes": self.late,
            "early_nodes": self.early,
            "devices_busy_ns": self.busy_ns,
            "longest_path_ns": _path(self.last, steps),
            "longest_gap": self.longest_gap,
        }


def _path(last: int, steps: PathSteps) -> dict[str, int]:
    """Time by role along the nodes that decided when the last one ended."""
    times = np.zeros(len(Role), np.int64)
    at = last
    for some in steps.backwards():
        if at >= some.first:
            at = path_times(at, some.first, some.duration_ns, some.role, some.decided_by, times)
    total = dict(zip(Role, times.tolist(), strict=True))
    order = sorted(total, key=lambda role: (-total[role], role.name))
    return {_plain_name(role): total[role] for role in order if total[role]}


def _longest_gap(rank: ConvertedRank) -> dict[str, Any] | None:
    """The longest time for which a stream waited and nothing recorded says for what."""
    graph = rank.graph
    rows = np.flatnonzero(np.isin(graph.role, (Role.STREAM_GAP, Role.LAUNCH_GAP)))
    if not len(rows):
        return None
    duration = graph.end_ns[rows] - graph.start_ns[rows]
    row = int(rows[np.argmax(duration)])
    follows = graph.after[graph.before == graph.first + row]
    name = ""
    if len(follows) and rank.device is not None and rank.event[follows[0]] != NONE:
        name = rank.device.names[rank.device.name[rank.event[follows[0]]]]
    return {"ns": int(duration.max()), "start_ns": int(graph.start_ns[row]), "before": name}


def _nodes(rank: ConvertedRank) -> Counter[NodeKind]:
    is_metadata = rank.graph.role == Role.METADATA
    communicates = rank.communication != NONE
    found = Counter(
        {
            NodeKind.METADATA: int(is_metadata.sum()),
            NodeKind.COMP: int((~is_metadata & ~communicates).sum()),
        }
    )
    which = rank.communication[communicates]
    of = np.array([int(one.operation.node) for one in rank.communications] or [0])[which]
    found.update({kind: int((of == kind).sum()) for kind in (NodeKind.COLL, NodeKind.SEND, NodeKind.RECV)})
    return found


def _costs(rank: ConvertedRank) -> dict[str, int]:
    if not rank.is_timed:
        return {}
    is_kernel = np.isin(rank.graph.role, (Role.KERNEL, Role.COPY, Role.FILL)) & (rank.communication == NONE)
    kernels = np.flatnonzero(is_kernel)
    operations, size = rank.numbers["num_ops"][kernels], rank.numbers["tensor_size"][kernels]
    return {
        "kernels": len(kernels),
        "with_operations": int((operations > 0).sum()),
        "operations": sum(operations[operations > 0].tolist()),
        "with_bytes": int((size >= 0).sum()),
        "bytes": sum(size[size >= 0].tolist()),
    }


def _first_names(device: DeviceTrace, rows: Column) -> list[str]:
    """The first names of some events, each once, in the order of time."""
    rows = rows[np.argsort(device.ts_ns[rows], kind="stable")]
    names, first = np.unique(device.name[rows], return_index=True)
    return [device.names[name] for name in names[np.argsort(first)][:_NAMED].tolist()]


def _dropped(rank: ConvertedRank) -> dict[str, int]:
    """What was left out in reading, by category."""
    found: dict[str, int] = {}
    for trace in (rank.device, rank.host):
        for what, count in sorted(trace.dropped.items() if trace is not None else ()):
            found[_plain(what)] = found.get(_plain(what), 0) + count
        if trace is not None and trace.repaired:
            found["blocks of a file that were corrected"] = (
                found.get("blocks of a file that were corrected", 0) + trace.repaired
            )
    return found


def _plain(what: str) -> str:
    """What the readers call "phase/category" in words."""
    phase, _, category = what.partition("/")
    if phase in ("s", "f", "t"):
        return f"ends of {category} arrows"
    known = {"M": "events of metadata", "i": "instants", "I": "instants", "C": "counters"}
    return known.get(phase, f"events of category {category}" if category else what)


def _plain_name(role: Role) -> str:
    return role.name.lower().replace("_", " ")
