"""Scaling of few ranks to many: every new rank copies an old rank, with partners in its own copy.

In each node the peer becomes a distance, the group a rule, and the bytes follow the size of the group. The
data of a rank stays the same, so its computation does, too. `comm_size` of an all-reduce, reduce, broadcast,
reduce-scatter and all-to-all is all of that data and stays; of an all-gather it is one rank's share and
shrinks. Other collectives are refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
from msgspec import Struct

from converters.editing.files import Change, Input, RecordedTrace, Rewiring, edited, set_attributes
from converters.editing.gradients import Gradients, add_gradients
from converters.editing.groups import GroupRules, Names, rewritten_descriptions
from converters.editing.growth import Growth
from converters.files import watched
from converters.records import frame_bytes
from et_sim.basics.errors import TraceError
from et_sim.basics.group_names import group_key
from et_sim.basics.unique import groups_of, unique
from et_sim.basics.units import plural
from et_sim.trace import Trace, Workload
from et_sim.trace.builder_nodes import ROOT_COLUMN
from et_sim.trace.columns import CollectiveKind, NodeKind
from et_sim.trace.group_attributes import ATTRIBUTE, has_splits

_CONSTANT = frozenset(
    (
        CollectiveKind.ALL_REDUCE,
        CollectiveKind.REDUCE,
        CollectiveKind.BROADCAST,
        CollectiveKind.ALL_TO_ALL,
        CollectiveKind.REDUCE_SCATTER,
        CollectiveKind.REDUCE_SCATTER_BLOCK,
        CollectiveKind.BARRIER,
    )
)
_NO_RULE = (
    "has no rule for bigger groups: what a rank gives to a gather, or gets of a scatter, may change or not"
)


class Variant(Struct, frozen=True):
    """A template of the larger workload: an old template with distances and names."""

    template: int
    distances: tuple[tuple[int, int], ...]  # old peer (as in the trace) -> distance among all new ranks
    names: Names


class Scaled(Struct):
    """The larger workload, which still has the old traces, and the files of its templates."""

    workload: Workload
    contents: list[bytes]
    notes: list[tuple[tuple[str, str], ...]]


def scale(given: Input, families: GroupRules, growth: Growth, gradients: Gradients | None = None) -> Scaled:
    """Return the workload after `growth`, with all-reduces of gradients if given."""
    workload = given.workload
    if not growth.is_bigger:
        contents = [frame_bytes((trace.header, *trace.records)) for trace in given.traces]
        return Scaled(workload, contents, [()] * len(contents))
    variants, of_old = _variants(workload, families, growth)
    contents, notes = [], []
    for variant in watched(variants, len(variants), "templates"):
        content, note = _write(given.traces[variant.template], variant, growth, gradients)
        contents.append(content)
        notes.append(note)
    bigger = Workload(
        tuple(workload.templates[variant.template] for variant in variants),
        of_old[growth.old_rank_of_new()],
        workload.source,
        workload.inputs,
        relative_peers=(True,) * len(variants),
        group_rules=growth.rules,
        profile=workload.profile,
    )
    return Scaled(bigger, contents, notes)


def _variants(workload: Workload, families: GroupRules, growth: Growth) -> tuple[list[Variant], Any]:
    """Return the templates, and the template that copies of each old rank run."""
    number: dict[Variant, int] = {}
    of_old = np.zeros(workload.ranks, np.int32)
    for template in np.flatnonzero(workload.ranks_per_template).tolist():
        users = np.flatnonzero(workload.template_of_rank == template)
        trace = workload.templates[template]
        is_send, is_receive = trace.kind == NodeKind.SEND, trace.kind == NodeKind.RECV
        peers = unique(np.concatenate((trace.comm_dst[is_send], trace.comm_src[is_receive]))).astype(np.int64)
        columns = [_distance(workload, template, users, peer, growth) for peer in peers.tolist()]
        rows = np.stack([np.zeros(len(users), np.int64), *columns], axis=1)
        equal = groups_of(*rows.T)
        distinct = rows[equal.first, 1:].tolist()
        listed = [tuple(zip(peers.tolist(), distances, strict=True)) for distances in distinct]
        for user, row in zip(users.tolist(), equal.of_row.tolist(), strict=True):
            variant = Variant(template, listed[row], families.of_rank[user])
            of_old[user] = number.setdefault(variant, len(number))
    return list(number), of_old


def _distance(workload: Workload, template: int, users: Any, peer: int, growth: Growth) -> Any:
    """Return the distance from each user's copy to the copy of its peer, modulo all new ranks, nearest to
    zero.
    """
    is_relative = workload.has_relative_peers(template)
    other = (users + peer) % workload.ranks if is_relative else np.full(len(users), peer)
    trace = workload.templates[template]
    if not is_relative and not 0 <= peer < workload.ranks:
        raise TraceError(
            f"a message names rank {peer}, and there are ranks 0 to {workload.ranks - 1}",
            place=trace.source,
            remedy="et-sim check names it: repair the workload first",
        )
    group = growth.along(users, other)
    if group:
        at = int(np.argmax(other != users))
        raise TraceError(
            f"rank {users[at]} sends to or receives from rank {other[at]}, which is another member of group"
            f" {group}: its partner among more members is undefined",
            place=trace.source,
            remedy="grow a group whose members send each other nothing, or use --replicas; the order of"
            " ranks in a plan is that of --order",
        )
    apart = growth.first_copy(other) - growth.first_copy(users)
    most = (growth.ranks - 1) // 2
    return (apart + most) % growth.ranks - most


def _write(
    recorded: RecordedTrace, variant: Variant, growth: Growth, gradients: Gradients | None
) -> tuple[bytes, tuple[tuple[str, str], ...]]:
    trace = recorded.trace
    values: dict[int, dict[str, Any]] = {}
    _set_distances(trace, variant, values)
    smaller, rounded = _set_groups(trace, variant, growth, values)
    changes: dict[int, Change] = {
        row: partial(set_attributes, values=held) for row, held in values.items() if held
    }
    # lists of members are obsolete; groups of all ranks, which list none, stay
    texts, gone = rewritten_descriptions(trace, lambda members: None if members else members)
    changes |= {row: partial(_set_text, text=text) for row, text in texts.items()}
    rewiring, added = Rewiring(), list[Any]()
    notes = list(_notes(smaller, rounded, gone))
    if gradients is not None:
        rewiring, added, text = add_gradients(recorded, gradients)
        notes.append(("gradients", text))
    content = edited(recorded, np.ones(len(trace), np.bool_), rewiring, changes, added)
    return content, tuple(notes)


def _set_distances(trace: Trace, variant: Variant, values: dict[int, dict[str, Any]]) -> None:
    distance_of = dict(variant.distances)
    for kind, peer, distance in (
        (NodeKind.SEND, "comm_dst", "comm_src"),
        (NodeKind.RECV, "comm_src", "comm_dst"),
    ):
        rows = np.flatnonzero(trace.kind == kind)
        for row, end in zip(rows.tolist(), getattr(trace, peer)[rows].tolist(), strict=True):
            held = values.setdefault(row, {})
            if distance_of[end] != end:
                held[peer] = distance_of[end]
            if trace.has(distance, row) and int(getattr(trace, distance)[row]) != 0:
                held[distance] = 0


def _set_groups(
    trace: Trace, variant: Variant, growth: Growth, values: dict[int, dict[str, Any]]
) -> tuple[int, int]:
    """Set names and bytes of collectives; return the number that shrank, and of those the number
    rounded up.
    """
    family_of = dict(variant.names)
    smaller = rounded = 0
    for row in np.flatnonzero(trace.kind == NodeKind.COLL).tolist():
        name = trace.group_names[int(trace.group[row])]
        key = group_key(name)
        family = family_of.get(key, "")
        held = values.setdefault(row, {})
        if family and family != name:
            held["pg_name"] = family
        factor = growth.factor_of(family)
        _refuse_unknown(trace, row, (key, family), growth, factor)
        _move_root(trace, row, growth, held)
        if factor > 1 and trace.comm_type[row] == CollectiveKind.ALL_GATHER:
            size = int(trace.comm_bytes[row])
            held["comm_size"] = -(-size // factor)
            smaller += 1
            rounded += size % factor > 0
    return smaller, rounded


def _refuse_unknown(trace: Trace, row: int, group: tuple[str, str], growth: Growth, factor: int) -> None:
    """Refuse a collective without a rule; `group` holds its key in the trace and its family."""
    key, family = group
    kind = int(trace.comm_type[row])
    copies = "--replicas" if key else "--replicas with --keep-groups"
    column = ROOT_COLUMN.get(CollectiveKind(kind)) if kind in CollectiveKind._value2member_map_ else None
    if growth.is_bigger and not key and trace.has("involved_dim", row):
        cause = "names dimensions of the network (involved_dim), and a bigger machine may have others"
        remedy = "name a group instead (pg_name)"
    elif factor > 1 and kind not in (*_CONSTANT, CollectiveKind.ALL_GATHER):
        cause = _NO_RULE
        remedy = f"grow a group without such collectives, or use {copies}"
    elif factor > 1 and has_splits(trace)[row]:
        cause = f"lists bytes for each member of its group ({ATTRIBUTE}), and a bigger one has more"
        remedy = f"grow another group, use {copies}, or leave {ATTRIBUTE} out"
    elif growth.is_bigger and family and column is not None and trace.has(column, row):
        cause = f"has a root, rank {int(getattr(trace, column)[row])}, in one of many groups alike"
        remedy = "leave the root out (the first member is meant then), or use the group of all ranks"
    else:
        return
    raise TraceError(f"{trace.describe(row)} {cause}", place=trace.source, remedy=remedy)


def _move_root(trace: Trace, row: int, growth: Growth, held: dict[str, Any]) -> None:
    """Move the root of a collective of all ranks to the first copy of the old root."""
    kind = int(trace.comm_type[row])
    column = ROOT_COLUMN.get(CollectiveKind(kind)) if kind in CollectiveKind._value2member_map_ else None
    if column is None:
        return
    if trace.has(column, row):
        root = int(getattr(trace, column)[row])
        moved = int(growth.first_copy(np.array([root], np.int64))[0])
        if moved != root:
            held[column] = moved


def _notes(smaller: int, rounded: int, gone: int) -> Iterator[tuple[str, str]]:
    if smaller:
        up = f", {rounded:,} of them rounded up to whole bytes" if rounded else ""
        yield "shares", f"{plural(smaller, 'all-gather')} in bigger groups: smaller shares{up}"
    if gone:
        yield "groups", f"{plural(gone, 'description')} of members left out: groups follow rules now"


def _set_text(node: Any, text: str) -> None:
    node.inputs.values = text
