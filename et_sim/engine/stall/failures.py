"""The part whose failure stopped a run."""

from __future__ import annotations

import numpy as np

from et_sim.basics.units import format_ns, plural, ranks_text
from et_sim.engine.outcome import Outcome
from et_sim.engine.transport.network_seam import LostMessages
from et_sim.machine.networks import Failure, GraphFabric, Network

FATE = "whose path is dead"


def why_lost(outcome: Outcome) -> tuple[str, str, str]:
    """Return why messages of a run never arrive, the remedy, and the fate of such a message."""
    network, lost = outcome.network, outcome.lost
    assert network is not None
    if lost is None:
        return _of_ranks(network, outcome)
    bits = network.fraction_bits
    lost_ns, recovery = lost.lost_ns >> bits, network.recovery
    failure = _failure_of(network, lost)
    source, target = lost.ends
    waited = min(recovery.given_up_ns, int(recovery.watchdog_ns))
    ends = f"from rank {source} to rank {target}" if max(lost.ends) < network.ranks else "of a switch"
    cause = (
        f"{failure.text} failed at {format_ns(failure.at_ns)}; {plural(len(lost.rows), 'message')} lost "
        f"bytes there, the first {ends} at {format_ns(lost_ns)}, and found no other path in "
        f"{plural(min(lost.tries, recovery.retries + 1), 'try', 'tries')} ({format_ns(waited)})"
    )
    if recovery.fail_over or failure.ranks:
        remedy = "describe a second way to these ranks; et-sim goodput has the restart of the job"
    elif not isinstance(network.fabric, GraphFabric):
        remedy = "give a shorter failure, or a graph with a second port and recovery: { fail-over: true }"
    else:
        remedy = "give recovery: { fail-over: true } and a second port, or a shorter failure"
    return cause, remedy, FATE


def _failure_of(network: Network, lost: LostMessages) -> Failure:
    """Return the failure that was there when a message lost its bytes, the first of several."""
    lost_ns = lost.lost_ns >> network.fraction_bits
    held = [
        failure
        for failure, links in zip(network.failures, lost.links_of_failures, strict=True)
        if failure.is_dead and failure.at_ns <= lost_ns and lost.link in links
    ]
    return held[0]


def _of_ranks(network: Network, outcome: Outcome) -> tuple[str, str, str]:
    """Return the cause if ranks failed and no message needed them; empty if none did."""
    stuck = np.flatnonzero(outcome.finish_ns < 0)
    for failure in network.failures:
        actors = outcome.plan.actor_of_rank[list(failure.ranks)]
        if np.isin(actors, stuck).any():
            cause = (
                f"{failure.text} failed at {format_ns(failure.at_ns)}, before {ranks_text(failure.ranks)} "
            )
            cause += "had finished" if len(failure.ranks) > 1 else "had finished its work"
            return cause, "et-sim goodput has the restart of the job", FATE
    return "", "", ""
