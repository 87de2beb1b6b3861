"""Comparison of the collectives that the members of every group start, and of their order.

Collectives match by order: the k-th of a group on one member matches the k-th on all others. Sequences are
compared as numbers, one per template and group, so ranks that share a trace are compared once. Broadcasts
that only last their recorded time are compared too, but differences are warnings: no rank waits for them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np
from msgspec import Struct

from et_sim.basics.errors import TraceError
from et_sim.basics.group_names import group_key
from et_sim.basics.unique import sorted_groups, unique
from et_sim.basics.units import format_ranks, plural
from et_sim.trace.columns import CollectiveKind, NodeKind, RowColumn, Trace
from et_sim.trace.group_attributes import (
    ALL_RANKS,
    ATTRIBUTE,
    has_splits,
    read_process_groups,
    sizes_of_texts,
)
from et_sim.trace.preflight.problem import SPELLED_OUT, Problem, TemplateIndex, not_spelled_out
from et_sim.trace.preflight.streams import (
    FROM_ROOT,
    SPLIT,
    TO_ROOT,
    CollectiveSequence,
    ComparedStream,
    follows_rule,
)
from et_sim.trace.stack import Stack


def check_split_lengths(
    index: TemplateIndex, stream: ComparedStream, of_templates: Mapping[int, CollectiveSequence], members: int
) -> list[Problem]:
    """Return one finding per trace: its first list of another length."""
    problems = []
    for template, (rows, content) in sorted(of_templates.items()):
        rows = rows[content[:, 1] == SPLIT]
        if not len(rows):
            continue
        trace, users = index.workload.templates[template], index.ranks_of(template)
        lengths = np.array([len(sizes) for sizes in sizes_of_texts(trace)])[trace.splits[rows]]
        wrong = np.flatnonzero((lengths != members) & (lengths > 0))
        if len(wrong):
            at = int(wrong[0])
            text = (
                f"{index.place(users)}: {trace.describe(int(rows[at]))} lists"
                f" {plural(int(lengths[at]), 'size')} in {ATTRIBUTE}, and {stream.name} has"
                f" {plural(members, 'member')}"
            )
            remedy = "list what the rank sends to every member, its own share included"
            problems.append(Problem("error", "split-count", format_ranks(users), text, remedy))
    return problems


_ALL_DIMENSIONS = np.uint64(2**64 - 1)
_Sequences = dict[ComparedStream, dict[int, CollectiveSequence]]  # stream -> template -> its collectives


class CorrectionEffects(Struct, frozen=True):
    """The effects of a machine's corrections."""

    side_by_side: bool = False  # collectives of a rank do not wait for each other
    any_order: bool = False  # in addition, members of a group may start its collectives in different orders
    simulates_broadcast: bool = False  # a broadcast is a collective like the others
    communicates: bool = True  # false: every node takes its recorded time, without communication


PLAIN_RULES = CorrectionEffects()


def check_collectives(
    index: TemplateIndex,
    ranks: int,
    groups: Mapping[str, tuple[int, ...]] | None,
    rules: CorrectionEffects,
    *,
    with_order: bool = True,
) -> list[Problem]:
    """Return findings about groups that do not exist or fit, empty collectives, and sequences that differ.

    `with_order` also finds collectives that wait for each other.
    """
    problems: list[Problem] = []
    described = _described_groups(index, ranks, problems)
    sequences: _Sequences = defaultdict(dict)
    started: dict[int, RowColumn] = {}
    for stack in index.workload.stacks():
        is_used = stack.spread(stack.share(index.counts) > 0)
        rows = np.flatnonzero((stack.trace.kind == NodeKind.COLL) & ~stack.trace.is_unsized & is_used)
        if len(rows):
            problems += _empty(index, stack, rows)
            started |= _sort_into_streams(stack, rows, rules, described, sequences)
    for stream in sorted({stream._replace(is_broadcast=False) for stream in sequences}):
        problems += _check_group(index, stream, sequences, ranks, groups)
    if rules.any_order and rules.side_by_side:
        sequences = _regardless_of_order(sequences)
    for stream in sorted(sequences):
        size = _size_of_group(index, stream, sequences, ranks, groups)
        problems += check_split_lengths(index, stream, sequences[stream], size)
        if follows_rule(index, stream):
            problems += _compare_by_rule(index, stream, sequences)
        else:
            members = _members(index, stream, sequences, ranks, groups)
            problems += _compare(index, stream, members, sequences)
    if not with_order or any(problem.severity == "error" for problem in problems):
        return problems
    from et_sim.trace.preflight.interleaving import check_interleaving

    return problems + check_interleaving(index, sequences, started, side_by_side=rules.side_by_side)


