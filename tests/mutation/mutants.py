"""Small changes of rules: a place in a module's source, and the text that replaces it.

A change is one of an operator (`<` to `<=`, `+` to `-`, `min` to `max`, `and` to `or`), of a whole number (by
one), of a condition (negated), of a branch or a statement (dropped). Annotations, decorators, and the text of
errors stay: no result depends on them.
"""

from __future__ import annotations

import ast
import copy
import io
import re
import tokenize
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
# Tables with one row: the last row is the first.
ONE_ROW = re.compile(r"\b(clock|now|state|repeats|rules|reserve|stride)\[$")
# The last of the three fields of an event, if its kind has none: no handler gets it.
THIRD_FIELD = re.compile(r"\bschedule\w*\(.*, (\w+)[^,]*, [^,]+, [^,]+, $")
KIND = re.compile(r"^([A-Z_]+) = \d+  # (.*)$", re.MULTILINE)
# Cost alone depends on what is fetched early, on how much is kept, and on the rows of a block: random runs
# have blocks of three.
FETCHES = "et_sim/engine/prefetching.py"
BLOCK = re.compile(
    r"^(ROWS_AT_ONCE|AT_A_TIME|MANY_ROWS|MOST_MAPPED|MOST_COUNTED|LARGEST_IN_HEAP"
    r"|(MOST|LARGEST)_(\w+_)?KEPT) = "
)
NAMES = {"min": "max", "max": "min", "minimum": "maximum", "maximum": "minimum", "any": "all", "all": "any"}


@dataclass(frozen=True)
class Mutant:
    """One change of one module; `line`, `change` and `number` identify it where lines move."""

    module: str  # below the repository
    line: str  # the line where the change begins, without its indentation and its comment
    change: str  # "before -> after"
    number: int  # of those with the same line and change, from the top
    row: int
    start: int  # characters from the beginning of the source
    end: int
    text: str

    def __str__(self) -> str:
        return f"{self.module}:{self.row}: {self.change}"

    @property
    def key(self) -> tuple[str, str, str, int]:
        return self.module, self.line, self.change, self.number

    def applied(self, source: str) -> str:
        """Return the source with this change."""
        return source[: self.start] + self.text + source[self.end :]


@cache
def mutants_of(module: str) -> list[Mutant]:
    """Return all changes of a module, in the order of its source."""
    return changes_of(module, (REPOSITORY / module).read_text())


def changes_of(module: str, source: str) -> list[Mutant]:
    """Return all changes of a source."""
    lines = source.splitlines(keepends=True)
    begins = [0, *accumulate(map(len, lines))]

    def place(row: int, offset: int) -> int:
        return begins[row - 1] + len(lines[row - 1].encode()[:offset].decode())

    bare = _without_comments(source)
    bare_lines = bare.splitlines()
    seen: Counter[tuple[str, str]] = Counter()
    found = []
    for first, last, text in _changes(ast.parse(source)):
        start = place(first.lineno, first.col_offset)
        end = place(last.end_lineno or 0, last.end_col_offset or 0)
        before = source[begins[first.lineno - 1] : start]
        if module == FETCHES or source.startswith("elif", start) or _is_unread(before, text):
            continue
        line = bare_lines[first.lineno - 1].strip()
        change = f"{_short(bare[start:end])} -> {_short(text)}"
        found.append(Mutant(module, line, change, seen[line, change], first.lineno, start, end, text))
        seen[line, change] += 1
    return found


def _is_unread(before: str, text: str) -> bool:
    """Return whether no result depends on the new text, as the text before it in its line shows."""
    if BLOCK.match(before) or (text == "(-1)" and ONE_ROW.search(before[-20:])):
        return True
    found = THIRD_FIELD.search(before)
    return found is not None and found[1] in _kinds_of_two_fields()


@cache
def _kinds_of_two_fields() -> set[str]:
    """Return the names of the kinds of events whose description names no field `c`."""
    described = KIND.findall((REPOSITORY / "et_sim/engine/state/kinds.py").read_text(encoding="utf-8"))
    return {name for name, fields in described if not re.search(r"\bc\b", fields)}


def _without_comments(source: str) -> str:
    """Return a source with blanks for its comments, which change more often than rules."""
    lines = source.splitlines(keepends=True)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            (row, column), (_, end) = token.start, token.end
            lines[row - 1] = lines[row - 1][:column] + " " * (end - column) + lines[row - 1][end:]
    return "".join(lines)


def _short(text: str) -> str:
    return " ".join(text.split())[:100]


Change = tuple[ast.expr | ast.stmt, ast.expr | ast.stmt, str]  # first place, last place, and the new text


def _changes(node: ast.AST) -> Iterator[Change]:
    """Yield the changes of a node and of all within it."""
    if isinstance(node, ast.JoinedStr | ast.Raise | ast.Import | ast.ImportFrom):
        return
    if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
        return
    if isinstance(node, ast.If):
        yield from (_dropped(node.body), *([_dropped(node.orelse)] if node.orelse else []))
    if isinstance(node, ast.If | ast.IfExp | ast.While):
        yield node.test, node.test, f"(not ({ast.unparse(node.test)}))"
    if isinstance(node, ast.AugAssign) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)):
        yield node, node, "pass"
    if isinstance(node, ast.expr):
        yield from ((node, node, text) for text in _instead(node))
    for name, value in ast.iter_fields(node):
        if name not in ("annotation", "returns", "decorator_list", "bases"):
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield from _changes(child)


def _dropped(branch: list[ast.stmt]) -> Change:
    return branch[0], branch[-1], "pass"


def _instead(node: ast.expr) -> Iterator[str]:
    """Yield the replacements of an expression."""
    changed: Any = copy.copy(node)
    match changed:
        case ast.Compare(ops=operators):
            for index, operator in enumerate(operators):
                changed.ops = [*operators[:index], COMPARISONS[type(operator)](), *operators[index + 1 :]]
                yield f"({ast.unparse(changed)})"
        case ast.BinOp(op=operator) if type(operator) in OPERATORS and not _is_text(changed):
            changed.op = OPERATORS[type(operator)]()
            yield f"({ast.unparse(changed)})"
        case ast.BoolOp(op=operator):
            changed.op = ast.Or() if isinstance(operator, ast.And) else ast.And()
            yield f"({ast.unparse(changed)})"
        case ast.Call(func=ast.Name(id=name)) if name in NAMES:
            changed.func = ast.Name(NAMES[name])
            yield ast.unparse(changed)
        case ast.Call(func=ast.Attribute(value=of, attr=name)) if name in NAMES:
            changed.func = ast.Attribute(of, NAMES[name])
            yield ast.unparse(changed)
        case ast.Constant(value=int(number)) if not isinstance(number, bool):
            yield from (f"({number + 1})", f"({number - 1})")


def _is_text(node: ast.BinOp) -> bool:
    """Return whether one side is text, from which nothing can be subtracted."""
    sides = (node.left, node.right)
    return any(
        isinstance(side, ast.JoinedStr) or isinstance(getattr(side, "value", 0), str) for side in sides
    )
