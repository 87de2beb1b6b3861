"""Dataclasses that are made ten times faster: msgspec makes them without compiling program text.

They are declared as with `dataclasses`, and `fields`, `replace` and `asdict` of that module work. Instances
have slots. Fields that are not initialised, compared or shown, orders, inheritance and further attributes are
not supported; `dataclasses.dataclass` serves for these.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, MISSING, Field, dataclass, field
from dataclasses import fields as fields_of
from typing import TYPE_CHECKING, Any

import msgspec

__all__ = ["quick_dataclass"]

if TYPE_CHECKING:
    from dataclasses import dataclass as quick_dataclass
else:

    def quick_dataclass(*, frozen: bool = False, eq: bool = True) -> Any:
        """Return a decorator that makes such a class."""
        return lambda declared: _made(declared, frozen=frozen, eq=eq)


@dataclass(init=False, repr=False, eq=False)
class _Example:
    """Example of a field."""

    field: int


_EXAMPLE: Any = fields_of(_Example)[0]
_MAKE: Any = type(msgspec.Struct)
_OF_INSTANCES = ("__dict__", "__weakref__")


def _made(declared: Any, **options: bool) -> Any:
    content = {name: value for name, value in vars(declared).items() if name not in _OF_INSTANCES}
    fields: dict[str, Field[Any]] = {}
    for name, kind in content.get("__annotations__", {}).items():
        if str(kind).startswith("ClassVar"):
            continue
        given = content.get(name, MISSING)
        entry: Any = given if isinstance(given, Field) else field(default=given)
        fields[name] = entry
        if not (entry.init and entry.compare and entry.repr) or kind in (KW_ONLY, "KW_ONLY"):
            raise TypeError(f"{name}: a quick dataclass takes, compares and shows every field")
        entry.name, entry.type, entry.kw_only, entry._field_type = name, kind, False, _EXAMPLE._field_type
        if entry.default is not MISSING:
            content[name] = msgspec.field(default=entry.default)
        elif entry.default_factory is not MISSING:
            content[name] = msgspec.field(default_factory=entry.default_factory)
    bases = tuple(base for base in declared.__bases__ if base is not object)
    made = _MAKE(declared.__name__, (*bases, msgspec.Struct), content, **options)
    made.__dataclass_fields__ = fields
    return made
