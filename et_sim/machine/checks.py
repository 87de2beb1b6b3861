"""Check values against the key tables, with one form of sentence for every refusal.

    system.json: key "endpoint-delay" is "ten" (allowed: an integer >= 0, in ns)

Not here: the tables (`tables`), and rules that need more than one key.
"""

from __future__ import annotations

import json
import math
from itertools import islice
from typing import Any

from et_sim.basics.errors import MachineError, UsageError, did_you_mean
from et_sim.basics.units import parse_bandwidth, parse_bytes, parse_time_ns
from et_sim.collectives.names import parse_name
from et_sim.machine.keys import ALGORITHMS, Key, Kind, Remarks
from et_sim.machine.sources import Source
from et_sim.machine.unused_keys import UNUSED_KEYS

_LONGEST_SHOWN = 60
LARGEST_TILE = 65536


def read_keys(source: Source, table: tuple[Key, ...], remarks: Remarks) -> dict[str, Any]:
    """The checked value of every key that the source gives; the order is the table's."""
    check_names(source, table, remarks)
    values = {
        key.name: check(key, source.content[key.name], source.place, remarks)
        for key in table
        if key.name in source.content
    }
    for key in table:
        if key.required and key.name not in values:
            raise MachineError(
                f'key "{key.name}" is missing', place=source.place, remedy=f"allowed: {key.allowed}"
            )
        if key.ignored and _is_remarkable(key, values):
            remarks.warn(source.place, key.name, key.ignored)
    return values


def fill_defaults(
    values: dict[str, Any], table: tuple[Key, ...], place: str, remarks: Remarks
) -> dict[str, Any]:
    """`values` with the table's defaults; those that take effect are recorded."""
    full = dict(values)
    for key in table:
        if key.name not in values and not key.ignored and key.default is not None:
            full[key.name] = key.default
    for key in table:
        if key.name in full and key.name not in values and (not key.needs or full[key.needs]):
            reason = f" ({key.default_reason})" if key.default_reason else ""
            remarks.default(place, key.name, f"not given; {show(key.default)} is taken{reason}")
    return full


def check_names(source: Source, table: tuple[Key, ...], remarks: Remarks) -> None:
    """Raise for the first key that is not known; warn of those that files carry and that have no effect."""
    known = [key.name for key in table]
    for name in source.content:
        if name in known:
            continue
        if name in UNUSED_KEYS:
            remarks.warn(source.place, name, f"no effect: it {UNUSED_KEYS[name]}")
        else:
            useful = ", ".join(key.name for key in table if not key.ignored)
            remedy = nearest(name, known) or f"known keys: {useful}"
            raise MachineError(f"key {show(name)} is not known", place=source.place, remedy=remedy)


def check(key: Key, value: Any, place: str, remarks: Remarks, index: int | None = None) -> Any:
    """The value in the type that the machine wants, or an error that shows the allowed values."""
    match key.kind:
        case Kind.INTEGER | Kind.COUNT:
            return _integer(key, value, place, remarks, index)
        case Kind.NUMBER | Kind.BANDWIDTH | Kind.TIME | Kind.RATE:
            return _number(key, value, place, index)
        case Kind.SIZE:
            return _size(key, value, place)
        case Kind.SWITCH:
            return _switch(key, value, place, remarks)
        case Kind.FLAG:
            if isinstance(value, bool | int | float) and value in (0, 1):
                return bool(value)
        case Kind.CHOICE:
            if value in key.choices:
                return value
            if isinstance(value, str):
                raise refusal(key, value, place, index=index, hint=nearest(value, key.choices))
        case Kind.CHOICES:
            return _choices(key, value, place)
        case Kind.ALGORITHMS:
            return _algorithms(key, value, place)
        case Kind.PREFIX:
            if isinstance(value, list) and len(value) == 1 and isinstance(value[0], str) and value[0]:
                return value[0]
        case Kind.RINGS:
            return _rings(key, value, place)
        case Kind.TEXT:
            if isinstance(value, str) and value:
                return value
        case Kind.OBJECT:
            if isinstance(value, dict):
                return value
        case Kind.TEXT_OR_OBJECT:
            if isinstance(value, str | dict) and value:
                return value
        case Kind.OBJECTS:
            if value == []:
                raise refusal(key, value, place, why="it has no entry; leave the key out, or give one")
            if isinstance(value, list) and all(isinstance(entry, dict) for entry in value):
                return value
        case Kind.RULES:
            if isinstance(value, dict):
                return [value]
            if isinstance(value, list) and value and all(isinstance(entry, dict) for entry in value):
                return value
        case Kind.NUMBER_OR_OBJECT:
            if isinstance(value, dict):
                return value
            number = _number(key, value, place, index)
            if 0 < number <= 1:
                return number
        case Kind.TEXT_OR_NUMBER:
            if isinstance(value, str) or type(value) in (int, bool):
                return value
        case Kind.TILES:
            if isinstance(value, list) and value and all(map(_is_tile, value)):
                return tuple(tuple(one) for one in value)
        case Kind.LINK_END:
            if value == "switch" or (type(value) is int and value >= 0):
                return value
        case Kind.PATHS:
            if value and isinstance(value, dict) and all(map(_is_list_of_names, value.values())):
                return {name: tuple(names) for name, names in value.items()}
        case Kind.SWITCHES:
            if isinstance(value, dict):
                return {name: _named_switch(key, name, on, place) for name, on in value.items()}
    raise refusal(key, value, place, index=index)


