"""Parts of a user's network model: import them from here, not from other modules.

A model is a Python module. `docs/extending.md` writes one, and `et-sim check-model` checks its promises.
`check`, `resources` and `needs` suit models without contention; import them into the module, or write your
own. `engine.transport.network_seam` declares the optional functions of a model.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from et_sim.basics.errors import UsageError
from et_sim.compiled.tables_by_reference import Tables, works_on_tables
from et_sim.engine.calendar.clock import schedule
from et_sim.engine.observe import facade as observe
from et_sim.engine.state.resources import ResourceTable, sendings
from et_sim.engine.state.run import NONE, Run
from et_sim.engine.transport.network_seam import Needs, end_sending
from et_sim.machine.model import Network
from et_sim.network.paths import SimplePaths
from et_sim.plan.records import LoweredPlan as Plan

__all__ = [
    "Needs",
    "Network",
    "Paths",
    "Plan",
    "ResourceTable",
    "Run",
    "Tables",
    "check",
    "deliver",
    "needs",
    "resources",
    "works_on_tables",
]


class Paths(SimplePaths):
    """Numbers of paths: paths with equal numbers must take equal times, independent of all other messages.

    `codes` maps arrays of source and target ranks to a number for each pair. Ranks whose messages have equal
    numbers are simulated as one. `alike_by_distance`: pairs equally far apart along a dimension have one
    number, wherever they are, so most paths need not be computed.
    """

    def __init__(self, codes: Callable[[Any, Any], Any], *, alike_by_distance: bool = False) -> None:
        self._codes, self.differ_along_axes = codes, not alike_by_distance

    def codes(self, source: Any, target: Any) -> Any:
        """Return a number for the path of each pair of ranks."""
        codes = np.asarray(self._codes(np.asarray(source), np.asarray(target)), np.int64)
        return np.broadcast_to(codes, np.broadcast(source, target).shape)


def check(network: Network, most_bytes: int = 0) -> None:  # noqa: ARG001
    """Refuse times in fractions of nanoseconds."""
    if network.fraction_bits:
        raise UsageError("this network model counts whole nanoseconds", remedy="choose another network model")


def resources(network: Network, plan: Plan) -> ResourceTable:  # noqa: ARG001
    """Return one resource per rank for all that it sends."""
    return sendings(1, len(plan.actors), ("all messages",))


def needs(network: Network) -> Needs:  # noqa: ARG001
    """Return the needs: one causal event per message."""
    return Needs(causal_events=1)


@works_on_tables
def deliver(
    run: Run, target: int, size: int, delay_ns: int, kind: int, a: int, b: int, c: int, done: int
) -> None:
    """Deliver a message after a delay; it leaves at once. The last five arguments are those of `inject`."""
    now = run.clock[0].now
    if done != NONE:
        end_sending(run, now, done, b, c)
    observe.message_flies(run, target, size, now, delay_ns, 0)
    observe.describe_latency(run, 0, now + delay_ns)
    schedule(run, now + delay_ns, kind, a, b, c)
