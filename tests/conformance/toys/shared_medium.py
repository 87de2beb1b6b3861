"""A network model outside the package: all messages share one medium fairly, so that each slows the others.

It has state, a pool of its own that grows, and events that are replaced by others: whenever a message starts
or ends, the next end is scheduled again, and the end that was scheduled before is stale.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from et_sim.compiled.tables_by_reference import Tables, works_on_tables
from et_sim.engine.calendar.clock import schedule
from et_sim.engine.containers import FREE, give_row, grow_pool, take_row
from et_sim.engine.observe import facade as observe
from et_sim.engine.state.kinds import NETWORK
from et_sim.engine.state.records import MESSAGE_FIELDS
from et_sim.engine.state.resources import ResourceTable, sendings
from et_sim.engine.state.run import NONE, Run
from et_sim.engine.transport.network_seam import Needs, end_sending, new_message
from et_sim.machine.model import Network
from et_sim.plan.records import LoweredPlan, record, table

HAS_CONTENTION = True
BYTES_PER_NS = 50.0
THROUGH = 0
STATE = record(
    ("version", "i8"),  # of the end that is planned
    ("since_ns", "i8"),  # flows are as they were then
    ("active", "i8"),
    ("head", "i4"),
    ("free_flows", FREE),
)
FLOW = record(("left", "f8"), ("message", "i4"), ("next", "i4"))


@dataclass(frozen=True, slots=True)
class MediumTables(Tables):
    state: Any
    flows: Any
    bytes_per_unit: Any


def check(_network: Network, _most_bytes: int = 0) -> None:
    """Accept every network."""


def tables(network: Network, _plan: LoweredPlan) -> MediumTables:
    state = table(STATE, 1)
    state["head"] = state["free_flows"]["head"] = NONE
    return MediumTables(state, table(FLOW, 0), np.array([BYTES_PER_NS / (1 << network.fraction_bits)]))


def grown(tables: MediumTables, rows: int) -> MediumTables:
    state = tables.state[0]
    if state.free_flows.rows >= rows:
        return tables
    return replace(tables, flows=grow_pool(tables.flows, state.free_flows, rows))


def resources(_network: Network, plan: LoweredPlan) -> ResourceTable:
    return sendings(1, len(plan.actors), ("dimension 0",))


def path_keys(_network: Network, *, whole: bool) -> None:
    """Return no keys: every message shares the medium with every other."""


def needs(_network: Network) -> Needs:
    return Needs(causal_events=1, record=record(*MESSAGE_FIELDS), events=2)


@works_on_tables
def rows_left(run: Run) -> int:
    return min(run.clock[0].free_messages.rows, run.network.state[0].free_flows.rows)


@works_on_tables
def inject(
    run: Run, source: int, target: int, size: int, kind: int, a: int, b: int, c: int, done: int
) -> None:
    medium = run.network.state[0]
    message = new_message(run, target, size, kind, a, b, c, done)
    observe.message_takes_link(run, message, source, 0, 0)
    _catch_up(run)
    row = take_row(run.network.flows, medium.free_flows)
    flow = run.network.flows[row]
    medium.active += 1
    flow.left, flow.message, flow.next = size, message, medium.head
    medium.head = row
    _plan_next(run)


@works_on_tables
def network_event(run: Run, _kind: int, row: int, version: int) -> int:
    medium = run.network.state[0]
    if version != medium.version:
        return NONE  # it was scheduled again
    _catch_up(run)
    flow, before, at = run.network.flows[row], NONE, medium.head
    while at != row:
        before, at = at, run.network.flows[at].next
    if before == NONE:
        medium.head = flow.next
    else:
        run.network.flows[before].next = flow.next
    give_row(run.network.flows, medium.free_flows, row)
    medium.active -= 1
    if medium.active > 0:
        _plan_next(run)
    message = run.messages[flow.message]
    if message.done != NONE:
        end_sending(run, run.clock[0].now, message.done, message.b, message.c)
    return flow.message


@works_on_tables
def _catch_up(run: Run) -> None:
    """Give every flow its share up to now."""
    medium, now = run.network.state[0], run.clock[0].now
    if medium.active > 0:
        share = (now - medium.since_ns) * run.network.bytes_per_unit[0] / medium.active
        at = medium.head
        while at != NONE:
            flow = run.network.flows[at]
            flow.left = max(flow.left - share, 0.0)
            at = flow.next
    medium.since_ns = now


@works_on_tables
def _plan_next(run: Run) -> None:
    """Schedule the end of the flow with the fewest bytes left; of equal ones the last that started."""
    medium = run.network.state[0]
    least, at = medium.head, run.network.flows[medium.head].next
    while at != NONE:
        if run.network.flows[at].left < run.network.flows[least].left:
            least = at
        at = run.network.flows[at].next
    medium.version += 1
    rest = run.network.flows[least].left * medium.active / run.network.bytes_per_unit[0]
    observe.next_event_is_serialised(run, 0)
    schedule(run, run.clock[0].now + int(np.ceil(rest)), NETWORK + THROUGH, least, medium.version, 0)
