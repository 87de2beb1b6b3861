"""Causal events of a run with the results of their analysis, which are stored for the next call.

Stored results of a long record are used only if the file is intact, and if this version found them in the
same tables, by a digest of their content. If the file cannot be written, nothing is stored.
"""

from __future__ import annotations

import hashlib
import json
from array import array
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cached_property
from io import BytesIO
from typing import Any

import numpy as np
from msgspec import Struct

from et_sim.basics.errors import UsageError
from et_sim.basics.files import write_file
from et_sim.tables.registry import KEPT, SUMMARY
from et_sim.version import __version__
from et_sim.views.critical.condensed import Condensed, condensed
from et_sim.views.critical.events import KINDS, NONE, QUEUES, RecordedEvents, is_kind, narrow
from et_sim.views.run.columns import Words
from et_sim.views.run.directory import AGAIN, RunDirectory

TIMES = ("critical_parent", "other_parent", "start_ns", "end_ns", "kind")
CHAIN_COLUMNS = ("start_ns", "end_ns", "kind", "resource", "actor", "node", "other_parent", "link")
NARROW = ("resource", "actor", "link")
BEGIN_IN_TURN = ("node_start", "chunk_start")
PLACES = ("lane", "queue_slot")


class Chain(Struct, frozen=True, eq=False):
    """Columns of the events of the path, in its order; -1 stands for none."""

    start_ns: Any
    end_ns: Any
    kind: Any
    link: Words
    resource: Any
    actor: Any
    node: Any  # row in the nodes
    other_end_ns: Any  # end of the other predecessor
    by_order: Any  # led to by an order of service, which may change with times

    def __len__(self) -> int:
        return len(self.kind)


def chain(record: RecordedEvents) -> Chain:
    """Check that predecessors precede their events, and follow the chain back from the last event."""
    parent, end_ns, last = _parents(record)
    rows = array("q")
    while last != NONE:
        rows.append(last)
        last = int(parent[last])
    on_it = np.frombuffer(rows, np.int64)[::-1]
    texts: tuple[str | None, ...] = (None,)
    parts: dict[str, list[Any]] = {name: [] for name in CHAIN_COLUMNS}
    for here, block in _blocks_with(record, on_it):
        texts = block["link"].texts
        for name in CHAIN_COLUMNS:
            column = block["link"].codes if name == "link" else block[name]
            parts[name].append(column[here].astype(np.int32) if name in NARROW else column[here])
    of = {name: np.concatenate(pieces) for name, pieces in parts.items()}
    other_parent = of["other_parent"]
    is_chunk = is_kind(of["kind"], "chunk_start") & (other_parent != NONE)
    needed = np.where(is_chunk, parent[other_parent], other_parent)  # a chunk needed its entry into the queue
    return Chain(
        start_ns=of["start_ns"],
        end_ns=of["end_ns"],
        kind=of["kind"],
        link=Words(texts, of["link"]),
        resource=of["resource"],
        actor=of["actor"],
        node=record.nodes_of(of["actor"], of["node"]),
        other_end_ns=np.where(other_parent == NONE, NONE, end_ns[other_parent]),
        by_order=_by_order(on_it, of["kind"], of["resource"], needed),
    )


def _by_order(rows: Any, kind: Any, resource: Any, needed: Any) -> Any:
    """Return which events of a chain (given by `rows`) follow their predecessor by an order of service.

    All other events follow by dependencies, steps of algorithms and durations, which every run of the
    workload has. A node or chunk that waited for its lane or queue was not admitted by the event that it
    `needed`. If that event came last, only the place in the lane or queue lies between the two.
    """
    before, before_that = (np.concatenate((np.full(n, NONE), rows[:-n]))[: len(rows)] for n in (1, 2))
    previous = np.concatenate(([KINDS.index("begin")], kind[:-1]))
    had_place = is_kind(previous, *PLACES) & (before_that == needed)
    is_admitted = is_kind(kind, *BEGIN_IN_TURN) & (needed != NONE) & (before != needed) & ~had_place
    return is_admitted | is_kind(kind, *QUEUES, "bound") | (is_kind(kind, "receive") & (resource != NONE))


def _parents(record: RecordedEvents) -> tuple[Any, Any, int]:
    """Return the latest predecessor of each event, the end of each event, and the event that ended the run.

    That is the end of its last node or, in a stall, the last event.
    """
    count = len(record)
    parent: Any = np.empty(count, narrow(count))
    end_ns = np.empty(count, np.int64)
    node_end, last, first = KINDS.index("node_end"), NONE if record.makespan_ns else 0, 0
    in_order = count > 0
    for rows in record.blocks(TIMES):
        here = slice(first, first + len(rows["kind"]))
        by, also = rows["critical_parent"], rows["other_parent"]
        numbers = np.arange(here.start, here.stop)
        in_order &= bool((np.maximum(by, also) < numbers).all() and (np.minimum(by, also) >= NONE).all())
        if not in_order:
            break
        parent[here], end_ns[here] = by, rows["end_ns"]
        needed = np.maximum(np.where(by < 0, 0, end_ns[by]), np.where(also < 0, 0, end_ns[also]))
        in_order &= bool((rows["start_ns"] == needed).all())
        over = rows["end_ns"] == record.makespan_ns
        if record.is_complete:
            over &= rows["kind"] == node_end
        last = first + int(np.flatnonzero(over)[-1]) if over.any() else last
        first = here.stop
    if not in_order:
        raise UsageError("its events do not follow from each other", place=record.place, remedy=AGAIN)
    if last == NONE:
        raise UsageError("none of its events is the end of the run", place=record.place, remedy=AGAIN)
    return parent, end_ns, last


