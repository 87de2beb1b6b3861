"""A change of a plan of parallelism: the axes along which groups lie, and their members when axes grow.

Axes have Megatron's names. Ranks are counted along them in Megatron's order by default. Experts have their
own layout of the ranks of tensor, context and data parallelism: `etp` x `ep` x the rest. A group lies along
the axes in which its members differ. It grows with each of these axes; all other groups are copied. One
recorded rank may represent all ranks of a plan.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
from msgspec import Struct

from converters.editing.files import Input
from converters.editing.growth import GrowthStep
from et_sim.basics.errors import TraceError, UsageError, did_you_mean
from et_sim.basics.unique import unique
from et_sim.trace import GroupRule
from et_sim.trace.columns import NodeKind
from et_sim.trace.schema import messages

ORDER = "tp-cp-ep-dp-pp"
NAMES = ("tp", "cp", "ep", "dp", "pp")
EXPERT_TENSOR, EXPERT_DATA = "etp", "edp"
_FORM = "name axes and their sizes, as in tp=2,pp=2,dp=8"


class GrowthAxis(Struct, frozen=True):
    """The places along an axis and their distance in ranks, before and after it grows."""

    name: str
    size: int
    stride: int
    new_size: int
    new_stride: int

    @property
    def step(self) -> GrowthStep:
        """Return the step of growth of the axis."""
        rule = GroupRule(self.size, self.stride)
        return GrowthStep(self.size * self.stride, self.new_size // self.size, self.name, rule)


View = tuple[GrowthAxis, ...]  # all ranks by their places, the innermost axis first


class PlanChange:
    """The new rules for the groups of an old plan."""

    def __init__(self, old: Mapping[str, int], new: Mapping[str, int], order: Sequence[str]) -> None:
        expert = {**old, "tp": old[EXPERT_TENSOR], "dp": old[EXPERT_DATA], "cp": 1}
        grown = {**new, "tp": new[EXPERT_TENSOR], "dp": new[EXPERT_DATA], "cp": 1}
        renamed = {"tp": EXPERT_TENSOR, "dp": EXPERT_DATA}
        dense = _view({**old, "ep": 1}, {**new, "ep": 1}, order, {})
        self.views = [dense, _view(expert, grown, order, renamed)] if old["ep"] > 1 else [dense]
        self.ranks = prod(axis.size for axis in dense)
        self.order = "-".join(order)
        if len(self.views) > 1 and _steps(self.views[1], by_place=True) != _steps(dense, by_place=True):
            raise UsageError(
                f"in the order {self.order}, experts and replicas would grow in different places",
                remedy=f"scale a job whose ranks are counted in the order {ORDER}",
            )

    @property
    def steps(self) -> list[GrowthStep]:
        """Return the steps, outer axes first, so that blocks of inner axes are still in place."""
        return _steps(self.views[0])

    @property
    def all_ranks(self) -> str:
        """Return the axes of the group of all ranks if an axis of size 1 grows, else ""."""
        view = self.views[0]
        if all(axis.size > 1 for axis in view if axis.new_size != axis.size):
            return ""
        return _joined_names(axis.name for axis in view if axis.size > 1)

    @property
    def new_replicas(self) -> GroupRule | None:
        """Return the ranks that do the same in several replicas, if there was one replica."""
        (data,) = (axis for axis in self.views[0] if axis.name == "dp")
        return GroupRule(data.new_size, data.new_stride) if data.size == 1 < data.new_size else None

    @property
    def patterns(self) -> list[int]:
        """Return the numbers of ranks after which groups may repeat."""
        return sorted({axis.size * axis.stride for view in self.views for axis in view})

    def name_of(self, rule: GroupRule, subject: str) -> str:
        """Return the axes along which groups of a rule lie."""
        return self.grown(rule, subject)[0]

    def grown(self, rule: GroupRule, subject: str) -> tuple[str, GroupRule]:
        """Return the axes of groups of a rule, and their rule in the new plan."""
        matches = [match for view in self.views if (match := _along(view, rule, self.ranks))]
        if not matches:
            plan = ", ".join(f"{axis.name} {axis.size}" for axis in self.views[0] if axis.size > 1)
            raise UsageError(
                f"{subject} ({rule.count} members {rule.apart}) does not lie along axes of the plan {plan}",
                remedy=f"correct --from and --order (order is {self.order})",
            )
        axes, grown = matches[0]
        if any(new != grown for _, new in matches):
            raise UsageError(
                f"{subject} ({rule.count} members {rule.apart}) is one of {axes} or of {matches[1][0]},"
                " which have the same members, and only one of them grows",
                remedy="scale with --replicas, or use a job in which both axes have different members",
            )
        return matches[0]


def read_change(old_text: str, new_text: str, order_text: str) -> PlanChange:
    """Parse the change that `--from`, `--to` and `--order` describe."""
    order = _order(order_text)
    old = _complete(_sizes("--from", old_text), "--from")
    given = _sizes("--to", new_text)
    new = {**old, **given}
    for name in (*NAMES, EXPERT_TENSOR):
        if new[name] == old[name]:
            continue
        if name in ("pp", "ep", EXPERT_TENSOR):
            raise UsageError(
                f"--to has {name} {new[name]}, and --from {name} {old[name]}: {_FIXED[name]}",
                remedy="keep its size, or make such a job with et-sim make transformer",
            )
        if old["ep"] > 1 and name != "dp":
            raise UsageError(
                f"--to has {name} {new[name]}, and --from {name} {old[name]}: {_FIXED['ep']}",
                remedy="let dp grow: with experts, nothing else can",
            )
        if new[name] % old[name]:
            raise UsageError(
                f"--to has {name} {new[name]}, which is no multiple of {old[name]} in --from",
                remedy=f"give a multiple, such as {max(1, new[name] // old[name]) * old[name]}",
            )
    new[EXPERT_DATA] = old[EXPERT_DATA] * (new["dp"] // old["dp"])
    return PlanChange(old, new, order)


def read_replicas(text: str) -> int:
    """Return the number of replicas of a `--to` without `--from`, where the whole input is one replica."""
    sizes = _sizes("--to", text)
    if set(sizes) != {"dp"}:
        raise UsageError(
            f"--to {text} is given without --from",
            remedy="give the plan of the input (--from tp=2,pp=2), or grow only dp",
        )
    return sizes["dp"]


_FIXED = {
    "pp": "stages hold other layers and work in another order if there are more of them",
    "ep": "experts would be spread otherwise",
    EXPERT_TENSOR: "experts would be spread otherwise",
}


def _sizes(option: str, text: str) -> dict[str, int]:
    """Parse sizes such as "tp=2,dp=8"."""
    sizes: dict[str, int] = {}
    for piece in text.split(","):
        name, _, size = (part.strip() for part in piece.partition("="))
        if name not in (*NAMES, EXPERT_TENSOR):
            known = (*NAMES, EXPERT_TENSOR)
            remedy = did_you_mean(name, known) or f"axes are {', '.join(known)}: {_FORM}"
            raise UsageError(
                f"{option} has no axis {name!r}" if name else f"{option} is {text!r}", remedy=remedy
            )
        if not (size.isascii() and size.isdecimal() and 0 < len(size) < 10 and int(size)):
            raise UsageError(f"{option} has {piece.strip()!r}", remedy=f"give a number from 1 up: {_FORM}")
        if name in sizes:
            raise UsageError(f"{option} has {name} twice", remedy="give it once")
        sizes[name] = int(size)
    return sizes


def _complete(sizes: dict[str, int], option: str) -> dict[str, int]:
    """Return sizes for all axes: missing axes have size 1, and `etp` defaults to `tp`."""
    if EXPERT_TENSOR in sizes and sizes.get("ep", 1) == 1:
        raise UsageError(f"{option} has {EXPERT_TENSOR} without ep", remedy="give ep, or leave it out")
    full = {**dict.fromkeys(NAMES, 1), EXPERT_TENSOR: sizes.get("tp", 1), **sizes}
    inner, experts = full["tp"] * full["cp"] * full["dp"], full[EXPERT_TENSOR] * full["ep"]
    if full["ep"] > 1 and inner % experts:
        raise UsageError(
            f"{option} spreads experts over {full[EXPERT_TENSOR]} x {full['ep']} ranks,"
            f" which do not divide the {inner} of tp x cp x dp",
            remedy=f"give a divisor, or {EXPERT_TENSOR} if it is not tp",
        )
    return {**full, EXPERT_DATA: inner // experts if full["ep"] > 1 else 1}


def _order(text: str) -> tuple[str, ...]:
    named = text.split("-")
    if sorted(set(named)) != sorted(named) or not set(named) <= set(NAMES):
        raise UsageError(f"--order is {text!r}", remedy=f"name axes once, the innermost first, as in {ORDER}")
    return (*named, *(name for name in NAMES if name not in named))


def _view(
    old: Mapping[str, int], new: Mapping[str, int], order: Sequence[str], renamed: Mapping[str, str]
) -> View:
    axes, stride, new_stride = [], 1, 1
    for name in order:
        axes.append(GrowthAxis(renamed.get(name, name), old[name], stride, new[name], new_stride))
        stride, new_stride = stride * old[name], new_stride * new[name]
    return tuple(axes)


def _steps(view: View, *, by_place: bool = False) -> list[Any]:
    steps = [axis.step for axis in reversed(view) if axis.new_size != axis.size]
    return [(step.block, step.factor) for step in steps] if by_place else steps


def _along(view: View, rule: GroupRule, ranks: int) -> tuple[str, GroupRule] | None:
    """Return the axes along which the groups of a rule lie, and the rule of these axes, or None."""
    if ranks % rule.every:
        return None
    members = rule.groups(ranks)[0]
    sizes = [len(unique(members // axis.stride % axis.size)) for axis in view]
    parts = [(axis, size) for axis, size in zip(view, sizes, strict=True) if size > 1]
    apart = {axis.name: _apart(members // axis.stride % axis.size) for axis, _ in parts}
    if None in apart.values() or any(size < axis.size and axis.new_size != axis.size for axis, size in parts):
        return None
    try:
        if _rule(parts, apart, is_new=False) != rule:
            return None
        return _joined_names(axis.name for axis, _ in parts), _rule(parts, apart, is_new=True)
    except TraceError:  # there is no rule for such groups
        return None


def _joined_names(names: Iterable[str]) -> str:
    return "-".join(names) or "alone"


def _apart(places: Any) -> int | None:
    """Return the distance of members along an axis, or None if distances differ."""
    steps = unique(np.diff(unique(places)))
    return int(steps[0]) if len(steps) == 1 else None


def _rule(
    parts: Sequence[tuple[GrowthAxis, int]], apart: Mapping[str, int | None], *, is_new: bool
) -> GroupRule:
    """Return the rule of members along axes; if only some places belong to it, its pattern ends with the
    axis.
    """

    def place(axis: GrowthAxis) -> tuple[int, int]:
        return (axis.new_size, axis.new_stride) if is_new else (axis.size, axis.stride)

    def pieces() -> Iterator[tuple[int, int]]:
        for axis, size in parts:
            yield place(axis)[0] if size == axis.size else size, place(axis)[1] * (apart[axis.name] or 1)

    if not parts:
        return GroupRule(1)
    sizes, strides = zip(*pieces(), strict=True)
    end = prod(place(parts[-1][0]))
    return GroupRule(sizes, strides, end if end < sizes[-1] * strides[-1] else 0)


def read_role(given: Input, plan: PlanChange, rank: int | None) -> int:
    """Return the number of the recorded rank in the plan; the default is the rank in its metadata."""
    (recorded,) = given.traces
    header = messages().GlobalMetadata.FromString(recorded.header)
    attributes = {attribute.name: attribute.string_val for attribute in header.attr}
    if rank is None and attributes.get("rank", "").isdecimal():
        rank = int(attributes["rank"])
    world = attributes.get("world_size", "")
    if world.isdecimal() and int(world) not in (1, plan.ranks):
        raise UsageError(
            f"is one of {int(world):,} ranks, and --from are {plan.ranks:,}",
            place=recorded.source,
            remedy="give every axis that has several places",
        )
    if rank is None or not 0 <= rank < plan.ranks:
        cause = "does not state its rank" if rank is None else f"is rank {rank}"
        raise UsageError(
            f"{cause} of the {plan.ranks:,} of --from",
            place=recorded.source,
            remedy=f"give --rank R, from 0 to {plan.ranks - 1}",
        )
    sends = bool(np.isin(recorded.trace.kind, (NodeKind.SEND, NodeKind.RECV)).any())
    if sends or any(axis.name == "pp" and axis.size > 1 for axis in plan.views[0]):
        work = "sends or receives messages" if sends else "is of one stage of several"
        raise UsageError(
            f"{work}, so that other ranks do something else than it",
            place=recorded.source,
            remedy="convert one rank of each kind, and run the present ranks with --alone",
        )
    return rank
