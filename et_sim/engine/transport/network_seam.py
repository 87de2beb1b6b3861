"""The seam to network models: what the engine asks of one, and the pool of messages under way.

A model is a module. Python asks it for what `NetworkModel` lists, which also says what holds where the module
leaves something out. Compiled code calls the functions below, each of which stands for the function of that
name in the module of the model's tables (`Run.network`), so that a run compiles one model only.

A model gives every message an arrival: it schedules the event (kind, a, b, c) itself, or keeps the message in
the pool (`new_message`) and returns its row from `network_event` when it is there. What else it needs is its
own: tables in its dataclass, of which `grown` makes longer ones between events while `rows_left` tells how
many rows the shortest has, and events of kinds `NETWORK` + 0, 1, … . An event that may be overtaken by
another one carries a version: the model compares it with its own and drops what is stale.

Not here: what a model may say of messages under way, so that what repeats itself is skipped (`repeats`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

from msgspec import Struct

from et_sim.basics.errors import UsageError
from et_sim.compiled.tables_by_reference import Tables, chosen_by_tables, works_on_tables
from et_sim.engine.calendar.clock import schedule, schedule_own
from et_sim.engine.containers import NONE, give_row, take_row
from et_sim.engine.observe import facade as observe
from et_sim.engine.state.kinds import NODE_DONE, STEP_LEFT
from et_sim.engine.state.resources import ResourceTable
from et_sim.engine.state.run import Run, setting_of
from et_sim.fold.path_keys import PathKeys
from et_sim.machine.corrections import Correction
from et_sim.machine.model import Network, Notice
from et_sim.plan.expected import expected_packets
from et_sim.plan.records import Plan

PLENTY = 1 << 40
KIND_BITS = 6  # of an event, below the row of a chunk
UP, DOWN = 0, 1  # over a branch of a tree of switches
EAGER_SENDS = setting_of(Correction.EAGER_SENDS)


class Needs(Struct, frozen=True):
    """What one message may use up."""

    causal_events: int  # of the record of causes
    record: Any = None  # of the message pool, if the model keeps messages there: MESSAGE_FIELDS and its own
    events: int = 0  # on the calendar, besides an arrival and what happens when it has left


class NetworkModel:
    """Python's side of a model: what its module must have, and what holds where it leaves something out."""

    HAS_CONTENTION: bool  # whether messages wait for, or slow, each other
    HAS_PROTOCOLS = False  # whether it knows what a transport adds to messages (`Network.protocol`)
    HAS_LOGGOPS = False  # whether it knows the constants of LogGOPS
    HAS_CREDITS = False  # whether it knows flits (`Network.credits`)
    REACHES_SWITCHES = False  # whether messages reach switches that reduce
    RECORDS_NODES_ONLY = False  # whether a run tells no more than when nodes begin and end
    RECORDS_IN_ONE_FORM = False  # whether one form serves all runs: records cost little beside all else
    TAKES_SINGLE_WAYS = False  # whether messages that could spread over equal ways go one that a hash picks
    FOLDS_GRAPHS = False  # whether ranks on a graph may be alike
    WITH_PORTS = ""  # the module that stands for it where ports carry no more than they can
    WITH_CREDITS = ""  # the module that stands for it where the network file speaks of credits

    # None: there are no packets, or nothing of that kind is kept.
    payload_of_packets: Callable[[Network], int] | None = None  # how much of a message a packet carries
    packets_sent: Callable[[Any], int] | None = None  # with data, for the first time
    ports_counted: Callable[[Any], Any] | None = None  # what packets met at ports
    ports_in_a_circle: Callable[[Any], Any] | None = None  # that wait for each other
    with_queues: Callable[[Any], Tables] | None = None  # the tables with a record of queues (`queue_tables`)
    carried: Callable[[Any], Any] | None = None  # bytes by resource, where the model adds them up itself

    # Every model has these. `check` (network, most_bytes=0) refuses what it cannot do;
    # the class of `tables` is defined in the model's module; `resources` are what messages occupy;
    # `path_keys` (network, whole=…) are what folding must tell apart (None: never fold), `whole` as with the
    # correction WHOLE_PATH; `needs` is what one message may use up.
    check: Callable[..., None]
    tables: Callable[[Network, Plan], Tables]
    resources: Callable[[Network, Plan], ResourceTable]
    path_keys: Callable[..., PathKeys | None]
    needs: Callable[[Network], Needs]

    def __init__(self, module: ModuleType, **instead: Any) -> None:
        vars(self).update(vars(module) | instead)

    def remarks(self, network: Network, /) -> Iterable[Notice]:  # noqa: ARG002
        """What of a network changes nothing on the model, and what else the user should know of it."""
        return ()

    def counts_links(self, network: Network, /) -> bool:  # noqa: ARG002
        """Return whether a folded run counts what each link carries."""
        return True

    def with_figures(self, tables: Any, /) -> Tables:
        """Return the tables with what is kept for a record of causes."""
        kept: Tables = tables
        return kept

    def grown(self, tables: Any, rows: int, /) -> Tables:  # noqa: ARG002
        """Return the tables with at least this many rows left in every pool."""
        kept: Tables = tables
        return kept


