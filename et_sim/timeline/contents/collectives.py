"""What collectives and messages add up to: the columns of phases.arrow, peers.arrow and layers.arrow."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np

from et_sim.basics.units import format_ranks
from et_sim.engine.outcome import Outcome
from et_sim.plan.peers import Endpoints, find_endpoints
from et_sim.plan.tables import IN_GROUP, NO_AXIS
from et_sim.tables.of_collectives import PHASES_OF_LAYERS
from et_sim.timeline.content import Content, Texts, unless
from et_sim.timeline.layers import LayerOfNode, LayerRun
from et_sim.timeline.output_filter import OutputFilter
from et_sim.timeline.recorded import RecordedRun
from et_sim.timeline.rows import COLLECTIVE_NAMES
from et_sim.timeline.spool import Phases
from et_sim.trace.workload import Workload


def layers_content(run: RecordedRun, _: OutputFilter) -> Content | None:
    """layers.arrow; its metadata have figures of the whole run."""
    if run.layers is None:
        return None
    return Content(iter([_columns(run.layers)]), {"figures": run.layers.figures()})


def _columns(layers: LayerRun) -> dict[str, Any]:
    """A row per layer."""
    figures = {"compute": layers.compute_ns, "exposed": layers.exposed_ns, "total": layers.total_ns}
    columns: dict[str, Any] = {"layer": Texts(np.arange(len(layers.names)), layers.names)}
    for figure, values in figures.items():
        for number, phase in enumerate(PHASES_OF_LAYERS):
            columns[f"{phase.replace(' ', '_')}_{figure}_ns"] = values[:, number]
    return columns


ALL = -1


def peers_content(run: RecordedRun, _: OutputFilter) -> Content | None:
    """peers.arrow; always all of them, of folded runs in which anything is sent."""
    workload, is_folded = run.workload, run.outcome.plan.is_folded
    endpoints = [
        find_endpoints(trace, workload.has_relative_peers(number), workload.ranks)
        for number, trace in enumerate(workload.templates if is_folded else ())
    ]
    if not any(len(one.rows) for one in endpoints):
        return None
    texts: dict[str, int] = {}
    blocks = list(_blocks(run, endpoints, texts))
    columns = {name: np.concatenate([block[name] for block in blocks]) for name in blocks[0]}
    return Content(iter([{**columns, "ranks": Texts(columns["ranks"], tuple(texts))}]))


def _blocks(run: RecordedRun, endpoints: list[Endpoints], texts: dict[str, int]) -> Iterator[dict[str, Any]]:
    """Rows of each actor, in the order of its sends and receives; `texts` collects those of ranks."""
    template_of_rank, count = run.workload.template_of_rank, run.workload.ranks
    templates = run.outcome.plan.actors["template"].tolist()
    for actor, ranks in enumerate(run.measurement.ranks_of_actors()):
        own = endpoints[templates[actor]]
        if not len(own.rows):
            continue
        runs = template_of_rank[ranks]
        meanings = [_meanings(slot, ranks, runs, endpoints, count, texts) for slot in range(len(own.peers))]
        places = [place for place, slot in enumerate(own.slot.tolist()) for _ in meanings[slot]]
        pairs = np.array([pair for slot in own.slot.tolist() for pair in meanings[slot]], np.int64)
        ids = run.workload.templates[templates[actor]].node_id[own.rows]
        yield {
            "actor": np.full(len(pairs), actor, np.int32),
            "node": ids[places].astype(np.uint64),
            "ranks": pairs[:, 0],
            "distance": pairs[:, 1],
        }


def _meanings(
    slot: int, ranks: Any, runs: Any, endpoints: list[Endpoints], count: int, texts: dict[str, int]
) -> list[tuple[int, int]]:
    """(number of a text of ranks, or ALL; distance of whom a slot means to them), by the ranks' templates."""
    templates, of_rank = np.unique(runs, return_inverse=True)
    every = [endpoints[template] for template in templates.tolist()]
    peer = np.array([int(one.peers[slot]) for one in every])[of_rank.reshape(-1)]
    is_distance = np.array([one.relative for one in every])[of_rank.reshape(-1)]
    distance = np.where(is_distance, peer, peer - ranks) % count
    order = np.argsort(distance, kind="stable")
    parts = np.split(ranks[order], np.flatnonzero(np.diff(distance[order])) + 1)
    found = np.unique(distance).tolist()
    if len(found) == 1:
        return [(ALL, found[0])]
    named = (format_ranks(part) for part in parts)
    return [(texts.setdefault(text, len(texts)), one) for text, one in zip(named, found, strict=True)]


NONE = -1
SYSTEM = 0  # the group of all ranks


