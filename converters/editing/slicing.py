"""A part of a workload: some iterations, some time or some ranks, without references to the rest.

A marker is a node whose name is the text of the marker, alone or followed by a number, such as the annotation
`ProfilerStep#12`; a # in the text stands for the number. If several texts are given, a trace uses the first
that it contains. A node belongs to the latest iteration whose marker it is or waits for, whatever its thread
or stream: kernels belong to the iteration that launched them. Metadata belongs to every slice.

Ranks of a slice are renumbered from 0, in ascending order; peers, roots and members of groups follow.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from converters.editing.files import (
    Change,
    Edited,
    Input,
    Notes,
    RecordedTrace,
    edited,
    set_attributes,
    sources_of,
    start_micros,
)
from converters.editing.groups import GroupsFile, WorkloadGroups, groups_text, rewritten_descriptions
from converters.editing.partners import Partners, open_error
from converters.editing.remove_nodes import remove_nodes, row_order
from converters.editing.stripping import dependency_notes
from converters.files import watched
from et_sim.basics.errors import TraceError, UsageError
from et_sim.basics.unique import unique
from et_sim.basics.units import format_ranks, parse_time_ns, plural
from et_sim.trace import Trace, Workload
from et_sim.trace.builder_nodes import ROOT_COLUMN
from et_sim.trace.columns import IntColumn, NodeKind
from et_sim.trace.files import groups_path
from et_sim.trace.order import dependency_lists

MARKER = "ProfilerStep"
_OUTSIDE = -1
_SHOWN = 8


def iteration_of_rows(recorded: RecordedTrace, markers: Sequence[str]) -> IntColumn:
    """Return the number of every row's iteration; -1 if it comes after no marker."""
    trace = recorded.trace
    known = (_marked(trace, marker) for marker in markers)
    iterations = next((rows for rows in known if bool((rows >= 0).any())), None)
    if iterations is None:
        listed = " or ".join(f'"{marker}"' for marker in markers)
        raise TraceError(
            f"no node is called {listed}, alone or with a number behind it",
            place=recorded.source,
            remedy=f"name the nodes with which iterations begin: --marker TEXT{_candidates(trace)}",
        )
    iteration = iterations.tolist()
    data, ctrl = dependency_lists(trace)
    for row in row_order(recorded):
        for parent in (*data.of(row), *ctrl.of(row)):
            if iteration[parent] > iteration[row]:
                iteration[row] = iteration[parent]
    return np.array(iteration, np.int64)


def in_iterations(
    recorded: RecordedTrace, markers: Sequence[str], wanted: Sequence[range]
) -> tuple[Any, int]:
    """Return a mask of the rows in the wanted iterations, and the number of rows in no iteration."""
    iteration = iteration_of_rows(recorded, markers)
    present = unique(iteration[iteration != _OUTSIDE])
    chosen = np.zeros(len(iteration), np.bool_)
    for piece in wanted:
        there = int(((present >= piece.start) & (present < piece.stop)).sum())
        if there < piece.stop - piece.start:
            raise _missing(recorded, piece, present)
        chosen |= (iteration >= piece.start) & (iteration < piece.stop)
    outside = (iteration == _OUTSIDE) & (recorded.trace.kind != NodeKind.METADATA)
    return chosen, int(outside.sum())


def _missing(recorded: RecordedTrace, piece: range, present: IntColumn) -> TraceError:
    known = set(present.tolist())
    first = next(number for number in piece if number not in known)
    return TraceError(
        f"there is no iteration {first}",
        place=recorded.source,
        remedy=f"there are {format_ranks(present)}: correct --iterations",
    )


def in_window(recorded: RecordedTrace, starts: IntColumn, begin_us: float, end_us: float) -> Any:
    """Return a mask of the rows that started within [begin, end)."""
    is_timed = recorded.trace.kind != NodeKind.METADATA
    if bool(is_timed.any()) and not bool(starts[is_timed].any()):
        raise TraceError(
            "no node has a start (start_time_micros), which --window requires",
            place=recorded.source,
            remedy="choose by --iterations, or convert from a recording with times",
        )
    chosen: Any = (starts >= begin_us) & (starts < end_us)
    return chosen


def parse_window(text: str) -> tuple[float, float]:
    """Parse a window such as "10ms:20ms" to microseconds; either end may be left out."""
    form = "give BEGIN:END with units, such as 10ms:20ms, 1.5s: or :300us"
    if text.count(":") != 1:
        raise UsageError(f"--window is {text!r}", remedy=form)
    begin, end = text.split(":")
    first = parse_time_ns(begin) / 1000 if begin.strip() else 0.0
    last = parse_time_ns(end) / 1000 if end.strip() else float("inf")
    if last <= first:
        raise UsageError(f"--window {text} ends before it begins", remedy=form)
    return first, last