@works_on_tables
def _no_event(_run: Run, _kind: int, _row: int, _version: int) -> int:
    """Return a model without events of its own."""
    return NONE


@works_on_tables
def _not_known(_run: Run, _step_row: int) -> int:
    """Return a model on which a flight depends on more than the step."""
    return NONE


@works_on_tables
def _depends_on_others(_run: Run, _source: int, _target: int, _size: int) -> int:
    """Return a model on which a flight depends on other messages; plans that must know it are refused."""
    return NONE


@works_on_tables
def ends_of_branch(run: Run, branch_row: int, way: int) -> tuple[int, int]:
    """Where a message over a branch comes from, and where it goes; switches are numbered behind ranks."""
    branch = run.plan.branches[branch_row]
    above = run.plan.switches[branch.switch].endpoint
    below = branch.rank if branch.below == NONE else run.plan.switches[branch.below].endpoint
    return (below, above) if way == UP else (above, below)


@works_on_tables
def _inject_over_branch(
    run: Run,
    branch_row: int,
    way: int,
    size: int,
    _program: int,
    kind: int,
    a: int,
    b: int,
    c: int,
    done: int,
) -> None:
    """A message as any other."""
    source, target = ends_of_branch(run, branch_row, way)
    inject(run, source, target, size, kind, a, b, c, done)


@works_on_tables
def _switch_in_turn(run: Run, switch_row: int, size: int) -> int:
    """Return a switch works on one chunk after the other at its rate; each has its latency besides."""
    switch, now = run.plan.switches[switch_row], run.clock[0].now
    server = run.switches[switch.server]
    begin = max(now, server.free_ns)
    server.free_ns = begin + int(size / switch.bytes_per_ns)
    server.bytes += size
    observe.switch_taken(run, switch_row, begin, server.free_ns)
    return server.free_ns + int(switch.latency_ns)


@works_on_tables
def _as_set(run: Run, _size: int) -> bool:
    """Return a model on which the machine says when sends are done."""
    return run.plan.settings[EAGER_SENDS] != 0


@works_on_tables
def _takes_its_time(run: Run, actor_row: int, node: int) -> None:
    """A model that messages alone need."""
    actor = run.plan.actors[actor_row]
    duration = run.plan.nodes[run.plan.templates[actor.template].node_first + node].duration_ns
    schedule_own(run, actor_row, duration, NODE_DONE, actor_row, node, 0)


@works_on_tables
def _not_needed(_run: Run, _channel_row: int, _kind: int, _a: int, _b: int) -> None:
    """A model on which messages take as long whether or not their receives are posted."""


@works_on_tables
def _plenty(_run: Run) -> int:
    """Return a model without pools."""
    return PLENTY


def packets_expected(model: NetworkModel, network: Network, plan: Plan) -> int:
    """About how many packets with data a run sends; 0 on models without packets."""
    return (
        0 if model.payload_of_packets is None else expected_packets(plan, model.payload_of_packets(network))
    )


