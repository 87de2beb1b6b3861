"""The parts of a function that tables of certain types can reach; the others are never compiled.

Tuples among tables are empty or not, and functions chosen by tables may do nothing. So some conditions are
constant before anything is compiled: the branches that they exclude are left out, and so are calls of
functions without effect. The result for a function serves all its callers.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Iterable, Iterator
from types import ModuleType
from typing import Any, NamedTuple

from numba import types

from et_sim.compiled.decorators import HelperChoice, mark_of, prefetch
from et_sim.compiled.numba_adapter import ByteCode, FunctionIdentity, Interpreter, build_definitions, ir
from et_sim.compiled.tables_type import TablesType

UNKNOWN: Any = None
TAKES_MORE = 0x04  # flag of the code of functions with *arguments
COMPARISONS = (operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge)
NAMES = ir.Global | ir.FreeVar | ir.Const
READS = ("binop", "unary", "getattr", "cast", "getitem", "static_getitem", "build_tuple")


class Value(NamedTuple):
    """A constant number, function or module; other constants are a tuple, or a type."""

    value: Any


class Reached(NamedTuple):
    """The reachable part of a function."""

    graph: Any  # Numba's representation; None after compiling has begun
    result: Any  # its result if constant
    is_idle: bool  # it has no effect


class Reachable:
    """The reachable parts of all functions that a function calls, by the tables that they get."""

    def __init__(self) -> None:
        self._found: dict[tuple[Any, ...], Reached] = {}

    def helpers_of(self, function: Any, arguments: tuple[Any, ...]) -> int:
        """Return the number of helpers a function calls, directly or indirectly."""
        self._reached(function, self._known_of(arguments))
        left = sum(not (found.is_idle and _is_number(found.result)) for found in self._found.values())
        return max(left - 1, 1)

    def graph(self, function: Any, arguments: tuple[Any, ...]) -> Any:
        """Return the representation of a function for types of arguments, which the caller may change."""
        known = self._known_of(arguments)
        found = self._reached(function, known)
        self._found[function, known] = found._replace(graph=None)
        return found.graph or _Function(self, function, known).left().graph

    def called(self, function: Any, arguments: tuple[Any, ...]) -> Reached:
        """Return the reachable part of a function that is called, if it is a helper."""
        mark = mark_of(function)
        if isinstance(mark, HelperChoice) and isinstance(tables := arguments[0], TablesType):
            function = mark.function_of((tables.fields[mark.field] if mark.field else tables).module)
            mark = mark_of(function)
        if mark is None or isinstance(mark, HelperChoice) or function is prefetch:
            return Reached(None, UNKNOWN, is_idle=False)
        code = function.__code__
        named = (*arguments, *[UNKNOWN] * code.co_argcount)[: code.co_argcount]
        return self._reached(
            function, (*named, arguments[code.co_argcount :]) if code.co_flags & TAKES_MORE else named
        )

    def field(self, value: Any, name: str) -> Any:
        """Return the constant of an attribute, or UNKNOWN."""
        if isinstance(value, TablesType):
            return self._known(value.fields.get(name))
        is_in_module = isinstance(value, Value) and isinstance(value.value, ModuleType)
        return Value(getattr(value.value, name)) if is_in_module else UNKNOWN

    def _reached(self, function: Any, known: tuple[Any, ...]) -> Reached:
        found = self._found.get((function, known))
        if found is None:
            self._found[function, known] = Reached(None, UNKNOWN, is_idle=False)  # in case it calls itself
            found = self._found[function, known] = _Function(self, function, known).left()
        return found

    def _known_of(self, kinds: Iterable[Any]) -> tuple[Any, ...]:
        return tuple(self._known(kind) for kind in kinds)

    def _known(self, kind: Any) -> Any:
        if isinstance(kind, types.BaseTuple):
            return self._known_of(kind)
        return kind if isinstance(kind, TablesType) else UNKNOWN


class _Function:
    """A function that is analysed."""

    def __init__(self, others: Reachable, function: Any, known: tuple[Any, ...]) -> None:
        identity = FunctionIdentity.from_function(function)
        self._graph = Interpreter(identity).interpret(ByteCode(identity))
        self._others = others
        self._arguments = known
        self._made: dict[str, Any] = {}  # by variables that are assigned once: their expressions
        self._values: dict[str, Any] = {}  # and their constants

    def left(self) -> Reached:
        """Return the reachable part, found in rounds in which it grows."""
        blocks = self._graph.blocks
        reached: set[int] = set()
        more = {min(blocks)}
        while not more <= reached:
            reached |= more
            self._graph.blocks = {label: blocks[label] for label in sorted(reached)}
            self._evaluate()
            more = {label for label in reached for label in self._targets(blocks[label].terminator)}
        for block in self._graph.blocks.values():
            block.body = [self._simplified(statement) for statement in block.body]
        self._drop_unused()
        self._graph._definitions = build_definitions(self._graph.blocks)
        results = [self._of(made.value) for made in self._statements() if isinstance(made, ir.Return)]
        is_same = len(results) > 0 and all(_is_number(found) and found == results[0] for found in results)
        is_idle = all(self._is_nothing(made) for made in self._statements())
        return Reached(self._graph, results[0] if is_same else UNKNOWN, is_idle)

    def _statements(self) -> Iterator[Any]:
        for block in self._graph.blocks.values():
            yield from block.body

    def _evaluate(self) -> None:
        """Find the constants of variables that are assigned once."""
        self._values, self._made = {}, {}
        assigned = [made for made in self._statements() if isinstance(made, ir.Assign)]
        count = Counter(made.target.name for made in assigned)
        for made in assigned:
            if count[made.target.name] == 1:
                self._made[made.target.name] = made.value
                self._values[made.target.name] = self._of(made.value)

    def _of(self, value: Any) -> Any:
        """Return the constant of a value, or UNKNOWN."""
        if isinstance(value, ir.Var):
            return self._values.get(value.name, UNKNOWN)
        if isinstance(value, ir.Arg):
            return self._arguments[value.index]
        if isinstance(value, NAMES):
            return Value(value.value)
        how = {
            "cast": lambda: self._of(value.value),
            "getattr": lambda: self._others.field(self._of(value.value), value.attr),
            "build_tuple": lambda: tuple(self._of(item) for item in value.items),
            "unary": lambda: self._negated(value),
            "binop": lambda: self._combined(value.fn, self._of(value.lhs), self._of(value.rhs)),
            "call": lambda: self._call(value).result,
        }
        return how[value.op]() if isinstance(value, ir.Expr) and value.op in how else UNKNOWN

    def _negated(self, value: Any) -> Any:
        of = self._of(value.value)
        return Value(not of.value) if value.fn is operator.not_ and _is_number(of) else UNKNOWN

    def _combined(self, how: Any, one: Any, other: Any) -> Any:
        if how in COMPARISONS and _is_number(one) and _is_number(other):
            return Value(how(one.value, other.value))
        is_sum = how is operator.add and _is_tuple(one) and _is_tuple(other)
        return one + other if is_sum else UNKNOWN

    def _call(self, call: Any) -> Reached:
        """Return the reachable part of the called function."""
        nothing = Reached(None, UNKNOWN, is_idle=False)
        called, more = self._of(call.func), self._of(call.vararg) if call.vararg else ()
        if not isinstance(called, Value) or not _is_tuple(more):
            return nothing
        arguments = (*(self._of(argument) for argument in call.args), *more)
        first = arguments[0] if arguments else UNKNOWN
        if called.value is len and _is_tuple(first):
            return Reached(None, Value(len(first)), is_idle=True)
        if called.value is bool and _is_number(first):
            return Reached(None, Value(bool(first.value)), is_idle=True)
        if called.value is tuple and _is_tuple(first):
            return Reached(None, first, is_idle=True)
        known = tuple(UNKNOWN if isinstance(of, Value) else of for of in arguments)
        return self._others.called(called.value, known)

    def _targets(self, last: Any) -> list[int]:
        """Return the blocks that may follow one that ends like this."""
        of = self._of(last.cond) if isinstance(last, ir.Branch) else UNKNOWN
        if _is_number(of):
            return [last.truebr if of.value else last.falsebr]
        targets: list[int] = last.get_targets()
        return targets

    def _simplified(self, statement: Any) -> Any:
        """Return a statement without constant parts."""
        if isinstance(statement, ir.Branch) and len(targets := self._targets(statement)) == 1:
            return ir.Jump(targets[0], statement.loc)
        if isinstance(statement, ir.Branch):
            return ir.Branch(
                self._decides(statement.cond), statement.truebr, statement.falsebr, statement.loc
            )
        value = statement.value if isinstance(statement, ir.Assign) else None
        if isinstance(value, ir.Expr) and value.op in ("call", "binop", "unary"):
            found = self._of(value)
            if _is_number(found) and (value.op != "call" or self._call(value).is_idle):
                constant = ir.Const(found.value, statement.loc)
                return ir.Assign(constant, statement.target, statement.loc)
        return statement

    def _decides(self, condition: Any) -> Any:
        """Return the number whose truth is a condition: branches take any number."""
        made: Any = self._made.get(condition.name)
        is_truth = isinstance(made, ir.Expr) and made.op == "call" and self._of(made.func) == Value(bool)
        return made.args[0] if is_truth else condition

    def _drop_unused(self) -> None:
        """Drop values that are read and then not used."""
        count = Counter(name for made in self._statements() for name in _used_by(made))
        dropped: set[int] = set()
        last = -1
        while len(dropped) > last:
            last = len(dropped)
            for made in self._statements():
                if id(made) not in dropped and self._only_reads(made) and not count[made.target.name]:
                    dropped.add(id(made))
                    count.subtract(_used_by(made))
        for block in self._graph.blocks.values():
            block.body = [made for made in block.body if id(made) not in dropped]

    def _only_reads(self, made: Any) -> bool:
        """Return whether a statement only gives a variable a value."""
        if not isinstance(made, ir.Assign) or isinstance(made.value, ir.Arg):
            return False
        if not isinstance(made.value, ir.Expr) or made.value.op in READS:
            return True
        return made.value.op == "call" and self._call(made.value).is_idle

    def _is_nothing(self, made: Any) -> bool:
        is_argument = isinstance(made, ir.Assign) and isinstance(made.value, ir.Arg)
        return is_argument or self._only_reads(made) or isinstance(made, ir.Jump | ir.Return)


def _is_number(found: Any) -> bool:
    return isinstance(found, Value) and (found.value is None or isinstance(found.value, int))


def _is_tuple(found: Any) -> bool:
    return isinstance(found, tuple) and not isinstance(found, Value)


def _used_by(made: Any) -> Iterator[str]:
    """Yield the variables that a statement needs."""
    of = made.value if isinstance(made, ir.Assign) else made
    if isinstance(of, ir.Var):
        yield of.name
    elif isinstance(of, ir.Expr | ir.Stmt):
        yield from (variable.name for variable in of.list_vars())