def _marked(trace: Trace, marker: str) -> IntColumn:
    """Return the iteration that each row begins, or -1; markers without numbers are counted from 0."""
    before, sign, behind = marker.partition("#")
    sign = "#?" if sign else "[#._ :-]?"
    numbered = re.compile(re.escape(before) + sign + "([0-9]{1,18})" + re.escape(behind))
    number = np.full(max(1, len(trace.names)), _OUTSIDE, np.int64)
    for at, name in enumerate(trace.names):
        match = numbered.fullmatch(name)
        if match:
            number[at] = int(match[1])
    iteration = number[trace.name]
    if not bool((iteration >= 0).any()) and marker in trace.names:
        rows = np.flatnonzero(trace.name == trace.names.index(marker))
        iteration[rows] = np.arange(len(rows))
    return iteration


def _candidates(trace: Trace) -> str:
    """Return names that several nodes share except for one number."""
    once = (re.sub("#?[0-9]+", "#", name) for name in trace.names if len(re.findall("[0-9]+", name)) == 1)
    several = [text for text, count in Counter(once).items() if count > 1]
    return f" (numbered here: {', '.join(several[:_SHOWN])})" if several else ""


class Wanted(Struct, frozen=True):
    """The limits of a slice; None means no limit."""

    iterations: tuple[range, ...] | None = None
    markers: tuple[str, ...] = (MARKER,)
    window_us: tuple[float, float] | None = None  # from the earliest recorded start of all ranks
    ranks: tuple[int, ...] | None = None  # ascending
    renumber: bool = False
    drop_open: bool = False
    groups: GroupsFile = field(default_factory=dict)


def cut(given: Input, wanted: Wanted, prefix: str) -> Edited:
    """Cut the slice and return it, ready to be written."""
    workload = given.workload
    ranks = _ranks(given, wanted)
    in_slice = np.isin(np.arange(workload.ranks), ranks)
    chosen, notes = _choose(given, wanted, in_slice)
    groups = WorkloadGroups(workload, wanted.groups)
    partners = Partners(workload, groups)
    left_out = _close(partners, workload, chosen, in_slice) if wanted.drop_open else 0
    open_partner, count = partners.find_open(chosen, in_slice)
    if open_partner:
        raise open_error(workload, open_partner, count, in_slice)
    new_rank = np.cumsum(in_slice) - 1
    new_rank[~in_slice] = -1
    used = unique(workload.template_of_rank[in_slice]).tolist()
    contents = []
    for template in watched(used, len(used), "traces"):
        content, remarks = _write(given.traces[template], chosen[template], new_rank.tolist())
        contents.append(content)
        notes[template] += remarks
    renumbered = np.searchsorted(used, workload.template_of_rank[in_slice]).astype(np.int32)
    relative = tuple(workload.has_relative_peers(template) for template in used)
    part = replace(
        workload,
        templates=tuple(workload.templates[template] for template in used),
        template_of_rank=renumbered,
        relative_peers=relative if any(relative) else (),
    )
    sources = sources_of(given)
    kept_sources = sources if given.is_manifest else [sources[rank] for rank in ranks]
    edit = Edited(part, contents, [tuple(notes[template]) for template in used], "sliced", kept_sources)
    if wanted.groups:
        new = {name: _new_members(members, new_rank.tolist()) for name, members in wanted.groups.items()}
        edit.more.append(
            (groups_path(prefix), groups_text({name: members for name, members in new.items() if members}))
        )
    edit.remarks += _remarks(left_out, ranks, partners.unknown)
    return edit


def _remarks(left_out: int, ranks: tuple[int, ...], unknown: Collection[str]) -> Iterator[str]:
    """Yield remarks about all files together."""
    if left_out:
        yield f"{plural(left_out, 'communication node')} with partners outside were left out"
    if ranks[-1] >= len(ranks):
        yield f"ranks {format_ranks(ranks)} are ranks 0-{len(ranks) - 1} of the slice"
        if unknown:
            listed = ", ".join(sorted(unknown))
            yield f"the members of groups {listed} are unknown: give a groups file with --groups"


def _ranks(given: Input, wanted: Wanted) -> tuple[int, ...]:
    """Return the ranks of the slice, after checking that they exist."""
    count = given.workload.ranks
    if wanted.ranks is None:
        return tuple(range(count))
    if given.is_manifest:
        raise UsageError(
            "is a manifest, whose rules hold for all of its ranks together",
            place=given.workload.source,
            remedy="write one file per rank first (et-convert expand), then choose ranks",
        )
    if wanted.ranks[-1] >= count:
        raise UsageError(
            f"--ranks names rank {wanted.ranks[-1]}, and there are ranks 0 to {count - 1}",
            remedy="correct --ranks",
        )
    if wanted.ranks[-1] >= len(wanted.ranks) and not wanted.renumber:
        raise UsageError(
            f"ranks {format_ranks(wanted.ranks)} alone would leave gaps, and files are numbered from 0 on",
            remedy="add --renumber: ranks are counted anew in ascending order, in files, peers and groups",
        )
    return wanted.ranks


