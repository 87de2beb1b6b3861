"""Changes of links within a run on the link network: what happens to the messages on them.

Equal ways that a message spreads over are one trunk. Where switches lead around a dead link of it, or a
sender has left its port, the trunk has the bandwidth of the others; where they do not, no message passes it
whole, so the trunk is dead.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from msgspec.structs import replace

from et_sim.basics.unique import groups_of
from et_sim.compiled.decorators import Later
from et_sim.compiled.interpreted import interpret
from et_sim.compiled.tables_by_reference import works_on_tables
from et_sim.engine.calendar.clock import slot_at
from et_sim.engine.containers import NONE, free_rows, give_row, leave, leave_from
from et_sim.engine.observe import facade as observe
from et_sim.engine.state.kinds import NETWORK
from et_sim.engine.state.run import Run
from et_sim.engine.transport.network_seam import LostMessages, sending_end
from et_sim.machine.model import GraphFabric, Network, Routing
from et_sim.network import graph, outages
from et_sim.network.fabric import Wires, take_hop
from et_sim.network.link import HOP_DONE, LINK_FREE, is_there, row_of
from et_sim.network.outages import LinkState, longest_by_failure, rows_of
from et_sim.network.paths import Routed
from et_sim.network.route_tables import route_tables
from et_sim.network.routes import leads_on
from et_sim.network.ways import no_split

free_link, lose, plan_events = (
    Later("et_sim.network.link_failing", name) for name in ("free_link", "lose", "plan_events")
)


class TrunkState(LinkState, frozen=True, eq=False):
    """The state of all links between two changes, trunk by trunk."""

    cut: Any  # whether messages on it lose bytes as it begins


def merged(network: Network) -> Network:
    """Return the network with trunks as without failures."""
    fabric = network.fabric
    return replace(network, fabric=replace(fabric, failing=())) if _is_graph(fabric) else network


def _is_graph(fabric: Any) -> bool:
    return isinstance(fabric, GraphFabric)


def link_states(network: Network) -> list[TrunkState]:
    """Return the states of all trunks in the order of time; the first begins with the run."""
    fabric, alone = network.fabric, network
    if isinstance(fabric, GraphFabric) and fabric.routing is Routing.SPREAD:
        alone = replace(network, fabric=replace(fabric, routing=Routing.ECMP))  # without trunks
    states, whole = outages.link_states(alone), merged(network).fabric
    of_link = whole.trunks.of_link if isinstance(whole, GraphFabric) else np.arange(len(states[0].left))
    found, before = [], np.ones(len(of_link))
    for state in states:
        found.append(_by_trunk(state, of_link, (state.left == 0) & (before > 0)))
        before = state.left
    return found


def _by_trunk(state: LinkState, of_link: Any, dies: Any) -> TrunkState:
    """Return the state of trunks from that of their links, of which some die."""
    members, used = np.bincount(of_link), np.bincount(of_link, ~state.avoided)
    counts = np.where(used[of_link] > 0, ~state.avoided, True)
    left = np.bincount(of_link, np.where(counts, state.left, 0.0)) / members
    left[of_link[counts & (state.left == 0)]] = 0.0
    cut = np.zeros(len(members), bool)
    cut[of_link[dies]] = True
    return TrunkState(state.begins_ns, left, used == 0, cut)


def ways_around(whole: Network, states: list[TrunkState], wires: Wires) -> tuple[Routed, ...]:
    """Return the tables of paths of each further state in which messages avoid links; `whole`: `merged`."""
    return tuple(
        Routed(in_state(wires, whole, state), no_split(), graph.most_links(whole, state.avoided))
        for state in outages.with_other_paths(whole, states)
    )


def marks_over_time(states: list[TrunkState]) -> Any:
    """Return a number for all states of each link."""
    marks = np.zeros(len(states[0].left), np.int64)
    for state in states:
        left = np.unique(state.left, return_inverse=True)[1].reshape(-1)
        marks = groups_of(marks, left, state.avoided, state.cut).of_row
    return marks


def left_of_rows(tables: Any, state: LinkState) -> Any:
    """Return the shares of bandwidth that links have left, by row of their table."""
    return state.left[_first_links(tables)]


def _first_links(tables: Any) -> Any:
    """Return the first link that each row represents."""
    if not len(tables.class_of):
        return np.arange(len(tables.links))
    return np.unique(tables.class_of, return_index=True)[1]


def in_state(tables: Any, network: Network, state: LinkState) -> Any:
    """Return the tables with the routes of a state."""
    if not _is_graph(network.fabric):
        return tables
    routes = route_tables(merged(network), state.avoided, state.weights)
    routed = replace(tables.fabric.graph, routes=routes)
    return replace(tables, fabric=replace(tables.fabric, graph=routed))


def events_of_change(run: Run) -> int:
    """Return the most events that a change schedules: a try for each message under way."""
    return len(run.messages) - int(run.clock[0].free_messages.rows)


def changed(run: Run, network: Network, state: TrunkState) -> Run:
    """Return the run in a new state of the links, from the present time on."""
    before, first = run, _first_links(run.network)
    run = replace(run, network=in_state(run.network, network, state))
    left, cut = state.left[first], state.cut[first]
    rows = np.flatnonzero((run.network.links["left"] != left) | cut)
    run.network.state["dead"] = np.count_nonzero(state.left == 0)
    under_way = _under_way(run)
    under_way = under_way[run.messages["is_lost"][under_way] == 0]
    if _is_graph(network.fabric) and len(under_way):
        interpret(_find_stranded, (run, under_way, np.flatnonzero(state.avoided | (state.left == 0))))
        if observe.is_watched(run):
            interpret(_find_turning, (before, run, under_way))
    interpret(_take_effect, (run, rows, left[rows], cut[rows]))
    return run


def _under_way(run: Run) -> Any:
    """Return the messages that are in the network, or lost."""
    in_use = np.ones(len(run.messages), bool)
    in_use[free_rows(run.messages, run.clock[0].free_messages)] = False
    return np.flatnonzero(in_use)


@works_on_tables
def _take_effect(run: Run, rows: Any, left: Any, cut: Any) -> None:
    """Give links their shares of bandwidth, and cut or delay the messages on them."""
    for at in range(len(rows)):
        row = int(rows[at])
        this = run.network.links[row]
        if this.busy and this.free_ns > run.clock[0].now:
            _interrupt(run, row, 0.0 if cut[at] else float(left[at]))
        this.left = float(left[at])
        while this.left == 0.0 and this.head != NONE:
            waiting = leave(run.messages, this)
            observe.message_dequeued(run, waiting, row)
            observe.link_changes(run, this, row, waiting)
            lose(run, waiting, row)
        if not this.busy:
            if this.head != NONE:
                observe.link_changes(run, this, row, this.head)
            free_link(run, row)


@works_on_tables
def _interrupt(run: Run, link_row: int, left: float) -> None:
    """Let a link go on with its message at another rate, or cut it if nothing is left."""
    this, now = run.network.links[link_row], run.clock[0].now
    row, rest_ns = this.serves, this.free_ns - now + this.free_rest
    message, speed = run.messages[row], run.network.fabric.speeds[this.speed]
    size = min(int(rest_ns * speed.bytes_per_ns * this.left + 0.5), message.bytes)
    _withdraw_all(run, link_row, row)
    observe.link_changes(run, this, link_row, row)
    observe.link_stops(run, link_row, this.free_ns - now, size)
    if left > 0.0:
        rest_ns *= this.left / left
        plan_events(run, link_row, row, rest_ns, int(rest_ns + speed.latency_ns))
        observe.link_goes_on(run, row, link_row, int(rest_ns), size)
        return
    this.busy, this.free_ns, this.free_rest = 0, now, 0.0
    this.bytes -= size
    message.done = message.leaving
    observe.message_cut(run, row)
    lose(run, row, link_row)


@works_on_tables
def _withdraw_all(run: Run, link_row: int, row: int) -> None:
    """Take the events of a message on a link off the calendar."""
    this, message = run.network.links[link_row], run.messages[row]
    _withdraw(run, message.due_ns, NETWORK + HOP_DONE, row, 0)
    _withdraw(run, this.free_ns, NETWORK + LINK_FREE, link_row, 0)
    if message.leaving != NONE:
        kind, first, second = sending_end(message.leaving, message.b, message.c)
        _withdraw(run, this.free_ns, kind, first, second)


@works_on_tables
def _withdraw(run: Run, time: int, kind: int, a: int, b: int) -> None:
    """Take an event off the calendar."""
    slot = run.slots[slot_at(run, time)]
    before, row = NONE, slot.head
    while run.events[row].kind != kind or run.events[row].a != a or run.events[row].b != b:
        before, row = row, run.events[row].next
    leave_from(run.events, slot, before, row)
    give_row(run.events, run.clock[0].free_events, row)


@works_on_tables
def _find_stranded(run: Run, rows: Any, dead: Any) -> None:
    """Mark the messages that no route leads on from the end of their links, with a link that is missing."""
    routes, messages = run.network.fabric.graph.routes, run.messages
    for at in range(len(rows)):
        row = int(rows[at])
        message = messages[row]
        kept = message.at, message.via_switch, message.dimension, message.device, message.stop
        message.is_stranded = int(not is_there(run, row) and not _is_led_on(run, row))
        message.at, message.via_switch, message.dimension, message.device, message.stop = kept
        if message.is_stranded:
            message.missing = row_of(run.network, int(dead[0]))
            for link_row in dead:
                if routes.source[int(link_row)] == message.device:
                    message.missing = row_of(run.network, int(link_row))


@works_on_tables
def _find_turning(before: Run, run: Run, rows: Any) -> None:
    """End a folded run if a message turns, on its way, to links that do not follow from its ends."""
    messages = run.messages
    for at in range(len(rows)):
        row = int(rows[at])
        message = messages[row]
        kept = message.at, message.via_switch, message.dimension, message.device, message.stop
        turns = message.is_stranded == 1
        while not turns and not is_there(run, row):
            here = message.at, message.via_switch, message.dimension, message.device, message.stop
            link_row = take_hop(before.network, message)
            message.at, message.via_switch, message.dimension, message.device, message.stop = here
            turns = take_hop(run.network, message) != link_row
        message.at, message.via_switch, message.dimension, message.device, message.stop = kept
        if turns:
            observe.links_differ(run)


@works_on_tables
def _is_led_on(run: Run, row: int) -> bool:
    """Return whether the routes lead a message from its device to its target."""
    network, message = run.network, run.messages[row]
    routes = network.fabric.graph.routes
    for _ in range(len(routes.rank_of)):  # more links than any way without a circle has
        if not leads_on(routes, message.device, message.stop):
            return False
        take_hop(network, message)
        if is_there(run, row):
            return True
    return False


def longest_waits(run: Run, network: Network) -> list[int]:
    """Return the longest wait of messages for each failure, in ns; 0: none was lost there."""
    waited = run.network.links["waited_ns"].copy()
    for row in _lost(run).tolist():
        message = run.messages[row]
        waited[message.lost_on] = max(int(waited[message.lost_on]), int(run.clock[0].now - message.lost_ns))
    class_of = run.network.class_of if len(run.network.class_of) else np.arange(len(waited))
    return longest_by_failure(merged(network), waited[class_of] >> network.fraction_bits)


def _lost(run: Run) -> Any:
    rows = _under_way(run)
    return rows[run.messages["is_lost"][rows] == 1]


def lost_messages(run: Run, network: Network) -> LostMessages | None:
    """Return the messages whose senders have given up; None if there are none."""
    lost = _lost(run)
    if not len(lost):
        return None
    first = run.messages[lost[np.lexsort((lost, run.messages["lost_ns"][lost]))][0]]
    links = tuple(rows_of(merged(network), failure) for failure in network.failures)
    ends = int(first["source"]), int(first["target"])
    return LostMessages(
        lost.tolist(),
        int(_first_links(run.network)[first["lost_on"]]),
        links,
        ends,
        int(first["lost_ns"]),
        int(first["tries"]),
    )
