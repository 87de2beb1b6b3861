"""All pre-flight checks of a workload, in the order of usefulness of their findings.

The first of similar findings about other ranks, groups or nodes is reported, and the others are counted.
Findings are similar if they are of one kind and their sentences differ only in numbers (ranks, nodes, tags,
names of files) except sizes: messages of other sizes are another mistake.

This module also checks the dependencies of each template: whether they permit all nodes to run. (The reader
refuses dependencies on missing nodes.) It also checks the attributes of nodes. Checks and runs share this
list: a run refuses the first of these faults (`et_sim.plan.nodes`), a check reports all.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from msgspec.structs import replace

from et_sim.basics.units import MOST_BYTES, format_bytes, format_ranks, parse_ranks, plural
from et_sim.trace.columns import CollectiveKind, NodeKind, Trace
from et_sim.trace.group_attributes import NodeFault, has_splits, split_faults
from et_sim.trace.preflight.collectives import PLAIN_RULES, CorrectionEffects, check_collectives
from et_sim.trace.preflight.messages import check_messages
from et_sim.trace.preflight.problem import REPAIR_FIRST, Problem, TemplateIndex, of_ranks
from et_sim.trace.workload import Job, Workload


def value_faults(trace: Trace) -> Iterator[NodeFault]:
    """Yield faults of values that are invalid for any model."""
    if (wrong := (trace.comm_bytes > MOST_BYTES) | (trace.tensor_bytes > MOST_BYTES)).any():
        remedy = "correct comm_size or tensor_size, which are in bytes"
        yield NodeFault(wrong, f"moves more than {format_bytes(MOST_BYTES)}", remedy)
    yield from split_faults(trace)
    collective = trace.kind == NodeKind.COLL
    if not collective.any():
        return
    known = [int(kind) for kind in CollectiveKind]
    if (wrong := collective & ~np.isin(trace.comm_type, known)).any():
        remedy = f"collective types are {known[0]} to {known[-1]}"
        yield NodeFault(wrong, "has a comm_type that no collective has", remedy)


def communication_faults(
    trace: Trace, needs: dict[str, Any], *, is_broadcast_replayed: bool
) -> Iterator[NodeFault]:
    """Yield attributes that communication nodes lack, and those that models require in `needs`."""
    send, receive = trace.kind == NodeKind.SEND, trace.kind == NodeKind.RECV
    collective = trace.kind == NodeKind.COLL
    has_no_size = (trace.comm_type == CollectiveKind.BARRIER) | has_splits(trace)
    all_needs = {
        "comm_size": send | receive | (collective & ~has_no_size),
        "comm_type": collective,
        "comm_dst": send,
        "comm_src": receive,
        "comm_tag": send | receive,
    }
    for attribute, which in needs.items():
        all_needs[attribute] = all_needs.get(attribute, False) | which
    replayed = collective & (trace.comm_type == CollectiveKind.BROADCAST) & is_broadcast_replayed
    replayed |= trace.is_unsized
    yield from attribute_faults(trace, {name: which & ~replayed for name, which in all_needs.items()})
    if (wrong := (send | receive | collective) & trace.is_cpu).any():
        remedy = "communication runs on the device: set is_cpu_op to false"
        yield NodeFault(wrong, "is a communication node marked is_cpu_op", remedy)


def attribute_faults(trace: Trace, needs: dict[str, Any]) -> Iterator[NodeFault]:
    """Yield attributes that some nodes lack; `needs` holds the nodes that need each."""
    for attribute, which in needs.items():
        if (wrong := which & ~trace.has(attribute)).any():
            yield NodeFault(wrong, f"lacks the attribute {attribute!r}", "add it when converting")


def check_nodes(index: TemplateIndex, *, communicates: bool, is_broadcast_replayed: bool) -> list[Problem]:
    """Return one finding per trace and fault; without communication, only values are checked."""
    problems = []
    for template in index.used_templates():
        trace, users = index.workload.templates[template], index.ranks_of(template)
        faults = list(value_faults(trace))
        if communicates:
            faults += communication_faults(trace, {}, is_broadcast_replayed=is_broadcast_replayed)
        for fault in faults:
            text = f"{index.place(users)}: {fault.sentence(trace)}"
            problems.append(Problem("error", "node", format_ranks(users), text, fault.remedy))
    return problems


_CYCLES = 3  # cycles that are printed per trace
_NODES = 8  # nodes of a cycle that are printed in full


def check_dependencies(index: TemplateIndex) -> list[Problem]:
    """Return findings about nodes in dependency cycles, and about traces without nodes."""
    problems: list[Problem] = []
    for template in index.used_templates():
        trace = index.workload.templates[template]
        ranks = index.ranks_of(template)
        problems_found = [*_self_dependencies(trace), *_cycles(trace)]
        if not problems_found and len(trace):
            continue
        place, ranks_text = index.place(ranks), format_ranks(ranks)
        if not len(trace) and not index.workload.is_idle(int(ranks[0])):
            text = f"{place}: the trace has no nodes, so there is nothing to do"
            problems.append(
                Problem("warning", "empty-trace", ranks_text, text, "check how the trace was made")
            )
        problems += [
            Problem("error", kind, ranks_text, f"{place}: {text}", remedy)
            for kind, text, remedy in problems_found
        ]
    return problems


def _self_dependencies(trace: Trace) -> list[tuple[str, str, str]]:
    rows = np.arange(len(trace))
    data = np.repeat(rows, np.diff(trace.data_start))
    ctrl = np.repeat(rows, np.diff(trace.ctrl_start))
    selfish = np.union1d(data[data == trace.data_deps], ctrl[ctrl == trace.ctrl_deps])
    if not len(selfish):
        return []
    row = int(selfish[0])
    edge_kind = _edge_kind(trace, row, row)
    more = f", and so do {len(selfish) - 1} more nodes" if len(selfish) > 2 else ""
    more = ", and so does 1 more node" if len(selfish) == 2 else more
    text = f"{trace.describe(row)} depends on itself ({edge_kind}) and can never start{more}"
    return [("self-dependency", text, "remove the node's own id from its dependencies")]


def _cycles(trace: Trace) -> list[tuple[str, str, str]]:
    """Return one finding per knot of nodes that wait for each other."""
    from et_sim.trace.order import edges

    parent, child = edges(trace)
    from et_sim.trace.preflight.cycles import find_knots

    knots = find_knots(parent, child, len(trace))
    faults = []
    for cycle, rows in knots[:_CYCLES]:
        text = f"dependency cycle of {plural(len(cycle), 'node')}: {_spelled(trace, cycle)}"
        if len(rows) > len(cycle):
            text += f"; {plural(len(rows), 'node')} wait for each other in all"
        remedy = "remove one of these dependencies: no node of a cycle can start"
        faults.append(("dependency-cycle", text, remedy))
    if len(knots) > _CYCLES:
        text = f"{plural(len(knots) - _CYCLES, 'more dependency cycle')} in other parts of the trace"
        faults.append(("dependency-cycle", text, REPAIR_FIRST))
    return faults


def _spelled(trace: Trace, cycle: list[int]) -> str:
    """Return a cycle in words: `node 1 "a" waits for node 2 "b" (data), which waits for node 1 "a"
    (control)`.
    """
    shown = cycle if len(cycle) <= _NODES else cycle[: _NODES - 2]
    closed = [*cycle, cycle[0]]
    steps = [f"waits for {_edge(trace, row, closed[k + 1])}" for k, row in enumerate(shown)]
    if len(shown) < len(cycle):
        steps.append(f"and so on through {len(cycle) - len(shown) - 1} more nodes")
        steps.append(f"the last of which waits for {_edge(trace, cycle[-1], cycle[0])}")
    head, *tail = steps
    return f"{trace.describe(cycle[0])} {head}" + "".join(
        f", {step}" if step.startswith(("and", "the")) else f", which {step}" for step in tail
    )


def _edge(trace: Trace, row: int, parent: int) -> str:
    return f"{trace.describe(parent)} ({_edge_kind(trace, row, parent)})"


def _edge_kind(trace: Trace, row: int, parent: int) -> str:
    """Return the list or lists through which `row` depends on `parent`."""
    data = parent in trace.data_deps[trace.data_start[row] : trace.data_start[row + 1]]
    ctrl = parent in trace.ctrl_deps[trace.ctrl_start[row] : trace.ctrl_start[row + 1]]
    return "data and control" if data and ctrl else "data" if data else "control"


# cycles are few and differ by their nodes
_APART = frozenset(("dependency-cycle", "message-circle", "collective-circle"))
# a number, unless it is (part of) a size: 1 MiB, 1048576 bytes, 1.5 KiB
_NUMBER = r"(?<!\d)(?<!\d\.)\d+(?:\.\d+)?(?![\d.]*(?: (?:B|[KMGTPE]iB|bytes)\b|\d))"
# ranks of a sentence: "rank 3", "ranks 0-3,6"
_RANKS = r"\branks? #(?:[-,/]#)*"


def deduplicate(problems: list[Problem]) -> list[Problem]:
    """Return every finding once, in the order of the first of its like."""
    groups: dict[tuple[str, str, str], list[Problem]] = defaultdict(list)
    for at, problem in enumerate(problems):
        if problem.kind in _APART:
            groups[problem.severity, problem.kind, str(at)].append(problem)
            continue
        shape = re.sub(_RANKS, "ranks", re.sub(_NUMBER, "#", problem.text))
        groups[problem.severity, problem.kind, shape].append(problem)
    return [_merged(alike) for alike in groups.values()]


def _merged(alike: list[Problem]) -> Problem:
    first, *others = alike
    if not others:
        return first
    listed = {rank for other in others for piece in _ranges(other.ranks) for rank in piece}
    where = f", on {of_ranks(listed)}" if listed else ""
    text = f"{first.text}; {len(others):,} more like it{where}"
    everyone = listed.union(*_ranges(first.ranks))
    return replace(first, text=text, ranks=format_ranks(everyone), like=len(others))


def _ranges(ranks: str) -> list[range]:
    return parse_ranks(ranks) if ranks else []


def find_problems(
    workload: Workload,
    *,
    ranks: int | None = None,
    groups: Mapping[str, tuple[int, ...]] | None = None,
    rules: CorrectionEffects = PLAIN_RULES,
) -> list[Problem]:
    """Return errors and warnings that hold on any machine; errors first, and similar ones once.

    `ranks` is the required number (default: that of the workload). `groups` holds the members of each
    communicator group; if it is None, the ranks that use a group are taken as its members. `rules` are the
    machine's corrections to collectives.
    """
    expected = workload.ranks if ranks is None else ranks
    index = TemplateIndex(workload)
    problems = [
        *_check_rank_count(workload, expected),
        *check_nodes(
            index,
            communicates=rules.communicates,
            is_broadcast_replayed=not rules.simulates_broadcast,
        ),
        *check_dependencies(index),
    ]
    if rules.communicates:
        problems += check_messages(index, expected)
        if not any(problem.severity == "error" for problem in problems):
            from et_sim.trace.preflight.message_cycles import check_message_cycles

            problems += check_message_cycles(index)
        problems += check_collectives(index, expected, groups, rules)
    found = sorted(deduplicate(problems), key=lambda problem: problem.severity != "error")
    return _with_jobs(found, workload.jobs)


def find_mismatches(
    workload: Workload, groups: Mapping[str, tuple[int, ...]], rules: CorrectionEffects
) -> list[Problem]:
    """Return errors between ranks: messages and collectives that do not match. This is cheap beside a
    simulation.
    """
    if not rules.communicates:
        return []
    index = TemplateIndex(workload)
    problems = check_messages(index, workload.ranks)
    problems += check_collectives(index, workload.ranks, groups, rules, with_order=False)
    return _with_jobs([p for p in deduplicate(problems) if p.severity == "error"], workload.jobs)


def _with_jobs(problems: list[Problem], jobs: Sequence[Job]) -> list[Problem]:
    """Return findings that also have the ranks as jobs number them."""
    if not jobs:
        return problems
    named = []
    for problem in problems:
        ranks = [rank for span in parse_ranks(problem.ranks) for rank in span] if problem.ranks else []
        of_jobs = "; ".join(f"job {text}" for job in jobs if (text := job.numbered(ranks)))
        named.append(replace(problem, text=f"{problem.text} ({of_jobs})") if of_jobs else problem)
    return named


def _check_rank_count(workload: Workload, ranks: int) -> list[Problem]:
    if workload.ranks == ranks:
        return []
    ranks_text = f"0-{workload.ranks - 1}" if workload.ranks > 1 else "0"
    needed = f"{workload.source}: the workload has {workload.ranks} ranks"
    text = f"{needed}, but the machine has {plural(ranks, 'NPU')}"
    return [Problem("error", "rank-count", ranks_text, text, "give one trace per NPU of the machine")]
