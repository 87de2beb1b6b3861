"""No congestion control: senders keep their rates."""

from __future__ import annotations

from typing import Any

from et_sim.compiled.tables_by_reference import works_on_tables
from et_sim.network.packet.controls import ControlTables


class Senders(ControlTables, frozen=True):
    """Senders without a state."""


@works_on_tables
def may_repeat(_network: Any) -> bool:
    """Return true: rates are independent of the times of packets."""
    return True
