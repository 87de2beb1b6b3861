"""Program of a layer file: one trace that every rank runs, with tables that describe its nodes.

Each step of the loop becomes a computation on the device and a *tick*, 1 ns concurrent to everything else.
Its collective follows the computation, and the layer's update time, if any, follows the collective. The next
step's computation follows the tick and all that the step waits for:

    computation ──► tick ──► computation ──► …            not blocking
        └──► collective ──► update ┄┄► waiting steps

    computation ──► collective ──► update ──► tick ──► …  blocking

Collectives that would move nothing, or that no dimension takes part in, are left out and counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from msgspec.structs import replace

from et_sim.basics.errors import InputError, UsageError
from et_sim.basics.units import LONGEST_NS, MOST_BYTES
from et_sim.layerfile.dimensions import (
    FLAGS,
    CollectiveReach,
    LogicalDimensions,
    flags_of,
    has_groups,
    logical_dimensions,
    reach_of,
)
from et_sim.layerfile.layer_file import Keyword, LayerFile, LayerPhase
from et_sim.layerfile.loops import LoopStep, PhaseOfLayer, steps_of
from et_sim.layerfile.passes import (
    END,
    FIRST,
    LAST,
    TICK_NS,
    IntColumn,
    LayerCollectives,
    LayerProgram,
    LayerSteps,
    QueueWaits,
    RowColumn,
    repeated,
)
from et_sim.trace.builder import TraceBuilder
from et_sim.trace.group_rule import GroupRule
from et_sim.trace.workload import Workload

MODEL_GROUP, DATA_GROUP = "model", "data"
URGENT = 1 << 30  # comm_priority of collectives that overtake all others
MOST_NODES = 10_000_000
_GROUP_OF = {CollectiveReach.MODEL: MODEL_GROUP, CollectiveReach.DATA: DATA_GROUP}


def layer_program(
    layer_file: LayerFile,
    passes: int,
    dimensions: Sequence[int] | None,
    compute_scale: float | None = 1.0,
    comm_scale: float | None = 1.0,
    *,
    ranks: int | None = None,
) -> LayerProgram:
    """Return the program of every rank for `passes` passes of the training loop.

    With `dimensions`, the sizes of a machine's dimensions, collectives carry one flag per dimension (see
    `LayerProgram.logical` for the transformers). Without, they carry ten, and the collectives of transformers
    name the process groups "model" and "data"; `ranks` then determines which groups have only one member.
    Times and sizes are multiplied as single-precision numbers, as 1.0 does even if the factor is 1; None
    leaves them unchanged.
    """
    if passes < 1:
        raise UsageError(f"passes is {passes}", remedy="give at least one pass of the training loop")
    nodes = passes * len(layer_file.layers) * 9
    if nodes > MOST_NODES:
        cause = f"{passes:,} passes of {len(layer_file.layers):,} layers are up to {nodes:,} nodes"
        raise UsageError(cause, place=layer_file.source, remedy=f"stay below {MOST_NODES:,}")
    scaled = _scaled_file(layer_file, compute_scale, comm_scale)
    is_repeated = passes > 2 and layer_file.keyword != Keyword.MICRO
    unrolling = _Unrolling(scaled, _Where(layer_file, dimensions, ranks))
    program = unrolling.program(2 if is_repeated else passes, layer_file)
    return repeated(program, passes, END) if is_repeated else program


def layer_workload(layer_file: LayerFile, ranks: int, passes: int) -> tuple[Workload, LayerProgram]:
    """Return the program for `ranks` ranks as a workload of one template; its groups follow rules."""
    group = model_group(layer_file, ranks)
    if ranks % group:
        near = [size for size in range(1, ranks + 1) if ranks % size == 0]
        closest = min(near, key=lambda size: abs(size - group))
        raise InputError(
            f"model-parallel groups of {group} do not divide {ranks} ranks",
            place=layer_file.source,
            remedy=f"give a number of ranks that is a multiple of {group}, or change the group in the file,"
            f" for example to {closest}",
        )
    program = layer_program(layer_file, passes, None, None, None, ranks=ranks)
    rules = {MODEL_GROUP: GroupRule(group, 1), DATA_GROUP: GroupRule(ranks // group, group)}
    used = {name: rule for name, rule in rules.items() if name in program.trace.group_names}
    workload = Workload(
        (program.trace,),
        np.zeros(ranks, np.int32),
        layer_file.source,
        relative_peers=(True,),
        group_rules=used,
    )
    return workload, program


def model_group(layer_file: LayerFile, ranks: int) -> int:
    """Return the number of ranks that share a model; a group that is larger than the job is none,
    as in 1.0.
    """
    group = layer_file.model_group or 1
    return 1 if group > ranks else group


def scaled(value: int, scale: float | None) -> int:
    """Return a time or size as 1.0 scales it: multiplied in single precision, then truncated."""
    return value if scale is None else int(np.float32(value) * np.float32(scale))


def _scaled_file(layer_file: LayerFile, compute: float | None, comm: float | None) -> LayerFile:
    for name, scale, most in (("compute", compute, LONGEST_NS), ("comm", comm, MOST_BYTES)):
        if scale is not None and not 0 <= scale <= most:
            raise UsageError(f"{name}-scale is {scale}", remedy=f"give a number from 0 to {most:,}")
    layers = []
    for layer in layer_file.layers:
        works = []
        for phase in LayerPhase:
            work = layer.work(phase)
            time, size = scaled(work.compute_ns, compute), scaled(work.bytes, comm)
            if time > LONGEST_NS or size > MOST_BYTES:
                raise InputError(
                    f"layer {layer.name}, {phase.words}: {time:,} ns and {size:,} bytes once scaled",
                    place=layer_file.source,
                    remedy=f"stay below {LONGEST_NS:,} ns and bytes: give smaller scales",
                )
            works.append(replace(work, compute_ns=time, bytes=size))
        layers.append(replace(layer, forward=works[0], input_gradient=works[1], weight_gradient=works[2]))
    return replace(layer_file, layers=tuple(layers))


class _Where:
    """The dimensions, or the group, of the collectives of a file."""

    def __init__(self, layer_file: LayerFile, dimensions: Sequence[int] | None, ranks: int | None) -> None:
        self.layer_file = layer_file
        self.logical: LogicalDimensions | None = None
        self.sizes = tuple(dimensions) if dimensions is not None else None
        if self.sizes is not None and layer_file.model_group is not None:
            self.logical = logical_dimensions(self.sizes, layer_file.model_group)
            self.sizes = self.logical.sizes
        self.by_group = dimensions is None and has_groups(layer_file.keyword)
        group = layer_file.model_group or 1
        if ranks is not None:
            group = model_group(layer_file, ranks)
        self.is_alone = {
            CollectiveReach.MODEL: group == 1,
            CollectiveReach.DATA: ranks is not None and group == ranks,
        }

    def place(self, work: PhaseOfLayer) -> dict[str, Any] | None:
        """Return the builder's arguments for a collective, or None if no rank takes part in it."""
        own_keyword = self.layer_file.layers[work.layer].keyword
        reach = reach_of(self.layer_file.keyword, work.layer, own_keyword, work.phase)
        if self.by_group:
            return None if self.is_alone[reach] else {"group": _GROUP_OF[reach]}
        sizes = (2,) * FLAGS if self.sizes is None else self.sizes
        flags = flags_of(reach, len(sizes), self.logical)
        is_used = any(flag and size > 1 for flag, size in zip(flags, sizes, strict=True))
        return {"involved_dims": flags} if is_used else None


