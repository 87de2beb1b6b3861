"""Programs of ranks: functions that read a rank's places and call its operations.

A program is a function of a `Rank`:

def step(rank):
        work = rank.compute("forward", micros=100)
        rank.collective("all_reduce", 1 << 20, over="data", after=work)

An operation begins after all that `after` names, and after what came before it in its stream. Computations
and collectives go to the stream "main" unless they name another one; messages go to none: they begin after
`after` or, if that is left out, after the last node of "main", and only nodes that name them wait for them.
Each operation returns the nodes that later ones may name in `after`; sums of them are nodes, too.

The queries of a program about places are recorded: ranks with the same results do the same, and share a
template in the workload (`make_workload`). The program runs for the lowest rank that has none yet, so the
cost grows with the number of different ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeVar

import numpy as np

from et_sim.basics.errors import UsageError
from et_sim.trace.builder import TraceBuilder
from et_sim.trace.columns import Trace
from et_sim.trace.group_rule import GroupRule
from et_sim.trace.workload import Workload
from et_sim.workloads.axes import Axes
from et_sim.workloads.recording import NodeRecording, Nodes


def check_integer(name: str, value: object) -> None:
    """Refuse values that are not whole numbers."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise UsageError(f"{name} is {value!r}", remedy="give a whole number")


def check_distance(name: str, value: object, ranks: int) -> None:
    """Refuse a distance that no two ranks have."""
    check_integer(name, value)
    if not isinstance(value, int) or abs(value) >= ranks:
        raise UsageError(
            f"{name} is {value}, but no two of {ranks:,} ranks have this distance",
            remedy="give the result of rank.next or rank.at",
        )


def check_nodes(after: object, nodes: int) -> None:
    """Refuse nodes that the rank does not have."""
    if not isinstance(after, tuple | list):
        raise UsageError(f"after is {after!r}", remedy="give results of operations, or sums of them")
    for node in after:
        if isinstance(node, bool) or not isinstance(node, int) or not 0 <= node < nodes:
            raise UsageError(
                f"after names {node!r}, but the rank has {nodes:,} nodes so far",
                remedy="give the result of an operation of the same rank",
            )


MAIN = "main"
Part = TypeVar("Part")
Tensors = Mapping[str, int]  # name -> bytes
_NOTHING: Mapping[str, int] = MappingProxyType({})


