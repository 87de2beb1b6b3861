"""Messages of collectives that arrive before their receives, and those that rendezvous holds back.

A message is identified by the member that receives it, its phase key (sequence, program and phase) and its
step key (step and direction of its sender). The program is part of the phase key, so that collectives that
differ between ranks never exchange messages, even if these happen to fit. Few messages are ever unexpected at
a time: ranks that run in step have none.

With rendezvous, a step's message starts only when its receiver has requested it. The sender's offer and the
receiver's request meet at the sender, in either order. An offer outlives the chunk that made it where a phase
does not wait for its last message to leave.
"""

from __future__ import annotations

from et_sim.compiled.tables_by_reference import works_on_tables
from et_sim.engine.calendar.clock import schedule
from et_sim.engine.collectives.members import member_at, rank_at
from et_sim.engine.containers import chain, give_row, take_row, unchain
from et_sim.engine.observe import facade as observe
from et_sim.engine.state.chunks import unexpected_home
from et_sim.engine.state.kinds import INJECT_STEP, REQUESTED_STEP, STEP
from et_sim.engine.state.records import PHASE_BITS, PROGRAM_MASK
from et_sim.engine.state.run import NONE, Run
from et_sim.engine.transport.network_seam import inject
from et_sim.plan.records import REQUEST_BYTES

# With rendezvous, offers and requests wait under the key of a step, too.
OFFERED, REQUESTED = 1 << 29, 1 << 30
FLAGS = OFFERED | REQUESTED


@works_on_tables
def keep_unexpected(
    run: Run,
    member: int,
    step_key: int,
    phase_key: int,
    peer: int = NONE,
    rank: int = NONE,
    size: int = 0,
    done: int = NONE,
) -> int:
    """Keep a message until a receive takes it; a held message has a receiver, bytes and a `done`.

    Return its row, where the arrival time of a message that is under way may be stored.
    """
    clock = run.clock[0]
    row = take_row(run.unexpected, clock.free_unexpecteds)
    message = run.unexpected[row]
    home = unexpected_home(run, member, step_key, phase_key)
    message.is_here = 1
    message.member = member
    message.step_key = step_key
    message.phase_key = phase_key
    message.peer = peer
    message.rank = rank
    message.bytes = size
    message.done = done
    message.arrives_ns = clock.now
    chain(run.unexpected, run.unexpected_index, home, row)
    run.members[member].unexpected += 1
    observe.message_unexpected(run, row)
    return row


@works_on_tables
def find_unexpected(run: Run, member: int, step_key: int, phase_key: int) -> int:
    """Return the row of an unexpected message; NONE if there is none."""
    row = run.unexpected_index[unexpected_home(run, member, step_key, phase_key)]
    while row != NONE:
        message = run.unexpected[row]
        if message.member == member and message.step_key == step_key and message.phase_key == phase_key:
            break
        row = message.chain
    return row


@works_on_tables
def take_unexpected(run: Run, member: int, step_key: int, phase_key: int) -> int:
    """Remove an unexpected message and return its row, which is valid until the next one is kept; or NONE."""
    row = find_unexpected(run, member, step_key, phase_key)
    if row == NONE:
        return NONE
    message = run.unexpected[row]
    _unchain(run, row)
    observe.met(run, message.mark)
    message.is_here = 0
    give_row(run.unexpected, run.clock[0].free_unexpecteds, row)
    run.members[member].unexpected -= 1
    return row


@works_on_tables
def rename_unexpected(run: Run, row: int, member: int, step_key: int, phase_key: int) -> None:
    """Change an unexpected message to one for another member, step or phase."""
    message = run.unexpected[row]
    _unchain(run, row)
    run.members[message.member].unexpected -= 1
    run.members[member].unexpected += 1
    message.member, message.step_key, message.phase_key = member, step_key, phase_key
    chain(run.unexpected, run.unexpected_index, unexpected_home(run, member, step_key, phase_key), row)


@works_on_tables
def _unchain(run: Run, row: int) -> None:
    message = run.unexpected[row]
    home = unexpected_home(run, message.member, message.step_key, message.phase_key)
    unchain(run.unexpected, run.unexpected_index, home, row)


