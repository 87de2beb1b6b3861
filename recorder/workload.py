"""Recorded ranks as a workload of all ranks: templates, and rules of the groups of any rank.

The program of a rank is a template with distances to its peers, so that all ranks of its role share it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from et_sim.basics.errors import TraceError, UsageError
from et_sim.basics.units import plural
from et_sim.trace.builder import TraceBuilder
from et_sim.trace.group_rule import GroupRule
from et_sim.trace.preflight.check import find_problems
from et_sim.trace.workload import Workload
from et_sim.workloads.recording import NodeRecording
from recorder.recorded import RankRecording, RecordedKind, RecordedNode

ALL_RANKS = ""  # the name of the group of all ranks


def rule_of(members: Sequence[int], rank: int, world: int) -> GroupRule | None:
    """Return the rule of the group with these members, or None if there is none or the ranks do not
    divide.
    """
    wanted = sorted(members)
    axes = _axes(wanted)
    if axes is None:
        return None
    sizes, strides = tuple(size for size, _ in axes), tuple(stride for _, stride in axes)
    end, last = axes[-1][0] * axes[-1][1], wanted[-1] - wanted[0]
    for every in (0, *range(last + 1, end)):
        if world % (every or end):
            continue
        try:
            rule = GroupRule(sizes, strides, every)
        except TraceError:
            continue
        if list(rule.members(rank)) == wanted:
            return rule
    return None


def _axes(members: Sequence[int]) -> list[tuple[int, int]] | None:
    """Return sizes and strides, innermost first, that make these ranks; None if none do."""
    rest = [member - members[0] for member in members]
    axes = []
    while len(rest) > 1:
        stride, size = rest[1], 1
        while size < len(rest) and rest[size] == size * stride:
            size += 1
        if len(rest) % size:
            return None
        axes.append((size, stride))
        heads = rest[::size]
        if rest != [head + at * stride for head in heads for at in range(size)]:
            return None
        rest = heads
    return axes or [(1, 1)]


def name_of(rule: GroupRule, title: str, taken: dict[str, GroupRule]) -> str:
    """Return a name for the groups of a rule: PyTorch's if it has one, made unique for each rule."""
    title = title.removeprefix("mesh_")
    if title in ("", "undefined", "default_pg"):
        title = str(rule)
    name = title
    while taken.setdefault(name, rule) != rule:
        name = f"{title} ({rule})" if name == title else f"{name}'"
    return name


class GroupNames:
    """Names of the groups of recorded ranks; groups of the same rule have the same name on all ranks."""

    def __init__(self, world: int) -> None:
        self._world = world
        self.rules: dict[str, GroupRule] = {}

    def names(self, recorded: RankRecording) -> list[str]:
        """Return the names of the groups of a rank, in order."""
        names: list[str] = []
        seen: dict[str, int] = {}
        for group in recorded.groups:
            if len(group.members) == self._world:
                name = ALL_RANKS
            else:
                rule = rule_of(group.members, recorded.rank, self._world)
                if rule is None:
                    raise UsageError(
                        f"the ranks of group {group.name!r} follow no rule: {_short(group.members)}",
                        place=f"rank {recorded.rank}",
                        remedy="groups that are not evenly spaced cannot be recorded yet",
                    )
                name = name_of(rule, group.name, self.rules)
            # groups with the same members communicate independently
            seen[name] = seen.get(name, -1) + 1
            if seen[name] and name:
                again = f"{name} #{seen[name] + 1}"
                self.rules[again] = self.rules[name]
                name = again
            names.append(name)
        return names


def _short(members: Iterable[int]) -> str:
    text = ", ".join(map(str, members))
    return text if len(text) <= 60 else f"{text[:57]}..."


def refuse_problems(workload: Workload) -> None:
    """Refuse a workload that cannot run, with its first problem."""
    errors = [problem for problem in find_problems(workload) if problem.severity == "error"]
    if errors:
        more = f", and {plural(len(errors) - 1, 'more problem')}" if errors[1:] else ""
        raise TraceError(
            f"the recorded work cannot run: ranks {errors[0].ranks}: {errors[0].text}{more}",
            place="recording",
            remedy=errors[0].remedy or "record with --keep-roots, or other ranks, and compare",
        )


