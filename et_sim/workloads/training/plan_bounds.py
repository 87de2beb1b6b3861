"""Lower bounds of the time and the memory of many plans of a model, from the least times of its units.

A place of the pipeline waits until the first micro-batch arrives, computes all passes of its pieces one after
another, and the last gradients go back through the places before it. Replicas exchange gradients from the
last backward pass on, and updated weights after all of them; all of these bytes cross the same ports. The
least memory of a rank is that of its states, and of the activations that wait for their backward pass.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from msgspec import Struct, field
from msgspec.structs import astuple, replace

from et_sim.trace.columns import CollectiveKind
from et_sim.workloads.models.model import Model
from et_sim.workloads.training.bounds import Bounds, KernelTimes
from et_sim.workloads.training.layers import ModelLayers
from et_sim.workloads.training.plan import Plan
from et_sim.workloads.training.states import States
from et_sim.workloads.training.step import check_plan
from et_sim.workloads.training.unit_times import (
    EMBEDDING,
    HEAD,
    LeastWires,
    PassTimes,
    ShortModel,
    UnitTimes,
    short_model,
    unit_times,
)
from et_sim.workloads.training.units import Unit

SCHEDULES = ("1f1b", "interleaved")
# Fields that the least times of units do not depend on, or for which the fastest case is taken.
_FREE = frozenset({"data", "pipeline", "schedule", "chunks", "micro_batches", "zero"})
_KEPT = tuple(at for at, name in enumerate(Plan.__struct_fields__) if name not in _FREE)
_SPECIAL = (
    *("overlap_experts", "expert_skew", "stage_layers", "recompute_layers", "offload_activations"),
    *("lora_rank", "mtp_layers", "shard", "products"),
)
Labels = tuple[str, ...]  # of the units of a piece


class PlanBounds(Struct, frozen=True):
    """The least time of a step, its parts on the slowest place of the pipeline, and the least memory."""

    time_ns: int
    compute_ns: int
    bubble_ns: int
    network_ns: int
    memory_bytes: int

    @property
    def bounds(self) -> Bounds:
        """Return the time and the memory."""
        return Bounds(self.time_ns, self.memory_bytes)


class _Place(Struct, frozen=True):
    """The least times of a place of the pipeline, in nanoseconds."""

    chunks: tuple[Labels, ...]
    first_forward: int  # of chunk 0
    last_backward: int  # of chunk 0
    until_sent: int  # in that pass
    begins: int  # until its first unit has all gradients
    busy: int  # all passes of a micro-batch
    kernels: int  # the same of kernels alone


class PlanBounder(Struct):
    """A finder of bounds of the plans of a model on a machine with a number of NPUs."""

    model: Model
    npus: int
    kernel_ns: KernelTimes
    wires: LeastWires | None
    _times: dict[Hashable, UnitTimes] = field(default_factory=dict)
    _short: dict[Hashable, ShortModel] = field(default_factory=dict)
    _places: dict[Hashable, _Place] = field(default_factory=dict)

    @staticmethod
    def can_bound(plan: Plan) -> bool:
        """Return whether a plan is of the kind that these bounds are for."""
        usual = Plan()
        return plan.schedule in SCHEDULES and all(
            getattr(plan, name) == getattr(usual, name) for name in _SPECIAL
        )

    def memory_bytes(self, plan: Plan) -> int:
        """Return the least memory of the fullest rank; refuse a plan that does not fit the model."""
        check_plan(self.model, plan)
        short, states = self._short_model(plan), States.of(plan)
        sizes: dict[tuple[Labels, ...], int] = {}
        most = 0
        for place in range(plan.pipeline):
            chunks = self._chunks(plan, short, place)
            if chunks not in sizes:
                sizes[chunks] = _states_bytes(short.units, states, chunks)
            left = [sum(short.units[label].left_bytes for label in labels) for labels in chunks]
            most = max(most, sizes[chunks] + _waiting_bytes(plan, place, left))
        return most

    def of(self, plan: Plan) -> PlanBounds:
        """Return the bounds of a plan; refuse one that does not fit the model."""
        memory, key, times = self.memory_bytes(plan), self._key(plan), self._unit_times(plan)
        places = []
        for at in range(plan.pipeline):
            chunks = self._chunks(plan, times.short, at)
            if (key, chunks) not in self._places:
                self._places[key, chunks] = _place(times, chunks)
            places.append(self._places[key, chunks])
        exchanges = _Exchanges(plan, times.short.units, self.wires)
        if plan.zero == 3:
            waiting = {place.chunks: _gathering(place, times, exchanges) for place in places}
            places = [waiting[place.chunks] for place in places]
        hop = self._hop(plan)
        of_places = [_least(plan, places, at, hop, exchanges) for at in range(plan.pipeline)]
        longest = max(of_places)
        at = of_places.index(longest)
        compute = plan.micro_batches * places[at].kernels
        bubble = max(min(_before(places, at, hop) + _after(places, at, hop), longest - compute), 0)
        return PlanBounds(longest, compute, bubble, longest - compute - bubble, memory)

    def _key(self, plan: Plan) -> tuple[Any, ...]:
        """Return a key of plans with the same least times of units."""
        values, is_shared = astuple(plan), plan.data * plan.context > 1
        zero = plan.zero if plan.zero > 1 else 0
        return (*(values[at] for at in _KEPT), zero if is_shared else 0, plan.data > 1, plan.pipeline > 1)

    def _replicas(self, plan: Plan) -> int:
        return max(self.npus // (plan.tensor * plan.context), 1) if plan.data > 1 else 1

    def _short_model(self, plan: Plan) -> ShortModel:
        key = self._key(plan)
        if key not in self._short:
            self._short[key] = short_model(self.model, plan, self._replicas(plan))
        return self._short[key]

    def _unit_times(self, plan: Plan) -> UnitTimes:
        key = self._key(plan)
        if key not in self._times:
            self._times[key] = unit_times(self._short_model(plan), self.kernel_ns, self.wires)
        return self._times[key]

    def _chunks(self, plan: Plan, short: ShortModel, place: int) -> tuple[Labels, ...]:
        """Return the labels of the units of each piece of a place."""
        chunks = []
        for chunk in range(plan.chunks):
            piece = plan.part(self.model, place, chunk)
            layers = (short.label(layer) for layer in piece.all_layers)
            ends = (EMBEDDING,) * piece.has_embedding, (HEAD,) * piece.has_head
            chunks.append((*ends[0], *layers, *ends[1]))
        return tuple(chunks)

    def _hop(self, plan: Plan) -> int:
        """Return the least time of a message to the next stage."""
        if self.wires is None or plan.pipeline == 1:
            return 0
        shares = plan.tensor if plan.sequence_parallel or plan.scatter_gather else 1
        size = -(-ModelLayers(self.model, plan).activation_bytes // shares)
        stride = plan.ranks // plan.pipeline
        return self.wires.message_ns(size, leaves_node=stride % self.wires.node == 0)


def _place(times: UnitTimes, chunks: tuple[Labels, ...]) -> _Place:
    """Return the least times of a place with these units."""
    forward = [_pass_ns(times.forward, labels) for labels in chunks]
    backward = [_pass_ns(times.backward, labels[::-1]) for labels in chunks]
    first = chunks[0]
    ahead = sum(times.backward[label].until_next for label in first[:0:-1])
    return _Place(
        chunks,
        forward[0],
        backward[0],
        min(ahead + times.until_sent, backward[0]) if first else 0,
        times.backward[first[-1]].until_end if first else 0,
        sum(forward) + sum(backward),
        sum(
            count * (times.forward[label].kernels + times.backward[label].kernels)
            for label, count in Counter(label for labels in chunks for label in labels).items()
        ),
    )


def _pass_ns(times: PassTimes, labels: Labels) -> int:
    """Return the least time of units one after another."""
    if not labels:
        return 0
    return sum(times[label].until_next for label in labels[:-1]) + times[labels[-1]].until_end


def _gathering(place: _Place, times: UnitTimes, exchanges: _Exchanges) -> _Place:
    """Return a place whose passes wait for weights that replicas share.

    A pass gathers those of its first unit after all kernels of the pass before it, and then those of the
    other units, one after another. So it takes the first gather and all kernels, or all gathers and the
    kernels of the last unit.
    """
    more = last = 0
    for at, labels in enumerate(place.chunks):
        back = labels[::-1]
        more += _wait_ns(times.forward, labels, exchanges.gathers(labels)) if labels else 0
        waits = _wait_ns(times.backward, back, exchanges.gathers(back, are_kept=True)) if labels else 0
        last = waits if at == 0 else last
        more += waits
    return replace(place, busy=place.busy + more, last_backward=place.last_backward + last)


def _wait_ns(times: PassTimes, labels: Labels, gathers: Sequence[int]) -> int:
    """Return the time by which a pass is longer than its units because it gathers their weights."""
    return max(gathers[0], sum(gathers) + times[labels[-1]].until_end - _pass_ns(times, labels))


def _least(plan: Plan, places: Sequence[_Place], at: int, hop: int, exchanges: _Exchanges) -> int:
    """Return the least time until a place has updated its weights, and the first place has its gradients."""
    place = places[at]
    computed = _before(places, at, hop) + plan.micro_batches * place.busy
    through = computed + max(_after(places, at, hop), 0)
    begun = computed - place.last_backward + place.begins
    reduced = max(
        begun + exchanges.gradients(place.chunks[:1]), computed + exchanges.gradients((place.chunks[0][:1],))
    )
    return max(through, reduced + exchanges.updated(place.chunks), exchanges.carried(place.chunks))


def _before(places: Sequence[_Place], at: int, hop: int) -> int:
    """Return the least time until the first micro-batch reaches a place."""
    return sum(place.first_forward + hop for place in places[:at])


def _after(places: Sequence[_Place], at: int, hop: int) -> int:
    """Return the least time from the end of a place's passes until the first place ends its own.

    It is below 0 if a place sends gradients long before its last kernel ends.
    """
    if at == 0:
        return 0
    between = sum(place.until_sent + hop for place in places[1:at])
    return places[at].until_sent - places[at].last_backward + hop + between + places[0].last_backward


class _Exchanges:
    """The least times of a plan's exchanges among replicas; none without wires."""

    def __init__(self, plan: Plan, units: Mapping[str, Unit], wires: LeastWires | None) -> None:
        self._plan, self._units, self._wires = plan, units, wires
        self._known: dict[tuple[str, bool, bool], int] = {}
        node = 1 if wires is None else wires.node
        inner, shared = plan.context * plan.data, plan.expert * plan.expert_tensor
        dense = inner, _on_node(inner, plan.tensor, node)
        among = plan.tensor * inner // shared
        self._groups = dense, (among, _on_node(among, shared, node)) if plan.spreads_experts else dense

    def gradients(self, chunks: Sequence[Labels]) -> int:
        """Return the least time to reduce the gradients of pieces once, one after another."""
        return self._sum(chunks, is_gather=False)

    def updated(self, chunks: Sequence[Labels]) -> int:
        """Return the least time to gather updated weights after the optimizer."""
        plan = self._plan
        is_after = plan.zero in (1, 2) and not plan.by.shares.updated_ahead
        return self._sum(chunks, is_gather=True) if is_after else 0

    def gathers(self, labels: Labels, *, are_kept: bool = False) -> list[int]:
        """Return the least times to gather units in a pass; `are_kept`: those of a pass before may stay."""
        kept = self._plan.by.shares.kept_units if are_kept else 0
        each = [self._of(label, True, False) for label in labels]
        return [0] * min(kept, len(each)) + each[kept:]

    def carried(self, chunks: Sequence[Labels]) -> int:
        """Return the least time of all exchanges of replicas in a step.

        Gradients are exchanged one after another, and so are weights; both at the same time share ports.
        """
        plan = self._plan
        if plan.zero < 2 or self._wires is None:
            return 0
        least = []
        for by_ports in (False, True):
            reduces = plan.micro_batches * self._sum(chunks, is_gather=False, by_ports=by_ports)
            gathers = self._sum(chunks, is_gather=True, by_ports=by_ports)
            if plan.zero == 3:
                kept = plan.by.shares.kept_units
                again = [labels[: max(len(labels) - kept, 0)] for labels in chunks]
                gathers += self._sum(again, is_gather=True, by_ports=by_ports)
                gathers *= plan.micro_batches
            are_shared = by_ports and not self._wires.reduces
            least.append(reduces + gathers if are_shared else max(reduces, gathers))
        return max(least)

    def _sum(self, chunks: Sequence[Labels], *, is_gather: bool, by_ports: bool = False) -> int:
        return sum(self._of(label, is_gather, by_ports) for labels in chunks for label in labels)

    def _of(self, label: str, is_gather: bool, by_ports: bool) -> int:
        """Return the least time of an exchange of a unit's weights or gradients."""
        if self._wires is None:
            return 0
        key = label, is_gather, by_ports
        if key not in self._known:
            weights = self._units[label].weights
            counts = weights.counts if is_gather else weights.trained
            times = self._wires.ports_ns if by_ports else self._wires.collective_ns
            self._known[key] = sum(
                times(*self._exchange(count, group[0], is_gather=is_gather), *group)
                for count, group in zip(counts, self._groups, strict=True)
                if count and group[0] > 1
            )
        return self._known[key]

    def _exchange(self, count: int, ranks: int, *, is_gather: bool) -> tuple[CollectiveKind, int]:
        """Return the kind and the size of an exchange."""
        plan = self._plan
        if is_gather:
            return CollectiveKind.ALL_GATHER, -(-count // ranks) * plan.value_bytes
        kind = CollectiveKind.REDUCE_SCATTER if plan.zero else CollectiveKind.ALL_REDUCE
        return kind, count * plan.gradient_bytes


def _on_node(ranks: int, stride: int, node: int) -> int:
    """Return the most ranks of a group that share a node, if ranks of the group have a stride."""
    if node % stride == 0:
        return min(ranks, node // stride)
    return 1 if stride % node == 0 else min(ranks, node)


def _states_bytes(units: Mapping[str, Unit], states: States, chunks: Sequence[Labels]) -> int:
    """Return the bytes of weights, gradients and optimizer states of a rank."""
    counts = Counter(label for labels in chunks for label in labels)
    kept = dense = expert = 0
    for label, count in counts.items():
        weights = units[label].weights
        sizes = (*states.weights(weights).values(), *states.gradients(weights).values())
        kept += count * sum(sizes)
        dense, expert = dense + count * weights.trained[0], expert + count * weights.trained[1]
    shares = states.shares
    return kept + sum(states.optimizer(-(-dense // shares[0]) + -(-expert // shares[1])).values())


def _waiting_bytes(plan: Plan, place: int, left: Sequence[int]) -> int:
    """Return the bytes that wait when the first backward pass begins; `left`: of each chunk's pass."""
    total, ahead = plan.micro_batches * plan.chunks, plan.pipeline - 1 - place
    if plan.chunks == 1:
        return min(ahead + 1, total) * left[0]
    ahead = 2 * ahead + (plan.chunks - 1) * plan.pipeline
    waiting = total if plan.micro_batches == plan.pipeline else min(ahead + 1, total)
    return sum(left[turn // plan.pipeline % plan.chunks] for turn in range(waiting))