class Rank:
    """A rank that represents all ranks with the same results of a program's queries."""

    def __init__(self, axes: Axes, rank: int, rules: dict[str, GroupRule], source: str) -> None:
        self.axes = axes
        self.recording = NodeRecording(source)
        self.queries: dict[tuple[Any, ...], tuple[Callable[[Any], Any], Any]] = {}
        self._rank = rank
        self._rules = rules
        self._groups: set[tuple[str, tuple[str, ...]]] = set()
        self._last: dict[str, Nodes] = {}

    def _query(self, key: tuple[Any, ...], query: Callable[[Any], Any]) -> Any:
        """Return the result of a query about the rank, and record the query."""
        known = self.queries.get(key)
        if known is None:
            known = self.queries[key] = (query, query(self._rank))
        return known[1]

    def is_like(self, other: Rank, axis: str) -> bool:
        """Return whether queries about another rank have the same results here, but for the place on an axis.

        If so, they are recorded for this rank, too.
        """
        queried = {key: (query, query(self._rank)) for key, (query, _) in other.queries.items()}
        for key, (_, result) in other.queries.items():
            if key != ("place", axis) and queried[key][1] != result:
                return False
        self.queries |= queried
        return True

    # Places.

    def size(self, *axes: str) -> int:
        """Return the number of places along axes."""
        return self.axes.size(*axes)

    def place(self, axis: str) -> int:
        """Return the rank's place along an axis; ranks at different places get different templates."""
        return int(self._query(("place", axis), lambda rank: self.axes.place(axis, rank)))

    def kind(self, axis: str, kinds: Sequence[int]) -> int:
        """Return the kind of the rank's place along an axis; ranks of one kind may share a template."""
        of_places = np.array(kinds, np.int64)
        key = "kind", axis, tuple(kinds)
        return int(self._query(key, lambda rank: of_places[self.axes.place(axis, rank)]))

    def is_first(self, axis: str) -> bool:
        """Return whether the rank has the first place of an axis."""
        return bool(self._query(("first", axis), lambda rank: self.axes.place(axis, rank) == 0))

    def is_last(self, axis: str) -> bool:
        """Return whether the rank has the last place of an axis."""
        last = self.axes[axis].size - 1
        return bool(self._query(("last", axis), lambda rank: self.axes.place(axis, rank) == last))

    def is_from(self, axis: str, place: int) -> bool:
        """Return whether the rank's place along an axis is this one or one behind it."""
        return bool(self._query(("from", axis, place), lambda rank: self.axes.place(axis, rank) >= place))

    def next(self, axis: str, steps: int = 1, *, wraps: bool = False) -> int:
        """Return the distance to the rank `steps` places ahead along an axis, or behind if negative."""
        size, stride = self.axes[axis]
        check_integer("steps", steps)
        if wraps:
            return int(
                self._query(
                    ("around", axis, steps),
                    lambda rank: (
                        ((self.axes.place(axis, rank) + steps) % size - self.axes.place(axis, rank)) * stride
                    ),
                )
            )
        exists = self._query(
            ("exists", axis, steps),
            lambda rank: (self.axes.place(axis, rank) + steps) // size == 0,
        )
        if not exists:
            raise UsageError(
                f"there is no rank {steps:+d} along {axis} from place {self.axes.place(axis, self._rank)}",
                remedy=f'check rank.is_first("{axis}") or is_last, or go around with wraps=True',
            )
        return steps * stride

    def at(self, axis: str, place: int) -> int:
        """Return the distance to the rank at a given place along an axis."""
        size, stride = self.axes[axis]
        check_integer("place", place)
        if not 0 <= place < size:
            raise UsageError(f"{axis} has no place {place}", remedy=f"its places are 0 to {size - 1}")
        return int(
            self._query(("at", axis, place), lambda rank: (place - self.axes.place(axis, rank)) * stride)
        )

    # Operations.

    def each(self, parts: Iterable[Part]) -> Iterable[Part]:
        """Return the parts of a program that it runs one after the other; some may have equal operations."""
        return parts

    def last(self, stream: str = MAIN) -> Nodes:
        """Return the last nodes of a stream."""
        return self._last.get(stream, ())

    def compute(
        self,
        name: str,
        *,
        micros: int = 0,
        nanos: int | None = None,
        num_ops: int | None = None,
        tensor_bytes: int | None = None,
        layer_shape: str | None = None,
        dtype: str | None = None,
        after: Nodes = (),
        stream: str | None = MAIN,
        attributes: Mapping[str, int] = _NOTHING,
        inputs: Tensors | None = None,
        outputs: Tensors | None = None,
    ) -> Nodes:
        """Add a kernel, with the options of `TraceBuilder.compute`."""
        options = {
            "micros": micros,
            "nanos": nanos,
            "num_ops": num_ops,
            "tensor_bytes": tensor_bytes,
            "layer_shape": layer_shape,
            "dtype": dtype,
        }
        return self._add(TraceBuilder.compute, options, name, after, stream, (inputs, outputs), attributes)

    def collective(
        self,
        kind: str,
        bytes: int,
        over: str | Sequence[str],
        *,
        name: str = "",
        after: Nodes = (),
        stream: str | None = MAIN,
        priority: int | None = None,
        splits: Sequence[int] | None = None,
        inputs: Tensors | None = None,
        outputs: Tensors | None = None,
    ) -> Nodes:
        """Add a collective of all ranks that differ only in their places along `over`, an axis or several.

        `splits` are the bytes of an all-to-all for each of them, in the order of their places, and `bytes` is
        their sum. For a single rank nothing is added: the nodes that it would have waited for are returned.
        """
        axes = (over,) if isinstance(over, str) else tuple(over)
        if self.axes.size(*axes) == 1:
            return _joined(after, self.last(stream) if stream else ())
        axes = self.axes.sorted(axis for axis in axes if self.axes.size(axis) > 1)
        group = "-".join(axes)
        if (group, axes) not in self._groups:
            self._groups.add((group, axes))
            self._name_group(group, self.axes.rule(*axes))
        sizes = None if splits is None else tuple(splits)
        if sizes is not None and len(sizes) != self.axes.size(*axes):
            raise UsageError(
                f"splits are {len(sizes)} sizes, but {group} has {self.axes.size(*axes)} ranks",
                remedy="give one for each rank, itself included",
            )
        return self._collective(kind, bytes, group, name, after, stream, priority, (inputs, outputs), sizes)

    def collective_of_ends(
        self,
        kind: str,
        bytes: int,
        axis: str,
        *,
        name: str = "",
        after: Nodes = (),
        stream: str | None = MAIN,
    ) -> Nodes:
        """Add a collective of the first and the last rank along an axis."""
        if self.axes[axis].size == 1:
            return _joined(after, self.last(stream) if stream else ())
        group = f"{axis}-ends"
        self._name_group(group, self.axes.rule_of_ends(axis))
        return self._collective(kind, bytes, group, name, after, stream, None, (None, None))

    def _name_group(self, name: str, rule: GroupRule) -> None:
        if self._rules.setdefault(name, rule) != rule:
            raise UsageError(
                f"two different groups have the name {name!r}, from their axes",
                remedy="give axes names without hyphens",
            )

    def _collective(
        self,
        kind: str,
        bytes: int,
        group: str,
        name: str,
        after: Nodes,
        stream: str | None,
        priority: int | None,
        tensors: tuple[Tensors | None, Tensors | None],
        splits: tuple[int, ...] | None = None,
    ) -> Nodes:
        options = {"kind": kind, "bytes": bytes, "group": group, "priority": priority, "splits": splits}
        name = name or f"{kind} {group}"
        return self._add(TraceBuilder.collective, options, name, after, stream, tensors)

    def send(
        self,
        to: int,
        bytes: int,
        tag: int = 0,
        *,
        name: str = "send",
        after: Nodes | None = None,
        stream: str | None = None,
    ) -> Nodes:
        """Send a message to the rank at a distance, from `next` or `at`."""
        after = self.last() if after is None else after
        check_distance("to", to, self.axes.ranks)
        options = {"to": to, "bytes": bytes, "tag": tag}
        return self._add(TraceBuilder.send, options, name, after, stream)

    def receive(
        self,
        source: int,
        bytes: int,
        tag: int = 0,
        *,
        name: str = "receive",
        after: Nodes | None = None,
        stream: str | None = None,
    ) -> Nodes:
        """Receive a message from the rank at a distance; the receive is posted after `after`."""
        after = self.last() if after is None else after
        check_distance("source", source, self.axes.ranks)
        options = {"source": source, "bytes": bytes, "tag": tag}
        return self._add(TraceBuilder.receive, options, name, after, stream)

    def load(self, bytes: int, *, name: str = "load", after: Nodes = (), stream: str | None = MAIN) -> Nodes:
        """Read from remote memory."""
        return self._add(TraceBuilder.load, {"bytes": bytes}, name, after, stream)

    def store(
        self, bytes: int, *, name: str = "store", after: Nodes = (), stream: str | None = MAIN
    ) -> Nodes:
        """Write to remote memory."""
        return self._add(TraceBuilder.store, {"bytes": bytes}, name, after, stream)

    def _add(
        self,
        make: Callable[..., int],
        options: Mapping[str, Any],
        name: str,
        after: Nodes,
        stream: str | None,
        tensors: tuple[Tensors | None, Tensors | None] = (None, None),
        attributes: Mapping[str, int] = _NOTHING,
    ) -> Nodes:
        check_nodes(after, len(self.recording))
        data = tuple(dict.fromkeys(after))
        ctrl: Nodes = ()
        if stream is not None:
            ctrl = tuple(node for node in self._last.get(stream, ()) if node not in data)
        nodes = (self.recording.add(make, options, name, data, ctrl, tensors, attributes),)
        if stream is not None:
            self._last[stream] = nodes
        return nodes


