"""Kinds of values of keys in documents, and fields of each kind.

A document that alone needs a kind declares it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

from msgspec.structs import replace

from et_sim.basics.errors import UsageError
from et_sim.basics.units import parse_bandwidth, parse_bytes, parse_ranks, parse_time_ns, parse_watts
from et_sim.documents.keys import Key, Remarks, Slot, ValueKind, key, keys_of, nearest, read, show

ALL_RANKS = "all"


def one_of(words: tuple[str, ...]) -> str:
    """Return words as a phrase."""
    return " or ".join(filter(None, (", ".join(words[:-1]), words[-1])))


def _range(noun: str, forms: str = "") -> Callable[[Key], str]:
    def allowed(key: Key) -> str:
        relation = ">" if key.above_minimum else ">="
        below = "" if key.below is None else f" and < {key.below}"
        unit = f", in {key.unit}" if key.unit else ""
        return f"{noun} {relation} {key.minimum}{below}{unit}{forms}"

    return allowed


def _with_words(phrase: str) -> Callable[[Key], str]:
    return lambda key: f"{phrase} {', '.join(key.words)}"


def _word_or_text(key: Key) -> str:
    return one_of(key.words) if key.words else "a text in quotes"


def _integer(slot: Slot, value: Any) -> int:
    key = slot.key
    is_number = hasattr(value, "__index__") or (isinstance(value, float) and math.isfinite(value))
    if isinstance(value, bool) or not is_number:
        raise slot.refusal(value)
    whole = int(value)
    if whole != value and key.kind is not INTEGER:
        raise slot.refusal(value)
    # -0.5 would be cut to an allowed 0, so the sign is checked first.
    if whole < key.minimum or value < 0:
        raise slot.refusal(value, why=key.minimum_reason)
    if whole > key.maximum:
        raise slot.refusal(value, why=f"more than {key.maximum}")
    if whole != value:
        # The reference converts such JSON numbers with a C++ cast, and its results depend on it.
        text = f"{show(value)} is cut to {whole}, as the reference does"
        slot.remarks.warn(slot.section.at(key.name), key.name, text)
    return whole


def _counts(slot: Slot, value: Any) -> tuple[int, ...]:
    key = slot.key
    if not isinstance(value, list | tuple) or not (value or key.may_be_empty):
        raise slot.refusal(value)
    if all(type(number) is int and key.minimum <= number <= key.maximum for number in value):  # fast check
        return tuple(value)
    return tuple(_integer(replace(slot, index=index), number) for index, number in enumerate(value))


def _number(slot: Slot, value: Any) -> float:
    key = slot.key
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise slot.refusal(value)
    try:
        number = float(value)
    except OverflowError:
        number = math.nan
    too_low = number <= key.minimum if key.above_minimum else number < key.minimum
    too_high = key.below is not None and number >= key.below
    if not math.isfinite(number) or too_low or too_high:
        raise slot.refusal(value)
    if number > key.maximum:
        raise slot.refusal(value, why=f"more than {key.maximum}")
    return number


def _quantity(parse: Callable[[str], float], in_unit: float = 1.0) -> Callable[[Slot, Any], float]:
    """Return a reader of numbers, and of texts with a unit."""

    def read(slot: Slot, value: Any) -> float:
        if not isinstance(value, str):
            return _number(slot, value)
        try:
            number = parse(value)
        except UsageError:
            raise slot.refusal(value) from None
        return _number(slot, number * 1_000_000_000 / in_unit if in_unit != 1.0 else number)

    return read


def _size(slot: Slot, value: Any) -> int:
    key = slot.key
    try:
        size = -1 if isinstance(value, bool) else parse_bytes(value)
    except (UsageError, TypeError):
        size = -1
    if size > key.maximum:
        raise slot.refusal(value, why=f"more than {key.maximum}")
    if size < key.minimum or (key.above_minimum and size == key.minimum):
        raise slot.refusal(value, why=key.minimum_reason)
    return size


def _bandwidth_with_unit(slot: Slot, value: Any) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool):
        raise slot.refusal(value, why="it has no unit")
    try:
        return parse_bandwidth(_text(slot, value))
    except UsageError as error:
        cause, remedy = f"{slot.name}: {error.cause}", f"allowed: {slot.key.allowed}"
        raise slot.section.fault(cause, remedy, key=slot.key.name) from None


def _watts(slot: Slot, value: Any) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool):
        raise slot.refusal(value, why="it has no unit")
    try:
        power = parse_watts(_text(slot, value))
    except UsageError as error:
        cause, remedy = f"{slot.name}: {error.cause}", f"allowed: {slot.key.allowed}"
        raise slot.section.fault(cause, remedy, key=slot.key.name) from None
    if power <= 0:
        raise slot.refusal(value)
    return power


def _picoseconds(slot: Slot, value: Any) -> float:
    time: float = TIME.read(slot, value)
    if 0 < time < 0.001:
        cause = f"{slot.name} is less than a picosecond"
        remedy = "give a longer time; a number without a unit is in ns"
        raise slot.section.fault(cause, remedy, key=slot.key.name)
    return time


def _switch(slot: Slot, value: Any) -> bool:
    if value is False:
        # The reference tests "not the number 0", so false means on. Users who write false want off; the
        # results then differ from the reference's, hence the warning.
        text = "false is taken as off; the reference would switch it on (write 0 to agree)"
        slot.remarks.warn(slot.section.at(slot.key.name), slot.key.name, text)
        return False
    if isinstance(value, int) or (isinstance(value, float) and math.isfinite(value)):
        return bool(value != 0)
    raise slot.refusal(value)


def of_type(name: str, allowed: str, *types: type) -> ValueKind:
    """Return a kind of values of some types; true and false are no numbers, and texts are not empty."""

    def read(slot: Slot, value: Any) -> Any:
        if isinstance(value, types) and not (isinstance(value, bool) or value == ""):
            return value
        raise slot.refusal(value)

    return ValueKind(name, lambda _: allowed, read)


def _flag(slot: Slot, value: Any) -> bool:
    if isinstance(value, bool | int | float) and value in (0, 1):
        return bool(value)
    raise slot.refusal(value)


def _choice(slot: Slot, value: Any) -> str:
    words = slot.key.words
    if isinstance(value, str) and (value in words or (not value and slot.key.may_be_empty)):
        return value
    raise slot.refusal(value, hint=nearest(value, words) if isinstance(value, str) else "")


def _choices(slot: Slot, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not (value or slot.key.may_be_empty):
        raise slot.refusal(value)
    words = slot.key.words
    for index, word in enumerate(value):
        if not isinstance(word, str) or word not in words:
            hint = nearest(word, words) if isinstance(word, str) else ""
            raise slot.refusal(word, index=index, hint=hint)
    return tuple(value)


def _text(slot: Slot, value: Any) -> str:
    if isinstance(value, str) and (value or slot.key.may_be_empty):
        return value
    raise slot.refusal(value)


def _ranks(slot: Slot, value: Any) -> tuple[range, ...]:
    try:
        return tuple(parse_ranks(_text(slot, value)))
    except UsageError as error:
        cause = f"{slot.name}: {error.cause}"
        raise slot.section.fault(cause, f"allowed: {slot.key.allowed}", key=slot.key.name) from None


def _object(slot: Slot, value: Any) -> Any:
    if not isinstance(value, dict):
        raise slot.refusal(value)
    if slot.key.of is None:
        return value
    remarks = slot.remarks if slot.key.records_defaults else Remarks(slot.remarks.warnings)
    return read(slot.key.of, slot.section.entry(slot.key.name, value), remarks)


def _named(slot: Slot, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise slot.refusal(value)
    whole, key = slot.section.entry(slot.key.name, value), replace(slot.key, kind=OBJECT, required=False)
    slots = {name: Slot(replace(key, name=name), whole, slot.remarks) for name in value}
    return {name: slot.value(value[name]) for name, slot in slots.items()}


def _objects(slot: Slot, value: Any) -> Any:
    """Return a tuple of the entries' objects; no two may have one name."""
    key, section = slot.key, slot.section
    if value == [] and not key.may_be_empty:
        raise slot.refusal(
            value, why=f"it has no entry; {'' if key.required else 'leave the key out, or '}give one"
        )
    if not isinstance(value, list):
        raise slot.refusal(value)
    for index, entry in enumerate(value):
        if not isinstance(entry, dict):
            raise slot.refusal(entry, index=index)
    if key.most is not None and len(value) > key.most:
        cause = f"{slot.name} has {len(value)} entries"
        raise section.fault(cause, f"allowed: at most {key.most}", key=key.name)
    if key.of is None:
        return value
    is_named = any(inner.name == "name" and inner.required for inner in keys_of(key.of))
    entries: dict[Any, Any] = {}
    for index, entry in enumerate(value):
        inner = section.entry(key.name, entry, index)
        made = read(key.of, inner, slot.remarks)
        name = getattr(made, "name", None) if is_named else index
        if name in entries:
            cause = f'is called "{name}", as is index {list(entries).index(name)} of "{key.name}"'
            raise inner.fault(cause, "give each its own name")
        entries[name] = made
    return tuple(entries.values())