def refusal(
    key: Key, value: Any, place: str, *, why: str = "", index: int | None = None, hint: str = ""
) -> MachineError:
    """The error for a value that a key cannot take."""
    where = "" if index is None else f" index {index}"
    cause = f'key "{key.name}"{where} is {show(value)}' + (f": {why}" if why else "")
    allowed = f"allowed: {key.allowed}"
    return MachineError(cause, place=place, remedy=f"{hint} {allowed}" if hint else allowed)


def show(value: Any) -> str:
    """A value as it would stand in the file, cut when long."""
    text = json.dumps(_beginning(value), ensure_ascii=False, default=str)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}..."


def _beginning(value: Any, room: int = _LONGEST_SHOWN) -> Any:
    """As much of a value as can be shown: what is long, or deep, is not walked over."""
    if isinstance(value, str):
        return value if len(value) <= room + 1 else value[: room + 1] + "…"
    if room <= 0 and isinstance(value, dict | list | tuple):
        return "…"
    if isinstance(value, dict):
        few = islice(value.items(), room + 1)
        return {str(key)[: room + 1]: _beginning(one, room // 2) for key, one in few}
    if isinstance(value, list | tuple):
        return [_beginning(one, room // 2) for one in value[: room + 1]]
    return value


def nearest(word: str, choices: list[str] | tuple[str, ...]) -> str:
    """`did you mean 'x'?`, also across upper and lower case."""
    by_lower_case = {choice.lower(): choice for choice in choices}
    if word.lower() in by_lower_case:
        return f"did you mean {by_lower_case[word.lower()]!r}?"
    return did_you_mean(word, choices)


def _is_remarkable(key: Key, values: dict[str, Any]) -> bool:
    """Whether giving an ignored key deserves a warning: an on/off key only when it is on."""
    return key.name in values and (key.kind is not Kind.SWITCH or values[key.name])


def _integer(key: Key, value: Any, place: str, remarks: Remarks, index: int | None) -> int:
    if isinstance(value, bool) or not _is_finite_number(value):
        raise refusal(key, value, place, index=index)
    whole = int(value)
    if whole != value and key.kind is Kind.COUNT:
        raise refusal(key, value, place, index=index)
    # -0.5 would be cut to an allowed 0, so the sign is judged before the fraction goes.
    if whole < key.minimum or value < 0:
        raise refusal(key, value, place, why=key.minimum_reason, index=index)
    if whole > key.maximum:
        raise refusal(key, value, place, why=f"more than {key.maximum}", index=index)
    if whole != value:
        # The reference converts such JSON numbers with a C++ cast, and its results depend on it.
        remarks.warn(place, key.name, f"{show(value)} is cut to {whole}, as the reference does")
    return whole


def _number(key: Key, value: Any, place: str, index: int | None) -> float:
    if isinstance(value, str) and key.kind is not Kind.NUMBER:
        return _quantity(key, value, place, index)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise refusal(key, value, place, index=index)
    try:
        number = float(value)
    except OverflowError:
        number = math.nan
    too_low = number <= key.minimum if key.above_minimum else number < key.minimum
    too_high = key.below is not None and number >= key.below
    if not math.isfinite(number) or too_low or too_high:
        raise refusal(key, value, place, index=index)
    if number > key.maximum:
        raise refusal(key, value, place, why=f"more than {key.maximum}", index=index)
    return number


def _quantity(key: Key, text: str, place: str, index: int | None) -> float:
    """A text with a unit, in the unit of the key's bare numbers."""
    try:
        match key.kind:
            case Kind.TIME:
                number = parse_time_ns(text)
            case Kind.RATE:
                number = parse_bandwidth(text)
            case _:
                number = parse_bandwidth(text) * 1_000_000_000 / 1073741824
    except UsageError:
        raise refusal(key, text, place, index=index) from None
    return _number(key, number, place, index)


def _size(key: Key, value: Any, place: str) -> int:
    """Bytes."""
    try:
        size = 0 if isinstance(value, bool) else parse_bytes(value)
    except (UsageError, TypeError):
        size = 0
    if not max(key.minimum, 1) <= size <= key.maximum:
        raise refusal(key, value, place)
    return size


def _is_list_of_names(value: Any) -> bool:
    """Whether it is a list of different texts, at least one."""
    is_list = isinstance(value, list) and all(isinstance(name, str) and name for name in value)
    return is_list and 0 < len(value) == len(set(value))


def _is_tile(value: Any) -> bool:
    return (
        isinstance(value, list)
        and len(value) in (3, 4)
        and all(type(side) is int and 1 <= side <= LARGEST_TILE for side in value[:3])
        and all(type(part) in (int, float) and 0 < part <= 1 for part in value[3:])
    )


def _is_finite_number(value: Any) -> bool:
    return isinstance(value, int) or (isinstance(value, float) and math.isfinite(value))


def _switch(key: Key, value: Any, place: str, remarks: Remarks) -> bool:
    if value is False:
        # The reference tests "not the number 0" and so takes false for on. Whoever writes false wants
        # off; the results then differ from the reference's, hence the warning.
        remarks.warn(
            place, key.name, "false is taken as off; the reference would switch it on (write 0 to agree)"
        )
        return False
    if _is_finite_number(value):
        return bool(value != 0)
    raise refusal(key, value, place)


def _named_switch(key: Key, name: str, on: Any, place: str) -> bool:
    if name not in key.choices:
        cause = f'key "{key.name}" names {show(name)}, which is not among the corrections'
        raise MachineError(
            cause, place=place, remedy=nearest(name, key.choices) or f"known: {', '.join(key.choices)}"
        )
    if not isinstance(on, bool):
        cause = f'key "{key.name}" sets "{name}" to {show(on)}'
        raise MachineError(cause, place=place, remedy="allowed: true or false")
    return on


def _choices(key: Key, value: Any, place: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not value:
        raise refusal(key, value, place)
    for index, one in enumerate(value):
        if one not in key.choices:
            hint = nearest(one, key.choices) if isinstance(one, str) else ""
            raise refusal(key, one, place, index=index, hint=hint)
    return tuple(value)


def _algorithms(key: Key, value: Any, place: str) -> tuple[str, ...]:
    if isinstance(value, str):
        hint = f'write it as a list: "{key.name}": ["{value}"];'
        raise refusal(key, value, place, why="one name instead of a list", hint=hint)
    if not isinstance(value, list):
        raise refusal(key, value, place)
    if not value:
        raise refusal(key, value, place, why="no dimension would take part", hint="leave the key out, or")
    names = []
    for index, name in enumerate(value):
        normal = parse_name(name) if isinstance(name, str) else None
        if normal is None:
            raise _unknown_algorithm(key, name, place, index)
        names.append(str(normal))
    return tuple(names)


def _rings(key: Key, value: Any, place: str) -> tuple[tuple[tuple[int, ...], ...], ...]:
    """By dimension, the orders of its NPUs around rings."""
    if not isinstance(value, list) or not any(value):
        raise refusal(key, value, place)
    for dimension, rings in enumerate(value):
        if not isinstance(rings, list):
            raise refusal(key, rings, place, index=dimension)
        for ring in rings:
            if not (isinstance(ring, list) and all(type(one) is int for one in ring)):
                raise refusal(key, ring, place, index=dimension)
            if sorted(ring) != list(range(len(ring))):
                why = f"it does not name each NPU from 0 to {len(ring) - 1} once"
                raise refusal(key, ring, place, why=why, index=dimension)
    return tuple(tuple(tuple(ring) for ring in rings) for rings in value)


def _unknown_algorithm(key: Key, name: Any, place: str, index: int) -> MachineError:
    choices = [choice for choice in ALGORITHMS if "<" not in choice]
    hint = nearest(name, choices) if isinstance(name, str) else ""
    allowed = f"allowed: {', '.join(ALGORITHMS)}, W an integer >= 1"
    cause = f'key "{key.name}" index {index} is {show(name)}, which is no algorithm'
    return MachineError(cause, place=place, remedy=f"{hint} {allowed}" if hint else allowed)
