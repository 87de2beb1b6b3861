"""Why things happen when they do: a record of which moment let which happen.

A *moment* is a point of the run. What takes time leads from one moment to the next; where several things must
have come, they meet in a moment that names the one that came last and another one, which came before it (or
with it). So the end of a moment is the later of the two that it needs, plus the time it takes: all times of a
run follow from its first moment, by nothing but sums and maxima. Walking back from its last one along `by`
passes everything that decided how long the run took.

The engine says three things here: what takes time (`takes`, `flies`, and what the kinds of events say of
themselves), what is needed besides the event under way (`needs` and what is built on it), and whose work it
is (`works_for`). What waits remembers the moment at which it began to.

All of this is idle unless causes are recorded. Not here: the tables (`cause_tables`), and what can be learned
from the record (`views`).
"""

from __future__ import annotations

from et_sim.engine import kinds
from et_sim.engine.cause_tables import What
from et_sim.engine.state import NONE, RUNNING_LIMIT, Run
from et_sim.network.analytical import hops_between, leg_ns, slowest_of_leg, speed_of_hop
from et_sim.plan.tables import LANES
from et_sim.tables_by_reference import works_on_tables

BEGINNING = 0
LATE_START, NODE, LATENCY, SERIALISATION = (
    int(What.LATE_START),
    int(What.NODE),
    int(What.LATENCY),
    int(What.SERIALISATION),
)
ENDPOINT, REDUCTION, BUS = int(What.ENDPOINT), int(What.REDUCTION), int(What.BUS)
NODE_START, NODE_END, PARENTS = int(What.NODE_START), int(What.NODE_END), int(What.PARENTS)
NOTHING = int(What.BEGIN)
LANE, LINK, SERVER, QUEUE = int(What.LANE), int(What.LINK), int(What.SERVER), int(What.QUEUE)
RECEIVE, REQUEST, BUNDLES = int(What.RECEIVE), int(What.REQUEST), int(What.BUNDLES)
CHUNKS, TRANSFER = int(What.CHUNKS), int(What.TRANSFER)


@works_on_tables
def is_recorded(run: Run) -> bool:
    """Whether causes are recorded at all."""
    return len(run.causes.on) > 0


@works_on_tables
def _moment(run: Run, by: int, also: int, what: int, start_ns: int, end_ns: int) -> int:
    now = run.causes.now[0]
    moment = run.causes.moments[now.made - now.flushed]
    moment.by, moment.also = by, also
    moment.start_ns, moment.end_ns = start_ns, end_ns
    moment.node, moment.what = now.node, what
    moment.link, moment.place = now.link, now.place
    now.made += 1
    return now.made - 1


@works_on_tables
def begin_at_the_beginning(run: Run) -> None:
    """An actor starts."""
    if is_recorded(run):
        run.causes.now[0].moment = BEGINNING


@works_on_tables
def begin_moment(run: Run, event_row: int) -> None:
    """An event is taken off the calendar."""
    if is_recorded(run):
        now, cause = run.causes.now[0], run.causes.events[event_row]
        now.moment, now.node = cause.moment, cause.node


@works_on_tables
def remember(run: Run, event_row: int) -> None:
    """An event is made: if it must wait for something, it has been since now."""
    if is_recorded(run):
        now, cause = run.causes.now[0], run.causes.events[event_row]
        cause.moment, cause.node = now.moment, now.node


@works_on_tables
def takes_until(run: Run, event_row: int, time: int, kind: int) -> None:
    """An event is put on the calendar: what is happening, or what was said to follow it, leads to it."""
    if not is_recorded(run):
        return
    now = run.causes.now[0]
    base = now.moment if now.base == NONE else now.base
    base_ns = run.clock[0].now if now.base == NONE else now.base_ns
    if time > base_ns:
        what = _time_of(kind) if now.what == NONE else now.what
        base = _moment(run, base, NONE, what, base_ns, time)
    run.causes.events[event_row].moment = base
    now.base = now.what = now.link = now.place = NONE


@works_on_tables
def _time_of(kind: int) -> int:
    """How the time until an event is spent."""
    if kind == kinds.BUNDLE_AT_ENDPOINT:
        return ENDPOINT
    if kind == kinds.BUNDLE_READY:
        return REDUCTION
    if kind in (kinds.BUS_SENT, kinds.BUS_RECEIVED, kinds.BUS_PROCESSED):
        return BUS
    return LATE_START if kind == kinds.START else NODE


