"""What compiled code knows of a transport: a column for each constant that `machine.transports` declares.

Whoever adds a constant there finds it in the rules under the name of its field: times are in picoseconds
(`low_ns` is `low_ps`), a choice is its place among the choices. Not here: ports and devices (`setup`).
"""

from __future__ import annotations

from dataclasses import Field, fields
from enum import Enum
from types import MappingProxyType
from typing import Any

from et_sim.machine.transports import Buffers, Completion, Control, Packets, Protocol, Tcp
from et_sim.plan.tables import record, table

PS_PER_NS = 1000
KINDS = MappingProxyType({bool: "u1", int: "i8", float: "f8"})


def _column(field: Field[Any]) -> tuple[str, str] | None:
    """The column of a field; None: it is no constant."""
    if isinstance(field.default, float) and field.name.endswith("_ns"):
        return field.name.removesuffix("_ns") + "_ps", "i8"
    kind = "u1" if isinstance(field.default, Enum) else KINDS.get(type(field.default))
    return None if kind is None else (field.name, kind)


def _columns(*classes: Any) -> list[tuple[str, str]]:
    return [column for of in classes for field in fields(of) if (column := _column(field)) is not None]


def _fill(row: Any, *values: Any) -> None:
    for constants in values:
        for field in fields(constants):
            column, value = _column(field), getattr(constants, field.name)
            if column is None:
                continue
            if isinstance(value, Enum):
                value = list(type(value)).index(value)
            row[column[0]] = value if column[0] == field.name else round(value * PS_PER_NS)


RULES = record(*_columns(Buffers, Packets), ("whole_ns", "u1"), ("marks", "u1"))
_SIZES = (("payload", "i8"), ("header", "i8"), ("answer", "i8"), ("ends_acknowledged", "u1"))
ROCE_RULES = record(
    *_SIZES,
    *_columns(Packets, Control),
    ("answers_again", "u1"),
    ("stamps", "u1"),
    ("longest_ps", "i8"),
    ("most_bytes", "i8"),
)
TCP_RULES = record(*_SIZES, *_columns(Tcp), ("copying", "f8"))  # picoseconds per byte


def rules_of(protocol: Protocol) -> Any:
    """What holds for all transports."""
    row, packets = table(RULES, 1), protocol.packets
    _fill(row, packets.buffers, packets)
    row.whole_ns, row.marks = protocol.whole_ns, bool(packets.buffers.marking)
    row.seed = packets.seed & 0xFFFFFFFF
    return row


def roce_rules_of(protocol: Protocol, longest_ps: int, most_bytes: int) -> Any:
    """What holds for RoCE; the last two are for a window that all have."""
    row, packets = table(ROCE_RULES, 1), protocol.packets
    _fill(row, packets, packets.control)
    _fill_sizes(row, protocol)
    row.stamps = not packets.as_ns3
    row.answers_again = row.timeout_ps > 0
    row.longest_ps, row.most_bytes = longest_ps, most_bytes
    return row


def tcp_rules_of(protocol: Protocol) -> Any:
    """What holds for TCP."""
    row, tcp = table(TCP_RULES, 1), protocol.packets.tcp
    assert tcp is not None
    _fill(row, tcp)
    _fill_sizes(row, protocol)
    row.copying = tcp.copying_ns_per_byte * PS_PER_NS
    return row


def _fill_sizes(row: Any, protocol: Protocol) -> None:
    row.payload, row.header, row.answer = protocol.payload, protocol.header, protocol.acknowledgement
    row.ends_acknowledged = protocol.completion is Completion.ACKNOWLEDGEMENT