INTEGER = ValueKind("integer", _range("an integer"), _integer)  # a fraction is cut off with a warning
COUNT = ValueKind("whole number", _range("an integer"), _integer)  # a fraction is refused
COUNTS = ValueKind("whole numbers", _range("a list of integers"), _counts)
COUNT_OR_COUNTS = ValueKind(
    "whole number or several",
    _range("an integer, or a list of integers,"),
    lambda slot, value: _counts(slot, value) if isinstance(value, list) else _integer(slot, value),
)
NUMBER = ValueKind("number", _range("a number"), _number)
_BANDWIDTH = _range("a number", ', or a text with a unit such as "400Gbps" or "50GB/s"')
BANDWIDTH = ValueKind("bandwidth", _BANDWIDTH, _quantity(parse_bandwidth, 1073741824))  # a bare number: GiB/s
RATE = ValueKind("bandwidth in GB/s", _BANDWIDTH, _quantity(parse_bandwidth))
TIME = ValueKind(
    "time", _range("a number", ', or a text with a unit such as "1.5us"'), _quantity(parse_time_ns)
)
PICOSECONDS = replace(TIME, read=_picoseconds)  # at least one picosecond, or 0
SIZE = ValueKind("size", _range("a number of bytes", ', or a text with a unit such as "64KiB"'), _size)
_WITH_UNIT = "a bandwidth with its unit, such as 400Gbps, 50 GB/s or 1.8TB/s"
BANDWIDTH_WITH_UNIT = ValueKind("bandwidth with its unit", lambda _: _WITH_UNIT, _bandwidth_with_unit)
BITS_PER_S = replace(
    BANDWIDTH_WITH_UNIT, read=lambda slot, value: round(_bandwidth_with_unit(slot, value) * 8e9)
)
WATTS = ValueKind("power with its unit", lambda _: "a power > 0 with its unit, such as 700W or 1.2kW", _watts)
_ON_OFF = "1 or true for on, 0 or false for off"
SWITCH = ValueKind("on/off", lambda _: _ON_OFF, _switch)  # of the reference, which takes `false` for on
FLAG = ValueKind("yes/no", lambda _: _ON_OFF, _flag)
CHOICE = ValueKind("choice", _word_or_text, _choice)
CHOICES = ValueKind("list of words", _with_words("a list with some of"), _choices)
ANYTHING = ValueKind("anything", lambda _: "anything", lambda _, value: value)
TEXT = ValueKind("text", _word_or_text, _text)
_RANKS_FORM = 'ranks and ranges such as "0-3,6", or "0-14/2" for every second one'
SOME_RANKS = ValueKind("some ranks", lambda _: _RANKS_FORM, _ranks)
RANKS = ValueKind(
    "ranks",
    lambda _: f'{_RANKS_FORM}, or "{ALL_RANKS}"',
    lambda slot, value: None if value == ALL_RANKS else _ranks(slot, value),
)
OBJECT = ValueKind("object", _with_words("an object with some of the keys"), _object)
NAMED = ValueKind("objects by name", _with_words("objects by name, each with some of the keys"), _named)
OBJECTS = ValueKind("list of objects", _with_words("a list of objects, each with some of the keys"), _objects)

integer, count, number = partial(key, INTEGER), partial(key, COUNT), partial(key, NUMBER)
counts = partial(key, COUNTS)
bandwidth, rate, size = partial(key, BANDWIDTH), partial(key, RATE), partial(key, SIZE, unit="bytes")
time, picoseconds = partial(key, TIME, unit="ns"), partial(key, PICOSECONDS, unit="ns")
watts = partial(key, WATTS, unit="watts")
switch, flag, text, ranks = partial(key, SWITCH), partial(key, FLAG), partial(key, TEXT), partial(key, RANKS)
choice, choices = partial(key, CHOICE), partial(key, CHOICES)
section, sections = partial(key, OBJECT), partial(key, OBJECTS)
