"""Which receives end when a message is there, if they count bytes, and messages are longer than they say.

htsim's frontend adds a packet's bytes to each message, and counts them as received. What one rank sends
another in a collective is one stream of bytes then: message k ends the receives whose last byte is in it.
With short messages, later receives end early, and what comes after all of them have ended is for nobody.
"""

from __future__ import annotations

from typing import Any

from et_sim.compiled.tables_by_reference import works_on_tables
from et_sim.engine.calendar.clock import schedule
from et_sim.engine.observe import facade as observe
from et_sim.engine.state.kinds import STEP
from et_sim.engine.state.phase_key import PHASE_BITS, PROGRAM_MASK
from et_sim.engine.state.run import NONE, Run
from et_sim.engine.transport.message_pool import release_message

MOST_RECEIVES = 64  # that one message may end


@works_on_tables
def ends_receives(network: Any, run: Run, row: int) -> int:
    """A message is there: as which one, and which others with it; NONE: for nobody."""
    rules, message = network.transport.rules[0], run.messages[row]
    if rules.pads == 0 or message.kind != STEP:
        return row
    padded = message.bytes + rules.payload
    program = run.plan.programs[(message.c >> PHASE_BITS) & PROGRAM_MASK]
    if program.tree_first != NONE or program.custom_first != NONE or padded > MOST_RECEIVES * message.bytes:
        return row
    index = message.b >> 1
    number = _number_of(run, program, index)
    first, end = number * padded // message.bytes, (number + 1) * padded // message.bytes
    own, at, found = 0, 0, NONE
    distance = run.plan.steps[program.step_first + index % program.step_period].distance
    while at < program.sends and own < end:
        if run.plan.steps[program.step_first + at % program.step_period].distance == distance:
            if own == first:
                found = at
            elif own > first:
                observe.next_event_flies(run, message.through, message.left_ns, NONE)
                schedule(run, run.clock[0].now, STEP, message.a, 2 * at + (message.b & 1), message.c)
            own += 1
        at += 1
    if found == NONE:
        observe.message_arrives(run, row)
        release_message(run, row)
        return NONE
    message.b = 2 * found + (message.b & 1)
    return row


@works_on_tables
def _number_of(run: Run, program: Any, index: int) -> int:
    """How many messages a rank has sent the same other one before."""
    steps, count = run.plan.steps, 0
    distance = steps[program.step_first + index % program.step_period].distance
    for at in range(index):
        count += steps[program.step_first + at % program.step_period].distance == distance
    return count
