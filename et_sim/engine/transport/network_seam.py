"""The interface to network models, and the pool of messages under way.

A model is a module. Python uses the functions that `NetworkModel` lists, with their defaults. Compiled code
calls the functions below, each of which stands for the function of that name in the module of the model's
tables (`Run.network`), so that a run compiles one model only.

A model gives every message an arrival: it schedules the event (kind, a, b, c) itself, or keeps the message in
the pool (`new_message`) and returns its row from `network_event` when it has arrived. Everything else is its
own: tables in its record, of which `grown` makes longer ones between events while `rows_left` returns the
number of rows left in the shortest, and events of kinds `NETWORK` + 0, 1, … . An event that may be replaced
by another one carries a version: the model compares it with its own and drops stale events.
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
from et_sim.engine.state.durations import duration_of
from et_sim.engine.state.kinds import NODE_DONE, STEP_LEFT
from et_sim.engine.state.resources import ResourceTable
from et_sim.engine.state.run import Run, setting_of
from et_sim.fold.path_keys import PathKeys
from et_sim.machine.corrections import Correction
from et_sim.machine.model import Network, Notice
from et_sim.plan.expected import expected_packets
from et_sim.plan.records import LoweredPlan

PLENTY = 1 << 40
KIND_BITS = 6  # of an event, below the row of a chunk
UP, DOWN = 0, 1  # over a branch of a tree of switches
EAGER_SENDS = setting_of(Correction.EAGER_SENDS)


class Needs(Struct, frozen=True):
    """The rows that one message may use up."""

    causal_events: int  # of the record of causes
    record: Any = None  # of the message pool, if the model keeps messages there: MESSAGE_FIELDS and its own
    events: int = 0  # on the calendar, besides an arrival and the end of sending


class LostMessages(Struct, frozen=True):
    """Messages that never arrive, because their senders gave up; the first of them in detail."""

    rows: list[int]  # of the message pool
    link: int  # the dead link, as the network numbers it
    links_of_failures: tuple[Any, ...]  # likewise
    ends: tuple[int, int]  # ranks
    lost_ns: int  # in the unit of time of the run
    tries: int


class NetworkModel:
    """Python's side of a model: the attributes of its module, and their defaults."""

    HAS_CONTENTION: bool  # messages wait for, or slow, each other
    HAS_PROTOCOLS = False  # it models a transport's additions to messages (`Network.protocol`)
    HAS_LOGGOPS = False  # it uses the constants of LogGOPS
    HAS_CREDITS = False  # it models flits (`Network.credits`)
    EVALUATES_AHEAD = False  # collectives may be evaluated at once (`ahead`)
    HAS_FAILURES = False  # links may change while a run goes on (`Network.failures`)
    REACHES_SWITCHES = False  # messages reach switches that reduce
    RECORDS_NODES_ONLY = False  # a run only records when nodes begin and end
    RECORDS_IN_ONE_FORM = False  # one form serves all runs, because records cost little here
    TAKES_SINGLE_WAYS = False  # messages that could spread over equal ways take one that a hash picks
    FOLDS_GRAPHS = False  # ranks on a graph may be alike
    WITH_PORTS = ""  # the module that replaces it where ports carry no more than they can
    WITH_CREDITS = ""  # the module that replaces it where the network file has credits
    WITH_FAILURES = ""  # the module that replaces it where links fail

    # None: there are no packets, or the model does not have it.
    payload_of_packets: Callable[[Network], int] | None = None  # bytes of a message in a packet
    packets_sent: Callable[[Any], int] | None = None  # with data, for the first time
    # The network on which a run is made again, if what it skipped may have changed its times; else None.
    again: Callable[[Any, Network], Network | None] | None = None
    ports_counted: Callable[[Any], Any] | None = None  # counts of packets at ports
    ports_in_a_circle: Callable[[Any], Any] | None = None  # that wait for each other
    with_queues: Callable[[Any], Tables] | None = None  # the tables with a record of queues (`queue_tables`)
    carried: Callable[[Any], Any] | None = None  # bytes by resource, where the model adds them up itself

    # Models with HAS_FAILURES have these: states of links in the order of time, of which `tables` have the
    # first; the run in another state (run, network, state); and messages that never arrive (run, network).
    link_states: Callable[[Network], list[Any]]
    changed: Callable[[Run, Network, Any], Run]
    lost_messages: Callable[[Run, Network], LostMessages | None]
    longest_waits: Callable[[Run, Network], list[int]]  # of messages, by failure

    # Every model has these. `check` (network, most_bytes=0) refuses unsupported input; the class of `tables`
    # is defined in the model's module; `resources` are those of messages; `path_keys` (network, whole=…) are
    # the properties of paths that folding must distinguish (None: never fold), `whole` as with the correction
    # WHOLE_PATH; `needs` are the rows that one message may use up.
    check: Callable[..., None]
    tables: Callable[[Network, LoweredPlan], Tables]
    resources: Callable[[Network, LoweredPlan], ResourceTable]
    path_keys: Callable[..., PathKeys | None]
    needs: Callable[[Network], Needs]

    def __init__(self, module: ModuleType, **instead: Any) -> None:
        vars(self).update(vars(module) | instead)

    def remarks(self, network: Network, /) -> Iterable[Notice]:  # noqa: ARG002
        """Return notices of keys of a network without effect on the model, and other notices."""
        return ()

    def counts_links(self, network: Network, /) -> bool:  # noqa: ARG002
        """Return whether a folded run counts the bytes of each link."""
        return True

    def with_figures(self, tables: Any, /) -> Tables:
        """Return the tables with those that a record of causes needs."""
        kept: Tables = tables
        return kept

    def ahead(self, tables: Any, network: Network, plan: LoweredPlan, /) -> Tables | None:  # noqa: ARG002
        """Return the tables for evaluating collectives at once (`goes_round`); None if none can be."""
        return None

    def rewritten(self, tables: Any, before: Network, network: Network, /) -> bool:  # noqa: ARG002
        """Write the figures of a network into the tables of the one before; return False if more differs."""
        return False

    def events_of_change(self, run: Run, /) -> int:  # noqa: ARG002
        """Return the most events that a change of links schedules beyond the reserve."""
        return 0

    def grown(self, tables: Any, rows: int, /) -> Tables:  # noqa: ARG002
        """Return the tables with at least this many rows left in every pool.

        New rows follow from the sizes of pools alone: networks with other figures get the same ones.
        """
        kept: Tables = tables
        return kept


