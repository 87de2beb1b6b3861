"""Messages of collectives that arrive before anybody waits for them.

A message is named by the member it goes to, its phase key (sequence, program and phase) and its
step key (step and direction of its sender). The program is part of the phase key, so that collectives that
differ between ranks never exchange messages, even if these happen to fit. Few messages are ever unexpected
at a time: ranks that run in step have none.
"""

from __future__ import annotations

from et_sim.compiled.tables_by_reference import works_on_tables
from et_sim.engine.containers import give_row, take_row, unchain
from et_sim.engine.observe import facade as observe
from et_sim.engine.state.phase_key import PHASE_BITS, PHASE_KEY_BITS, PROGRAM_MASK
from et_sim.engine.state.run import NONE, Run

# With rendezvous, two more kinds of things wait under the key of a step.
OFFERED, ASKED = 1 << 29, 1 << 30
FLAGS = OFFERED | ASKED


@works_on_tables
def unexpected_home(run: Run, member: int, step_key: int, phase_key: int) -> int:
    """Where the search for an unexpected message begins."""
    mixed = (member << 5) ^ step_key ^ (step_key >> 11) ^ phase_key ^ (phase_key >> PHASE_KEY_BITS)
    return mixed & (len(run.unexpected_index) - 1)


@works_on_tables
def keep_unexpected(
    run: Run, member: int, step_key: int, phase_key: int, peer: int, rank: int, size: int
) -> int:
    """Keep a message until somebody takes it; `peer`, `rank` and `size` are for whoever does.

    Returns its row, where the time of a message that is still on its way may be noted.
    """
    clock = run.clock[0]
    row = take_row(run.unexpected, clock.free_unexpecteds)
    message = run.unexpected[row]
    home = unexpected_home(run, member, step_key, phase_key)
    message.member = member
    message.step_key = step_key
    message.phase_key = phase_key
    message.peer = peer
    message.rank = rank
    message.bytes = size
    message.arrives_ns = clock.now
    message.chain = run.unexpected_index[home]
    run.unexpected_index[home] = row
    run.members[member].unexpected += 1
    observe.message_unexpected(run, row)
    return row


@works_on_tables
def take_unexpected(run: Run, member: int, step_key: int, phase_key: int) -> int:
    """Remove an unexpected message; its row may be read until the next one is kept. NONE: not here."""
    home = unexpected_home(run, member, step_key, phase_key)
    row = run.unexpected_index[home]
    while row != NONE:
        message = run.unexpected[row]
        if message.member == member and message.step_key == step_key and message.phase_key == phase_key:
            break
        row = message.chain
    if row == NONE:
        return NONE
    message = run.unexpected[row]
    unchain(run.unexpected, run.unexpected_index, home, row)
    observe.counterpart_comes(run, message.mark)
    message.member = NONE
    give_row(run.unexpected, run.clock[0].free_unexpecteds, row)
    run.members[member].unexpected -= 1
    return row


@works_on_tables
def take_unexpected_either_way(run: Run, member: int, step_key: int, phase_key: int) -> int:
    """Like `take_unexpected`, also if the peer runs the phase in the other direction."""
    row = take_unexpected(run, member, step_key, phase_key)
    if row == NONE:
        other = seen_from_other_direction(run, step_key, phase_key)
        if other != NONE:
            row = take_unexpected(run, member, other, phase_key)
    return row


@works_on_tables
def seen_from_other_direction(run: Run, step_key: int, phase_key: int) -> int:
    """The step key that a peer that runs the other way round gives to the same message; NONE: there is none.

    Actors whose queue cursors differ may run one phase in different directions. A direct exchange
    then still meets all its peers, in another order; a ring of more than two never closes.
    """
    program = run.plan.programs[(phase_key >> PHASE_BITS) & PROGRAM_MASK]
    if not program.turns or program.step_period != program.members - 1:
        return NONE
    flags, step, turned = step_key & FLAGS, (step_key & ~FLAGS) >> 1, step_key & 1
    lap, place = step // program.step_period, step % program.step_period
    return flags | (lap * program.step_period + program.step_period - 1 - place) * 2 + (1 - turned)