def _regardless_of_order(sequences: _Sequences) -> _Sequences:
    """Return the sequences with all collectives sorted by content, so that their order does not count."""
    ordered: _Sequences = defaultdict(dict)
    for stream, by_template in sequences.items():
        for template, (rows, content) in by_template.items():
            order = np.lexsort(content.T[::-1])
            ordered[stream][template] = CollectiveSequence(rows[order], content[order])
    return ordered


def _described_groups(
    index: TemplateIndex, ranks: int, problems: list[Problem]
) -> dict[int, dict[str, tuple[int, ...]]]:
    """Return per template the groups that its trace describes; invalid descriptions become problems."""
    groups_of_templates: dict[int, dict[str, tuple[int, ...]]] = {}
    heads = (
        (stack.number + at, head) for stack in index.workload.stacks() for at, head in enumerate(stack.heads)
    )
    for template in [template for template, head in heads if head.metadata_text and index.counts[template]]:
        users = index.ranks_of(template)
        groups_of_templates[template] = {}
        try:
            groups = read_process_groups(index.workload.templates[template])
        except TraceError as error:
            text = f"{index.place(users)}: {error.cause}"
            problems.append(Problem("error", "process-groups", format_ranks(users), text, error.remedy))
            continue
        for name, members in groups.items():
            members = tuple(range(ranks)) if members == ALL_RANKS else members
            if name:
                groups_of_templates[template][name] = members
            elif len(members) != ranks:
                text = f'{index.place(users)}: process group "0" lists {len(members)} of {ranks} ranks'
                remedy = "group 0 always means all ranks: give all the ranks, or call it something else"
                problems.append(Problem("error", "process-groups", format_ranks(users), text, remedy))
    return groups_of_templates


def _sort_into_streams(
    stack: Stack,
    rows: Any,
    rules: CorrectionEffects,
    described: Mapping[int, Mapping[str, tuple[int, ...]]],
    sequences: _Sequences,
) -> dict[int, RowColumn]:
    """Add the collectives of templates to their streams; return those of each in starting order."""
    from et_sim.trace.order import in_program_order

    trace, rows = stack.trace, in_program_order(stack, rows)
    of = np.searchsorted(stack.first, rows, side="right") - 1
    keys = [group_key(name) for name in trace.group_names]  # the canonical name of a group
    number = {key: at for at, key in enumerate(dict.fromkeys(keys))}
    group = np.array([number[key] for key in keys], np.int32)[trace.group[rows]]
    apart = (trace.comm_type[rows] == CollectiveKind.BROADCAST) & (not rules.simulates_broadcast)
    own_row = (rows - stack.first[of]).astype(np.int32)
    content = _content(trace, rows, group != number.get("", -1))
    order, first = sorted_groups(of, group, apart)
    shown, nothing = list(number), dict[str, tuple[int, ...]]()
    rows_in_order, content = own_row[order], content[order]
    heads = zip(*(column[order[first]].tolist() for column in (of, group, apart)), strict=True)
    bounds = pairwise([*first.tolist(), len(order)])
    for (at, key, is_broadcast), (begin, end) in zip(heads, bounds, strict=True):
        template, name = stack.number + at, shown[key]
        members = tuple(sorted(described.get(template, nothing).get(name, ())))
        sequence = CollectiveSequence(rows_in_order[begin:end], content[begin:end])
        sequences[ComparedStream(name, is_broadcast, members)][template] = sequence
    ends = np.searchsorted(of, np.arange(len(stack) + 1)).tolist()
    return {
        template: own_row[begin:end]
        for template, (begin, end) in zip(stack.numbers, pairwise(ends), strict=True)
        if begin < end
    }


def _content(trace: Trace, rows: Any, is_listed: Any) -> Any:
    """Return collectives as comparable numbers, a row each; `is_listed` marks groups other than all ranks."""
    flagged = trace.has("involved_dim", rows) & ~is_listed  # listed groups ignore involved_dim
    dims = np.where(flagged, trace.involved_dims[rows], _ALL_DIMENSIONS)
    kinds = trace.comm_type[rows].astype(np.int64)
    kinds[kinds == CollectiveKind.REDUCE_SCATTER_BLOCK] = CollectiveKind.REDUCE_SCATTER
    sizes = np.where(kinds == CollectiveKind.BARRIER, 0, trace.comm_bytes[rows])
    sizes[has_splits(trace)[rows]] = SPLIT
    return np.stack((kinds, sizes, dims.view(np.int64), _roots(trace, rows, kinds)), axis=1)


