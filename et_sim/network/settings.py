"""Constants of a machine as a record that compiled code reads: all their fields by name."""

from __future__ import annotations

from enum import Enum
from functools import cache
from typing import Any

from msgspec.structs import FieldInfo, fields

from et_sim.machine.transports import PS_PER_NS
from et_sim.plan.records import record, table

KINDS: dict[Any, str] = {bool: "u1", int: "i8", float: "f8"}


@cache
def _fields_of(settings: Any) -> tuple[FieldInfo, ...]:
    return fields(settings)


def settings_row(*settings: Any, **others: float) -> Any:
    """Return one row. A choice becomes its number, and a time in nanoseconds (`…_ns`) picoseconds (`…_ps`).

    Fields that are neither choices nor numbers are left out.
    """
    kinds_and_values: dict[str, tuple[str, Any]] = {}
    for each in settings:
        of: Any = type(each)
        for field in _fields_of(of):
            name, value = field.name, getattr(each, field.name)
            if isinstance(value, Enum):
                kinds_and_values[name] = "u1", list(type(value)).index(value)
            elif field.type is float and name.endswith("_ns"):
                kinds_and_values[f"{name[:-3]}_ps"] = "i8", round(value * PS_PER_NS)
            elif field.type in KINDS:
                kinds_and_values[name] = KINDS[field.type], value
    kinds_and_values |= {name: (KINDS[type(value)], value) for name, value in others.items()}
    row = table(record(*((name, kind) for name, (kind, _) in kinds_and_values.items())), 1)
    for name, (_, value) in kinds_and_values.items():
        row[name] = value
    return row