class _Unrolling:
    """State while steps become nodes, with the collectives that no step has waited for yet."""

    def __init__(self, scaled: LayerFile, where: _Where) -> None:
        self.layer_file = scaled
        self.where = where
        self.build = TraceBuilder(version="et-sim layer file", source=scaled.source)
        self.steps: list[tuple[int, ...]] = []
        self.collectives: list[tuple[int, ...]] = []
        self.waits: list[tuple[int, int, int]] = []
        self.outstanding: dict[PhaseOfLayer, list[int]] = {}
        self.done: list[int] = []  # per collective, the node at whose end it is complete
        self.skipped: Counter[tuple[int, LayerPhase, str]] = Counter()
        self.places: dict[PhaseOfLayer, dict[str, Any] | None] = {}

    def program(self, passes: int, original: LayerFile) -> LayerProgram:
        """Return the whole program."""
        if self.layer_file.keyword == Keyword.MICRO:
            for number in range(passes):
                self._issue(number, PhaseOfLayer(0, LayerPhase.WEIGHT_GRADIENT), -1, [], False, False)
        before: list[int] = []
        for step in steps_of(self.layer_file, passes):
            before = self._play(step, before)
        self._wait(PhaseOfLayer(0, LayerPhase.WEIGHT_GRADIENT), len(self.steps) - 1, END)
        steps = _columns(self.steps, 5)
        issued = _columns(self.collectives, 9)
        waits = _columns(self.waits, 3)
        return LayerProgram(
            original,
            self.build.build(),
            self.where.logical,
            LayerSteps(_rows(steps[0]), _rows(steps[1]), _rows(steps[2]), _rows(steps[3]), _rows(steps[4])),
            LayerCollectives(
                _rows(issued[0]),
                _rows(issued[1]),
                _rows(issued[2]),
                _rows(issued[3]),
                issued[4],
                issued[5].astype(np.bool_),
                issued[6].astype(np.bool_),
                _rows(issued[7]),
                _rows(issued[8]),
            ),
            QueueWaits(_rows(waits[0]), _rows(waits[1]), _rows(waits[2])),
            self.skipped,
        )

    def _play(self, step: LoopStep, before: list[int]) -> list[int]:
        """Add the nodes of a step; return the nodes that the next one follows."""
        number = len(self.steps)
        if step.turns:
            before = [self._tick(before)]
        waited = self._wait(step.waits_first, number, FIRST)
        layer = self.layer_file.layers[step.computes.layer]
        nanos = layer.work(step.computes.phase).compute_ns
        name = f"{layer.name} {step.computes.phase.words}"
        compute = self.build.compute(name, nanos=nanos, after=[*before, *waited])
        issued = None
        if step.issues is not None:
            at = step.number, step.issues, number, [compute]
            issued = self._issue(*at, step.is_blocking, step.is_urgent)
        ends = [compute] if issued is None or not step.is_blocking else [self.done[issued]]
        ends += self._wait(step.waits_last, number, LAST)
        tick = self._tick(ends)
        self.steps.append((step.number, *step.computes, compute, tick))
        return [tick]

    def _tick(self, after: list[int]) -> int:
        return self.build.compute("tick", nanos=TICK_NS, cpu=True, concurrent=True, after=after)

    def _issue(
        self, number: int, work: PhaseOfLayer, step: int, after: list[int], is_blocking: bool, is_urgent: bool
    ) -> int | None:
        """Add a collective and its update time; return its number, or None if it moves nothing."""
        layer = self.layer_file.layers[work.layer]
        wanted = layer.work(work.phase)
        if work not in self.places:
            self.places[work] = self.where.place(work)
        place = self.places[work]
        if wanted.collective is None or not wanted.bytes or place is None:
            if wanted.collective is not None:
                self.skipped[work.layer, work.phase, "no rank" if place is None else "0 bytes"] += 1
            return None
        kind = wanted.collective.name.lower().replace("_", "-")
        name = f"{layer.name} {work.phase.words} {kind}"
        priority = URGENT if is_urgent else None
        row = self.build.collective(
            wanted.collective,
            wanted.bytes,
            name=name,
            priority=priority,
            concurrent=True,
            after=after,
            **place,
        )
        update = -1
        if layer.update_ns:
            name = f"{layer.name} {work.phase.words} update"
            update = self.build.compute(name, nanos=layer.update_ns, cpu=True, concurrent=True, after=[row])
        issued = len(self.collectives)
        self.collectives.append((number, *work, step, wanted.bytes, is_blocking, is_urgent, row, update))
        self.done.append(row if update < 0 else update)
        if not is_blocking:
            self.outstanding.setdefault(work, []).append(issued)
        return issued

    def _wait(self, work: PhaseOfLayer | None, step: int, place: int) -> list[int]:
        """Return the nodes to wait for; later steps need not wait for them again."""
        issued = [] if work is None else self.outstanding.pop(work, [])
        self.waits += [(number, step, place) for number in issued]
        return [self.done[number] for number in issued]


def _columns(rows: Sequence[tuple[int, ...]], count: int) -> list[IntColumn]:
    table = np.array(rows, np.int64).reshape(len(rows), count)
    return [np.ascontiguousarray(table[:, column]) for column in range(count)]


def _rows(column: IntColumn) -> RowColumn:
    return column.astype(np.int32)
