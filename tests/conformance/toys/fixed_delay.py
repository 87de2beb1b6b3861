"""A network model outside the package: every message takes the same time, for any size and route."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from et_sim.compiled.tables_by_reference import Tables, works_on_tables
from et_sim.engine.calendar.clock import schedule
from et_sim.engine.observe import facade as observe
from et_sim.engine.state.resources import ResourceTable, sendings
from et_sim.engine.state.run import NONE, Run
from et_sim.engine.transport.network_seam import Needs, end_sending
from et_sim.machine.model import Network
from et_sim.plan.records import LoweredPlan

HAS_CONTENTION = False
DELAY_NS = 1234


@dataclass(frozen=True, slots=True)
class FixedDelayTables(Tables):
    delay: Any


class NoDifference:
    """Keys of paths that are all alike."""

    differ_along_axes = False
    messages_queue = False
    shared_links = None

    def codes(self, source: Any, target: Any) -> Any:
        return np.zeros(np.broadcast(source, target).shape, np.int64)

    costs = codes

    def can_be_folded(self, _source: Any, _target: Any) -> bool:
        return True


def check(_network: Network, _most_bytes: int = 0) -> None:
    """Accept every network."""


def tables(network: Network, _plan: LoweredPlan) -> FixedDelayTables:
    return FixedDelayTables(np.array([DELAY_NS << network.fraction_bits], np.int64))


def resources(_network: Network, plan: LoweredPlan) -> ResourceTable:
    return sendings(1, len(plan.actors), ("dimension 0",))


def path_keys(_network: Network, *, whole: bool) -> NoDifference:  # noqa: ARG001
    return NoDifference()


def needs(_network: Network) -> Needs:
    return Needs(causal_events=1)


@works_on_tables
def inject(
    run: Run, _source: int, target: int, size: int, kind: int, a: int, b: int, c: int, done: int
) -> None:
    now, delay = run.clock[0].now, run.network.delay[0]
    if done != NONE:
        end_sending(run, now, done, b, c)
    observe.message_flies(run, target, size, now, delay, 0)
    observe.describe_latency(run, 0, now + delay)
    schedule(run, now + delay, kind, a, b, c)
