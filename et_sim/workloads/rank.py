"""What a program says of a rank: its place among the others, and what it does, line by line.

A program is a function of a `Rank`. It asks where the rank stands and calls its operations:

def step(rank):
        work = rank.compute("forward", micros=100)
        rank.collective("all_reduce", 1 << 20, over="data", after=work)

An operation begins after all that `after` names, and after what came before it in its stream. Computations
and collectives go to the stream "main" unless they name another one; messages go to none: they begin after
`after` or, if that is left out, after what came last in "main", and nothing waits for them unless it says so.
Each operation returns the nodes that later ones may name in `after`; sums of them are nodes, too.

What a program asks about places is remembered: ranks to which the answers are the same do the same, and share
a template in the workload (`make_workload`). The program runs for the lowest rank that has none yet, so the
cost grows with the number of different ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from et_sim.basics.errors import UsageError
from et_sim.trace.builder import TraceBuilder
from et_sim.trace.columns import Trace
from et_sim.trace.group_rule import GroupRule
from et_sim.trace.workload import Workload
from et_sim.workloads.axes import Axes
from et_sim.workloads.recording import Nodes, Recording


def check_integer(name: str, value: object) -> None:
    """Refuse what is no whole number."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise UsageError(f"{name} is {value!r}", remedy="give a whole number")


def check_distance(name: str, value: object, ranks: int) -> None:
    """Refuse a distance to a rank that no rank has another one at."""
    check_integer(name, value)
    if not isinstance(value, int) or abs(value) >= ranks:
        raise UsageError(
            f"{name} is {value}, and no two of {ranks:,} ranks are so far apart",
            remedy="give what rank.next or rank.at returns",
        )


def check_nodes(after: object, nodes: int) -> None:
    """Refuse nodes that are none of those that the rank has so far."""
    if not isinstance(after, tuple | list):
        raise UsageError(f"after is {after!r}", remedy="give what an operation returned, or sums of that")
    for node in after:
        if isinstance(node, bool) or not isinstance(node, int) or not 0 <= node < nodes:
            raise UsageError(
                f"after names {node!r}, and the rank has {nodes:,} nodes so far",
                remedy="give what an operation of the same rank returned",
            )


MAIN = "main"
Tensors = Mapping[str, int]  # name -> bytes
_NOTHING: Mapping[str, int] = MappingProxyType({})


class Rank:
    """A rank that stands for all to which a program gets the same answers."""

    def __init__(self, axes: Axes, rank: int, rules: dict[str, GroupRule], source: str) -> None:
        self.axes = axes
        self.recording = Recording(source)
        self.questions: dict[tuple[Any, ...], tuple[Callable[[Any], Any], Any]] = {}
        self._rank = rank
        self._rules = rules
        self._groups: set[tuple[str, tuple[str, ...]]] = set()
        self._last: dict[str, Nodes] = {}

    def _ask(self, key: tuple[Any, ...], question: Callable[[Any], Any]) -> Any:
        """The answer of a question about a rank, or about each of an array of ranks."""
        known = self.questions.get(key)
        if known is None:
            known = self.questions[key] = (question, question(self._rank))
        return known[1]

    def is_like(self, other: Rank, axis: str) -> bool:
        """Whether a program got the answers about another rank that it gets of this one, but for the place on
        an axis; if so, it counts as asked about this one, too."""
        asked = {key: (ask, ask(self._rank)) for key, (ask, _) in other.questions.items()}
        for key, (_, answer) in other.questions.items():
            if key != ("place", axis) and asked[key][1] != answer:
                return False
        self.questions |= asked
        return True

    # Places.

    def size(self, *axes: str) -> int:
        """How many places there are along axes."""
        return self.axes.size(*axes)

    def place(self, axis: str) -> int:
        """The rank's place along an axis: ranks at different places will do different things."""
        return int(self._ask(("place", axis), lambda rank: self.axes.place(axis, rank)))

    def is_first(self, axis: str) -> bool:
        """Whether no place comes before the rank's."""
        return bool(self._ask(("first", axis), lambda rank: self.axes.place(axis, rank) == 0))

    def is_last(self, axis: str) -> bool:
        """Whether no place comes after the rank's."""
        last = self.axes[axis].size - 1
        return bool(self._ask(("last", axis), lambda rank: self.axes.place(axis, rank) == last))

    def next(self, axis: str, steps: int = 1, *, wraps: bool = False) -> int:
        """The rank `steps` places ahead along an axis, or behind if `steps` is negative, as a distance."""
        size, stride = self.axes[axis]
        check_integer("steps", steps)
        if wraps:
            return int(
                self._ask(
                    ("around", axis, steps),
                    lambda rank: (
                        ((self.axes.place(axis, rank) + steps) % size - self.axes.place(axis, rank)) * stride
                    ),
                )
            )
        exists = self._ask(
            ("exists", axis, steps),
            lambda rank: (self.axes.place(axis, rank) + steps) // size == 0,
        )
        if not exists:
            raise UsageError(
                f"there is no rank {steps:+d} along {axis} from place {self.axes.place(axis, self._rank)}",
                remedy=f'ask rank.is_first("{axis}") or is_last, or go around with wraps=True',
            )
        return steps * stride

    def at(self, axis: str, place: int) -> int:
        """The rank at a given place along an axis, as a distance."""
        size, stride = self.axes[axis]
        check_integer("place", place)
        if not 0 <= place < size:
            raise UsageError(f"{axis} has no place {place}", remedy=f"its places are 0 to {size - 1}")
        return int(
            self._ask(("at", axis, place), lambda rank: (place - self.axes.place(axis, rank)) * stride)
        )

    # Operations.

    def last(self, stream: str = MAIN) -> Nodes:
        """What came last in a stream."""
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
        """A kernel, as `TraceBuilder.compute` has it."""
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
        """A collective of all ranks that differ only in their places along `over`, an axis or several.

        Of an all-to-all, `splits` are the bytes for each of them, in the order of their places, and `bytes`
        is their sum.
        Where that is the rank alone, nothing happens: it returns the nodes that it would have waited for.
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
                f"splits are {len(sizes)} sizes, and {self.axes.size(*axes)} ranks differ along {group}",
                remedy="give one for each of them, the rank itself included",
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
        """A collective of the first and the last rank along an axis."""
        if self.axes[axis].size == 1:
            return _joined(after, self.last(stream) if stream else ())
        group = f"{axis}-ends"
        self._name_group(group, self.axes.rule_of_ends(axis))
        return self._collective(kind, bytes, group, name, after, stream, None, (None, None))

    def _name_group(self, name: str, rule: GroupRule) -> None:
        if self._rules.setdefault(name, rule) != rule:
            raise UsageError(
                f"two different groups are called {name!r}, after their axes",
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
        """A message to the rank at a distance, from `next` or `at`."""
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
        """A message from the rank at a distance; it is asked for after `after`."""
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


PROFILE = "corrected"  # what is made here has no results of the reference to repeat


Program = Callable[[Rank], object]


def make_workload(axes: Axes, program: Program, *, source: str = "<program>") -> Workload:
    """The workload in which every rank does what the program says of it."""
    ranks = np.arange(axes.ranks, dtype=np.int32)
    of_rank = np.full(axes.ranks, -1, np.int32)
    rules: dict[str, GroupRule] = {}
    known: dict[bytes, int] = {}
    templates: list[Trace] = []
    at = 0
    while at < axes.ranks:
        rank = Rank(axes, at, rules, source)
        program(rank)
        alike = of_rank < 0
        for question, answer in rank.questions.values():
            alike &= question(ranks) == answer
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