def template(
    recorded: RankRecording,
    names: list[str],
    *,
    step: int | None = None,
    keep_roots: bool = False,
    attention: str = "",
) -> NodeRecording:
    """Return the nodes of a rank, or of one step of it, in the form of a trace; `attention` is its kernel."""
    recording = NodeRecording(f"<rank {recorded.rank}>")
    number: dict[int, int] = {}
    for at, node in enumerate(recorded.nodes):
        if step is not None and node.step != step:
            continue
        after = tuple(number[before] for before in node.after if before in number)
        if attention and node.shape.startswith("attention") and not node.shape.endswith(attention):
            node.shape += f" {attention}"
        number[at] = _add(recording, recorded, node, names, after, keep_roots)
    return recording


def _add(
    recording: NodeRecording,
    recorded: RankRecording,
    node: RecordedNode,
    names: list[str],
    after: tuple[int, ...],
    keep_roots: bool,
) -> int:
    make, options = _call(recorded, node, names, keep_roots)
    attributes = options.pop("attributes", {})
    tensors = _sizes(recorded, node.reads), _sizes(recorded, node.writes)
    return recording.add(make, options, node.title(), after, (), tensors, attributes)


def _sizes(recorded: RankRecording, numbers: list[int]) -> Mapping[str, int]:
    return dict(recorded.tensors[number] for number in numbers)


def _call(
    recorded: RankRecording, node: RecordedNode, names: list[str], keep_roots: bool
) -> tuple[Any, dict[str, Any]]:
    """Return the builder's method for a node, and its arguments."""
    attributes: dict[str, int | str] = {"stream": node.stream} if node.stream >= 0 else {}
    if node.work in (RecordedKind.SEND, RecordedKind.RECEIVE):
        end = "to" if node.work is RecordedKind.SEND else "source"
        make = TraceBuilder.send if node.work is RecordedKind.SEND else TraceBuilder.receive
        distance = distance_of(recorded, node.peer)
        return make, {
            end: distance,
            "bytes": node.bytes,
            "tag": node.tag,
            "attributes": attributes,
        }
    if node.work is RecordedKind.COLLECTIVE:
        return TraceBuilder.collective, _collective(recorded, node, names, keep_roots) | {
            "attributes": attributes
        }
    if node.work is RecordedKind.HOST:
        return TraceBuilder.compute, {"nanos": node.operations, "cpu": True, "concurrent": True}
    figures = {
        "num_ops": max(node.operations, 0),
        "tensor_bytes": max(node.bytes, 0),
        "layer_shape": node.shape or None,
        "dtype": node.dtype or None,
    }
    if node.work is RecordedKind.COPY:
        figures |= {"concurrent": True}
        attributes["copy"] = 1
    return TraceBuilder.compute, figures | {"attributes": attributes}


def distance_of(recorded: RankRecording, peer: int) -> int:
    """Return how many ranks ahead a peer is, modulo all ranks; a peer behind is nearer if it is below 0."""
    half = recorded.world // 2
    return (peer - recorded.rank + half) % recorded.world - half


def _collective(
    recorded: RankRecording, node: RecordedNode, names: list[str], keep_roots: bool
) -> dict[str, Any]:
    """Return the arguments of a collective; a broadcast without root is an all-gather (docs/recording.md)."""
    members = recorded.groups[node.group].members
    kind, size = node.collective, max(node.bytes, 0)
    options: dict[str, Any] = {"group": names[node.group], "concurrent": True, "dtype": node.dtype or None}
    if kind == "broadcast" and not keep_roots:
        kind, size = "all_gather", -(-size // len(members))
    elif node.root >= 0 and node.root != min(members):
        options["root"] = node.root - recorded.rank
    if node.splits:
        options["splits"] = tuple(node.splits)
    return options | {"kind": kind, "bytes": size}