def _roots(trace: Trace, rows: Any, kinds: Any) -> Any:
    """Return the root of each collective that has and states one; -1 elsewhere."""
    roots = np.full(len(rows), -1, np.int64)
    for of_kinds, name in ((FROM_ROOT, "comm_src"), (TO_ROOT, "comm_dst")):
        given = np.isin(kinds, of_kinds) & trace.has(name, rows)
        roots[given] = getattr(trace, name)[rows[given]]
    return roots


def _empty(index: TemplateIndex, stack: Stack, rows: Any) -> list[Problem]:
    """Return findings about collectives of 0 bytes; barriers and ranks with splits may have none."""
    trace = stack.trace
    given = trace.has("comm_size", rows)
    may_be_empty = (trace.comm_type[rows] == CollectiveKind.BARRIER) | has_splits(trace)[rows]
    empty = rows[given & (trace.comm_bytes[rows] == 0) & ~may_be_empty]
    of = np.searchsorted(stack.first, empty, side="right") - 1
    problems = []
    for at in unique(of).tolist():
        empty_here, users = empty[of == at], index.ranks_of(stack.number + at)
        more = f", and {plural(len(empty_here) - 1, 'more node')} likewise" if len(empty_here) > 1 else ""
        node = stack.traces[at].describe(int(empty_here[0] - stack.first[at]))
        text = f"{index.place(users)}: {node} is a collective of 0 bytes{more}"
        remedy = "check comm_size if data should move"
        problems.append(Problem("warning", "empty-collective", format_ranks(users), text, remedy))
    return problems


def _both(stream: ComparedStream) -> tuple[ComparedStream, ComparedStream]:
    """Return the group's collectives and its broadcasts."""
    return stream._replace(is_broadcast=False), stream._replace(is_broadcast=True)


def _users(index: TemplateIndex, stream: ComparedStream, sequences: _Sequences) -> Any:
    """Return the ranks that start any collective in the stream's group, ascending."""
    templates = {template for part in _both(stream) for template in sequences.get(part, {})}
    return np.sort(np.concatenate([index.ranks_of(template) for template in sorted(templates)]))


def _members(
    index: TemplateIndex,
    stream: ComparedStream,
    sequences: _Sequences,
    ranks: int,
    groups: Mapping[str, tuple[int, ...]] | None,
) -> Any:
    """Return the group's members that have a trace; of an undescribed group, its users."""
    if not stream.group:
        return np.arange(min(ranks, index.workload.ranks))
    listed = stream.described or _listed(stream.group, groups)
    if listed is None:
        return _users(index, stream, sequences)
    members = unique(np.array(listed, np.int64))
    return members[(members >= 0) & (members < index.workload.ranks)]


def _size_of_group(
    index: TemplateIndex,
    stream: ComparedStream,
    sequences: _Sequences,
    ranks: int,
    groups: Mapping[str, tuple[int, ...]] | None,
) -> int:
    if not stream.group:
        return ranks
    if follows_rule(index, stream):
        return index.workload.group_rules[stream.group].count
    listed = stream.described or _listed(stream.group, groups)
    return len(listed or _users(index, stream, sequences))


def _listed(group: str, groups: Mapping[str, tuple[int, ...]] | None) -> tuple[int, ...] | None:
    return groups.get(group) if groups else None


def _check_group(
    index: TemplateIndex,
    stream: ComparedStream,
    sequences: _Sequences,
    ranks: int,
    groups: Mapping[str, tuple[int, ...]] | None,
) -> list[Problem]:
    """Check that the group exists and that only members use it."""
    group = stream.group
    if not group:
        return []
    users = _users(index, stream, sequences)
    if follows_rule(index, stream):
        rule = index.workload.group_rules[group]
        members = f"which has no group with such a rank ({rule})"
        return _not_members(index, stream, sequences, users[~rule.has(users)], members)
    listed = stream.described or _listed(group, groups)
    if listed is None:
        return [_undescribed(index, stream, users, sequences, groups)]
    problems = []
    beyond = [rank for rank in listed if not 0 <= rank < ranks]
    if beyond:
        text = f"group {group} lists rank {beyond[0]}, and there are ranks 0 to {ranks - 1}"
        source = "the traces' metadata" if stream.described else "the groups file"
        remedy = f"correct {source}, or give all the ranks"
        problems.append(Problem("error", "unknown-member", format_ranks(beyond), text, remedy))
    inside = {*listed}
    outsiders = users[[rank not in inside for rank in users.tolist()]]
    members = f"whose members are ranks {format_ranks(listed)}" if len(outsiders) else ""
    return problems + _not_members(index, stream, sequences, outsiders, members)