@works_on_tables
def _takes_first(run: Run, what: int, link: int, time: int) -> None:
    """Before the next event can take its time, something else takes until `time`."""
    now = run.causes.now[0]
    if now.base == NONE:
        now.base, now.base_ns = now.moment, run.clock[0].now
    if time > now.base_ns:
        now.link = link
        now.base = _moment(run, now.base, NONE, what, now.base_ns, time)
        now.base_ns = time


@works_on_tables
def serialises(run: Run, link_row: int, speed: int, serial_ns: int) -> int:
    """A message occupies a link from now on; returns the moment at which it is through."""
    now = run.causes.now[0]
    if not is_recorded(run) or serial_ns == 0:
        return now.moment
    begin = run.clock[0].now
    now.link, now.place = speed, link_row
    through = _moment(run, now.moment, NONE, SERIALISATION, begin, begin + serial_ns)
    now.link = now.place = NONE
    return through


@works_on_tables
def follows(run: Run, moment: int, moment_ns: int, what: int, link: int) -> None:
    """The next event follows another moment than the present one; `what` takes the rest of the time."""
    if is_recorded(run):
        now = run.causes.now[0]
        now.base, now.base_ns, now.what, now.link = moment, moment_ns, what, link


@works_on_tables
def flies(run: Run, source: int, target: int, size: int, whole_path: int) -> None:
    """The next event is the arrival of a message that waits for no link."""
    if not is_recorded(run):
        return
    at = source
    for row in range(len(run.network.dimensions)):
        dimension = run.network.dimensions[row]
        here, there = source % dimension.npus, target % dimension.npus
        if here != there:
            _fly_along(run, row, at, here, there, size)
            if not whole_path:
                return
        at += (there - here) * dimension.stride
        source //= dimension.npus
        target //= dimension.npus


@works_on_tables
def _fly_along(run: Run, row: int, at: int, here: int, there: int, size: int) -> None:
    """The latencies of the links along one dimension, and then the slowest one's serialisation."""
    network, now = run.network, run.causes.now[0]
    begin = run.clock[0].now if now.base == NONE else now.base_ns
    latency = 0.0
    hops = hops_between(network.dimensions[row], here, there)
    for hop in range(hops):
        speed = speed_of_hop(network, row, at, here, there, hop)
        latency += network.speeds[speed].latency_ns
        if hop + 1 == hops or speed_of_hop(network, row, at, here, there, hop + 1) != speed:
            _takes_first(run, LATENCY, speed, begin + int(latency))
    slowest = slowest_of_leg(network, row, at, here, there)
    _takes_first(run, SERIALISATION, slowest, begin + leg_ns(network, row, at, here, there, size))


@works_on_tables
def leaves(run: Run, source: int, target: int) -> None:
    """The next event is that a message has left its source, which waits for no link."""
    if not is_recorded(run):
        return
    at = source
    for row in range(len(run.network.dimensions)):
        dimension = run.network.dimensions[row]
        here, there = source % dimension.npus, target % dimension.npus
        if here != there:
            run.causes.now[0].what = SERIALISATION
            run.causes.now[0].link = slowest_of_leg(run.network, row, at, here, there)
            return
        source //= dimension.npus
        target //= dimension.npus


@works_on_tables
def now_of(run: Run) -> int:
    """The moment at which things happen now, to be told to `needs` or `resume` later."""
    return run.causes.now[0].moment if is_recorded(run) else NONE


@works_on_tables
def resume(run: Run, moment: int) -> None:
    """What happens next, in the same event, needs no more than this moment."""
    if is_recorded(run):
        run.causes.now[0].moment = moment


@works_on_tables
def needs(run: Run, moment: int, what: int, place: int) -> None:
    """What happens next needs another moment, too."""
    now = run.causes.now[0]
    if is_recorded(run) and moment != NONE and moment != now.moment:
        now.place = place
        time = run.clock[0].now
        now.moment = _moment(run, now.moment, moment, what, time, time)
        now.place = NONE


@works_on_tables
def works_for(run: Run, stream_row: int) -> None:
    """What happens next is a collective's work."""
    if is_recorded(run):
        running = run.running[run.streams[stream_row].running]
        run.causes.now[0].node = run.plan.actors[running.actor].node_first + running.node


@works_on_tables
def parent_done(run: Run, node: int) -> None:
    """One parent of a node is done, or none had to be: it needs all of them so far."""
    if is_recorded(run):
        needs(run, run.causes.nodes[node], PARENTS, NONE)
        run.causes.nodes[node] = now_of(run)