@works_on_tables
def _no_event(_run: Run, _kind: int, _row: int, _version: int) -> int:
    """Return NONE for a model without events of its own."""
    return NONE


@works_on_tables
def _not_known(_run: Run, _step_row: int) -> int:
    """Return NONE for a model on which a flight depends on more than the step."""
    return NONE


@works_on_tables
def _depends_on_others(_run: Run, _source: int, _target: int, _size: int) -> int:
    """Return NONE for a model on which a flight depends on other messages; plans that need it are refused."""
    return NONE


@works_on_tables
def ends_of_branch(run: Run, branch_row: int, way: int) -> tuple[int, int]:
    """Return source and target of a message over a branch; switches are numbered behind ranks."""
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
    """Send a message over a branch as any other."""
    source, target = ends_of_branch(run, branch_row, way)
    inject(run, source, target, size, kind, a, b, c, done)


@works_on_tables
def _switch_in_turn(run: Run, switch_row: int, size: int) -> int:
    """Return when a switch has processed a chunk: one after the other at its rate, then its latency."""
    switch, now = run.plan.switches[switch_row], run.clock[0].now
    server = run.switches[switch.server]
    begin = max(now, server.free_ns)
    server.free_ns = begin + int(size / switch.bytes_per_ns)
    server.bytes += size
    observe.switch_taken(run, switch_row, begin, server.free_ns)
    return server.free_ns + int(switch.latency_ns)


@works_on_tables
def _as_set(run: Run, _size: int) -> bool:
    """Return whether the machine sets that sends are eager."""
    return run.plan.settings[EAGER_SENDS] != 0


@works_on_tables
def _takes_its_time(run: Run, actor_row: int, node: int) -> None:
    """Schedule the end of a node on a model that only has messages."""
    schedule_own(run, actor_row, duration_of(run, actor_row, node), NODE_DONE, actor_row, node, 0)


@works_on_tables
def _not_needed(_run: Run, _channel_row: int, _kind: int, _a: int, _b: int) -> None:
    """Ignore a posted receive, on which the model's messages do not depend."""


