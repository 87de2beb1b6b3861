"""Plain values of a pickle, without the module that runs it: no name is looked up, and nothing is called.

The opcodes of numbers, texts, lists, tuples, dicts and memos are interpreted here; all others are refused. A
memo may return texts, numbers and tuples, and no list or dict: values never grow beyond the file.
"""

from __future__ import annotations

import pickletools
from collections.abc import Callable
from typing import Any

_CONSTANTS: dict[str, Any] = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_LITERALS = {
    *("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT"),
    *("UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "STRING", "BINSTRING", "SHORT_BINSTRING"),
}
_EMPTY: dict[str, Callable[[], Any]] = {"EMPTY_LIST": list, "EMPTY_DICT": dict, "EMPTY_TUPLE": tuple}
_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
MOST_VALUES = 1 << 25
_PUT, _GET = {"PUT", "BINPUT", "LONG_BINPUT"}, {"GET", "BINGET", "LONG_BINGET"}
_NOTHING = {"PROTO", "FRAME", "STOP"}


class _Machine:
    """The stack and the memo of a pickle."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}

    def take(self) -> list[Any]:
        """Remove and return the values above the last mark."""
        if not self.marks:
            raise ValueError("a mark is missing")
        at = self.marks.pop()
        taken = self.stack[at:]
        del self.stack[at:]
        return taken

    def pop(self, count: int = 1) -> list[Any]:
        """Remove and return the last values."""
        below = self.marks[-1] if self.marks else 0
        if len(self.stack) - below < count:
            raise ValueError("a value is missing")
        taken = self.stack[-count:]
        del self.stack[-count:]
        return taken

    def top(self, kind: type) -> Any:
        """Return the last value, which has a type."""
        if not self.stack or not isinstance(self.stack[-1], kind):
            raise ValueError(f"a {kind.__name__} is missing")
        return self.stack[-1]

    def run(self, name: str, argument: Any) -> None:
        """Interpret an opcode."""
        if name in _LITERALS:
            self.stack.append(argument)
        elif name in _CONSTANTS:
            self.stack.append(_CONSTANTS[name])
        elif name in _EMPTY:
            self.stack.append(_EMPTY[name]())
        elif name in _PUT or name == "MEMOIZE":
            self.memo[len(self.memo) if name == "MEMOIZE" else argument] = self.top(object)
        elif name in _GET and argument in self.memo:
            self.stack.append(self.memo[argument])
        elif name == "MARK":
            self.marks.append(len(self.stack))
        elif name not in _NOTHING:
            self._collect(name)

    def _collect(self, name: str) -> None:
        """Interpret an opcode that puts values into a list, tuple or dict."""
        if name in ("APPEND", "APPENDS"):
            values = self.pop() if name == "APPEND" else self.take()
            self.top(list).extend(values)
        elif name in ("SETITEM", "SETITEMS"):
            pairs = _as_dict(self.pop(2) if name == "SETITEM" else self.take())
            self.top(dict).update(pairs)
        elif name == "DICT":
            self.stack.append(_as_dict(self.take()))
        elif name in ("TUPLE", "LIST"):
            self.stack.append(tuple(self.take()) if name == "TUPLE" else self.take())
        elif name in _TUPLES:
            self.stack.append(tuple(self.pop(_TUPLES[name])))
        else:
            raise ValueError(f"it has the instruction {name}, and may hold plain values only")


def _as_dict(pairs: list[Any]) -> dict[Any, Any]:
    """Return the dict of keys and values in turn."""
    if len(pairs) % 2 or not all(isinstance(key, str | int) for key in pairs[::2]):
        raise ValueError("a dict has a key that is no text or number")
    return dict(zip(pairs[::2], pairs[1::2], strict=True))


def plain_values(raw: bytes) -> Any:
    """Return the value of a pickle; everything but plain values raises ValueError."""
    machine = _Machine()
    try:
        for opcode, argument, _ in pickletools.genops(raw):
            machine.run(opcode.name, argument)
    except (ValueError, OverflowError, IndexError, MemoryError) as error:
        raise ValueError(str(error) or "the pickle is damaged") from None
    value = machine.pop()[0]
    _check_size(value)
    return value


def _check_size(root: Any) -> None:
    """Refuse a value that contains itself, or that has too many parts with each repeated one counted."""
    sizes: dict[int, int] = {}
    is_open: set[int] = set()
    waiting: list[Any] = [root]
    while waiting:
        value = waiting[-1]
        parts = [part for part in _parts(value) if isinstance(part, list | tuple | dict)]
        unknown = [part for part in parts if id(part) not in sizes]
        if any(id(part) in is_open for part in unknown):
            raise ValueError("a list contains itself")
        if unknown and id(value) not in is_open:
            is_open.add(id(value))
            waiting.extend({id(part): part for part in unknown}.values())
            continue
        waiting.pop()
        is_open.discard(id(value))
        sizes[id(value)] = 1 + len(_parts(value)) + sum(sizes[id(part)] for part in parts)
        if sizes[id(value)] > MOST_VALUES:
            raise ValueError("lists that it repeats make it too large")


def _parts(value: Any) -> Any:
    return value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