@works_on_tables
def node_starts(run: Run, node: int, actor_row: int, lane: int, is_limited: bool) -> None:
    """A node is issued: it needs its parents and, if that holds one node at a time, its lane."""
    if not is_recorded(run):
        return
    now, place = run.causes.now[0], actor_row * LANES + lane
    now.node = node
    if is_limited:
        needs(run, run.causes.lanes[place], LANE, place)
    parents = run.causes.nodes[node] if run.causes.nodes[node] != now.moment else NONE
    now.place = place
    now.moment = _moment(run, now.moment, parents, NODE_START, run.clock[0].now, run.clock[0].now)
    now.place = NONE


@works_on_tables
def node_ends(run: Run, node: int, actor_row: int, lane: int) -> None:
    """A node is done, and its lane is free."""
    if is_recorded(run):
        now = run.causes.now[0]
        now.node = node
        now.moment = _moment(run, now.moment, NONE, NODE_END, run.clock[0].now, run.clock[0].now)
        run.causes.lanes[actor_row * LANES + lane] = now.moment


@works_on_tables
def chunk_queued(run: Run, stream_row: int) -> None:
    """A chunk joins a queue; nothing has happened in this phase of it yet."""
    if is_recorded(run):
        stream = run.causes.streams[stream_row]
        stream.queued = now_of(run)
        stream.ready = stream.posted = stream.half = NONE


@works_on_tables
def chunk_starts(run: Run, stream_row: int, queue_row: int) -> None:
    """A chunk starts: of those that were in its queue, all but the last few must have left."""
    if not is_recorded(run):
        return
    works_for(run, stream_row)
    queue, rooms = run.causes.queues[queue_row], run.causes.rooms
    needs(run, run.causes.streams[stream_row].queued, QUEUE, queue_row)
    needed = queue.starts - run.plan.settings[RUNNING_LIMIT]
    queue.starts += 1
    if 0 <= needed < queue.leaves:
        needed = max(needed, queue.leaves - rooms.shape[1])
        needs(run, rooms[queue_row, needed % rooms.shape[1]], QUEUE, queue_row)


@works_on_tables
def chunk_leaves(run: Run, queue_row: int) -> None:
    """A chunk leaves a queue."""
    if is_recorded(run):
        queue, rooms = run.causes.queues[queue_row], run.causes.rooms
        rooms[queue_row, queue.leaves % rooms.shape[1]] = now_of(run)
        queue.leaves += 1


@works_on_tables
def bundle_counts(run: Run, stream_row: int) -> None:
    """A bundle is through: what follows needs all of the phase so far."""
    if is_recorded(run):
        works_for(run, stream_row)
        stream = run.causes.streams[stream_row]
        needs(run, stream.ready, BUNDLES, NONE)
        stream.ready = now_of(run)


@works_on_tables
def receive_posted(run: Run, stream_row: int) -> None:
    """A phase posts a receive."""
    if is_recorded(run):
        run.causes.streams[stream_row].posted = now_of(run)


@works_on_tables
def step_received(run: Run, stream_row: int) -> None:
    """A message met the receive that a phase had posted."""
    if is_recorded(run):
        works_for(run, stream_row)
        needs(run, run.causes.streams[stream_row].posted, RECEIVE, NONE)


@works_on_tables
def collective_starts(run: Run, running_row: int) -> None:
    """A collective is issued; none of its chunks is done."""
    if is_recorded(run):
        run.causes.running[running_row] = NONE


@works_on_tables
def chunk_done(run: Run, running_row: int) -> None:
    """A chunk is done: what follows needs all chunks of its collective so far."""
    if is_recorded(run):
        needs(run, run.causes.running[running_row], CHUNKS, NONE)
        run.causes.running[running_row] = now_of(run)


@works_on_tables
def server_freed(run: Run, server_row: int) -> None:
    """A remote memory is free."""
    if is_recorded(run):
        run.causes.servers[server_row] = now_of(run)


@works_on_tables
def needs_server(run: Run, server_row: int) -> None:
    """What happens next needs a remote memory, which is free."""
    if is_recorded(run):
        needs(run, run.causes.servers[server_row], SERVER, server_row)


@works_on_tables
def needs_waiting(run: Run, event_row: int, what: int, place: int) -> None:
    """What has waited goes on; it needed what had happened when it began to wait, too."""
    if is_recorded(run):
        cause = run.causes.events[event_row]
        run.causes.now[0].node = cause.node
        needs(run, cause.moment, what, place)


