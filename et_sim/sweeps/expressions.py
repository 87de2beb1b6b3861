"""Conditions over axes, such as `tp * pp * dp == 1024`: read once, then evaluated for every point.

Only listed operations are evaluated: numbers, texts, arithmetic, comparisons, and, or, not, min and max.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from msgspec import Struct

from et_sim.basics.errors import InputError, did_you_mean

LONGEST = 1000  # characters
ALLOWED = "numbers, texts, axes, + - * / // %, comparisons, and, or, not, min and max"
_ARITHMETIC: Mapping[type, Callable[[Any, Any], Any]] = MappingProxyType(
    {
        ast.Add: operator.add,
        ast.Sub: operator.sub,
        ast.Mult: operator.mul,
        ast.Div: operator.truediv,
        ast.FloorDiv: operator.floordiv,
        ast.Mod: operator.mod,
    }
)
_COMPARISONS: Mapping[type, Callable[[Any, Any], bool]] = MappingProxyType(
    {
        ast.Eq: operator.eq,
        ast.NotEq: operator.ne,
        ast.Lt: operator.lt,
        ast.LtE: operator.le,
        ast.Gt: operator.gt,
        ast.GtE: operator.ge,
    }
)
_FUNCTIONS: Mapping[str, Callable[..., Any]] = MappingProxyType({"min": min, "max": max})
_TEXT = r"'[^']*'|\"[^\"]*\""


class Condition(Struct, frozen=True):
    """A condition, read and checked."""

    text: str
    tree: ast.expr
    axes: Mapping[str, str]  # identifiers in the tree -> axes

    def holds(self, values: Mapping[str, Any]) -> bool:
        """Return whether it holds for these values of the axes."""
        try:
            value = _value(self.tree, {name: values[axis] for name, axis in self.axes.items()})
        except (ArithmeticError, TypeError, ValueError, RecursionError) as error:
            raise self._refused(str(error), values) from None
        if not isinstance(value, bool):
            raise self._refused(f"it is {value!r}, neither true nor false", values)
        return value

    def _refused(self, reason: str, values: Mapping[str, Any]) -> InputError:
        where = ", ".join(f"{axis} {values[axis]!r}" for axis in self.axes.values())
        at = f" with {where}" if where else ""
        return InputError(f"constraint {self.text!r} cannot be decided{at}: {reason}")


def parse_condition(text: str, axes: Sequence[str], noun: str = "axis") -> Condition:
    """Parse a condition on names; `noun` describes the names in messages."""
    if len(text) > LONGEST:
        raise InputError(f"a constraint has {len(text):,} characters", remedy=f"write at most {LONGEST:,}")
    named: dict[str, str] = {}
    if not axes:
        source = text
    else:
        names = "|".join(re.escape(name) for name in sorted(axes, key=len, reverse=True))
        # An axis may have dots, hyphens and brackets in its name: it becomes an identifier.
        source = re.sub(
            rf"({_TEXT})|(?<![\w.])({names})(?![\w.\[])", lambda match: _identifier(match, named), text
        )
    try:
        tree = ast.parse(source.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise InputError(f"constraint {text!r} cannot be read", remedy=f"allowed: {ALLOWED}") from None
    called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    for node in ast.walk(tree):
        _check(node, text, named, axes, noun, is_called=id(node) in called)
    return Condition(text, tree, named)


def _identifier(match: re.Match[str], named: dict[str, str]) -> str:
    if match[1] is not None:
        return match[1]
    known = {axis: name for name, axis in named.items()}
    name = known.get(match[2], f"axis_{len(named)}_")
    named[name] = match[2]
    return name


def _check(
    node: ast.AST, text: str, named: Mapping[str, str], axes: Sequence[str], noun: str, *, is_called: bool
) -> None:
    """Refuse operations that are not listed."""
    match node:
        case ast.Name(id=name):
            if name not in (_FUNCTIONS if is_called else named):
                remedy = did_you_mean(name, list(axes)) or f"known: {', '.join(axes)}"
                raise InputError(f"constraint {text!r} names {name!r}, which is no {noun}", remedy=remedy)
        case ast.Constant(value=bool() | int() | float() | str()):
            pass
        case ast.Call(func=ast.Name(id=name), args=[_, *_], keywords=[]) if name in _FUNCTIONS:
            pass
        case ast.BinOp(op=operator) if type(operator) in _ARITHMETIC:
            pass
        case ast.Compare(ops=several) if all(type(comparison) in _COMPARISONS for comparison in several):
            pass
        case ast.BoolOp() | ast.UnaryOp(op=ast.Not() | ast.USub() | ast.UAdd()):
            pass
        case ast.operator() | ast.cmpop() | ast.boolop() | ast.unaryop() | ast.expr_context():
            pass
        case _:
            part = re.sub(r"\baxis_\d+_\b", lambda match: named.get(match[0], match[0]), ast.unparse(node))
            raise InputError(f"constraint {text!r} has {part!r} in it", remedy=f"allowed: {ALLOWED}")


def _value(node: ast.AST, names: Mapping[str, Any]) -> Any:
    match node:
        case ast.Constant(value=value):
            return value
        case ast.Name(id=name):
            return names[name]
        case ast.BinOp(left, op, right):
            return _ARITHMETIC[type(op)](_number(_value(left, names)), _number(_value(right, names)))
        case ast.UnaryOp(ast.Not(), operand):
            return not _value(operand, names)
        case ast.UnaryOp(op, operand):
            number = _number(_value(operand, names))
            return -number if isinstance(op, ast.USub) else number
        case ast.BoolOp(op, values):
            wanted = isinstance(op, ast.Or)
            return wanted if any(bool(_value(operand, names)) is wanted for operand in values) else not wanted
        case ast.Compare(left, ops, comparators):
            return _compared([_value(operand, names) for operand in (left, *comparators)], ops)
        case ast.Call(ast.Name(name), arguments):
            operands = [_value(argument, names) for argument in arguments]
            return _FUNCTIONS[name](operands) if len(operands) > 1 else operands[0]
    raise TypeError(f"{ast.unparse(node)} is not known")  # ruled out by _check


def _compared(values: Sequence[Any], ops: Sequence[ast.cmpop]) -> bool:
    pairs = zip(values, ops, values[1:], strict=False)
    return all(_COMPARISONS[type(op)](left, right) for left, op, right in pairs)


def _number(value: Any) -> int | float:
    """Return a number, or refuse it: a text times a million would be a long one."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{value!r} is no number")
    return value
