"""The functions of a congestion control that RoCE calls, in the module of the control's tables.

A control sets the rate of a pair, in whole bits per second, and may set its window. It has three timers of
each pair, `row * TIMERS` and the next two. Without a function of the control, the event is ignored.
"""

from __future__ import annotations

from typing import Any

from et_sim.compiled.tables_by_reference import chosen_by_tables, works_on_tables
from et_sim.network.packet.ports import rate_ps, wake_at


@works_on_tables
def _ignores(_network: Any, _row: int) -> None:
    """Ignore the event."""


@works_on_tables
def _ignores_answer(_network: Any, _row: int, _packet_row: int) -> None:
    """Ignore the answer."""


@works_on_tables
def _stays(_network: Any, _row: int) -> bool:
    """Return true: no event changes the rate."""
    return True


# (network, pair): initialise a pair, whose rate and window are set.
begins = chosen_by_tables("begins", "control", _ignores)
# (network, pair, packet): process an acknowledgement, or a report of missing bytes.
acknowledged = chosen_by_tables("acknowledged", "control", _ignores_answer)
# (network, pair): process a timeout, after which all bytes are sent again.
timed_out = chosen_by_tables("timed_out", "control", _ignores)
# (network, timer): handle a timer.
timer_rings = chosen_by_tables("timer_rings", "control", _ignores)
# (network, pair): end a pair whose bytes are all acknowledged.
ends = chosen_by_tables("ends", "control", _ignores)
# (network, pair): whether the rate of a pair does not depend on the times of its packets, up to now.
rate_stays = chosen_by_tables("rate_stays", "control", _stays)


@works_on_tables
def set_rate(network: Any, row: int, rate: int) -> None:
    """Set the rate of a pair, which also applies to the packet that was sent last."""
    pair, flow = network.transport.pairs[row], network.flows[row]
    before, after = rate_ps(network, pair.rate, pair.last_bytes), rate_ps(network, rate, pair.last_bytes)
    pair.next_ps += after - before
    pair.rate = rate
    port = network.ports[flow.port]
    if port.wakes and pair.next_ps < port.wakes_ps:
        wake_at(network, flow.port, max(pair.next_ps, network.state[0].now_ps))
