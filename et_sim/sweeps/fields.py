"""Fields of a run's inputs by their address: `network.bandwidth[0]`, `workload.plan.tp`, `model`."""

from __future__ import annotations

import copy
import re
from collections.abc import Collection, Mapping
from typing import Any

from msgspec import Struct

from et_sim.basics.errors import InputError, did_you_mean
from et_sim.basics.units import plural
from et_sim.documents.keys import Key
from et_sim.documents.kinds import OBJECT
from et_sim.machine.network_file import NETWORK_KEYS
from et_sim.machine.remote_memory import MEMORY_KEYS
from et_sim.machine.system import NAMED_SWITCHES
from et_sim.machine.system_file import SYSTEM_KEYS
from et_sim.machine.version_1 import LEVEL_KEYS, SYSTEM_1_KEYS

FILES = ("workload", "system", "network", "memory", "groups")
WORDS = ("machine", "model", "profile", "when-full")  # options of a run without fields
ROOTS = (*FILES, *WORDS)
_STEP = re.compile(r"\.([^.\[\]]+)|\[([0-9]{1,9})\]", re.ASCII)
_NAMES_SHOWN = 12
_KEYS: dict[str, tuple[Key, ...]] = {
    "system": (*SYSTEM_KEYS, *SYSTEM_1_KEYS),
    "network": (*NETWORK_KEYS, *LEVEL_KEYS),
    "memory": MEMORY_KEYS,
}
_WITH_NAMED_PARTS = (OBJECT, NAMED_SWITCHES)


class InputField(Struct, frozen=True):
    """A whole input, or the value at a path of keys and indices in it."""

    root: str
    path: tuple[str | int, ...]

    def __str__(self) -> str:
        steps = (f"[{step}]" if isinstance(step, int) else f".{step}" for step in self.path)
        return "".join((self.root, *steps))

    def holds(self, other: InputField) -> bool:
        """Return whether a change of this field also changes the other."""
        return self.root == other.root and other.path[: len(self.path)] == self.path


def parse_field(text: str) -> InputField:
    """Return the field of an address."""
    root = re.match(r"[^.\[]*", text)
    assert root is not None
    name, rest = root[0], text[root.end() :]
    if name not in ROOTS:
        remedy = did_you_mean(name, ROOTS) or f"an address begins with {', '.join(ROOTS)}"
        raise InputError(f"{text!r} names no field", remedy=remedy)
    path: list[str | int] = []
    while rest:
        step = _STEP.match(rest)
        if step is None:
            raise InputError(
                f"{text!r} names no field: {rest!r} cannot be read",
                remedy="write it as in network.bandwidth[0]",
            )
        path.append(int(step[2]) if step[1] is None else step[1])
        rest = rest[step.end() :]
    if path and name in WORDS:
        raise InputError(f"{text!r} names no field: {name} has none", remedy=f"write {name} alone")
    return InputField(name, tuple(path))


def check_field(field: InputField, content: Any, more: Collection[str] = ()) -> None:
    """Refuse a field that the content neither has nor may have; `more` are further possible keys."""
    at = content
    for number, step in enumerate(field.path):
        here = str(InputField(field.root, field.path[:number]))
        if isinstance(step, int):
            _check_place(field, at, step, here)
        elif not isinstance(at, Mapping):
            remedy = f"name an entry, such as {here}[0]" if isinstance(at, list) and at else ""
            raise InputError(
                f"{field} names no field: {here} is {_noun(at)}, which has no keys", remedy=remedy
            )
        elif step not in at:
            _check_missing(field, number, at, [*(key.name for key in _KEYS.get(field.root, ())), *more])
            return
        at = at[step]


def _check_place(field: InputField, at: Any, step: int, here: str) -> None:
    if not isinstance(at, list):
        raise InputError(f"{field} names no field: {here} is {_noun(at)}, no list", remedy=f"write {here}")
    if step >= len(at):
        places = f"[0] to [{len(at) - 1}]" if at else "none"
        raise InputError(
            f"{field} names no field: {here} has {plural(len(at), 'entry', 'entries')}",
            remedy=f"there are {places}",
        )


def _check_missing(field: InputField, number: int, at: Mapping[str, Any], known: Collection[str]) -> None:
    """Refuse a missing key, unless it is possible."""
    step = field.path[number]
    possible = list(dict.fromkeys([*at, *(known if number == 0 else _parts_of(field, number))]))
    rest = field.path[number + 1 :]
    if step in possible and not any(isinstance(key, int) for key in rest):
        return
    if step in possible:
        raise InputError(
            f"{field} names no field: there is no list {step!r} yet", remedy="add it to the file"
        )
    here = str(InputField(field.root, field.path[:number]))
    keys = ", ".join(sorted(at)[:_NAMES_SHOWN])
    remedy = did_you_mean(str(step), [str(key) for key in possible]) or f"{here} has {keys or 'no keys'}"
    raise InputError(f"{field} names no field: {here} has no key {str(step)!r}", remedy=remedy)


def _parts_of(field: InputField, number: int) -> tuple[str, ...]:
    """Return the possible keys within a key that holds named parts, if they are declared."""
    if number != 1:
        return ()
    keys = (key for key in _KEYS.get(field.root, ()) if key.name == field.path[0])
    return next((key.words for key in keys if key.kind in _WITH_NAMED_PARTS), ())


def with_value(content: Any, path: tuple[str | int, ...], value: Any) -> Any:
    """Return the content with another value at a path; the original stays unchanged."""
    if not path:
        return value
    changed = at = copy.copy(content)
    for step in path[:-1]:
        inner = at.get(step, {}) if isinstance(step, str) and isinstance(at, dict) else at[step]
        at[step] = copy.copy(inner)
        at = at[step]
    at[path[-1]] = value
    return changed


def _noun(value: Any) -> str:
    if isinstance(value, Mapping):
        return "an object"
    return "a list" if isinstance(value, list) else "a text" if isinstance(value, str) else "a number"
