"""A critical path in one sentence: the ranks that are on it, its main cause, and what could save most.

Where only dependencies lead along it, an infinitely fast network saves no more than the network's time on the
path: every run of the workload has these dependencies, with the same kernels between them. Elsewhere another
order of service, or another choice of collectives, may save more, and no bound is given.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import ceil
from types import MappingProxyType
from typing import Any

import numpy as np
from msgspec import Struct

from et_sim.basics.quantities import Quantity
from et_sim.views.critical.events import KINDS, NONE, PACKETS
from et_sim.views.critical.path import CAUSES, CriticalPath
from et_sim.views.critical.sensitivity import Parameter, Sensitivities, parameters, times_of
from et_sim.views.run.directory import RunDirectory
from et_sim.views.summary.rank_table import called
from et_sim.views.summary.waiting import LONGEST_RANKS
from et_sim.views.text import share

NETWORK = ("latency", "serialisation", "queueing", "contention", "switch", "window", "resending", "bus")
KERNELS = ("compute",)
CLOSE = 0.05  # of the makespan: a bound farther above the path's own time is not shown
TIMES_OF_OTHERS = ("contention", "queueing", "window", "resending", "bus", "library")
WORDS: Mapping[str, str] = MappingProxyType(
    {
        "compute": "computation",
        "host": "operators of the host",
        "gap": "gaps of the recording",
        "contention": "kernels slowed by others",
        "window": "windows of the transport",
        "resending": "resent packets",
        "endpoint": "endpoint delays",
        "reduction": "reductions",
        "library": "the collective library beside the wires",
        "memory": "remote memory",
        "bus": "the shared bus",
        "switch": "switches",
        "replayed": "communication as recorded",
        "other": "other nodes",
        "idle": "late starts",
    }
)


def of_path(run: RunDirectory, path: CriticalPath) -> str:
    """Return what the path consists of, and what could save most."""
    whole, causes = path.makespan_ns, path.by_cause()
    (main, spent), *_ = sorted(causes.items(), key=lambda cause: -cause[1])
    actor, on_it = _longest_on(path)
    owner = called(run.actors()["ranks"][actor].as_py(), LONGEST_RANKS)
    verb = "is" if owner.startswith("rank ") else "are"
    text = f"{owner} {verb} on {share(on_it, whole)} of the critical path"
    text += f", which is {share(spent, whole)} {WORDS.get(main, main)}"
    if main in NETWORK:
        links = [
            (sum(link[name] or 0 for name in link if name != "link"), link["link"]) for link in path.by_link()
        ]
        text += f", most on {max(links)[1]}" if links else ""
    lever = None if path.record.is_long else best_lever(path)  # a lever needs the whole record
    if lever is not None:
        text += f"; best lever: {lever.text}, estimated to save {share(lever.saved_ns, whole)}"
    part = KERNELS if main in NETWORK else NETWORK
    called_part = "kernels" if part is KERNELS else "network"
    of_part = sum(causes.get(name, 0) for name in part)
    if (bound := saved_at_most_ns(path, part)) is None or bound - of_part > CLOSE * whole:
        return f"{text}; {share(of_part, whole) if of_part else 'nothing'} of it is {called_part}"
    saved = f"{ceil(100 * bound / whole)} % at most" if bound else "nothing"
    subject = "infinitely fast kernels" if part is KERNELS else "an infinitely fast network"
    return f"{text}; {subject} would save {saved}"


def saved_at_most_ns(path: CriticalPath, part: Sequence[str]) -> int | None:
    """Return a bound on the time saved if a part (causes of the path) takes no time; None: no bound is known.

    Up to the first event that an order of service admitted, each event of the path follows from the one
    before in every run of the workload. So no run is shorter than the time of the other parts there, unless
    their times depend on other events.
    """
    if not path.record.is_exact or path.record.adapts:
        return None
    chain, changes = path.chain, [CAUSES.index(name) for name in (*part, *TIMES_OF_OTHERS)]
    until = int(chain.by_order.argmax()) if chain.by_order.any() else len(chain)
    stays = ~np.isin(path.cause[:until], changes)
    return path.makespan_ns - int(path.spent_ns[:until][stays].sum())


def _longest_on(path: CriticalPath) -> tuple[int, int]:
    """Return the actor with the most time on the path, and this time."""
    actor = path.chain.actor
    spent = np.bincount(np.maximum(actor, 0), np.where(actor < 0, 0, path.spent_ns)).astype(np.int64)
    return int(spent.argmax()), int(spent.max())


NOT_PREDICTED = ("contention", *PACKETS)  # their times depend on other events
HALF, NOTHING = 0.5, 0.0  # factors of durations
BETTER = {  # parameters, and the phrase for twice as good a one
    Quantity.BANDWIDTH: "twice the {}",
    Quantity.LATENCY: "half the {}",
    Quantity.SWITCH_RATE: "twice the {}",
    Quantity.SWITCH_LATENCY: "half the {}",
    Quantity.ENDPOINT_DELAY: "half of the endpoint delay",
    Quantity.SHARED_BUS: "the shared bus twice as fast",
    Quantity.LATE_STARTS: "ranks that begin together",
}
OF_NODES = {  # times of nodes, by cause
    "compute": "kernels twice as fast",
    "host": "operators of the host twice as fast",
    "gap": "half of the recorded gaps",
    "memory": "remote memory twice as fast",
    "replayed": "recorded communication twice as fast",
}
OF_KINDS = {"latency": "half the latency of all links", "reduction": "reductions twice as fast"}


class Lever(Struct, frozen=True):
    """A change, and the time that it saves."""

    text: str
    saved_ns: int


def best_lever(path: CriticalPath) -> Lever | None:
    """Return the lever that saves most; None: nothing saves time, or it is not known."""
    durations = path.record.condensed.durations
    if not path.record.is_exact or path.record.adapts or durations.is_kind(*NOT_PREDICTED).any():
        return None
    sensitivities = Sensitivities(path)
    best: Lever | None = None
    most = sorted(
        ((-sensitivities.most_saved_ns(lever, to), text, lever, to) for text, lever, to in _levers(path)),
        key=_key,
    )
    for bound, text, parameter, to in most:  # no figure saves more than it sets on the longest paths
        if best is not None and -bound < best.saved_ns:
            break
        saved = path.makespan_ns - sensitivities.evaluate(parameter, to, 1.0)[0]
        lever = Lever(text, int(saved))
        if lever.saved_ns > 0 and (best is None or lever.saved_ns > best.saved_ns):
            best = lever
    return best


def _key(candidate: tuple[float, str, Parameter, float]) -> tuple[float, str]:
    return candidate[:2]


def _levers(path: CriticalPath) -> Iterator[tuple[str, Parameter, float]]:
    """Yield (phrase, parameter, factor of its durations)."""
    for parameter in parameters(path):
        if text := BETTER.get(parameter.quantity):
            yield (
                text.format(parameter.name),
                parameter,
                NOTHING if parameter.quantity is Quantity.LATE_STARTS else HALF,
            )
    durations = path.record.condensed.durations
    for kind, text in OF_KINDS.items():
        for parameter in times_of(durations, text, durations.kind == KINDS.index(kind)):
            yield text, parameter, HALF
    for cause, text in OF_NODES.items():
        for parameter in times_of(durations, text, _of_nodes(path, durations, cause)):
            yield text, parameter, HALF


def _of_nodes(path: CriticalPath, durations: Any, cause: str) -> Any:
    """Return the durations of nodes with this cause."""
    rows, node = np.flatnonzero(durations.is_kind("node")), durations.node
    known = node != NONE
    chosen = np.zeros(len(durations.kind), np.bool_)
    chosen[rows[known]] = path.causes_of_nodes()[node[known]] == CAUSES.index(cause)
    return chosen
