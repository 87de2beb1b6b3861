"""The lever of a run: the one figure that shortens it most if it is twice as good.

It is known where the critical path is recorded and durations add up: all that the figure sets is halved, on
all paths, and the makespan that remains is found as long as everything is served in the same order, also
behind others. Where messages share links, or kernels and communication slow each other, nothing is said; nor
of runs without a path, whose parts of time do not say what they follow.

Not here: how far the makespan follows each figure (`critical.sensitivity`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from msgspec import Struct

from et_sim.views.critical.events import KINDS, NONE, PACKETS
from et_sim.views.critical.path import CAUSES, CriticalPath
from et_sim.views.critical.sensitivity import Parameter, Quantity, Sensitivities, parameters, times_of

NOT_FORETOLD = ("contention", *PACKETS)  # what these take follows from what others do meanwhile
HALF, NOTHING = 0.5, 0.0  # what becomes of the durations
BETTER = {  # figures that are parameters, too: how to say that they are twice as good
    Quantity.BANDWIDTH: "twice the {}",
    Quantity.LATENCY: "half the {}",
    Quantity.SWITCH_RATE: "twice the {}",
    Quantity.SWITCH_LATENCY: "half the {}",
    Quantity.ENDPOINT_DELAY: "half of the endpoint delay",
    Quantity.SHARED_BUS: "the shared bus twice as fast",
    Quantity.LATE_STARTS: "ranks that begin together",
}
OF_NODES = {  # what nodes take, by its cause
    "compute": "kernels twice as fast",
    "host": "operators of the host twice as fast",
    "gap": "half of the recorded gaps",
    "memory": "remote memory twice as fast",
    "replayed": "recorded communication twice as fast",
}
OF_KINDS = {"latency": "half the latency of all links", "reduction": "reductions twice as fast"}


class Lever(Struct, frozen=True):
    """What gets better, and how much shorter the run is then."""

    text: str
    saved_ns: int


def best_lever(path: CriticalPath) -> Lever | None:
    """The one that saves most; None: nothing saves anything, or it is not known."""
    durations = path.record.condensed.durations
    if not path.record.is_exact or durations.is_kind(*NOT_FORETOLD).any():
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
    """(how it is called, what it sets, by which factor that changes)."""
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
    """Which durations are of nodes with this cause."""
    rows, node = np.flatnonzero(durations.is_kind("node")), durations.node
    known = node != NONE
    chosen = np.zeros(len(durations.kind), np.bool_)
    chosen[rows[known]] = path.causes_of_nodes()[node[known]] == CAUSES.index(cause)
    return chosen