def _blocks_with(record: RecordedEvents, rows: Any) -> Iterator[tuple[Any, dict[str, Any]]]:
    """Yield the blocks that hold some of these rows, and the indices of these rows in the block."""
    bounds = np.cumsum([0, *record.lengths])
    cuts = np.searchsorted(rows, bounds)
    wanted = np.flatnonzero(np.diff(cuts)).tolist()
    for number, block in zip(wanted, record.blocks(CHAIN_COLUMNS, wanted), strict=True):
        yield rows[cuts[number] : cuts[number + 1]] - bounds[number], block


FORMAT = 3  # to be raised if the results or their format change
LONG_BYTES = 1 << 20  # size of the record from which results are stored
READ = ("path", "timeline", "actors", "groups", "resources")
COLUMNS = ("start_ns", "end_ns", "kind", "resource", "actor", "node", "other_end_ns", "by_order")


class StoredResults(Struct, frozen=True, eq=False):
    """Results for one record: the critical path, and sensitivities and slack if they can be predicted; or
    only the changes that a page shows."""

    chain: Chain
    sensitivities: Sequence[dict[str, Any]] | None
    slack: tuple[Any, Any] | None
    changes: Sequence[dict[str, Any]] | None


def key_of(run: RunDirectory) -> str | None:
    """Return a digest of the run's tables; None if its analysis is too short to be stored."""
    if run.table_path("path").stat().st_size < LONG_BYTES:
        return None
    digest = hashlib.blake2b(json.dumps([FORMAT, __version__]).encode())
    for path in (run.path / SUMMARY, *(run.table_path(name) for name in READ if run.holds(name))):
        with path.open("rb") as source:
            digest.update(hashlib.file_digest(source, "blake2b").digest())
    return digest.hexdigest()


def kept(run: RunDirectory, key: str) -> StoredResults | None:
    """Return the stored results with this key; None if they are missing or damaged."""
    try:
        content = (run.path / KEPT).read_bytes()
    except OSError:
        return None
    head, _, body = content.partition(b"\n")
    return _read(BytesIO(body)) if head == _head(key, body) else None


def keep(run: RunDirectory, key: str, results: StoredResults) -> None:
    """Write the results, whole or not at all."""
    body = BytesIO()
    chain, slack = results.chain, results.slack
    facts = {
        "links": chain.link.texts,
        "sensitivities": results.sensitivities,
        "slack": slack is not None,
        "changes": results.changes,
    }
    body.write(json.dumps(facts).encode() + b"\n")
    columns = [getattr(chain, name) for name in COLUMNS]
    for column in (*columns, chain.link.codes, *(slack or ())):
        np.save(body, column, allow_pickle=False)
    content = body.getvalue()
    with suppress(UsageError):
        write_file(run.path / KEPT, _head(key, content) + b"\n" + content)


def _head(key: str, body: bytes) -> bytes:
    """Return the first line: the key, and a digest of the rest."""
    return f"et-sim {key} {hashlib.blake2b(body).hexdigest()}".encode()


def _read(body: BytesIO) -> StoredResults:
    facts = json.loads(body.readline())
    columns = {name: np.load(body, allow_pickle=False) for name in (*COLUMNS, "link")}
    link = Words(tuple(facts["links"]), columns.pop("link"))
    slack = tuple(np.load(body, allow_pickle=False) for _ in range(2)) if facts["slack"] else None
    return StoredResults(Chain(link=link, **columns), facts["sensitivities"], slack, facts["changes"])


class PathRecord(RecordedEvents):
    """The causal events of a run with their analysis."""

    def __init__(self, run: RunDirectory) -> None:
        super().__init__(run)
        self._key = key_of(run)
        self._kept: StoredResults | None = kept(run, self._key) if self._key else None

    @property
    def is_long(self) -> bool:
        """Return whether results are stored, because the analysis takes long."""
        return self._key is not None

    @cached_property
    def chain(self) -> Chain:
        """Return the critical path."""
        return self._kept.chain if self._kept else chain(self)

    @cached_property
    def condensed(self) -> Condensed:
        """Return all events that decide times."""
        _ = self.chain  # it checks the order of events
        return condensed(self)

    @cached_property
    def slack(self) -> tuple[Any, Any]:
        """Return the rows of `nodes` in the order of their ends, and their slack in ns."""
        if self._kept and self._kept.slack:
            return self._kept.slack
        events = self.condensed
        known = events.ended != NONE
        return events.ended[known], events.slack_ns(self.makespan_ns)[known]

    @property
    def sensitivities(self) -> Sequence[dict[str, Any]] | None:
        """Return the stored sensitivities; None if there are none."""
        return self._kept.sensitivities if self._kept else None

    @property
    def changes(self) -> Sequence[dict[str, Any]] | None:
        """Return the stored changes; None if there are none."""
        return self._kept.changes if self._kept else None

    def keep(self, sensitivities: Sequence[dict[str, Any]] | None) -> None:
        """Store the results for the next call, if the analysis takes long."""
        predicted = sensitivities is not None
        if self._key and (not self._kept or (predicted and self.sensitivities is None)):
            slack = self.slack if predicted else None
            keep(self._run, self._key, StoredResults(self.chain, sensitivities, slack, None))

    def keep_changes(self, changes: Sequence[dict[str, Any]]) -> None:
        """Store only the changes that a page shows."""
        if self._key:
            keep(self._run, self._key, StoredResults(self.chain, None, None, changes))
