"""Rendezvous within collectives: a step's message starts only when its receiver has asked for it.

The sender's offer and the receiver's request meet at the sender, whichever comes first. An offer
outlives the chunk that made it: a phase does not wait for its last message to leave.

Not here: point-to-point messages (`messages`).
"""

from __future__ import annotations

from et_sim.compiled.tables_by_reference import works_on_tables
from et_sim.engine.calendar.clock import schedule
from et_sim.engine.collectives.members import member_at, rank_at
from et_sim.engine.collectives.unexpected import ASKED, OFFERED, keep_unexpected, take_unexpected_either_way
from et_sim.engine.observe import facade as observe
from et_sim.engine.state.kinds import ASKED_STEP, INJECT_STEP, STEP
from et_sim.engine.state.run import NONE, Run
from et_sim.engine.transport.network_seam import inject
from et_sim.plan.tables import REQUEST_BYTES


@works_on_tables
def offer_step(run: Run, chunk_row: int, position: int, size: int, step_key: int, phase_key: int) -> None:
    """Send a step's message to a position as soon as it is asked for; if it already is, in an event."""
    member = run.chunks[chunk_row].member
    peer, rank = member_at(run, chunk_row, position), rank_at(run, chunk_row, position)
    thread = observe.pause(run)
    asked = take_unexpected_either_way(run, member, step_key | ASKED, phase_key)
    if asked != NONE:
        observe.offer_was_asked_for(run, asked)
    offered = keep_unexpected(run, member, step_key | OFFERED, phase_key, peer, rank, size)
    observe.step_offered(run, chunk_row, step_key, offered)
    if asked != NONE:
        schedule(run, run.clock[0].now, INJECT_STEP, member, step_key, phase_key)
        observe.resume(run, thread)


@works_on_tables
def ask_for_step(run: Run, chunk_row: int, position: int, step_key: int, phase_key: int) -> None:
    """Tell the source of a step's message that the receive is posted."""
    here = _rank_of_member(run, run.chunks[chunk_row].member)
    there, source = rank_at(run, chunk_row, position), member_at(run, chunk_row, position)
    observe.step_asked_for(run, chunk_row, step_key)
    inject(run, here, there, REQUEST_BYTES, ASKED_STEP, source, step_key, phase_key, NONE)


@works_on_tables
def step_asked(run: Run, member: int, step_key: int, phase_key: int) -> None:
    """A request arrived: send what is offered, or remember that it was asked for."""
    if not inject_step(run, member, step_key, phase_key):
        keep_unexpected(run, member, step_key | ASKED, phase_key, NONE, NONE, 0)


@works_on_tables
def inject_step(run: Run, member: int, step_key: int, phase_key: int) -> bool:
    """Put an offered message on the network; False if nothing is offered under this key."""
    row = take_unexpected_either_way(run, member, step_key | OFFERED, phase_key)
    if row == NONE:
        return False
    offer = run.unexpected[row]
    observe.offer_sent(run, row)
    own_key = offer.step_key & ~OFFERED
    inject(
        run, _rank_of_member(run, member), offer.rank, offer.bytes, STEP, offer.peer, own_key, phase_key, NONE
    )
    return True


@works_on_tables
def _rank_of_member(run: Run, member: int) -> int:
    return run.plan.actors[run.plan.members[member].actor].rank