@works_on_tables
def _goes_step_by_step(_run: Run, _chunk_row: int) -> bool:
    """Return that a model simulates each message of a phase."""
    return False


@works_on_tables
def _plenty(_run: Run) -> int:
    """Return a large number for a model without pools."""
    return PLENTY


def packets_expected(model: NetworkModel, network: Network, plan: LoweredPlan) -> int:
    """Return about how many packets with data a run sends; 0 on models without packets."""
    return (
        0 if model.payload_of_packets is None else expected_packets(plan, model.payload_of_packets(network))
    )


def network_tables(
    model: NetworkModel, network: Network, plan: LoweredPlan, *, has_queues: bool, has_causes: bool
) -> Tables:
    """Return the model's tables, with records of ports' queues and of causes, if needed."""
    tables = model.tables(network, plan)
    if has_causes:
        tables = model.with_figures(tables)
    if not has_queues:
        return tables
    if model.with_queues is None:
        raise UsageError(
            "this network model has no packets, and so no ports to record",
            remedy="leave ports out of --detail, or choose --network-model packet",
        )
    return model.with_queues(tables)


# (run, source, target, size, kind, a, b, c, done): send a message between two ranks. (kind, a, b, c) happens
# on arrival, and unless `done` is NONE, `end_sending` when the last byte has left the source.
inject = chosen_by_tables("inject", "network")
# (run, kind, row, version): handle an event of the model, `kind` from 0; return a message that has arrived,
# or NONE.
network_event = chosen_by_tables("network_event", "network", _no_event)
# (run, step_row): return the time of a step's flight, if it depends on the step alone, or NONE.
step_flight_ns = chosen_by_tables("step_flight_ns", "network", _not_known)
# (run, source, target, size): return the time of a message's flight, on models that can predict it.
flight_ns = chosen_by_tables("flight_ns", "network", _depends_on_others)
# (run, size): return whether a send is done when its last byte has left, not when it has arrived.
is_eager = chosen_by_tables("is_eager", "network", _as_set)
# (run, actor, node): start a node of a fixed duration, and schedule its NODE_DONE.
take_time = chosen_by_tables("take_time", "network", _takes_its_time)
# (run, channel, kind, a, b): handle a posted receive.
receive_posted = chosen_by_tables("receive_posted", "network", _not_needed)
# (run, chunk): return whether the model evaluates the phase of a chunk that starts, once all members have
# started it; it then lets the chunk receive the last message of the phase in an event.
goes_round = chosen_by_tables("goes_round", "network", _goes_step_by_step)
# (run): return the number of rows left in the shortest of the model's pools; a message needs one.
rows_left = chosen_by_tables("rows_left", "network", _plenty)
# The next two are for models with REACHES_SWITCHES, which deliver messages to switches that reduce.
# (run, branch, way, size, program, kind, a, b, c, done): send a message over a branch of a tree of switches.
pass_branch = chosen_by_tables("pass_branch", "network", _inject_over_branch)
# (run, switch, size): return when a switch that has a whole chunk will have processed it.
switch_done_ns = chosen_by_tables("switch_done_ns", "network", _switch_in_turn)


LOWEST_31_BITS = (1 << 31) - 1


@works_on_tables
def new_message(run: Run, target: int, size: int, kind: int, a: int, b: int, c: int, done: int) -> int:
    """Return a new message that sets out; the model's own fields are not yet set."""
    row = take_row(run.messages, run.clock[0].free_messages)
    message = run.messages[row]
    message.target, message.bytes = target, size
    message.kind, message.a, message.b, message.c = kind, a, b, c
    message.done = done
    observe.message_sets_out(run, row)
    return row


@works_on_tables
def left_of_chunk(chunk_row: int) -> int:
    """Return the `done` of a step's message if its chunk waits for the end of sending."""
    return ((chunk_row + 1) << KIND_BITS) + STEP_LEFT


@works_on_tables
def chunk_that_waits(done: int) -> int:
    """Return the chunk that waits for the end of sending a step's message, by its `done`; or NONE."""
    return NONE if done == NONE else (done >> KIND_BITS) - 1


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
    """Return a message that has arrived to its pool."""
    give_row(run.messages, run.clock[0].free_messages, row)
