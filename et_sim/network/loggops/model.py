"""LogGOPS network: computation and messages take turns on a rank's processor, and messages on its NIC.

A message of s bytes takes the processor of its source for o + (s-1)O, and the sending side of its NIC for g +
(s-1)G. It reaches its target L + (s-1)G after the processor is free again. There it needs the posted receive,
the receiving side of the NIC for g, and the processor for g + o + (s-1)O. (s-1)G is rounded down to whole
nanoseconds; an empty message counts as one byte.

A send of up to S bytes ends when the processor of its source is free. A larger one ends with its receive, and
occupies that processor and NIC until then. All pairs of ranks are alike, and messages contend only at their
ends: neither links nor a NIC that receives bytes are busy. This is LogGOPSim in the version of ATLAHS. As
there, operations are ordered when the ends of all their predecessors are computed, which is before those
ends: ties depend on it.

Steps of collectives count as messages whose receive is posted. Nothing is folded, because ties separate
ranks.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from et_sim.basics.errors import MachineError, UsageError
from et_sim.basics.units import LONGEST_NS, format_bytes, format_ns
from et_sim.compiled.tables_by_reference import Tables, works_on_tables
from et_sim.engine.calendar.clock import is_last, schedule, schedule_at_end, schedule_own
from et_sim.engine.containers import QUEUE, join
from et_sim.engine.state.durations import duration_of
from et_sim.engine.state.kinds import LATE_RECEIVE, MESSAGE, NETWORK, NODE_DONE
from et_sim.engine.state.records import MESSAGE_FIELDS
from et_sim.engine.state.resources import ResourceTable
from et_sim.engine.state.run import NONE, Run
from et_sim.engine.transport.network_seam import Needs
from et_sim.machine.model import Network
from et_sim.network import grid
from et_sim.network.loggops.operations import (
    ARRIVAL,
    COMPUTE,
    RECEIVE,
    SEND,
    ends_alone,
    fetch_next,
    first_ns,
    go_on,
    is_on_processor,
    new_operation,
    put,
    take_first,
)
from et_sim.network.settings import settings_row
from et_sim.plan.records import LoweredPlan, record, table

STATE = record(
    ("waiting", "i4"),  # operations in the heap
    ("planned", "i4"),  # how often the next one was put on the calendar
    ("planned_ns", "i8"),  # its time; NONE: it is not there
    ("batch", "i8"),  # of operations that become free together
    ("batch_rank", "i4"),  # the rank of the batch
    ("in_batch", "i4"),  # operations in it
)
RANK = record(  # until when they are busy
    ("processor_ns", "i8"),
    ("sending_ns", "i8"),
    ("receiving_ns", "i8"),
)
NODE = record(
    ("ready_ns", "i8"),  # the latest computed end of a parent
    ("parents", "i4"),  # with a computed end
    ("operation", "i4"),  # its operation; NONE: it has none yet
)
CHANNEL = record(
    ("open", "i4"),  # posted receives without a message
    ("head", "i4"),  # these, and those about to be posted, in the order of the rank's program
    ("tail", "i4"),
    ("early", QUEUE),  # messages before their receives are posted
)
PLACE = record(("goes_on_ns", "i8"), ("operation", "i4"))  # of the heap
OPERATION = record(  # computing, or a message or its receive on its way: a line of the cache
    ("stage", "i2"),
    ("uses", "i2"),  # of a receive: the heap and the channel
    ("source", "i4"),
    ("receive", "i4"),  # that a message has matched, while it waits for the processor
    *MESSAGE_FIELDS,
    # The lowest of several at one time goes first; 0: the heap decides. Later, of a message: until when it
    # takes the processor of its target.
    ("number", "i8"),
)


HAS_CONTENTION = True
HAS_LOGGOPS = True
RECORDS_NODES_ONLY = True
OPERATIONS_AT_ONCE = 16  # in one event, of those that nothing else comes between
MOST_PLANS = (1 << 30) - 1  # the largest number of a plan


class LogGopsTables(Tables, Struct, frozen=True):
    """Tables of LogGOPS for compiled code."""

    constants: Any  # one row
    state: Any  # one row
    ranks: Any
    nodes: Any  # of all actors
    channels: Any
    heap: Any


def check(network: Network, most_bytes: int = 0) -> None:
    """Refuse networks without the constants, and messages that would take too long."""
    constants = network.loggops
    if constants is None:
        raise UsageError(
            "the LogGOPS model needs a network file that gives its constants",
            remedy="write loggops: {npus: 8, L: 1000, o: 200, g: 5, G: 0.04, O: 0, S: 65535}, or take another"
            " --network-model",
        )
    per_byte = constants.gap_per_byte + 2 * constants.overhead_per_byte
    fixed = constants.latency + 2 * (constants.overhead + constants.gap)
    if fixed + most_bytes * per_byte > LONGEST_NS:
        raise MachineError(
            f"a message of {format_bytes(most_bytes)} could take longer than {format_ns(LONGEST_NS)}",
            place="network configuration",
            remedy="correct L, o, g (ns), G or O (ns per byte)",
        )


def tables(network: Network, plan: LoweredPlan) -> LogGopsTables:
    """Return the tables with all ranks idle."""
    given = network.loggops
    assert given is not None  # `check` has refused others
    if plan.rendezvous:
        raise UsageError(
            "the LogGOPS model has a rendezvous of its own, for messages of more than S bytes",
            remedy="leave rendezvous-protocol out of the system file, or take another --network-model",
        )
    state, ranks = table(STATE, 1), table(RANK, plan.ranks)
    state["planned_ns"] = NONE
    last = plan.actors[-1]
    nodes = table(NODE, int(last.node_first) + int(plan.templates[last.template].nodes))
    nodes["operation"] = NONE
    channels = table(CHANNEL, len(plan.channels))
    for fifos in (channels, channels["early"]):
        fifos["head"] = fifos["tail"] = NONE
    return LogGopsTables(settings_row(given), state, ranks, nodes, channels, table(PLACE, 0))


def grown(tables: LogGopsTables, rows: int) -> LogGopsTables:
    """Return the tables with this many free places in the heap."""
    places = len(tables.heap)
    if places - int(tables.state[0].waiting) >= rows:
        return tables
    heap = table(PLACE, max(2 * places, places + 2 * rows))
    heap[:places] = tables.heap
    return replace(tables, heap=heap)


def resources(network: Network, plan: LoweredPlan) -> ResourceTable:
    """Return one resource per rank for all that it sends."""
    return grid.sending_resources(network, len(plan.actors))


def path_keys(_network: Network, **_: bool) -> None:
    """Return None: ties decide the order, and equal ranks go one after the other, so nothing is folded."""


def needs(_network: Network) -> Needs:
    """Return the needs: operations are kept in the pool of messages, and scheduled a few times."""
    return Needs(causal_events=0, record=OPERATION, events=2 + OPERATIONS_AT_ONCE)


@works_on_tables
def rows_left(run: Run) -> int:
    """Return the number of operations that fit in the pool of messages and in the heap."""
    return min(run.clock[0].free_messages.rows, len(run.network.heap) - run.network.state[0].waiting)


@works_on_tables
def is_eager(run: Run, size: int) -> bool:
    """Return whether a send ends at another time than its message."""
    return ends_alone(run, size)


@works_on_tables
def take_time(run: Run, actor_row: int, node: int) -> None:
    """Queue a node that computes for the processor; schedule the end of any other node."""
    actor = run.plan.actors[actor_row]
    plan_node = run.plan.nodes[run.plan.templates[actor.template].node_first + node]
    if not is_on_processor(plan_node.lane):
        schedule_own(run, actor_row, duration_of(run, actor_row, node), NODE_DONE, actor_row, node, 0)
    elif run.network.nodes[actor.node_first + node].operation == NONE:
        row = new_operation(run, COMPUTE, actor.rank, actor.rank, duration_of(run, actor_row, node))
        run.messages[row].b, run.messages[row].c = node, actor_row
        _put(run, row)


@works_on_tables
def inject(
    run: Run, source: int, target: int, size: int, kind: int, a: int, b: int, c: int, done: int
) -> None:
    """Queue a message for processor and NIC, unless that was done ahead."""
    if kind == MESSAGE and run.network.nodes[run.plan.actors[c].node_first + b].operation != NONE:
        return
    row = new_operation(run, SEND, source, target, size)
    operation = run.messages[row]
    operation.kind, operation.done = kind, done
    operation.a, operation.b, operation.c = a, b, c
    _put(run, row)


@works_on_tables
def receive_posted(run: Run, channel_row: int, kind: int, a: int, b: int) -> None:
    """Add a receive to those of its channel."""
    row = NONE
    if kind == LATE_RECEIVE:
        row = run.network.nodes[run.plan.actors[a].node_first + b].operation
    if row == NONE:
        target = run.plan.channels[channel_row].target
        row = new_operation(run, RECEIVE, target, target, 0)
        operation = run.messages[row]
        operation.a, operation.uses = channel_row, 2
        operation.b, operation.c = (b, a) if kind == LATE_RECEIVE else (NONE, NONE)
        _put(run, row)
    join(run.messages, run.network.channels[channel_row], row)


@works_on_tables
def network_event(run: Run, kind: int, row: int, version: int) -> int:
    """Run the first operations after all other events of this nanosecond; return a received
    message, or NONE.
    """
    if kind == ARRIVAL:
        return row
    state, clock = run.network.state[0], run.clock[0]
    if version != state.planned:  # an earlier one has been planned
        return NONE
    if not is_last(run):
        schedule_at_end(run, NETWORK, 0, version, 0)
        return NONE
    state.planned_ns = NONE
    for _ in range(OPERATIONS_AT_ONCE):
        while not _first_goes_on(run) and first_ns(run) <= clock.now:
            pass  # it waits, and is back in the heap
        if state.waiting == 0 or first_ns(run) > clock.now or not is_last(run):
            break
    _plan_first(run)
    return NONE


@works_on_tables
def _first_goes_on(run: Run) -> bool:
    """Run the first operation; return False if it waits."""
    row = take_first(run)
    fetch_next(run)
    return go_on(run, row)


@works_on_tables
def _put(run: Run, row: int) -> None:
    """Queue an operation that may run now."""
    put(run, row, run.clock[0].now)
    _plan_first(run)


@works_on_tables
def _plan_first(run: Run) -> None:
    """Schedule the first operation."""
    state = run.network.state[0]
    if state.waiting == 0:
        return
    time = max(first_ns(run), run.clock[0].now)
    if state.planned_ns == NONE or time < state.planned_ns:
        state.planned_ns = time
        state.planned = (state.planned + 1) & MOST_PLANS
        schedule(run, time, NETWORK, 0, state.planned, 0)