def _choose(given: Input, wanted: Wanted, in_slice: Any) -> tuple[list[Any], list[list[tuple[str, str]]]]:
    """Return a mask of the chosen rows and the notes per template."""
    used = set(unique(given.workload.template_of_rank[in_slice]).tolist())
    masks: list[Any] = []
    notes: list[list[tuple[str, str]]] = []
    starts = [start_micros(trace) for trace in given.traces] if wanted.window_us else []
    origin = min(
        (_earliest(recorded.trace, at) for recorded, at in zip(given.traces, starts, strict=False)), default=0
    )
    for template, recorded in enumerate(watched(given.traces, len(given.traces), "traces")):
        mask = np.ones(len(recorded.trace), np.bool_)
        remarks: list[tuple[str, str]] = []
        if template in used and wanted.iterations is not None:
            chosen, outside = in_iterations(recorded, wanted.markers, wanted.iterations)
            mask &= chosen
            if outside:
                remarks.append(("no iteration", f"{plural(outside, 'node')} before the first marker"))
        if template in used and wanted.window_us:
            begin, end = (origin + at for at in wanted.window_us)
            mask &= in_window(recorded, starts[template], begin, end)
        masks.append(mask | (recorded.trace.kind == NodeKind.METADATA))
        notes.append(remarks)
    return masks, notes


def _close(partners: Partners, workload: Workload, chosen: list[Any], in_slice: Any) -> int:
    """Remove nodes without a partner; return their number over the ranks in the slice."""
    before = [int(mask.sum()) for mask in chosen]
    partners.close(chosen, in_slice)
    ranks = np.bincount(workload.template_of_rank[in_slice], minlength=len(chosen)).tolist()
    return sum(
        users * (count - int(mask.sum())) for users, count, mask in zip(ranks, before, chosen, strict=True)
    )


def _earliest(trace: Trace, starts: Any) -> int:
    timed = starts[trace.kind != NodeKind.METADATA]
    return int(timed.min()) if len(timed) else 2**63 - 1


def _write(recorded: RecordedTrace, chosen: Any, new_rank: list[int]) -> tuple[bytes, Notes]:
    """Return one file, and the notes on its nodes and dependencies."""
    trace = recorded.trace
    bridges = remove_nodes(recorded, chosen)
    changes: dict[int, Change] = {}
    remarks = [("kept", f"{int(chosen.sum()):,} of {plural(len(trace), 'node')}"), *dependency_notes(bridges)]
    if new_rank != list(range(len(new_rank))):
        for row, values in renumbered_ends(trace, chosen, new_rank).items():
            changes[row] = partial(set_attributes, values=values)
        texts, gone = rewritten_descriptions(trace, lambda members: _new_members(members, new_rank))
        changes |= {row: partial(_set_text, text=text) for row, text in texts.items()}
        if gone:
            remarks.append(
                ("groups", f"{plural(gone, 'description')} of groups with members outside left out")
            )
    return edited(recorded, chosen, bridges, changes), tuple(remarks)


def renumbered_ends(trace: Trace, chosen: Any, new_rank: list[int]) -> dict[int, dict[str, int]]:
    """Return peers of messages and roots of collectives whose numbers change, by row."""
    renumbered: dict[int, dict[str, int]] = {}
    rooted = {int(kind): column for kind, column in ROOT_COLUMN.items()}
    for column in ("comm_src", "comm_dst"):
        kinds = [kind for kind, where in rooted.items() if where == column]
        has_end = np.isin(trace.kind, (NodeKind.SEND, NodeKind.RECV))
        has_end |= (trace.kind == NodeKind.COLL) & np.isin(trace.comm_type, kinds)
        rows = np.flatnonzero(chosen & has_end & trace.has(column))
        ends = getattr(trace, column)
        for row in rows.tolist():
            old = int(ends[row])
            new = new_rank[old] if 0 <= old < len(new_rank) else old
            if new != old and new >= 0:
                renumbered.setdefault(row, {})[column] = new
    return renumbered


def _new_members(members: tuple[int, ...], new_rank: list[int]) -> tuple[int, ...] | None:
    """Return the members by their new numbers, or None if some are outside."""
    if any(not 0 <= rank < len(new_rank) or new_rank[rank] < 0 for rank in members):
        return None
    return tuple(new_rank[rank] for rank in members)


def _set_text(node: Any, text: str) -> None:
    node.inputs.values = text
