"""Why messages come when they do: links, flights, and what waits for a message or for a link.

Idle unless causes are recorded (`causes`). Not here: what the messages are about.
"""

from __future__ import annotations

from et_sim.compiled.tables_by_reference import works_on_tables
from et_sim.engine.causes import (
    BOUND,
    LATENCY,
    LINK,
    LINK_QUEUE,
    NOTHING,
    RECEIVE,
    REQUEST,
    SERIALISATION,
    is_recorded,
    moment_at,
    moment_of,
    needs,
    now_of,
)
from et_sim.engine.kinds import STEP
from et_sim.engine.state import NONE, Run
from et_sim.network.analytical import hops_between, leg_ns, slowest_of_leg, speed_of_hop
from et_sim.network.hierarchy import (
    CARDS_PASSED,
    LATENCY_PASSED,
    LINKS_PASSED,
    MEMORY_PASSED,
    MEMORY_REACHED,
    ROUTER_PASSED,
    distance_along,
    highest_level,
    over_level,
)
from et_sim.network.speeds import CARDS, MEMORY, PARTS_OF_A_LEVEL, ROUTER, SWITCH


@works_on_tables
def _takes_first(run: Run, what: int, link: int, time: int) -> None:
    """Before the next event can take its time, something else takes until `time`."""
    now = run.causes.now[0]
    if now.after == NONE:
        now.after, now.after_ns = now.moment, run.clock[0].now
    now.link = link
    now.after = moment_of(run, now.after, NONE, what, now.after_ns, time)
    now.after_ns = time


@works_on_tables
def serialises(run: Run, link_row: int, speed: int, serial_ns: int) -> int:
    """A message occupies a link from now on; returns the moment at which it is through."""
    now = run.causes.now[0]
    if not is_recorded(run):
        return NONE
    begin = run.clock[0].now
    now.link, now.place = speed, link_row
    through = moment_of(run, now.moment, NONE, SERIALISATION, begin, begin + serial_ns)
    now.link = now.place = NONE
    return through


@works_on_tables
def follows(run: Run, moment: int, moment_ns: int, what: int, link: int) -> None:
    """The next event follows another moment than the present one; `what` takes the rest of the time."""
    if is_recorded(run):
        now = run.causes.now[0]
        now.after, now.after_ns, now.what, now.link = moment, moment_ns, what, link


@works_on_tables
def flies(run: Run, source: int, target: int, size: int, whole_path: int) -> None:
    """The next event is the arrival of a message that waits for no link."""
    if not is_recorded(run):
        return
    if len(run.network.levels) > 0:
        _fly_over_level(run, source, target, size)
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
    begin = run.clock[0].now if now.after == NONE else now.after_ns
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
def _fly_over_level(run: Run, source: int, target: int, size: int) -> None:
    """In a network of ASTRA-sim 1.0: over links, cards and router, and meanwhile through the memory."""
    row = highest_level(run.network.levels, source, target)
    if row < 0:
        return
    now, level = run.causes.now[0], run.network.levels[row]
    base = now.moment if now.after == NONE else now.after
    begin = run.clock[0].now if now.after == NONE else now.after_ns
    distance, link = distance_along(run.network.levels, row, source, target), row * PARTS_OF_A_LEVEL
    _takes_first(run, LATENCY, link, begin + over_level(level, distance, size, LATENCY_PASSED))
    _takes_first(run, SERIALISATION, link, begin + over_level(level, distance, size, LINKS_PASSED))
    if level.nic_ns > 0:
        _takes_first(run, LATENCY, link + CARDS, begin + over_level(level, distance, size, CARDS_PASSED))
    if level.wiring == SWITCH and level.router_ns > 0:
        _takes_first(run, LATENCY, link + ROUTER, begin + over_level(level, distance, size, ROUTER_PASSED))
    if level.memory_scale == 0:
        return
    through, through_ns = now.after, now.after_ns
    now.after, now.after_ns = base, begin
    link += MEMORY
    _takes_first(run, LATENCY, link, begin + over_level(level, distance, size, MEMORY_REACHED))
    _takes_first(run, SERIALISATION, link, begin + over_level(level, distance, size, MEMORY_PASSED))
    now.link = NONE
    if now.after_ns > through_ns:
        now.after = moment_of(run, now.after, through, BOUND, now.after_ns, now.after_ns)
    else:
        now.after = moment_of(run, through, now.after, BOUND, through_ns, through_ns)
        now.after_ns = through_ns


@works_on_tables
def leaves(run: Run, source: int, target: int) -> None:
    """The next event is that a message has left its source, which waits for no link."""
    if not is_recorded(run):
        return
    if len(run.network.levels) > 0:
        run.causes.now[0].what = SERIALISATION
        run.causes.now[0].link = highest_level(run.network.levels, source, target) * PARTS_OF_A_LEVEL
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
        needs(run, cause.moment, LINK_QUEUE, link_row)


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
def remember_parked(run: Run, row: int) -> None:
    """A message, an offer or a request of a step waits for its counterpart from now on."""
    if is_recorded(run):
        cause = run.causes.parked[row]
        cause.moment, cause.node = run.causes.now[0].moment, run.causes.now[0].node


@works_on_tables
def arrives_early(run: Run, row: int, arrival: int) -> None:
    """A step's message that nobody waits for yet will arrive then."""
    if is_recorded(run):
        run.causes.parked[row].moment = moment_at(run, arrival, STEP)


@works_on_tables
def waits_for_early(run: Run, row: int) -> None:
    """The next event is the arrival of such a message, which may have been some time ago."""
    if not is_recorded(run):
        return
    arrival = run.parked[row].arrives_ns
    if arrival > run.clock[0].now:
        follows(run, run.causes.parked[row].moment, arrival, NOTHING, NONE)
    else:
        needs_parked(run, row, RECEIVE)


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
