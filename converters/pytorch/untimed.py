"""The conversion of an execution trace alone: the calls of the host, in order, without times.

Every operator is a node, and the operators of a thread are a chain. If the trace continues with another
thread, that one comes after the one before: nodes are numbered as they start, and waits are not recorded.
Communication is at its `record_param_comms`, or else at the operator of torch.distributed.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from converters.pytorch.carriers import ALONE
from converters.pytorch.columns import NONE, HostNodeKind, HostTrace
from converters.pytorch.communication import UNKNOWN, Communication, HostRecords
from converters.pytorch.data_links import write_read_pairs
from converters.pytorch.graph import Column, Draft, EventTally, Link, RecordedGraph, RunPart
from converters.pytorch.groups import RankGroups, collect_groups, learn_world
from converters.pytorch.linking import operators_of
from converters.pytorch.rank import ConvertedRank, Lookup
from et_sim.basics.errors import TraceError
from et_sim.basics.unique import unique


def convert_untimed(host: HostTrace, without: frozenset[Link] = frozenset()) -> ConvertedRank:
    """Convert the nodes, in the order of their ids."""
    if not len(operators_of(host)):
        raise TraceError("holds no operator", place=host.path, remedy="record while the model runs")
    groups = collect_groups(host, None, EventTally())
    rows = operators_of(host)
    rows = rows[np.argsort(host.node_id[rows], kind="stable")]
    parent = parent_rows(host)
    read = _read(host, rows)
    sizes = (communication.group_size for communication in read.values() if communication is not None)
    learn_world(groups, max(sizes, default=UNKNOWN))
    _report_cycle(host, parent, groups.tally)
    communications, by_row = _communications(host, read, parent, groups)
    described = groups.described()
    graph = _graph(host, rows, parent, bool(described), without, groups.tally)
    row = graph.call
    return ConvertedRank(
        graph=graph,
        host=host,
        device=None,
        links=None,
        is_timed=False,
        rank=groups.rank,
        groups=described,
        communications=tuple(communications),
        communication=np.append(by_row, NONE)[row],
        event=Lookup(row),
        operator_event=Lookup(row),
        described_by=Lookup(row, (row, np.arange(len(host)))),
        numbers={
            "tid": Lookup(row, (row, host.thread)),
            "rf_id": Lookup(row, (row, host.record_function)),
            "seq_id": Lookup(row, (row, host.sequence)),
        },
        tally=groups.tally,
        measured_ns=0,
        begin_ns=0,
        described_as={"converter": "et-convert pytorch", "schema": host.schema},
        device_orphans=rows[:0],
        left_out_events={},
    )


def _graph(
    host: HostTrace,
    rows: Column,
    parent: Column,
    has_groups: bool,
    without: frozenset[Link],
    tally: EventTally,
) -> RecordedGraph:
    """Return the graph of the rows in order, with a node for the groups before them."""
    draft = Draft(tally)
    nothing = np.zeros(len(rows), np.int64)
    nodes = draft.add(RunPart.UNTIMED, nothing, nothing, call=rows)
    node_of = np.full(len(host) + 1, NONE, np.int64)  # the last entry belongs to NONE
    node_of[rows] = nodes
    draft.link(Link.CALL_TREE, node_of[parent[rows]], nodes)
    _link_threads(draft, host.thread[rows], nodes)
    lane = host.thread[rows].astype(np.int64)
    position = np.arange(len(rows))
    draft.link(Link.DATA, *write_read_pairs(host, rows, position, lane))
    if has_groups:
        draft.add(RunPart.METADATA, nothing[:1], nothing[:1])
        position = np.append(position, -1)
    return draft.finished(without, position)


def parent_rows(host: HostTrace) -> Column:
    """Return the row of each row's caller, or NONE."""
    order = np.argsort(host.node_id, kind="stable")
    ids = host.node_id[order]
    at = np.minimum(np.searchsorted(ids, host.parent), len(ids) - 1)
    parents: Column = np.where((ids[at] == host.parent) & (host.parent != host.node_id), order[at], NONE)
    return parents


def find_cycle(parent: Column) -> list[int]:
    """Return the rows of a shortest cycle of callers; empty if there is none."""
    reached = np.append(parent, NONE)  # the last entry belongs to NONE
    for _ in range(max(1, len(parent)).bit_length()):
        reached = reached[reached]
    caught = unique(reached[reached != NONE])  # only rows of cycles are left
    best: list[int] = []
    seen: set[int] = set()
    for start in caught.tolist():
        cycle: list[int] = []
        at = start
        while at not in seen:
            seen.add(at)
            cycle.append(at)
            at = int(parent[at])
        if cycle and (not best or len(cycle) < len(best)):
            best = cycle
    return best


def _report_cycle(host: HostTrace, parent: Column, tally: EventTally) -> None:
    cycle = find_cycle(parent)
    if cycle:
        remark = "nodes that call each other in a circle (what runs against the order of ids is dropped)"
        ids = [int(host.node_id[row]) for row in cycle]
        tally.count(remark, len(ids))
        tally.examples[remark] = [" is called by ".join(map(str, [*ids, ids[0]]))]


def _communications(
    host: HostTrace, read: dict[int, Communication | None], parent: Column, groups: RankGroups
) -> tuple[list[Communication], Column]:
    """Return the communications, and by row the one that it carries: of nested ones, the innermost."""
    around: set[int] = set()
    for row, communication in read.items():
        at = int(parent[row]) if communication is not None else NONE
        while at != NONE and at not in around:
            around.add(at)
            at = int(parent[at])
    communications: list[Communication] = []
    by_row = np.full(len(host), NONE, np.int64)
    for row, communication in read.items():
        if communication is None or row in around:
            continue
        if groups.is_alone(communication):
            groups.tally.count(ALONE)
            continue
        at = int(parent[row])
        while at != NONE:
            outer = read.get(at)
            communication = communication.with_group_of(outer) if outer is not None else communication
            at = int(parent[at])
        by_row[row] = len(communications)
        communications.append(groups.resolve(communication))
    return communications, by_row


def _read(host: HostTrace, rows: Column) -> dict[int, Communication | None]:
    """Return the communication of each row that may have one."""
    records = HostRecords(host)
    communicating = rows[np.isin(host.kind[rows], (HostNodeKind.COMMUNICATION, HostNodeKind.C10D))].tolist()
    return {row: records.of(row) for row in communicating}


def _link_threads(draft: Draft, thread: Any, nodes: Column) -> None:
    order = np.argsort(thread, kind="stable")
    same = thread[order][1:] == thread[order][:-1]
    draft.link(Link.THREAD_ORDER, nodes[order][:-1][same], nodes[order][1:][same])
    switches = np.flatnonzero(thread[1:] != thread[:-1])
    draft.link(Link.CROSS_THREAD, nodes[switches], nodes[switches + 1])
