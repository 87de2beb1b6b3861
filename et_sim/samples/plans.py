"""The plan of all samples: that of the run, in which each rank that draws by itself has its own durations.

A sample is a further run of one plan with other durations. Ranks are one actor only if they share all draws,
and behave alike in every other way, so folded and unfolded samples are equal; or if they differ in draws
alone and meet only at barriers (`barriers`), where the last one to arrive decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from msgspec.structs import replace

from et_sim.basics.errors import MachineError
from et_sim.basics.unique import unique
from et_sim.basics.units import LONGEST_NS, format_ns
from et_sim.engine.driver import run_plan
from et_sim.engine.outcome import Outcome
from et_sim.engine.start import KeptStart
from et_sim.engine.transport.network_seam import NetworkModel
from et_sim.fold.limits import TIE
from et_sim.machine.model import Machine, Network
from et_sim.machine.variation import Variation, VariedKind
from et_sim.plan.lowering import Lowering, assemble
from et_sim.plan.members import Actors
from et_sim.plan.paces import OWN_PACE
from et_sim.run.planning import fewest_actors
from et_sim.samples.barriers import (
    Barriers,
    barriers_of,
    join_all,
    meetings_of,
    take_no_time,
    without_meetings,
)
from et_sim.samples.draws import draws_of
from et_sim.samples.links import VariedLinks
from et_sim.samples.work import VariedNodes, elements_of, factors_of_nodes, varied_nodes
from et_sim.trace.columns import Trace
from et_sim.trace.workload import Workload

RANKS_AT_ONCE = 64  # whose durations are drawn together, which bounds memory
LEAST_FACTOR = 1e-3  # of the time of bytes on a link, whose bandwidth is finite


class SampledPlan:
    """A plan whose durations are drawn for every run of it."""

    def __init__(
        self, workload: Workload, machine: Machine, model: NetworkModel, *, seed: int, may_fold: bool
    ) -> None:
        """Plan the workload; refuse entries that no work of it has."""
        self._model, self._network = model, machine.network_of(has_contention=model.HAS_CONTENTION)
        self._lowering = Lowering(workload, machine)
        self._before = self._lowering.variants.paces
        self.workload = self._lowering.workload
        self.entries = machine.system.variation
        self._draws = draws_of(self.entries, seed)
        grid = machine.network.grid
        self._elements = [elements_of(entry, grid, workload.ranks) for entry in self.entries]
        self._varied = [self._of_template(number) for number in range(len(self.workload.templates))]
        of_links = [entry for entry in self.entries if entry.kind is VariedKind.LINK]
        self._links = VariedLinks(self._network, of_links[0].place) if of_links else None
        self._refuse_without_effect()
        self._lowering.variants.vary(self._classes())
        # Nearly all links differ in every sample.
        may_fold = may_fold and self._links is None
        self._actors = fewest_actors(self._lowering, model, may_fold)
        self._set_plan()
        self._barriers: Barriers | None = None
        self._deciding: Any = None  # by node: the rank whose times decide
        if may_fold and len(self.plan.actors) > 1:
            self._fold_at_barriers()

    def _set_plan(self) -> None:
        plan = assemble(self._lowering, self._actors)
        actors, sizes = plan.actors.copy(), plan.templates["nodes"][plan.actors["template"]]
        actors["pace_first"] = np.cumsum(sizes) - sizes
        self.plan = replace(plan, actors=actors, paces=np.zeros(int(sizes.sum()), np.int64))
        self._kept = KeptStart()

    def _fold_at_barriers(self) -> None:
        """Let one actor stand for all ranks if they are equal but for draws, and meet only at barriers."""
        rows = meetings_of(self.plan)
        if rows is None or len(unique(self._before.first)) > 1 or self._network.failures:
            return
        equal = np.zeros(self.workload.ranks, np.int64)
        if take_no_time(self.outcome(None), rows):
            self._unfold(Actors.of_classes(equal))
            self.plan = without_meetings(self.plan, rows)
            self._barriers = barriers_of(self._lowering, rows)
            return
        if not join_all(self.plan, rows):
            return
        drawn = self._actors
        self._lowering.variants.vary(equal)
        self._actors = fewest_actors(self._lowering, self._model, True)
        self._lowering.variants.vary(self._classes())
        if len(self._actors) == 1:
            self._set_plan()
            self._barriers = barriers_of(self._lowering, rows)
        else:
            self._actors = drawn

    def _unfold(self, actors: Actors) -> None:
        """Simulate other actors, which draw by themselves."""
        self._actors, self._barriers, self._deciding = actors, None, None
        self._set_plan()

    @property
    def meets_at_barriers(self) -> bool:
        """Return whether one actor takes the times of the last rank to arrive at each barrier."""
        return self._barriers is not None

    def ranks_of(self, actors: Any, rows: Any) -> Any:
        """Return the ranks whose times some nodes of actors take."""
        return self.plan.actors["rank"][actors] if self._deciding is None else self._deciding[rows]

    @property
    def is_folded(self) -> bool:
        """Return whether some actor stands for several ranks."""
        return self._actors.is_folded

    def outcome(self, step: int | None, without: Sequence[int] = ()) -> Outcome:
        """Return the outcome of a step, without the entries of these numbers; None: without variation.

        It is valid until the next run begins.
        """
        every = range(len(self.entries))
        chosen = () if step is None else tuple(number for number in every if number not in without)
        self._draw(step or 0, chosen)
        network = self._network_in(step or 0, chosen)
        outcome = run_plan(self.plan, network, self._model, kept=self._kept)
        if outcome is None:  # of actors that do not behave like all their ranks
            self._unfold(Actors.one_per_rank(self.workload.ranks, (TIE,)))
            return self.outcome(step, without)
        return outcome

    def _network_in(self, step: int, entries: Sequence[int]) -> Network:
        """Return the network of a step, with the factors of some entries."""
        chosen = [number for number in entries if self.entries[number].kind is VariedKind.LINK]
        if self._links is None or not chosen:
            return self._network
        factors = np.ones(self._links.count)
        for number in chosen:
            factors *= self._draws[number].factors(np.arange(self._links.count), step, 1)[:, 0]
        return self._links.with_factors(np.maximum(factors, LEAST_FACTOR))

    def nominal_ns(self, template: Any, row: Any, rank: Any) -> Any:
        """Return the durations of nodes of templates on ranks without variation."""
        nodes, begin = self._lowering.nodes["duration_ns"], self._before.first[rank]
        nominal = np.array(nodes[self._lowering.templates["node_first"][template] + row])
        for at in np.flatnonzero(begin != OWN_PACE).tolist():
            nominal[at] = self._before.column(int(begin[at]))[row[at]]
        return nominal

    def _of_template(self, number: int) -> list[VariedNodes]:
        trace, nodes = self.workload.templates[number], self._nodes(number)
        return [varied_nodes(entry, trace, nodes) for entry in self.entries]

    def _nodes(self, template: int) -> Any:
        row = self._lowering.templates[template]
        return self._lowering.nodes[int(row.node_first) : int(row.node_first) + int(row.nodes)]

    def _refuse_without_effect(self) -> None:
        for number, entry in enumerate(self.entries):
            if entry.kind is VariedKind.LINK:
                continue
            of_entry = [varied[number] for varied in self._varied]
            if not any(len(nodes.rows) for nodes in of_entry):
                raise _without_effect(entry, any(nodes.simulated for nodes in of_entry))
            _check_names(entry, self.workload.templates, of_entry)

    def _classes(self) -> Any:
        """Return a number for each rank: equal ones have equal durations in every sample."""
        code = np.unique(self._before.first, return_inverse=True)[1].reshape(-1)
        for number, of_ranks in enumerate(self._elements):
            draws = np.array([len(varied[number].rows) > 0 for varied in self._varied])
            element = np.where(draws[self.workload.template_of_rank], of_ranks, -1)
            _, code = np.unique(code * (self.workload.ranks + 1) + element, return_inverse=True)
            code = code.reshape(-1)
        return code

    def _draw(self, step: int, entries: Sequence[int]) -> None:
        """Set the durations of all actors in a step, with the factors of some entries."""
        if self._barriers is not None:
            self._draw_of_last(self._barriers, step, entries)
            return
        actors, paces = self.plan.actors, self.plan.paces
        for template in range(len(self.workload.templates)):
            mine = np.flatnonzero(actors["template"] == template)
            for first in range(0, len(mine), RANKS_AT_ONCE):
                some = mine[first : first + RANKS_AT_ONCE]
                drawn = self._drawn(template, actors["rank"][some], step, entries)
                paces[actors["pace_first"][some][:, None] + np.arange(drawn.shape[1])] = drawn

    def _draw_of_last(self, barriers: Barriers, step: int, entries: Sequence[int]) -> None:
        """Set the durations of the one actor: those of the last rank to arrive at each barrier."""
        template = int(self.plan.actors["template"][0])
        sums = [
            barriers.sums(self._drawn(template, ranks, step, entries))
            for ranks in np.split(
                np.arange(self.workload.ranks), range(RANKS_AT_ONCE, self.workload.ranks, RANKS_AT_ONCE)
            )
        ]
        self._deciding = barriers.deciding(np.concatenate(sums))
        for rank in np.unique(self._deciding):
            mine = np.flatnonzero(self._deciding == rank)
            self.plan.paces[mine] = self._drawn(template, np.array([rank]), step, entries)[0, mine]

    def _drawn(self, template: int, ranks: Any, step: int, entries: Sequence[int]) -> Any:
        """Return the durations of nodes on some ranks of a template, with the factors of some entries."""
        varied = [self._varied[template][number] for number in entries]
        draws = [self._draws[number] for number in entries]
        durations = self._durations(template, ranks)
        elements = [self._elements[number][ranks] for number in entries]
        return _scaled(durations, factors_of_nodes(draws, varied, elements, step, durations.shape))

    def _durations(self, template: int, ranks: Any) -> Any:
        """Return the durations of nodes on some ranks without variation, a row for each."""
        durations = np.repeat(self._nodes(template)["duration_ns"][None, :], len(ranks), axis=0)
        begins = self._before.first[ranks]
        for at in np.flatnonzero(begins != OWN_PACE).tolist():
            durations[at] = self._before.column(int(begins[at]))
        return durations


def _scaled(durations: Any, factors: Any) -> Any:
    """Return durations times factors in whole nanoseconds; work that took time takes at least one."""
    scaled = np.floor(durations * factors)
    if scaled.max(initial=0) > LONGEST_NS:
        raise MachineError(
            f"with its variation, a node would last longer than {format_ns(LONGEST_NS)}",
            place="system configuration",
            remedy='correct "spread" or "factor" in "variation"',
        )
    return np.where(factors == 1, durations, np.maximum(scaled.astype(np.int64), durations > 0))


def _check_names(entry: Variation, templates: Sequence[Trace], of_entry: Sequence[VariedNodes]) -> None:
    """Refuse names of operations that no node with a time of this kind has."""
    found: set[str] = set()
    for trace, nodes in zip(templates, of_entry, strict=True):
        found.update(trace.names[name] for name in np.unique(trace.name[nodes.rows]).tolist())
    for name in entry.operations:
        if name not in found:
            raise _unknown_name(entry, name)


def _without_effect(entry: Variation, is_simulated: bool) -> MachineError:
    if is_simulated:
        return MachineError(
            f'kind "{entry.kind}" has no effect: the network sets the time of every collective',
            place=entry.place,
            remedy='vary kernels, or replay recorded communication ("replay-only": 1)',
        )
    if entry.operations:
        return _unknown_name(entry, entry.operations[0])
    return MachineError(
        f'kind "{entry.kind}" has no effect: no rank of this workload has such work that takes time',
        place=entry.place,
        remedy="leave the entry out",
    )


def _unknown_name(entry: Variation, name: str) -> MachineError:
    return MachineError(
        f'key "operations" names "{name}", and no rank has such a {entry.kind} that takes time',
        place=entry.place,
        remedy="leave the name out, or correct it (et-sim inspect DIR ops lists all)",
    )