def network_tables(
    model: NetworkModel, network: Network, plan: Plan, *, has_queues: bool, has_causes: bool
) -> Tables:
    """Return the model's tables, with records of what packets meet at ports, and what holds them up, if
    wanted.
    """
    tables = model.tables(network, plan)
    if has_causes:
        tables = model.with_figures(tables)
    if not has_queues:
        return tables
    if model.with_queues is None:
        raise UsageError(
            "this network model has no packets that could wait at ports",
            remedy="leave ports out of --detail, or choose --network-model packet",
        )
    return model.with_queues(tables)


# (run, source, target, size, kind, a, b, c, done): send a message between two ranks. (kind, a, b, c) happens
# on arrival, and unless `done` is NONE, `end_sending` when the last byte has left the source.
inject = chosen_by_tables("inject", "network")
# (run, kind, row, version): an event of the model's own, `kind` from 0; returns a message that is there, or
# NONE.
network_event = chosen_by_tables("network_event", "network", _no_event)
# (run, step_row): how long a step of a collective is under way, if that follows from the step alone, or NONE.
step_flight_ns = chosen_by_tables("step_flight_ns", "network", _not_known)
# (run, source, target, size): how long a message that sets out is under way, on models where that is known.
flight_ns = chosen_by_tables("flight_ns", "network", _depends_on_others)
# (run, size): whether a send is done when its last byte has left, not when it has arrived.
is_eager = chosen_by_tables("is_eager", "network", _as_set)
# (run, actor, node): a node that takes its duration is issued; its NODE_DONE is to come.
take_time = chosen_by_tables("take_time", "network", _takes_its_time)
# (run, channel, kind, a, b): a receive is posted.
receive_posted = chosen_by_tables("receive_posted", "network", _not_needed)
# (run): how many rows are left in the shortest of the model's pools; a message needs one.
rows_left = chosen_by_tables("rows_left", "network", _plenty)
# The next two are for models with REACHES_SWITCHES, which deliver messages to switches that reduce.
# (run, branch, way, size, program, kind, a, b, c, done): send a message over a branch of a tree of switches.
pass_branch = chosen_by_tables("pass_branch", "network", _inject_over_branch)
# (run, switch, size): when a switch that has a whole chunk will have made of it what it passes on.
switch_done_ns = chosen_by_tables("switch_done_ns", "network", _switch_in_turn)


LOWEST_31_BITS = (1 << 31) - 1


@works_on_tables
def new_message(run: Run, target: int, size: int, kind: int, a: int, b: int, c: int, done: int) -> int:
    """Return a message that sets out; the model's own fields are not yet set."""
    row = take_row(run.messages, run.clock[0].free_messages)
    message = run.messages[row]
    message.target, message.bytes = target, size
    message.kind, message.a, message.b, message.c = kind, a, b, c
    message.done = done
    observe.message_sets_out(run, row)
    return row


@works_on_tables
def left_of_chunk(chunk_row: int) -> int:
    """Return the `done` of a step's message whose end of sending its chunk waits for."""
    return ((chunk_row + 1) << KIND_BITS) + STEP_LEFT


@works_on_tables
def sending_end(done: int, b: int, c: int) -> tuple[int, int, int]:
    """Return the event (kind, a, b) of the end of sending a message whose `done` is not NONE.

    It is STEP_LEFT of a chunk, or the event `done` about the lowest 31 bits of `c` and about `b`.
    """
    if done >> KIND_BITS:
        return STEP_LEFT, (done >> KIND_BITS) - 1, 0
    return done, c & LOWEST_31_BITS, b


@works_on_tables
def end_sending(run: Run, time: int, done: int, b: int, c: int) -> None:
    """Schedule the end of sending a message, whose `done` is not NONE, for the time its last byte leaves."""
    kind, first, second = sending_end(done, b, c)
    schedule(run, time, kind, first, second, 0)


@works_on_tables
def message_leaves_at(run: Run, message: Any, time: int, cause: int, caused_ns: int) -> None:
    """Schedule the end of sending a message, once and if the engine waits for it."""
    if message.done != NONE:
        observe.next_event_follows(run, cause, caused_ns)
        end_sending(run, time, message.done, message.b, message.c)
        message.done = NONE


@works_on_tables
def release_message(run: Run, row: int) -> None:
    """Give back a message that has arrived."""
    give_row(run.messages, run.clock[0].free_messages, row)
