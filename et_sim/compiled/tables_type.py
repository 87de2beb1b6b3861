"""The type that Numba has for records of `Tables`: a pointer to the descriptors of their arrays."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import infer_getattr, lower_getattr_generic, models, register_model

from et_sim.compiled.numba_adapter import AttributeTemplate

WORD_BYTES = 8


class TablesType(types.Type):
    """The compiled type of one record with certain array types."""

    def __init__(self, module: str, name: str, fields: tuple[tuple[str, types.Type], ...]) -> None:
        self.module = module
        self.fields = dict(fields)
        self.offsets: dict[str, int] = {}  # in bytes
        words = 0
        for field, kind in fields:
            self.offsets[field] = words * WORD_BYTES
            words += _words(kind)
        described = ", ".join(f"{field}: {kind}" for field, kind in fields)
        super().__init__(name=f"{module}.{name}({described})")


def _words(kind: types.Type) -> int:
    """Return the number of machine words of a field, as `signature.words_of` lays it out."""
    if isinstance(kind, types.Array):
        return 5 + 2 * int(kind.ndim)
    return sum(map(_words, kind)) if isinstance(kind, types.BaseTuple) else 1


@register_model(TablesType)
class _TablesModel(models.OpaqueModel):
    """A bare pointer."""


@infer_getattr
class _TablesAttribute(AttributeTemplate):
    key = TablesType

    def generic_resolve(self, kind: TablesType, attribute: str) -> types.Type | None:
        return kind.fields.get(attribute)


@lower_getattr_generic(TablesType)
def load_field(context: Any, builder: Any, kind: TablesType, value: Any, attribute: str) -> Any:
    """Load a field of tables, which is constant while compiled code runs."""
    of_field = context.get_value_type(kind.fields[attribute]).as_pointer()
    place = builder.gep(value, [ir.Constant(ir.IntType(64), kind.offsets[attribute])], inbounds=True)
    loaded = builder.load(builder.bitcast(place, of_field))
    loaded.set_metadata("invariant.load", builder.module.add_metadata([]))
    return loaded
