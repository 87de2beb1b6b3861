"""Roles of ranks: ranks at the same places in the distinguishing groups have the same role.

A group distinguishes its members if messages are sent in it, or if an all-to-all of it has uneven shares.
Messages among all ranks do not if four recorded ranks do the same at the same distances, as in a ring. A
recorded rank represents all ranks of its role. Two recorded ranks of one role that differ are refused with
the first difference.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from msgspec.structs import replace

from et_sim.basics.errors import TraceError, UsageError
from et_sim.basics.kernel_names import ATTENTION_KERNELS
from et_sim.basics.units import format_ranks, strided_ranks
from et_sim.trace.group_rule import GroupRule
from et_sim.trace.workload import MadeFor, Workload
from et_sim.workloads.software.description import Software
from recorder.recorded import RankRecording, RecordedKind, RecordedNode
from recorder.workload import GroupNames, distance_of, rule_of, template

Places = tuple[int, ...]


MESSAGES = (RecordedKind.SEND, RecordedKind.RECEIVE)


def probes(world: int) -> list[int]:
    """Return ranks that show whether all ranks send at the same distances."""
    return sorted({0, 1, world // 2, world - 1})


def telling_rules(recordings: Sequence[RankRecording]) -> list[GroupRule]:
    """Return the rules of the groups that distinguish their members."""
    rules: list[GroupRule] = []
    alike = len(recordings) >= len(probes(recordings[0].world)) and are_alike(recordings)
    for recorded in recordings:
        used = {
            node.group
            for node in recorded.nodes
            if node.splits or (node.work in MESSAGES and not (alike and _is_whole(recorded, node.group)))
        }
        for number in sorted(used):
            rule = rule_of(recorded.groups[number].members, recorded.rank, recorded.world)
            if rule is not None and rule not in rules:
                rules.append(rule)
    return rules


def are_alike(recordings: Sequence[RankRecording]) -> bool:
    """Return whether recorded ranks do the same, if peers are numbered by their distances."""
    first, *others = (
        [
            replace(node, peer=distance_of(recorded, node.peer)) if node.work in MESSAGES else node
            for node in recorded.nodes
        ]
        for recorded in recordings
    )
    return all(other == first for other in others)


def _is_whole(recorded: RankRecording, group: int) -> bool:
    return len(recorded.groups[group].members) == recorded.world


def role_of_ranks(rules: Sequence[GroupRule], world: int) -> list[Places]:
    """Return the role of each rank."""
    ranks = np.arange(world)
    places = [np.broadcast_to(rule.position(ranks), (world,)).tolist() for rule in rules]
    return list(zip(*places, strict=True)) if places else [()] * world


def missing_ranks(recordings: Sequence[RankRecording], world: int) -> list[int]:
    """Return the first rank of each role without a recorded rank."""
    roles = role_of_ranks(telling_rules(recordings), world)
    known = {roles[recording.rank] for recording in recordings}
    first: dict[Places, int] = {}
    for rank, role in enumerate(roles):
        if role not in known:
            first.setdefault(role, rank)
    return list(first.values())


def fold(
    recordings: Sequence[RankRecording],
    *,
    step: int | None = None,
    keep_roots: bool = False,
    software: Software | None = None,
) -> tuple[Workload, Mapping[int, str]]:
    """Return the workload of all ranks, and the ranks that each recorded rank represents."""
    world = recordings[0].world
    missing = missing_ranks(recordings, world)
    if missing:
        ranks = sorted({*missing, *(recording.rank for recording in recordings)})
        raise UsageError(
            f"rank {missing[0]} has a place among its peers that no recorded rank has",
            remedy=f"record more ranks: --ranks {format_ranks(ranks)}, or --ranks auto",
        )
    groups = GroupNames(world)
    attention = software.attention if software is not None and software.attention in ATTENTION_KERNELS else ""
    names = [groups.names(recording) for recording in recordings]
    templates = [
        template(recording, named, step=step, keep_roots=keep_roots, attention=attention)
        for recording, named in zip(recordings, names, strict=True)
    ]
    roles = role_of_ranks(telling_rules(recordings), world)
    chosen: dict[Places, int] = {}
    for at, recording in enumerate(recordings):
        first = chosen.setdefault(roles[recording.rank], at)
        if first != at and templates[first].content != templates[at].content:
            _refuse(recordings[first], names[first], recording, names[at])
    of_rank = np.array([chosen[role] for role in roles], np.int32)
    traces = tuple(one.trace() for one in templates)
    if not any(len(trace) for trace in traces):
        raise TraceError(
            "no work was recorded" if step is None else f"no work of step {step} was recorded",
            place="recording",
            remedy="choose a step with --step, counted from 0, or leave it out",
        )
    workload = Workload(
        traces,
        of_rank,
        "<recording>",
        relative_peers=(True,) * len(traces),
        group_rules=groups.rules,
        profile="corrected",
        software=None if software is None else _made_for(software),
    )
    stands_for = {
        recordings[at].rank: strided_ranks(np.flatnonzero(of_rank == at))
        for at in sorted(set(of_rank.tolist()))
    }
    return workload, stands_for


def _made_for(software: Software) -> MadeFor:
    """Return the effects on a run that a recording does not have itself."""
    host = software.host.each_ns, software.host.step_ns
    return MadeFor(software.name, software.about, *host, software.processors, software.kernels)


def _refuse(first: RankRecording, names: list[str], other: RankRecording, other_names: list[str]) -> None:
    """Raise an error with the first difference of two ranks that should be equal."""
    for at, (node, other_node) in enumerate(zip(first.nodes, other.nodes, strict=False)):
        texts = _described(node, names), _described(other_node, other_names)
        if texts[0] != texts[1]:
            differ = f"node {at} of rank {first.rank} is {texts[0]}, and of rank {other.rank} {texts[1]}"
            break
    else:
        counts = f"{len(first.nodes)} and {len(other.nodes)} nodes"
        differ = f"they have {counts}" if len(first.nodes) != len(other.nodes) else "their tensors differ"
    raise TraceError(
        f"ranks {first.rank} and {other.rank} have one role and differ: {differ}",
        place="recording",
        remedy="make them do the same, or record one of them only, which then stands for both",
    )


def _described(node: RecordedNode, names: list[str]) -> str:
    group = f" in group {names[node.group] or 'of all ranks'!r}" if node.group >= 0 else ""
    size = f" of {node.bytes:,} bytes" if node.bytes >= 0 else ""
    waits = ", ".join(map(str, node.after)) or "nothing"
    return f"{node.title()!r} {node.shape}{size}{group} after {waits}"