@works_on_tables
def remember_parked(run: Run, row: int) -> None:
    """A message, an offer or a request of a step waits for its counterpart from now on."""
    if is_recorded(run):
        cause = run.causes.parked[row]
        cause.moment, cause.node = run.causes.now[0].moment, run.causes.now[0].node


@works_on_tables
def needs_parked(run: Run, row: int, what: int) -> None:
    """What happens next needs what was parked."""
    if is_recorded(run):
        needs(run, run.causes.parked[row].moment, what, NONE)


@works_on_tables
def needs_offer(run: Run, row: int) -> None:
    """The same; and it is done for whoever offered."""
    if is_recorded(run):
        run.causes.now[0].node = run.causes.parked[row].node
        needs_parked(run, row, REQUEST)


@works_on_tables
def first_half_arrived(run: Run, stream_row: int) -> None:
    """A stream received a message, perhaps the last of the first half of a direct exchange."""
    stream = run.streams[stream_row]
    if is_recorded(run) and stream.received == run.plan.programs[stream.program].half:
        run.causes.streams[stream_row].half = now_of(run)


@works_on_tables
def custom_starts(run: Run, stream_row: int, node: int) -> None:
    """A custom program begins; no parent of its nodes is done."""
    if is_recorded(run):
        run.causes.custom[stream_row, node] = NONE


@works_on_tables
def custom_parent_done(run: Run, stream_row: int, node: int) -> None:
    """A parent of a node of a custom program is done: the node needs all of them so far."""
    if is_recorded(run):
        needs(run, run.causes.custom[stream_row, node], PARENTS, NONE)
        run.causes.custom[stream_row, node] = now_of(run)


@works_on_tables
def remember_transit(run: Run, row: int) -> None:
    """A message waits for a link from now on."""
    if is_recorded(run):
        cause = run.causes.transits[row]
        cause.moment, cause.node = run.causes.now[0].moment, run.causes.now[0].node


@works_on_tables
def needs_transit(run: Run, row: int, link_row: int) -> None:
    """A message goes on, over a link that it had to wait for."""
    if is_recorded(run):
        cause = run.causes.transits[row]
        run.causes.now[0].node = cause.node
        needs(run, cause.moment, LINK, link_row)


@works_on_tables
def link_freed(run: Run, link_row: int) -> None:
    """A link is free."""
    if is_recorded(run):
        run.causes.links[link_row] = now_of(run)


@works_on_tables
def needs_link(run: Run, link_row: int) -> None:
    """What happens next needs a link, which is free."""
    if is_recorded(run):
        needs(run, run.causes.links[link_row], LINK, link_row)


@works_on_tables
def remember_request(run: Run, row: int) -> None:
    """A request joins a line at a side of a bus."""
    if is_recorded(run):
        cause = run.causes.bus_requests[row]
        cause.moment, cause.node = now_of(run), run.causes.now[0].node


@works_on_tables
def needs_request(run: Run, row: int, side_row: int) -> None:
    """A side of a bus begins to send a request, or to process it."""
    if is_recorded(run):
        cause = run.causes.bus_requests[row]
        run.causes.now[0].node = cause.node
        needs(run, cause.moment, TRANSFER, side_row)


@works_on_tables
def needs_side(run: Run, side_row: int, gap_ns: int, wait_ns: int) -> int:
    """Sending needs the side, which is free; for a gap after its last transfer if that leaves a wait.

    Returns the moment that the transfer follows, `wait_ns` from now.
    """
    if not is_recorded(run):
        return NONE
    last, begin = run.causes.bus_sides[side_row].free, run.clock[0].now + wait_ns
    if wait_ns == 0 or last == NONE:
        needs(run, last, TRANSFER, side_row)
        return now_of(run)
    over = _moment(run, last, NONE, BUS, begin - gap_ns, begin)
    return _moment(run, over, now_of(run), TRANSFER, begin, begin)


@works_on_tables
def side_freed(run: Run, side_row: int) -> None:
    """A side of a bus has sent or received."""
    if is_recorded(run):
        run.causes.bus_sides[side_row].free = now_of(run)


@works_on_tables
def side_processed(run: Run, side_row: int) -> None:
    """A side of a bus has processed a request."""
    if is_recorded(run):
        run.causes.bus_sides[side_row].processed = now_of(run)


@works_on_tables
def needs_processed(run: Run, side_row: int) -> None:
    """Processing needs the one before to be over."""
    if is_recorded(run):
        needs(run, run.causes.bus_sides[side_row].processed, TRANSFER, side_row)
