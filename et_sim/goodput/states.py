"""The states of a step, each simulated once: a slow node, half of a link, fewer replicas, and checkpoints
beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np

from et_sim.basics.errors import EtSimError, UsageError
from et_sim.goodput.job_file import ASYNCHRONOUS, HALVES, SLOWS, JobSpec
from et_sim.goodput.resolving import parts_of
from et_sim.goodput.setting import JobStep
from et_sim.goodput.sources import Beside, Simulator, Source
from et_sim.goodput.storage import has_ports, port_bytes_per_s, ports_of_graph, with_storage
from et_sim.machine.failure_effects import LEAST_SHARE
from et_sim.run.small_run import TooLargeError
from et_sim.trace import Workload

MOST_APART = 100_000_000  # messages and nodes of a step with one slow part: about a minute and 5 GB
Change = Callable[
    [list[int]], dict[str, Any]
]  # of the system or the network, by the first ranks of slow nodes
SHARED_LINKS = (None, "flow")  # network models whose messages share links, beside writes
SLOW_LINKS = (*SHARED_LINKS, "link")  # those whose links may be slow
ALIKE, ROUNDING = 1e-6, 2e-9  # a part of a step, and seconds
CROSSES = "a given step has no messages: checkpoints cross the network of its machine alone"
CROSSES_NOT = "checkpoints do not cross the network of the machine: no outermost switch has room for storage"
HALF_LINK_AT_MOST = 2.0  # times a step, if each message on the link takes twice as long


def states_of(job: JobSpec, step: JobStep, source: Source | None, simulator: Simulator) -> dict[str, Any]:
    """Return the states that a job needs; those that cannot be simulated have a note."""
    simulated = {} if source is None else _simulated(job, step, source, simulator)
    found: dict[str, Any] = {"notes": (), "half_link": HALF_LINK_AT_MOST * step.seconds, **simulated}
    memory = job.checkpoints.memory
    if memory is not None and memory.stall is None and "copy_stall" not in simulated:
        found["notes"] += ("copies in memory were not simulated: they do not lengthen a step",)
    if _has(HALVES, job) and "half_link" not in simulated:
        found["notes"] += ("a link was not simulated with half of its bandwidth: steps take twice as long",)
    if _has(SLOWS, job) and "slow" not in simulated:
        found["slow"] = step.seconds * job.failures.slower
        found["notes"] += ("a slow node was not simulated: steps take `slower` times as long",)
    if job.elastic and "fewer" not in simulated:
        replicas = max(step.replicas, step.nodes if step.replicas == 1 else 1)
        found["fewer"] = _shares([step.seconds] * min(job.elastic, replicas - 1), replicas)
        found["notes"] += ("fewer replicas were not simulated: steps take as long, and a replica is a node",)
    return found


def _has(effect: str, job: JobSpec) -> bool:
    return any(part.effect == effect and part.rate != 0 for part in parts_of(job))


def _has_link_parts(job: JobSpec) -> bool:
    """Return whether a second port would change the effect of some failures."""
    return any(part.is_link and part.rate != 0 for part in parts_of(job))


def _shares(seconds: list[float], replicas: int, of_node: int = 1) -> tuple[tuple[float, float], ...]:
    """Return steps without 1, 2, … nodes, each of some replicas, with the share of their tokens."""
    return tuple((step, 1 - number * of_node / replicas) for number, step in enumerate(seconds, 1))


def _simulated(job: JobSpec, step: JobStep, source: Source, simulator: Simulator) -> dict[str, Any]:
    """Return the states that can be simulated."""
    found = _degraded(job, step, source, simulator) if source.has_messages else {}
    if job.elastic and source.fewer is not None:
        assert source.lost_with_node is not None
        of_node = source.lost_with_node(step.gpus_of_node)
        found["fewer"] = _with_fewer_replicas(job.elastic, of_node, step, source.fewer, simulator)
    if copies := _copies(job, step):
        found["copy_stall"] = max(simulator.seconds(source, copies)[0] - step.seconds, 0.0)
    found |= _written(job, step, source, simulator)
    if not source.has_messages:
        found.pop("write_stall", None)
        found["notes"] = (CROSSES if found else CROSSES_NOT,)
    return found


def _with_fewer_replicas(
    elastic: int, of_node: int, step: JobStep, fewer: Callable[[int], Source], simulator: Simulator
) -> tuple[tuple[float, float], ...]:
    """Return the steps without the replicas of 1, 2, … failed nodes, with the share of their tokens."""
    numbers = range(of_node, min(elastic, step.replicas - 1) + 1, of_node)
    if not numbers:
        raise UsageError(
            f'"elastic" is {elastic}, and a failed node takes {of_node:,} of {step.replicas:,} replicas with'
            " it",
            remedy=f'give "elastic: {of_node}"'
            if of_node < step.replicas
            else 'leave it out, or give the plan an "order" in which a node has parts of fewer replicas',
        )
    try:
        seconds = [simulator.seconds(fewer(number))[0] for number in numbers]
    except EtSimError as error:
        raise UsageError(
            f'"elastic" is {elastic}, and the job cannot be simulated with fewer replicas: {error.cause}',
            remedy='leave it out, or give "step", "tokens-of-step" and "gpus" in place of "workload"',
        ) from None
    return _shares(seconds, step.replicas, of_node)


def _degraded(job: JobSpec, step: JobStep, source: Source, simulator: Simulator) -> dict[str, Any]:
    """Return the step with a slow node, and with half of a link."""
    network, node = source.network, min(step.gpus_of_node, step.gpus)
    can_halve = step.nodes > 1 and source.model in SLOW_LINKS and has_ports(network)
    states: dict[str, tuple[str, Change]] = {}
    if _has(SLOWS, job):
        slower = partial(_with_slow_nodes, source.system, node, job.failures.slower)
        states["slow"] = "a node is slow", slower
    if can_halve and (_has(HALVES, job) or _has_link_parts(job)):
        states["half_link"] = "a link has half of its bandwidth", partial(_with_half_links, network)
    found: dict[str, Any] = {"notes": ()}
    for name, (words, change) in states.items():
        seconds, nodes = _with_one(change, node, source, simulator)
        if seconds is not None:
            found |= {name: seconds} | ({"has_half_link": True} if name == "half_link" else {})
        if nodes > 1:
            found["notes"] += (
                f"{words} in each of {nodes:,} nodes that are alike, in place of one: with one, more than"
                f" {MOST_APART:,} messages and nodes of a step were to be simulated",
            )
    return found


def _with_one(change: Change, node: int, source: Source, simulator: Simulator) -> tuple[float | None, int]:
    """Return the step with one slow part, and 1. If that is too large to simulate, return the step with all
    parts like it, and their number; if that is too large as well, None and 0.
    """
    alike = like_the_first(source.workload(), node)
    together = change(alike)
    if len(alike) == 1 or not simulator.has(source, together):  # else, one was too large before
        with suppress(TooLargeError):
            return simulator.seconds(source, changed=change([0]), most=MOST_APART)[0], 1
    if len(alike) > 1:
        with suppress(TooLargeError):
            return simulator.seconds(source, changed=together, most=MOST_APART)[0], len(alike)
    return None, 0


def like_the_first(workload: Workload, node: int) -> list[int]:
    """Return the first ranks of the nodes whose ranks run the traces of the first node, in this order.

    If all of them are slow, ranks stay alike. The step then takes about as long as with one of them slow, as
    each waits for the slowest.
    """
    nodes = workload.ranks // node
    of_nodes = workload.template_of_rank[: nodes * node].reshape(nodes, node)
    return (node * np.flatnonzero((of_nodes == of_nodes[0]).all(axis=1))).tolist()


def _with_half_links(network: Mapping[str, Any], ranks: list[int]) -> dict[str, Any]:
    """Return the key of a network in which some GPUs have half of their bandwidth between nodes."""
    half: dict[str, Any] = {"at": "0s", "slower": 0.5}
    if "topology" in network:
        half["dimension"] = len(network["topology"]) - 1
    ports = ranks if "topology" in network else ports_of_graph(network, ranks)
    halves = [{"port": port, **half} for port in ports]
    return {"network": {**network, "failures": [*network.get("failures", ()), *halves]}}


def _with_slow_nodes(system: Mapping[str, Any], gpus: int, factor: float, ranks: list[int]) -> dict[str, Any]:
    """Return the key of a system in which the nodes that begin with some ranks compute more slowly."""
    nodes = ",".join(f"{rank}-{rank + gpus - 1}" for rank in ranks)
    slow = {"ranks": nodes, "compute": factor}
    return {"system": {**system, "stragglers": [*system.get("stragglers", ()), slow]}}


def _copies(job: JobSpec, step: JobStep) -> Beside | None:
    """Return the messages of copies in memory, if their time is to be simulated and there are other nodes."""
    memory, size = job.checkpoints.memory, job.checkpoints.size(step.bytes)
    others = step.nodes - 1
    if memory is None or memory.stall is not None or not others or memory.copies == 1 or not size:
        return None
    return Beside(-(-size // step.gpus), min(memory.copies - 1, others), step.gpus_of_node)


def _written(job: JobSpec, step: JobStep, source: Source, simulator: Simulator) -> dict[str, float]:
    """Return by how much a checkpoint that is written beside steps lengthens them, and the time to write it.

    If that is longer than a step, as much is written beside one step as its time allows, and so on.
    """
    size = job.checkpoints.size(step.bytes)
    port = port_bytes_per_s(source.network) if source.model in SHARED_LINKS else None
    if port is None:
        return {}
    found = {"port": port}
    if job.checkpoints.how != ASYNCHRONOUS or job.checkpoints.stall is not None or size is None:
        return found
    part = -(-size // step.gpus)
    share = job.checkpoints.storage * 1e9 / step.gpus / port
    of_step = min(part, int(min(share, 1.0) * port * step.seconds))
    if not part:
        return {**found, "write_stall": 0.0}
    if not of_step or share < LEAST_SHARE:  # too little traffic to be simulated
        return found
    if not _is_alike_beside_storage(step, source, simulator):
        return found
    network = with_storage(source.network, step.gpus, share)
    beside, written = simulator.seconds(source, Beside(of_step), {"network": network})
    write = written * part / of_step
    steps = 1.0 if of_step == part else write / beside
    return {**found, "write_stall": steps * max(beside - step.seconds, 0.0), "write": write}


def _is_alike_beside_storage(step: JobStep, source: Source, simulator: Simulator) -> bool:
    """Return whether a step takes as long on the machine with storage to which hardly anything is written.

    It does with collective libraries on dimensions. Further switches of a graph may shorten ways, and without
    a library or the correction GROUPS_BY_DIMENSION, collectives of a half of the machine take other ways.
    """
    if "library" in source.system and "topology" in source.network:
        return True
    network = with_storage(source.network, step.gpus, 1.0)
    beside = simulator.seconds(source, Beside(1), {"network": network})[0]
    return abs(beside - step.seconds) <= max(ALIKE * step.seconds, ROUNDING)
