"""The functions of a congestion control that TCP calls, in the module of the control's tables.

A control grows the window of a connection, and gives the threshold after a loss or a mark. Windows are bytes.
"""

from __future__ import annotations

from typing import Any

from et_sim.compiled.tables_by_reference import chosen_by_tables, works_on_tables
from et_sim.network.packet.records import NEVER


@works_on_tables
def _ignores(_network: Any, _row: int) -> None:
    """Ignore the event."""


@works_on_tables
def _ignores_packets(_network: Any, _row: int, _packets: int, _is_marked: bool) -> None:
    """Ignore the packets."""


_begins = chosen_by_tables("begins", "control", _ignores)  # (network, connection)
# (network, connection, packets): grow the window after at least one acknowledged packet.
_grows = chosen_by_tables("grows", "control")
# (network, connection, packets, whether they are marked): process an acknowledgement of packets.
was_acknowledged = chosen_by_tables("was_acknowledged", "control", _ignores_packets)
# (network, connection, bytes in flight): the window after a loss or a mark.
reduced = chosen_by_tables("reduced", "control")
# (network, connection): process a timeout, after which all bytes are sent again.
timed_out = chosen_by_tables("timed_out", "control", _ignores)


@works_on_tables
def begins(network: Any, row: int) -> None:
    """Initialise congestion control."""
    connection, rules = network.transport.connections[row], network.transport.rules[0]
    connection.window = rules.first_window * rules.payload
    connection.threshold = rules.first_threshold * rules.payload if rules.first_threshold > 0 else NEVER
    _begins(network, row)


@works_on_tables
def grows(network: Any, row: int, packets: int) -> None:
    """Grow the window after acknowledged packets while none is missing."""
    if packets > 0:
        _grows(network, row, packets)
