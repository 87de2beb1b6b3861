"""A connection's timers: acknowledgements that do not come, or were held back; messages that are due."""

from __future__ import annotations

from typing import Any

from et_sim.compiled.tables_by_reference import works_on_tables
from et_sim.engine.state.run import NONE
from et_sim.network.packet.forwarding import send_next
from et_sim.network.packet.ports import stop
from et_sim.network.packet.records import NEVER
from et_sim.network.packet.tcp import control
from et_sim.network.packet.tcp.connections import messages_are_due, release_if_done, send_opening, tell_more
from et_sim.network.packet.tcp.nic import message_at
from et_sim.network.packet.tcp.receiver import answer_late
from et_sim.network.packet.tcp.records import DELAYED, DUE, LOSS, OPEN, OPENING, RESEND, TELL, TIMERS
from et_sim.network.packet.tcp.sender import send_pending, set_deadline, under_way

LONGEST_PS = 60_000_000_000_000


@works_on_tables
def timer_rings(network: Any, timer: int) -> None:
    """One of a connection's timers."""
    row, which = timer // TIMERS, timer % TIMERS
    stop(network, timer)
    if which == DUE:
        messages_are_due(network, row)
    elif which == DELAYED:
        answer_late(network, row)
    elif which == TELL:
        tell_more(network, row)
        release_if_done(network, row)
    else:
        if which == RESEND:
            _look_at_clock(network, row)
        else:
            send_pending(network, row)
        send_next(network, network.flows[row].port)


@works_on_tables
def sends_nothing(network: Any, timer: int) -> bool:
    """Whether a timer waits for acknowledgements that have come since it was set."""
    connection = network.transport.connections[timer // TIMERS]
    return bool(timer % TIMERS == RESEND and connection.deadline_ps == NEVER)


@works_on_tables
def _look_at_clock(network: Any, row: int) -> None:
    """Send again if it is time."""
    connection = network.transport.connections[row]
    if connection.deadline_ps == NEVER:
        return
    if connection.deadline_ps > network.state[0].now_ps:
        set_deadline(network, row, connection.deadline_ps)
        return
    connection.timeout_ps = min(2 * connection.timeout_ps, LONGEST_PS)
    connection.deadline_ps = NEVER
    if connection.stage == OPENING:
        send_opening(network, row)
    elif connection.stage == OPEN:
        _send_all_again(network, row)


@works_on_tables
def _send_all_again(network: Any, row: int) -> None:
    """All that is not known to have arrived is taken for lost."""
    transport = network.transport
    connection, rules = transport.connections[row], transport.rules[0]
    flight = under_way(network, row)
    network.state[0].timeouts += 1
    message = message_at(network, row, connection.acknowledged)
    if message != NONE:
        network.flows[message].timeouts += 1
    connection.duplicates = 0
    connection.is_partial = 1
    if rules.sack:
        connection.lost_to = connection.highest
        connection.again = connection.acknowledged
    else:
        connection.sent = connection.acknowledged
    connection.recover, connection.recovers = connection.highest, 1
    connection.threshold = control.reduced(network, row, flight)
    control.waited_in_vain(network, row)
    connection.state = LOSS
    connection.window = rules.payload
    send_pending(network, row)
