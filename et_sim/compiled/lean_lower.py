"""Lowering of Numba's representation to little intermediate code, for the constructs that the engine uses.

Rows of tables, fields of records and numbers in arrays are read and written in place. Numba copies the
description of an array to the stack first, each time; the cost is not the copy, which LLVM removes, but its
removal. Values that variables had before are not released: nothing is on the heap. A variable that names a
row of records never counts from the end of the table; one that names a number in an array may.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from llvmlite.ir import Constant, FunctionType, IntType, IRBuilder, PointerType, VoidType
from numba import types

from et_sim.compiled.decorators import prefetch
from et_sim.compiled.numba_adapter import arrayobj, cgutils, ir, lowering
from et_sim.compiled.plain_calls import declared
from et_sim.compiled.tables_type import TablesType, load_field

DATA, SHAPE = 4, 5  # of the description of an array
NUMBERS = types.Number | types.Boolean


class LeanLower(lowering.Lower):
    """The lowering of one function."""

    def _find_singly_assigned_variable(self) -> None:
        """Keep variables that are assigned once at the beginning off the stack, too."""
        super()._find_singly_assigned_variable()
        count = Counter(
            made.target.name
            for block in self.blocks.values()
            for made in block.body
            if isinstance(made, ir.Assign)
        )
        on_stack = lowering.must_use_alloca(self.blocks)
        for made in self._first_assignments():
            if count[made.target.name] == 1 and made.target.name not in on_stack:
                self._singly_assigned_vars.add(made.target.name)

    def _first_assignments(self) -> list[Any]:
        """Return the assignments of the first block."""
        return [made for made in self.blocks[min(self.blocks)].body if isinstance(made, ir.Assign)]

    def pre_block(self, block: Any) -> None:
        """Begin a block without handling of exceptions or lifetimes."""
        self._cur_ir_block = block

    def lower_block(self, block: Any) -> None:
        """Lower a block, without context for messages about errors."""
        self.pre_block(block)
        for instruction in block.body:
            self.loc = instruction.loc
            if isinstance(instruction, ir.Assign):
                name = instruction.target.name
                self.storevar(self.lower_assign(self.typeof(name), instruction), name)
            elif isinstance(instruction, ir.SetAttr):
                self._lower_setattr(instruction)
            elif isinstance(instruction, ir.StaticSetItem):
                self.lower_setitem(*_parts(instruction), self.fndesc.calltypes[instruction])
            else:
                self.lower_inst(instruction)
        self.post_block(block)

    def storevar(self, value: Any, name: str, **_: Any) -> None:
        """Store a value in a variable."""
        if name in self._singly_assigned_vars:
            self._blk_local_varmap[name] = value
            return
        place = self.getvar(name)
        if value.type != place.type.pointee:
            raise AssertionError(f"{name}: a {value.type} is stored in a {place.type.pointee}")
        self.builder.store(value, place)

    def lower_expr(self, kind: Any, expression: Any) -> Any:
        """Lower an expression of a type."""
        read = None
        if expression.op == "getattr":
            read = self._field(expression)
        elif expression.op == "getitem":
            read = self._item(expression.value, expression.index)
        elif expression.op == "static_getitem" and expression.index_var is not None:
            read = self._item(expression.value, expression.index_var)
        elif expression.op == "call":
            read = self._length(expression) or self._prefetched(expression)
        if read is None:
            return super().lower_expr(kind, expression)
        return self.context.cast(self.builder, *read, kind)

    def lower_setitem(self, target: Any, index: Any, value: Any, signature: Any) -> Any:
        """Lower the assignment of an item."""
        of, given = self.typeof(target.name), self.typeof(value.name)
        place = self._place(target, index) if isinstance(given, NUMBERS) else None
        if place is None or not isinstance(of.dtype, NUMBERS):
            return super().lower_setitem(target, index, value, signature)
        stored = self.context.cast(self.builder, self.loadvar(value.name), given, of.dtype)
        arrayobj.store_item(self.context, self.builder, of, stored, place)
        return None

    def _lower_setattr(self, instruction: Any) -> None:
        signature = self.fndesc.calltypes[instruction]
        if not isinstance(signature.args[0], types.Record):
            self.lower_inst(instruction)
            return
        given = self.loadvar(instruction.value.name)
        given = self.context.cast(self.builder, given, self.typeof(instruction.value.name), signature.args[1])
        record = self.loadvar(instruction.target.name)
        arrayobj.record_setattr(self.context, self.builder, signature, (record, given), instruction.attr)

    def _field(self, expression: Any) -> tuple[Any, Any] | None:
        """Return a field of tables or of a record, and its type; None for other values."""
        kind, name = self.typeof(expression.value.name), expression.attr
        if isinstance(kind, TablesType):
            value = self.loadvar(expression.value.name)
            return load_field(self.context, self.builder, kind, value, name), kind.fields[name]
        if isinstance(kind, types.Record):
            value = self.loadvar(expression.value.name)
            return arrayobj.record_getattr(self.context, self.builder, kind, value, name), kind.typeof(name)
        return None

    def _item(self, array: Any, index: Any) -> tuple[Any, Any] | None:
        """Return an item of an array, and its type; None for other values."""
        place = self._place(array, index)
        if place is None:
            return None
        kind = self.typeof(array.name)
        return arrayobj.load_item(self.context, self.builder, kind, place), kind.dtype

    def _place(self, array: Any, index: Any) -> Any:
        """Return the address of an item of an array without gaps; None for other values."""
        kind: Any = self.typeof(array.name)
        index_kind: Any = self.typeof(index.name)
        is_row = isinstance(kind, types.Array) and kind.ndim == 1 and kind.layout == "C"
        is_number = isinstance(index_kind, types.Integer) and index_kind.signed
        if not (is_row and is_number) or self.context.enable_boundscheck:
            return None
        builder, described = self.builder, self.loadvar(array.name)
        row = self.context.cast(builder, self.loadvar(index.name), index_kind, types.intp)
        is_literal = isinstance(index_kind, types.IntegerLiteral)
        counts_from_end = index_kind.literal_value < 0 if is_literal else isinstance(kind.dtype, NUMBERS)
        if counts_from_end:
            rows = builder.extract_value(described, (SHAPE, 0))
            is_from_end = builder.icmp_signed("<", row, row.type(0))
            row = builder.select(is_from_end, builder.add(row, rows), row)
        return builder.gep(builder.extract_value(described, DATA), [row])

    def _length(self, call: Any) -> tuple[Any, Any] | None:
        """Return the number of rows of an array, if the call is `len`."""
        function = self.typeof(call.func.name)
        if getattr(function, "typing_key", None) is not len:
            return None
        if not isinstance(self.typeof(call.args[0].name), types.Array):
            return None
        return self.builder.extract_value(self.loadvar(call.args[0].name), (SHAPE, 0)), types.intp

    def _prefetched(self, call: Any) -> tuple[Any, Any] | None:
        """Return the call that prefetches a row of a table, if it is one."""
        function: Any = self.typeof(call.func.name)
        if not isinstance(function, types.Dispatcher) or function.dispatcher.py_func is not prefetch:
            return None
        place = self._place(*call.args)
        if place is not None:
            word = IntType(32)
            kind = FunctionType(VoidType(), [PointerType(IntType(8)), word, word, word])
            fetch = cgutils.get_or_insert_function(self.module, kind, "llvm.prefetch.p0")
            place = self.builder.bitcast(place, kind.args[0])
            self.builder.call(fetch, [place, Constant(word, 0), Constant(word, 3), Constant(word, 1)])
        return self.context.get_dummy_value(), types.none


class LeanHelperLower(LeanLower):
    """The lowering of a function that compiled functions call."""

    def setup_function(self, description: Any) -> None:
        """Begin the function."""
        if self.context.enable_boundscheck:
            super().setup_function(description)
            return
        self.function = declared(self.context, self.module, description)
        self.entry_block = self.function.append_basic_block("entry")
        self.builder, self.call_helper = IRBuilder(self.entry_block), None


def _parts(instruction: Any) -> tuple[Any, Any, Any]:
    return instruction.target, instruction.index_var, instruction.value