class PhaseSource:
    """Makes the columns of phases.arrow."""

    def __init__(
        self, phases: Phases, outcome: Outcome, workload: Workload, layer_of: LayerOfNode | None = None
    ) -> None:
        self._phases, self._plan, self._workload, self._layer_of = phases, outcome.plan, workload, layer_of
        self._of_groups: dict[tuple[int, int], int] = {}

    def blocks(self, output_filter: OutputFilter) -> Iterator[dict[str, Any]]:
        """Columns of all phases that are kept, block by block."""
        plan, actors = self._plan, output_filter.actors(self._plan.actor_of_rank)
        for every in self._phases.blocks():
            mask = output_filter.mask(actors, every["actor"], every["queued_ns"], every["end_ns"])
            log = every if mask is None else every[mask]
            rows = plan.phases[log["phase_row"]]
            first = plan.templates["node_first"][plan.actors["template"][log["actor"]]]
            columns = {name: log[name] for name in ("actor", "chunk", "phase", "messages")}
            columns |= {
                "node": self._node_ids[first + log["node"]],
                "dimension": self._dimensions(rows, log["actor"], first + log["node"]),
                "operation": Texts(rows["operation"].astype(np.int8), COLLECTIVE_NAMES),
                "bytes": rows["bytes"],
                "queued_ns": log["queued_ns"],
                "start_ns": log["start_ns"],
                "end_ns": log["end_ns"],
                "message_wait_ns": log["waited_ns"],
            }
            if self._layer_of is not None:  # the workload has one trace
                columns["layer"] = self._layer_of.layer[log["node"]]
                columns["layer_phase"] = Texts(self._layer_of.phase[log["node"]], PHASES_OF_LAYERS)
            yield columns

    def _dimensions(self, rows: Any, actor: Any, node: Any) -> Any:
        """The dimension that phases cross; null of those that cross several."""
        plan = self._plan
        found = rows["dimension"].copy()
        system = np.flatnonzero(rows["axis"] == plan.dimensions)
        if len(system):
            found[system] = self._real_dimension
        in_group = plan.axes["members_first"][rows["axis"]] == IN_GROUP
        own = np.flatnonzero((rows["axis"] == NO_AXIS) | in_group)
        if len(own):
            member = plan.actors["first_member"][actor[own]] + plan.nodes["member"][node[own]]
            pairs = np.stack((plan.members["group"][plan.actor_members[member]], rows["axis"][own]))
            groups, of_row = np.unique(pairs, axis=1, return_inverse=True)
            crossed = np.array([self._of_group(group, axis) for group, axis in groups.T.tolist()])
            found[own] = crossed[of_row.reshape(-1)]
        return unless(found, found == NONE)

    @cached_property
    def _real_dimension(self) -> int:
        """The only dimension that has several NPUs; the first, if none has; NONE, if several have."""
        return _only(self._plan.axes["members"][: self._plan.dimensions] > 1)

    def _of_group(self, group: int, axis: int) -> int:
        """The only dimension in which members of a group differ along an axis, NONE if there are several."""
        if group == SYSTEM:
            return self._real_dimension
        if (group, axis) not in self._of_groups:
            first, count = (int(self._plan.groups[name][group]) for name in ("members_first", "members"))
            ranks = self._plan.group_ranks[first : first + count][None, :]
            if axis != NO_AXIS:
                stride, line = (int(self._plan.axes[name][axis]) for name in ("stride", "members"))
                ranks = np.moveaxis(ranks.reshape(-1, line, stride), 1, -1).reshape(-1, line)
            self._of_groups[group, axis] = self._crossed(ranks)
        return self._of_groups[group, axis]

    def _crossed(self, lines: Any) -> int:
        axes = self._plan.axes[: self._plan.dimensions]
        places = lines[..., None] // axes["stride"] % axes["members"]
        return _only((places != places[:, :1]).any(axis=(0, 1)))

    @cached_property
    def _node_ids(self) -> Any:
        return np.concatenate([trace.node_id for trace in self._workload.templates])


def _only(are_crossed: Any) -> int:
    """The one dimension that is crossed, NONE if there are several; what crosses none is in the first."""
    crossed = np.flatnonzero(are_crossed).tolist() or [0]
    return crossed[0] if len(crossed) == 1 else NONE


def phases_content(run: RecordedRun, output_filter: OutputFilter) -> Content | None:
    """phases.arrow; of a layer file also with the layers."""
    if run.phases is None:
        return None
    layer_of = run.layers.layer_of if run.layers else None
    source = PhaseSource(run.phases, run.outcome, run.workload, layer_of)
    return Content(source.blocks(output_filter), without=() if layer_of else ("layer", "layer_phase"))