def _not_members(
    index: TemplateIndex, stream: ComparedStream, sequences: _Sequences, outsiders: Any, members: str
) -> list[Problem]:
    """Return findings about ranks outside a group that use it; `members` describes the members."""
    if not len(outsiders):
        return []
    use = _first_use(index, stream, int(outsiders[0]), sequences)
    text = f"{index.place(outsiders)}: {use} is a collective of group {stream.group}, {members}"
    remedy = "add the rank to the group, or correct pg_name"
    return [Problem("error", "not-a-member", format_ranks(outsiders), text, remedy)]


def _undescribed(
    index: TemplateIndex,
    stream: ComparedStream,
    users: Any,
    sequences: _Sequences,
    groups: Mapping[str, tuple[int, ...]] | None,
) -> Problem:
    group = stream.group
    where = f"{index.place(users)}: {_first_use(index, stream, int(users[0]), sequences)}"
    if groups is None:
        text = f"{where} names group {group!r}, and no groups are given: its users are taken for its members"
        remedy = "pass the groups file with --groups"
        return Problem("warning", "group-not-given", format_ranks(users), text, remedy)
    known = ", ".join(list(groups)[:8]) or "none"
    text = f"{where} names group {group!r}, which is not defined (defined: {known})"
    remedy = "define it in the groups file (--groups), or correct pg_name"
    return Problem("error", "unknown-group", format_ranks(users), text, remedy)


def _first_use(index: TemplateIndex, stream: ComparedStream, rank: int, sequences: _Sequences) -> str:
    template = int(index.workload.template_of_rank[rank])
    rows = [
        sequences[part][template].rows.min() for part in _both(stream) if template in sequences.get(part, {})
    ]
    return index.workload.templates[template].describe(int(min(rows)))


def _compare(
    index: TemplateIndex, stream: ComparedStream, members: Any, sequences: _Sequences
) -> list[Problem]:
    """Return findings about sequences that differ from the most common one."""
    if len(members) < 2:
        return []
    of_member = index.workload.template_of_rank[members]
    having = sequences[stream]
    by_content: dict[bytes, list[int]] = defaultdict(list)  # sequence -> templates
    for template in unique(of_member).tolist():
        by_content[having[template].content.tobytes() if template in having else b""].append(template)
    if len(by_content) == 1:
        return []
    holders = {content: members[np.isin(of_member, of)] for content, of in by_content.items()}
    usual = max((c for c in holders if c), key=lambda c: (len(holders[c]), -int(holders[c][0])))
    others = sorted((c for c in holders if c != usual), key=lambda c: int(holders[c][0]))
    problems = []
    from et_sim.trace.preflight.differences import explain_difference, explain_missing, explain_more

    for content in others[:SPELLED_OUT]:
        commonest, differing = holders[usual], holders[content]
        if content:
            problems.append(explain_difference(index, stream, sequences, commonest, differing))
        else:
            problems.append(explain_missing(index, stream, sequences, commonest, differing))
    if len(others) > SPELLED_OUT:
        rest = np.concatenate([holders[content] for content in others[SPELLED_OUT:]])
        problems.append(explain_more(stream, rest))
    return problems


def _compare_by_rule(index: TemplateIndex, stream: ComparedStream, sequences: _Sequences) -> list[Problem]:
    """Return findings about groups of a rule in which some member differs from the first."""
    from et_sim.trace.group_rule import NO_GROUP

    workload = index.workload
    rule = workload.group_rules[stream.group]
    number: dict[bytes, int] = {}
    of_template = np.full(len(workload.templates), -1, np.int64)
    for template, sequence in sequences[stream].items():
        of_template[template] = number.setdefault(sequence.content.tobytes(), len(number))
    of_rank = of_template[workload.template_of_rank]
    ranks = np.arange(workload.ranks)
    first = rule.first(ranks)
    differs = np.flatnonzero((first != NO_GROUP) & (of_rank != of_rank[first]))
    first_members = unique(rule.first(differs))
    problems = []
    for member in first_members[:SPELLED_OUT].tolist():
        problems += _compare(index, stream, np.array(rule.members(member), np.int64), sequences)
    left = first_members[SPELLED_OUT:]
    if len(left):
        rest, severity = f"of rule {stream.group} whose members differ", problems[0].severity
        problems.append(not_spelled_out(severity, "collectives-differ", len(left), "group", rest, left))
    return problems
