"""Rings on links of their own: all messages of a collective evaluated at once.

Where a group's ring has its links to itself, its messages meet no others, and their times follow from the
times at which the members start the phase: a step of a member begins when its transfer is ready and the next
member has room for it, and each step waits for the message of the step before. No member is done before all
have started, so the last one to start evaluates all steps of all members. Each member then receives its last
message in an event of the engine, as if the others had been simulated. The arithmetic is that of `routes` and
`shares`, operation by operation, so the times are the same.

The first phase of a ring claims its links. If another route comes to a claimed link, or a member starts a
phase before its last one is done, the run is made again with every message (`observe.ordering`).

The argument needs programs with one transfer at a time that takes some time (`_are_rings`): a member then
never sends two messages in one nanosecond.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from msgspec.structs import replace

from et_sim.compiled.tables_by_reference import works_on_tables
from et_sim.engine.calendar.clock import schedule
from et_sim.engine.collectives.members import member_at, position_from, rank_at
from et_sim.engine.containers import NONE, give_row, take_row
from et_sim.engine.observe import facade as observe
from et_sim.engine.state.kinds import EVALUATED, LATE_STEP, STEP_LEFT
from et_sim.engine.state.run import Run
from et_sim.machine.corrections import Correction
from et_sim.machine.model import GridFabric, Network
from et_sim.network.fabric import set_out, take_hop
from et_sim.network.flow.records import OTHERS, RING, SAME_NS
from et_sim.network.flow.routes import bytes_on_wire
from et_sim.plan.records import NO_LIMIT, LoweredPlan, table

UNSUPPORTED = ("customs", "switches", "bus", "memory_hops")  # tables of the plan


def ahead(tables: Any, network: Network, plan: LoweredPlan) -> Any:
    """Return the tables with rings for the phases that may be evaluated at once; None if there are none."""
    if not isinstance(network.fabric, GridFabric) or network.protocol is not None or not network.is_constant:
        return None
    if plan.is_folded or len(tables.ways.link) or any(len(getattr(plan, name)) for name in UNSUPPORTED):
        return None
    if plan.memory_servers or plan.rendezvous or Correction.ENDS_WHEN_SENT not in plan.corrections:
        return None
    rules = plan.version_1
    if rules.pairs_early or rules.starts_together or rules.arrivals_by_sender:
        return None
    are_rings = _are_rings(plan)
    others = _among_others(network, plan, are_rings)
    chosen = are_rings & ~np.isin(np.arange(len(plan.programs)), others)
    if not chosen.any():
        return None
    rings = table(RING, len(plan.members))
    rings["first"] = NONE
    programs = plan.programs[chosen]
    return replace(
        tables,
        rings=rings,
        ring_programs=chosen.astype(np.int8),
        ring_links=np.zeros(len(rings) * int(tables.longest[0]), np.int32),
        ring_posts=np.zeros(int((programs["sends"] * programs["members"]).max()), np.int64),
    )


def _are_rings(plan: LoweredPlan) -> Any:
    """Return, for each program, whether one message after the other goes round a ring of all members."""
    programs = plan.programs
    is_ring = (programs["tree_first"] == NONE) & (programs["custom_first"] == NONE) & (programs["pairs"] == 0)
    is_ring &= (programs["half"] == 0) & (programs["own_steps"] == 0) & (programs["step_period"] == 1)
    is_ring &= (programs["start_transfers"] == 1) & (programs["sends"] >= programs["members"] - 1)
    is_ring &= programs["members"] > 1
    least = int(plan.axes["endpoint_ns"].min(initial=1))
    for row in np.flatnonzero(is_ring).tolist():
        program = programs[row]
        step, first = plan.steps[program.step_first], int(program.transfer_first)
        paces = plan.transfers["reduction_ns"][first : first + int(program.transfer_period)]
        takes_time = least > 0 or bool((paces > 0).all())
        is_ring[row] = step.distance == 1 and step.bytes > 0 and takes_time
    return is_ring


def _among_others(network: Network, plan: LoweredPlan, are_rings: Any) -> Any:
    """Return the programs in dimensions in which other messages may share links, as far as plans show."""
    counts = np.array([dimension.npus for dimension in network.grid.dimensions], np.int64)
    strides = np.cumprod(counts) // counts
    source, target = (plan.channels[name].astype(np.int64)[:, None] for name in ("source", "target"))
    crossed = ((source // strides) % counts != (target // strides) % counts).any(axis=0)
    shared = set(np.flatnonzero(crossed).tolist())
    phases = plan.phases
    shared |= set(phases["dimension"][~are_rings[phases["program"]]].tolist())
    for collective in plan.collectives:
        if collective.phases > 1 or collective.chunks > 1 or collective.rotations > 1:
            first = int(plan.chunk_plans[collective.chunk_plan_first].phase_first)
            rows = phases[first : first + int(collective.phases) * max(int(collective.rotations), 1)]
            shared |= set(rows["dimension"].tolist())
    return phases["program"][np.isin(phases["dimension"], [*shared])]


@works_on_tables
def goes_round(run: Run, chunk_row: int) -> bool:
    """Let a member start a phase that is evaluated once all have; return whether it is of this kind."""
    network, chunk = run.network, run.chunks[chunk_row]
    if len(network.rings) == 0 or not network.ring_programs[chunk.program]:
        return False
    if network.rings[chunk.member].first == NONE:
        _claim(run, chunk_row)
    ring, now = network.rings[chunk.member], run.clock[0].now
    first = network.rings[ring.first]
    if first.is_refused:
        return False
    if first.started == 0:
        first.phase_key = chunk.phase_key
    is_other_way = ring.axis != chunk.axis or ring.direction != chunk.direction
    if first.phase_key != chunk.phase_key or is_other_way or now < ring.done_ns:
        observe.order_fails(run)
        return True
    ring.chunk, ring.ready_ns = chunk_row, now
    first.started += 1
    if first.started == run.plan.programs[chunk.program].members:
        first.started = 0
        _evaluate(run, ring.first)
    return True


@works_on_tables
def _claim(run: Run, chunk_row: int) -> None:
    """Find the members of a ring, and claim the links from each to the next."""
    network, chunk = run.network, run.chunks[chunk_row]
    first, member, place = chunk.member, chunk.member, chunk.position
    rank = run.plan.actors[chunk.actor].rank
    network.rings[first].is_refused = 0
    program = run.plan.programs[chunk.program]
    for _ in range(program.members):
        ring = network.rings[member]
        if ring.first != NONE:
            observe.order_fails(run)
        place = position_from(program, place, 1, chunk.direction)
        ring.first, ring.axis, ring.direction = first, chunk.axis, chunk.direction
        ring.ahead = member_at(run, chunk_row, place)
        there = rank_at(run, chunk_row, place)
        if not _claim_links(run, member, rank, there):
            network.rings[first].is_refused = 1
        member, rank = ring.ahead, there
    if network.rings[first].is_refused:
        _release(run, first)


@works_on_tables
def _claim_links(run: Run, member: int, source: int, target: int) -> bool:
    """Claim the links between two ranks, and store their figures; return False if another one uses them."""
    network, ring = run.network, run.network.rings[member]
    ring.link_first, ring.links = member * network.longest[0], 0
    ring.rate, ring.latency_ns, is_free = np.inf, 0.0, True
    row = take_row(run.messages, run.clock[0].free_messages)
    message = run.messages[row]
    message.target = target
    set_out(network.hops, message, source, 0)
    while ring.links == 0 or message.at != target or message.via_switch:
        link_row = network.class_of[take_hop(network.hops, message)]
        link = network.shared[link_row]
        network.ring_links[ring.link_first + ring.links] = link_row
        ring.links += 1
        ring.rate = min(ring.rate, link.capacity)
        ring.latency_ns += network.hops.fabric.speeds[link.speed].latency_ns
        if link.owner > 0 and network.rings[link.owner - 1].first != ring.first:
            observe.order_fails(run)
        is_free = is_free and link.owner == 0 and link.links == 1
        link.owner = OTHERS if link.owner else member + 1
    give_row(run.messages, run.clock[0].free_messages, row)
    return is_free


@works_on_tables
def _release(run: Run, first: int) -> None:
    """Leave the links of a ring to all routes."""
    network, member = run.network, first
    while True:
        ring = network.rings[member]
        for at in range(ring.link_first, ring.link_first + ring.links):
            network.shared[network.ring_links[at]].owner = OTHERS
        member = ring.ahead
        if member == first:
            return


@works_on_tables
def _pace(run: Run, program: Any, number: int) -> int:
    """Return the time of a transfer behind the endpoint."""
    row = program.transfer_first + number % program.transfer_period
    return max(run.plan.transfers[row].reduction_ns, 0)


@works_on_tables
def _evaluate(run: Run, first: int) -> None:
    """Evaluate all steps of a phase that all members have started; let each receive its last message."""
    network, chunk = run.network, run.chunks[run.network.rings[first].chunk]
    program, rings = run.plan.programs[chunk.program], run.network.rings
    endpoint = run.plan.axes[chunk.axis].endpoint_ns
    size = bytes_on_wire(network, run.plan.steps[program.step_first].bytes)
    members, sends = program.members, program.sends
    pace, member = endpoint + _pace(run, program, 0), first
    for _ in range(members):
        ring = rings[member]
        ring.ready_ns += pace
        ring.sent_ns, ring.left_ns = NONE, NONE
        member = ring.ahead
    for step in range(sends):
        for place in range(members):
            ring = rings[member]
            network.ring_posts[step * members + place] = max(ring.ready_ns, ring.sent_ns)
            member = ring.ahead
        pace = endpoint + _pace(run, program, step + 1)
        for place in range(members):
            _send(run, member, step, place, program, size, pace)
            member = rings[member].ahead
    run.clock[0].delivered += members * sends
    for _ in range(members):
        _receive_last(run, member, sends, endpoint + _pace(run, program, sends), size * sends)
        member = rings[member].ahead


@works_on_tables(forceinline=True)
def _send(run: Run, member: int, step: int, place: int, program: Any, size: int, pace: int) -> None:
    """Send a message of a step when the next member has room for it, and receive it there."""
    network = run.network
    ring, posts, members = network.rings[member], network.ring_posts, program.members
    ahead = place + 1 if place + 1 < members else 0
    time = posts[step * members + place]
    if program.window != NO_LIMIT and step >= program.window:
        time = max(time, posts[(step - program.window) * members + ahead])
    ring.sent_ns = time
    if ring.left_ns <= time:  # the message before has left
        ring.since_ns, ring.served, ring.until = max(float(time), ring.ends_ns), 0.0, float(size)
    else:
        if ring.ends_ns > ring.since_ns:
            ring.served += ring.rate * (ring.ends_ns - ring.since_ns)
            ring.since_ns = ring.ends_ns
        ring.until += size
    left = ring.until - ring.served
    ring.ends_ns = ring.since_ns
    if left > 0:
        ring.ends_ns += left / ring.rate
    ring.left_ns = max(int(ring.ends_ns + SAME_NS), time)
    arrives = max(int(ring.ends_ns + ring.latency_ns + SAME_NS), ring.left_ns)
    there, posted = network.rings[ring.ahead], posts[step * members + ahead]
    there.known_ns = ring.left_ns
    if arrives < posted:  # the message waits, and is copied
        arrives = posted + min(program.copy_ns, posted - arrives)
        there.known_ns = posted
    there.ready_ns = arrives + pace


@works_on_tables
def _receive_last(run: Run, member: int, sends: int, pace: int, size: int) -> None:
    """Put the last message to a member on the calendar, and the end of its own last one if that is later."""
    network, ring = run.network, run.network.rings[member]
    chunk, visit = run.chunks[ring.chunk], run.visits[ring.chunk]
    program = run.plan.programs[chunk.program]
    chunk.sent, chunk.transfers, chunk.received = sends, sends, sends - 1
    chunk.transfer, chunk.step, chunk.credit = sends % program.transfer_period, 0, 0
    if ring.known_ns < run.clock[0].now:  # its place among the events put there since then is not known
        observe.order_fails(run)
        return
    schedule(run, ring.known_ns, EVALUATED, ring.chunk, LATE_STEP, ring.ready_ns - pace)
    ring.done_ns = max(ring.ready_ns, ring.left_ns)
    if ring.left_ns >= ring.ready_ns:
        visit.leaving = 1
        schedule(run, ring.left_ns, EVALUATED, ring.chunk, STEP_LEFT, ring.left_ns)
    for at in range(ring.link_first, ring.link_first + ring.links):
        network.shared[network.ring_links[at]].bytes += size