@works_on_tables
def take_unexpected_either_way(run: Run, member: int, step_key: int, phase_key: int) -> int:
    """Remove an unexpected message like `take_unexpected`, also if the peer runs in the other direction."""
    row = take_unexpected(run, member, step_key, phase_key)
    if row == NONE:
        other = key_in_other_direction(run, step_key, phase_key)
        if other != NONE:
            row = take_unexpected(run, member, other, phase_key)
    return row


@works_on_tables
def key_in_other_direction(run: Run, step_key: int, phase_key: int) -> int:
    """Return the step key of the same message at a peer that runs in the other direction; NONE: none.

    Actors whose queue cursors differ may run one phase in different directions. A direct exchange then still
    meets all its peers, in another order; a ring of more than two never closes.
    """
    program = run.plan.programs[(phase_key >> PHASE_BITS) & PROGRAM_MASK]
    if not program.turns or program.step_period != program.members - 1:
        return NONE
    flags, step, turned = step_key & FLAGS, (step_key & ~FLAGS) >> 1, step_key & 1
    lap, place = step // program.step_period, step % program.step_period
    return flags | (lap * program.step_period + program.step_period - 1 - place) * 2 + (1 - turned)


@works_on_tables
def offer_step(
    run: Run, chunk_row: int, position: int, size: int, step_key: int, phase_key: int, done: int
) -> None:
    """Offer a step's message; if it is already requested, it is sent in a new event."""
    member = run.chunks[chunk_row].member
    thread = observe.pause(run)
    asked = take_unexpected_either_way(run, member, step_key | REQUESTED, phase_key)
    if asked != NONE:
        observe.offer_was_requested(run, asked)
    hold_step(run, chunk_row, position, size, step_key, phase_key, done)
    if asked != NONE:
        schedule(run, run.clock[0].now, INJECT_STEP, member, step_key, phase_key)
        observe.resume(run, thread)


@works_on_tables
def hold_step(
    run: Run, chunk_row: int, position: int, size: int, step_key: int, phase_key: int, done: int
) -> None:
    """Keep a step's message to a position until `inject_step` sends it."""
    member = run.chunks[chunk_row].member
    peer, rank = member_at(run, chunk_row, position), rank_at(run, chunk_row, position)
    offered = keep_unexpected(run, member, step_key | OFFERED, phase_key, peer, rank, size, done)
    observe.step_offered(run, chunk_row, step_key, offered)


@works_on_tables
def request_step(run: Run, chunk_row: int, position: int, step_key: int, phase_key: int) -> None:
    """Request a step's message from its source, as the receive is posted."""
    here = _rank_of_member(run, run.chunks[chunk_row].member)
    there, source = rank_at(run, chunk_row, position), member_at(run, chunk_row, position)
    observe.step_requested(run, chunk_row, step_key)
    inject(run, here, there, REQUEST_BYTES, REQUESTED_STEP, source, step_key, phase_key, NONE)


@works_on_tables
def step_requested(run: Run, member: int, step_key: int, phase_key: int) -> None:
    """Handle a request that has arrived: send the offered message, or keep the request."""
    if not inject_step(run, member, step_key, phase_key):
        keep_unexpected(run, member, step_key | REQUESTED, phase_key)


@works_on_tables
def inject_step(run: Run, member: int, step_key: int, phase_key: int) -> bool:
    """Put an offered message on the network; return False if nothing is offered under this key."""
    row = take_unexpected_either_way(run, member, step_key | OFFERED, phase_key)
    if row == NONE:
        return False
    offer = run.unexpected[row]
    observe.offer_sent(run, row)
    own_key, here = offer.step_key & ~OFFERED, _rank_of_member(run, member)
    inject(run, here, offer.rank, offer.bytes, STEP, offer.peer, own_key, phase_key, offer.done)
    return True


@works_on_tables
def _rank_of_member(run: Run, member: int) -> int:
    return run.plan.actors[run.plan.members[member].actor].rank
