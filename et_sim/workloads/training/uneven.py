"""Steps of ranks whose experts get different numbers of tokens: recorded once, and resized.

Ranks with different experts have the same nodes; only sizes of some kernels, exchanges and tensors differ.
So the step is run for one rank of a stage. For each other rank, the parts of its layers determine the new
size of each operation; nodes, their names and their order stay.

The step is run again if this is ambiguous: two operations are equal for the first rank and differ for another
one, or an operation outside of layers equals one that changes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct, field

from et_sim.trace.columns import Trace
from et_sim.workloads.rank import Rank
from et_sim.workloads.recording import Key, NodeOperation, NodeRecording
from et_sim.workloads.training.layers import ModelLayers
from et_sim.workloads.training.parts import ModelPart
from et_sim.workloads.training.plan import EXPERT, PIPELINE
from et_sim.workloads.training.units import Unit, units_of
from et_sim.workloads.training.work import RankWork

Parts = tuple[ModelPart, ...]
Operations = list[tuple[str, NodeOperation]]  # a layer's operations, each with the end of its node's name


class _First(Struct):
    """A rank whose step was run."""

    rank: Rank
    units: Mapping[int, Sequence[Unit]]  # by chunk
    names: dict[Key, set[str]] = field(default_factory=dict)  # names of nodes, by operation


class _Change(Struct, frozen=True):
    """Operations of layers that differ on another rank."""

    becomes: Mapping[Key, NodeOperation]  # the operation on the other rank
    ends: Mapping[Key, tuple[str, ...]]  # ends of the names of its nodes


class UnevenSteps(Struct):
    """Steps of ranks by the place of their experts; `run` runs the step of one rank."""

    layers: ModelLayers
    run: Callable[[ModelLayers, Rank], Mapping[int, Sequence[Unit]]]
    _layers: dict[int, ModelLayers] = field(default_factory=dict)  # by place
    _firsts: list[_First] = field(default_factory=list)
    _operations: dict[Parts, Operations] = field(default_factory=dict)
    _changes: dict[tuple[tuple[int, int], ...], _Change | None] = field(default_factory=dict)
    _built: dict[tuple[Key, ...], Trace] = field(default_factory=dict)

    def __call__(self, rank: Rank) -> None:
        """Record the step of a rank."""
        place = rank.place(EXPERT)
        if place not in self._layers:
            self._layers[place] = self.layers.at(place)
        layers = self._layers[place]
        for first in self._firsts:
            if rank.is_like(first.rank, EXPERT):
                recording = self._resized(first, layers)
                if recording is not None:
                    rank.recording = recording
                    return
        self._firsts.append(_First(rank, self.run(layers, rank)))

    def _resized(self, first: _First, layers: ModelLayers) -> NodeRecording | None:
        """Return the first rank's step in the sizes of other layers; None if it is ambiguous."""
        sizes: dict[str, int] = {}
        differ: list[tuple[Parts, Parts]] = []
        place = first.rank.place(PIPELINE)
        for chunk, units in first.units.items():
            others = units_of(layers, layers.plan.part(layers.model, place, chunk))
            for unit, other in zip(units, others, strict=True):
                if not self._add_sizes(unit, other, sizes):
                    return None
                differ.append((unit.parts, other.parts))
        change = self._change(differ)
        if change is None or not all(
            self._is_of_layers(first, key, change.ends[key]) for key in change.becomes
        ):
            return None
        return first.rank.recording.resized(change.becomes, sizes, self._built)

    def _add_sizes(self, unit: Unit, other: Unit, sizes: dict[str, int]) -> bool:
        """Add sizes of tensors that differ; return False if one rank has tensors that the other lacks."""
        pairs = (unit.left_bytes, other.left_bytes), (unit.again_bytes, other.again_bytes)
        for tensors, (before, now) in zip((other.left, other.again), pairs, strict=True):
            if (before > 0) != (now > 0):
                return False
            if before != now:
                for micro_batch in range(self.layers.plan.micro_batches):
                    sizes |= tensors(micro_batch)
        return True

    def _change(self, of: Sequence[tuple[Parts, Parts]]) -> _Change | None:
        """Return the changes of pairs of parts; None if equal operations change differently."""
        of = list({(id(before), id(after)): (before, after) for before, after in of}.values())
        pairs = tuple((id(before), id(after)) for before, after in of)  # ids stay valid: layers are kept
        if pairs not in self._changes:
            self._changes[pairs] = self._found_change(of)
        return self._changes[pairs]

    def _found_change(self, of: Sequence[tuple[Parts, Parts]]) -> _Change | None:
        becomes: dict[Key, NodeOperation] = {}
        ends: dict[Key, set[str]] = {}
        for parts, others in of:
            for (end, before), (_, now) in zip(self._of(parts), self._of(others), strict=True):
                if becomes.setdefault(before.key, now).key != now.key:
                    return None
                ends.setdefault(before.key, set()).add(end)
        changed = {key: now for key, now in becomes.items() if now.key != key}
        return _Change(changed, {key: tuple(ends[key]) for key in changed})

    def _of(self, parts: Parts) -> Operations:
        """Return all operations of parts, forward and backward."""
        if parts not in self._operations:
            work = RankWork(Rank(self.layers.plan.axes, 0, {}, ""), self.layers.plan)
            for part in parts:
                part.forward(work)
            for part in parts[::-1]:
                part.backward(work)
            work.catch_up()
            self._operations[parts] = work.rank.recording.operations()
        return self._operations[parts]

    def _is_of_layers(self, first: _First, key: Key, ends: tuple[str, ...]) -> bool:
        """Return whether all nodes of the first rank with an operation are nodes of layers."""
        if key not in first.names:
            first.names[key] = first.rank.recording.names_of(key)
        return all(name.endswith(ends) for name in first.names[key])