def _joined(first: Nodes, second: Nodes) -> Nodes:
    return tuple(dict.fromkeys((*first, *second)))


PROFILE = "corrected"  # the reference has no results for made workloads


Program = Callable[[Rank], object]


def make_workload(
    axes: Axes, program: Program, *, source: str = "<program>", rank_of: Callable[..., Rank] = Rank
) -> Workload:
    """Return the workload in which every rank runs the program; `rank_of` makes its ranks."""
    ranks = np.arange(axes.ranks, dtype=np.int32)
    of_rank = np.full(axes.ranks, -1, np.int32)
    rules: dict[str, GroupRule] = {}
    known: dict[bytes, int] = {}
    templates: list[Trace] = []
    at = 0
    while at < axes.ranks:
        rank = rank_of(axes, at, rules, source)
        program(rank)
        alike = of_rank < 0
        for query, result in rank.queries.values():
            alike &= query(ranks) == result
        number = known.setdefault(rank.recording.content, len(templates))
        if number == len(templates):
            templates.append(rank.recording.trace())
        of_rank[alike] = number
        left = np.flatnonzero(of_rank[at:] < 0)
        at = at + int(left[0]) if len(left) else axes.ranks
    return Workload(
        tuple(templates),
        of_rank,
        source,
        relative_peers=(True,) * len(templates),
        group_rules=rules,
        profile=PROFILE,
    )
