"""A model that is served: its replicas on the machine, the times of their passes, and its results."""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from typing import TYPE_CHECKING, Any, NamedTuple

from et_sim.machine import Machine
from et_sim.machine.remote_memory import MemoryKind
from et_sim.serving.cluster import ServingCluster
from et_sim.serving.course import Course
from et_sim.serving.drafting import Drafting
from et_sim.serving.images import Encoding
from et_sim.serving.replicas import CachePool, SimulatedTimes
from et_sim.serving.results import Serving
from et_sim.serving.rollouts import place_behind
from et_sim.serving.scaling import STORE, Scaler
from et_sim.serving.transfers import LAYERS
from et_sim.workloads.inference.batch import sights
from et_sim.workloads.inference.numbers import unpacks_weights
from et_sim.workloads.models.model import Model

if TYPE_CHECKING:
    from et_sim.serving.setups import Setup

SHARED_MEMORIES = (MemoryKind.POOL, MemoryKind.HIERARCHICAL_POOL)


class ServedModel(NamedTuple):
    """A model with its replicas, and the times of their passes."""

    model: Model
    setup: Setup
    pools: tuple[CachePool, ...]
    times: SimulatedTimes
    others: tuple[SimulatedTimes, ...]  # of drafts and images
    cluster: ServingCluster


def served_model(
    model: Model,
    setup: Setup,
    pools: tuple[CachePool, ...],
    machine: Machine,
    times_of: Callable[[Model], SimulatedTimes],
    course: Course,
    before: Sequence[ServedModel],
) -> ServedModel:
    """Return the replicas of a model behind those of others."""
    times, others = times_of(model), list[SimulatedTimes]()
    drafting, encoding = None, None
    if (speculation := setup.speculation) is not None:
        drafts = times
        if speculation.model is not None:
            others.append(drafts := times_of(speculation.model))
        drafting = Drafting(speculation, drafts)
    if setup.images is not None:
        others.append(times_of(setup.images.tower))
        encoding = Encoding(setup.images, others[-1])
    cluster = ServingCluster(
        pools,
        setup.policy,
        times,
        setup.context_step,
        sights=sights(model),
        engine=setup.engine.unpacking() if unpacks_weights(model, setup.plan) else setup.engine,
        caching=setup.caching,
        has_common_memory=machine.memory.kind in SHARED_MEMORIES,
        layers=model.layers,
        expert_layers=sum(map(model.has_experts, range(model.layers))),
        drafting=drafting,
        encoding=encoding,
        by_layers=setup.transfer == LAYERS,
        scaler=_scaler(setup, pools, machine.network.ranks),
        course=course,
        first_replica=sum(len(part.cluster.replicas) for part in before),
    )
    return ServedModel(model, setup, pools, times, tuple(others), cluster)


def results_of(part: ServedModel, facts: dict[str, Any], counted: Set[int], machine: Machine) -> Serving:
    """Return the results of the requests of one model that count, with its name and its load as facts."""
    setup, cluster = part.setup, part.cluster
    cluster.sort()
    return Serving(
        [sequence for sequence in cluster.served if sequence.request.number in counted],
        cluster.iterations,
        part.pools,
        setup.policy,
        setup.objectives,
        facts,
        {},
        machine.system.costs,
        setup.caching,
        setup.engine.errors,
        scaler=cluster.scaler,
        first_replica=cluster.first_replica,
    )


def _scaler(setup: Setup, pools: Sequence[CachePool], npus: int) -> Scaler | None:
    """Return the replicas over time, if a rule changes their number."""
    if (rule := setup.autoscaling) is None:
        return None
    behind = place_behind(pools, npus, "--weights-from store") if rule.source == STORE else None
    return Scaler(rule, pools[0], behind, _more_bytes(setup))


def _more_bytes(setup: Setup) -> int:
    """Return the bytes of weights on a rank of a replica, besides those of the model."""
    tower = 0 if setup.images is None else setup.images.weight_bytes(setup.plan)
    return tower + (0 if setup.speculation is None else setup.speculation.weight_bytes(setup.plan))
