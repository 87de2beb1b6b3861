"""Congestion controls: the tables of a control, by whose type its functions are chosen.

The module of a control has

- `Senders`, a class of its own that derives from `ControlTables` (or from `telemetry.TelemetryTables`);
- those functions of `roce.control` or `tcp.control` that it needs; the others do nothing;
- if it needs them: `Keys`, a record of its own keys of the network file, with their defaults; `SENDER`,
  the record of a sender; and `TELEMETRY`, the bytes by which its packets and acknowledgements are longer.

Its name and its place are an entry of `et_sim.machine.congestion`.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, Self

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from et_sim.compiled.tables_by_reference import Tables
from et_sim.engine.containers import longer
from et_sim.machine.congestion import ROCE, TCP, keys_of_control
from et_sim.machine.transports import PacketProtocol
from et_sim.network.settings import settings_row
from et_sim.plan.records import table

STATELESS: Any = np.dtype("u1")  # the record of a sender without a state


class ControlTables(Tables, Struct, frozen=True):
    """Tables of a congestion control for compiled code."""

    rules: Any  # one row: the sizes of packets, and its constants
    senders: Any  # its state, by flow

    def grown(self, _packets: Any, flows: Any) -> Self:
        """Return the tables with space for these packets and flows."""
        return replace(self, senders=longer(self.senders, len(flows)))


def new_control(protocol: PacketProtocol) -> ControlTables:
    """Return the tables of a protocol's congestion control before any message."""
    tcp, control = protocol.packets.tcp, protocol.packets.control
    if tcp is not None:
        return _tables_of(TCP, tcp.control, tcp.constants, protocol)
    return _tables_of(ROCE, control.algorithm, control.constants, protocol, control)


def keeps_rates(protocol: PacketProtocol) -> bool:
    """Return whether a protocol's congestion control may leave rates as they are for long."""
    registry, name = (
        (ROCE, protocol.packets.control.algorithm)
        if protocol.packets.tcp is None
        else (TCP, protocol.packets.tcp.control)
    )
    return hasattr(import_module(registry[name]), "may_repeat")


def _tables_of(registry: Mapping[str, str], name: str, constants: Any, *shared: Any) -> ControlTables:
    module = import_module(registry[name])
    rules = settings_row(*shared, keys_of_control(registry, name, constants))
    tables: ControlTables = module.Senders(rules, table(getattr(module, "SENDER", STATELESS), 0))
    return tables
