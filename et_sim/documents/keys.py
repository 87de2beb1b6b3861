"""Declared documents: a field of a class is a key of a file, with its unit, meaning, check and default.

    class Stage:
        name: str = text("The name of the stage.", required=True)
        latency_ns: float = time("From a unit to the next stage.", 0.0)

`keys_of` returns the keys of such a class. `read` makes one from an object of a file, with one form of
sentence for every refusal:

    system.json: key "endpoint-delay" is "ten" (allowed: an integer >= 0, in ns)

A rule about several keys is the method `check` of the class. `check_fields` checks the values of an object
made in Python by the same keys. `kinds` holds the kinds of values.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from enum import EnumType
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from msgspec import NODEFAULT, Struct, field, structs
from msgspec.structs import replace

from et_sim.basics.errors import FieldError, InputError, MachineError, brief, did_you_mean

# Times and sizes up to this are exact in a double, and the reference reads its clock through one.
LARGEST_INTEGER = 2**53
_LONGEST_SHOWN = 60
T = TypeVar("T")


class Notice(Struct, frozen=True):
    """A remark on accepted input for the user: a warning or a default."""

    place: str  # file (or "<system>")
    key: str
    text: str


class Remarks(Struct):
    """Remarks on input that readers accepted."""

    warnings: list[Notice] = field(default_factory=list)
    defaults: list[Notice] = field(default_factory=list)
    inputs: list[tuple[str, str]] = field(default_factory=list)  # named files: path, content hash

    def warn(self, place: str, key: str, text: str) -> None:
        """Record a warning for the user."""
        self.warnings.append(Notice(place, brief(key), brief(text)))

    def default(self, place: str, key: str, text: str) -> None:
        """Record a default that replaces a missing value."""
        self.defaults.append(Notice(place, key, text))


class _OfFile(Struct, frozen=True, kw_only=True):
    """Named arguments of a section."""

    file: str = ""  # the file of the section
    error_type: type[InputError] = MachineError  # type of refusals


class Section(_OfFile, frozen=True):
    """An object of a file, and its place."""

    place: str  # as messages name it: 'system.json: "costs"', or the file where lines are named
    content: dict[str, Any]

    def at(self, *path: str | int) -> str:  # noqa: ARG002
        """Return the place of one of its keys, or of a value below it."""
        return self.place

    def name_of(self, key: str) -> str:
        """Return a key as messages name it."""
        return f'key "{key}"'

    @property
    def lined(self) -> Section:
        """Return the section with keys that are found by their lines."""
        return LinedSection(self.place, self.content, error_type=self.error_type)

    def fault(self, cause: str, remedy: str = "", *, key: str = "", index: int | None = None) -> InputError:
        """Return an error about the section, one of its keys, or an entry of the key's list."""
        steps: tuple[str | int, ...] = (key,) if key else ()
        place = self.at(*steps) if index is None else self.at(*steps, index)
        return self.error_type(cause, place=place, remedy=remedy)

    def entry(self, key: str, content: dict[str, Any], index: int | None = None) -> Section:
        """Return an object that one of its keys holds."""
        place, file = entry_place(self.at(key), key, index), self.file or self.place
        return Section(place, content, file=file, error_type=self.error_type)

    def beside(self, name: str) -> Path:
        """Return a file that the section names, relative to its own file."""
        return Path(self.file or self.place).parent / name


class LinedSection(Section, frozen=True):
    """An object whose keys are found by their lines, or by their path in input from Python."""

    path: tuple[str | int, ...] = ()

    def at(self, *path: str | int) -> str:
        """Return the line of the key, or the path to it."""
        path = (*self.path, *path)
        line = 0
        with suppress(OSError, ValueError):  # from Python, of a preset, or in place within another file
            line = line_of(Path(self.place).read_text(encoding="utf-8-sig"), path)
        where = f"line {line}" if line else ".".join(map(str, path))
        return f"{self.place}: {where}" if where else self.place

    def entry(self, key: str, content: dict[str, Any], index: int | None = None) -> Section:
        """Return an object that one of its keys holds."""
        path = (*self.path, key, *(() if index is None else (index,)))
        return structs.replace(self, content=content, path=path)


class Arguments(Section, frozen=True):
    """Arguments of a Python call, which messages name without a place."""

    def name_of(self, key: str) -> str:
        """Return the name of an argument."""
        return key


def inner_section(section: Section, key: Key, remarks: Remarks) -> Section | None:
    """Return the object under a key of a file, whose lines are named."""
    if key.name not in section.content:
        return None
    outer = section.lined
    return outer.entry(key.name, Slot(key, outer, remarks).value(section.content[key.name]))


def entry_place(place: str, key: str, index: int | None = None) -> str:
    """Return the place of a key, or of an entry of its list."""
    return f'{place}: "{key}"' + ("" if index is None else f" index {index}")


class ValueKind(Struct, frozen=True):
    """A type of value."""

    name: str
    allowed: Callable[[Key], str]  # the allowed values as one phrase
    read: Callable[[Slot, Any], Any]  # the value in the program's type, or a refusal


class Key(Struct, frozen=True):
    """One key of a document."""

    name: str
    kind: ValueKind
    meaning: str
    reference: str = ""  # use of the key by the reference, if relevant
    default: Any = None  # recorded when it is taken; None: the key stays unset
    usual: Any = None  # the value of the field without the key, in the program's type
    default_reason: str = ""
    unit: str = ""
    form: str = ""  # the allowed values as one phrase, instead of the kind's
    minimum: float = 0
    maximum: float = LARGEST_INTEGER
    above_minimum: bool = False  # the minimum itself is refused
    below: int | None = None  # this and more is refused
    minimum_reason: str = ""
    choices: Any = ()  # words, or an enumeration that the value becomes
    correction: str = ""  # a correction that this key requires to have an effect
    needs: str = ""  # a key or switch that this key requires to have an effect
    ignored: str = ""  # why the value changes nothing; shown as a warning
    required: bool = False
    of: Any = None  # the class of the object, or of each entry
    most: int | None = None  # entries
    may_be_empty: bool = False  # a text or a list
    records_defaults: bool = True  # of the object that it holds
    becomes: Callable[[Any], Any] | None = None  # converts the checked value

    @property
    def allowed(self) -> str:
        """Return the allowed values as one phrase."""
        return self.form or self.kind.allowed(self)

    @property
    def words(self) -> tuple[str, ...]:
        """Return the choices, or the keys of the object that it holds."""
        if self.of is not None:
            return tuple(key.name for key in keys_of(self.of))
        return tuple(map(str, self.choices))


class Slot(Struct, frozen=True):
    """A key in a section, while its value is read."""

    key: Key
    section: Section
    remarks: Remarks
    index: int | None = None  # in the list that the key has per dimension

    @property
    def name(self) -> str:
        """Return the key as messages name it."""
        return self.section.name_of(self.key.name)

    def refusal(self, value: Any, *, why: str = "", hint: str = "", index: int | None = None) -> InputError:
        """Return the error for a value that the key does not allow."""
        at = self.index if index is None else index
        where = "" if at is None else f" index {at}"
        cause = f"{self.name}{where} is {show(value)}" + (f": {why}" if why else "")
        allowed = f"allowed: {self.key.allowed}"
        remedy = f"{hint} {allowed}" if hint else allowed
        return self.section.fault(cause, remedy, key=self.key.name, index=at)

    def value(self, value: Any) -> Any:
        """Return the checked and converted value."""
        checked = self.kind_value(value)
        return checked if self.key.becomes is None else self.key.becomes(checked)

    def kind_value(self, value: Any) -> Any:
        """Return the value, checked by its kind alone."""
        checked = self.key.kind.read(self, value)
        words = self.key.choices
        if not isinstance(words, EnumType):
            return checked
        return words(checked) if isinstance(checked, str) else tuple(map(words, checked))


class FieldDefault(Struct, frozen=True):
    """A maker of a field's default, which also holds the declaration of the field as a key."""

    make: Callable[[], Any]
    key: Key | None = None
    inline: Any = None  # the class whose fields are keys of the same object

    def __call__(self) -> Any:
        """Return the default."""
        return self.make()


def _refuse() -> Any:
    raise TypeError("a field has neither a value nor a default")


def key(kind: ValueKind, meaning: str, default: Any = NODEFAULT, *, stated: Any = None, **more: Any) -> Any:
    """Return a field that is a key; its name is the field's with hyphens and without `_ns`, unless given.

    `stated`: the default as a file would write it, recorded when it is taken and shown in the page of keys;
    True: the default itself.
    """
    if more.get("required") and default is NODEFAULT:
        default = None  # readers refuse a file without it
    described = Key(
        more.pop("name", ""),
        kind,
        meaning,
        default=default if stated is True else stated,
        usual=None if default is NODEFAULT else default,
        **more,
    )
    make = _refuse if default is NODEFAULT else lambda: default
    return field(default_factory=FieldDefault(make, described))


def inline(of: Any) -> Any:
    """Return a field whose own fields are keys of the same object."""
    return field(default_factory=FieldDefault(of, inline=of))


@cache
def _declared(of: Any) -> tuple[tuple[str, Key | None, Any], ...]:
    """Return the name, the key and the class of inline keys of each field."""
    declared: list[tuple[str, Key | None, Any]] = []
    names, defaults = of.__struct_fields__, of.__struct_defaults__
    for field_name, default in zip(names, (None,) * (len(names) - len(defaults)) + defaults, strict=True):
        made_by: Any = getattr(default, "factory", None)
        is_declared = isinstance(made_by, FieldDefault)
        described, inner = (made_by.key, made_by.inline) if is_declared else (None, None)
        if described is not None:
            name = described.name or field_name.removesuffix("_ns").replace("_", "-")
            described = structs.replace(described, name=name)
        declared.append((field_name, described, inner))
    return tuple(declared)


def keys_by_field(of: Any) -> dict[str, Key]:
    """Return the key of each field that is one."""
    return {name: described for name, described, _ in _declared(of) if described is not None}


@cache
def keys_of(of: Any) -> tuple[Key, ...]:
    """Return the keys that a class declares, in order; keys that are no fields come last."""
    keys: list[Key] = []
    for _, described, inner in _declared(of):
        keys += keys_of(inner) if inner is not None else [] if described is None else [described]
    return (*keys, *getattr(of, "more_keys", ()))


def made(of: Callable[..., T], values: Mapping[str, Any], base: T | None = None) -> T:
    """Return an object with checked values by key or field; the rest is from `base`, or the defaults."""
    arguments: dict[str, Any] = {}
    for field_name, described, inner in _declared(of):
        name = field_name if described is None else described.name
        if name in values:
            arguments[field_name] = values[name]
        elif inner is not None:
            arguments[field_name] = made(inner, values, None if base is None else getattr(base, field_name))
    return of(**arguments) if base is None else replace(base, **arguments)  # type: ignore[type-var]


def check_fields(made: Any) -> None:
    """Refuse the first value of an object made in Python that its key does not allow."""
    arguments, remarks = Arguments("", {}, error_type=InputError), Remarks()
    for name, described in keys_by_field(type(made)).items():
        slot = Slot(structs.replace(described, name=f"`{name}`"), arguments, remarks)
        try:
            slot.kind_value(getattr(made, name))
        except InputError as error:
            raise FieldError(error.cause, remedy=error.remedy) from None


def read(of: Callable[..., T], section: Section, remarks: Remarks, base: T | None = None) -> T:
    """Return the object that a section describes."""
    return build(of, read_keys(section, keys_of(of), remarks), section, remarks, base)


def build(
    of: Callable[..., T], given: Mapping[str, Any], section: Section, remarks: Remarks, base: T | None = None
) -> T:
    """Return the object of checked values.

    A class may have the fields `place` and `section`, `more_keys` that are no fields, `complete(given,
    section, remarks)`, which returns values for fields that depend on several keys, and `check(given,
    section, remarks)`.
    """
    note_defaults(given, keys_of(of), section, remarks)
    values = {"place": section.place, "section": section, **given}
    if hasattr(of, "complete"):
        values |= of.complete(given, section, remarks)
    try:
        described = made(of, values, base)
    except InputError as error:  # raised by the class, which has no place
        raise error if error.place else section.fault(error.cause, error.remedy) from None
    if hasattr(described, "check"):
        described.check(given, section, remarks)
    return described


def read_keys(section: Section, table: tuple[Key, ...], remarks: Remarks) -> dict[str, Any]:
    """Return the checked value of every given key, in the order of the table."""
    check_names(section, table, remarks)
    values = {
        key.name: Slot(key, section, remarks).value(section.content[key.name])
        for key in table
        if key.name in section.content
    }
    switches = {key.name for key in table if key.kind.name in ("on/off", "yes/no")}
    for key in table:
        if key.required and key.name not in values:
            raise section.fault(f'key "{key.name}" is missing', f"allowed: {key.allowed}")
        if key.name not in values:
            continue
        if key.ignored and (key.kind.name != "on/off" or values[key.name]):
            remarks.warn(section.at(key.name), key.name, key.ignored)
        if key.needs and key.needs not in switches and key.needs not in values:
            raise section.fault(
                f'key "{key.name}" has no effect without "{key.needs}"', "give both, or neither", key=key.name
            )
    return values


def note_defaults(
    given: Mapping[str, Any], table: tuple[Key, ...], section: Section, remarks: Remarks
) -> dict[str, Any]:
    """Record the stated defaults that take effect, and return all values."""
    full = {key.name: key.default for key in table if key.default is not None and not key.ignored}
    taken = [key for key in table if key.name in full and key.name not in given]
    full |= given
    for key in taken:
        if not key.needs or full.get(key.needs):
            reason = f" ({key.default_reason})" if key.default_reason else ""
            remarks.default(section.at(), key.name, f"not given; {show(key.default)} is taken{reason}")
    return full


def check_names(section: Section, table: tuple[Key, ...], remarks: Remarks) -> None:
    """Refuse the first unknown key; warn about unused keys of the reference."""
    if not isinstance(section.content, dict):
        raise section.fault(
            f"{show(section.content)} stands where an object belongs", "write keys with values"
        )
    known = [key.name for key in table]
    for name in section.content:
        if name in known:
            continue
        from et_sim.documents.keys_without_effect import UNUSED_KEYS

        if name in UNUSED_KEYS and section.error_type is MachineError:
            remarks.warn(section.at(name), name, f"no effect: it {UNUSED_KEYS[name]}")
        else:
            useful = ", ".join(key.name for key in table if not key.ignored)
            remedy = nearest(str(name), known) or f"known keys: {useful}"
            raise section.fault(f"key {show(name)} is not known", remedy, key=name)


def show(value: Any) -> str:
    """Return a value as a file would write it, cut if it is long."""
    text = json.dumps(_beginning(value), ensure_ascii=False, default=str)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}..."


def _beginning(value: Any, room: int = _LONGEST_SHOWN) -> Any:
    """Return the beginning of a value that can be shown; long or deep parts are not traversed."""
    if isinstance(value, str):
        return value if len(value) <= room + 1 else value[: room + 1] + "…"
    if room <= 0 and isinstance(value, dict | list | tuple):
        return "…"
    if isinstance(value, dict):
        few = islice(value.items(), room + 1)
        return {str(key)[: room + 1]: _beginning(entry, room // 2) for key, entry in few}
    if isinstance(value, list | tuple):
        return [_beginning(entry, room // 2) for entry in value[: room + 1]]
    return value


def nearest(word: str, choices: Collection[str]) -> str:
    """Return `did you mean 'x'?`, independent of case."""
    by_lower_case = {choice.lower(): str(choice) for choice in choices}
    if word.lower() in by_lower_case:
        return f"did you mean {by_lower_case[word.lower()]!r}?"
    return did_you_mean(word, tuple(choices))


def line_of(text: str, path: tuple[str | int, ...]) -> int:
    """Return the line of a place in a YAML or JSON text, from 1; 0 for other texts."""
    with suppress(ValueError):
        json.loads(text)
        return _line_in_json(text, path)
    import yaml

    try:
        node = yaml.compose(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except yaml.YAMLError:
        return 0
    line = 1
    for step in path:
        if isinstance(node, yaml.MappingNode):
            matches = [(key, value) for key, value in node.value if key.value == step]
            if not matches:
                break
            line, node = matches[0][0].start_mark.line + 1, matches[0][1]
        elif isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
            node = node.value[step]
            line = node.start_mark.line + 1
        else:
            break
    return line


def _line_in_json(text: str, path: tuple[str | int, ...]) -> int:
    at, line = _after_space(text, 0), 1
    for step in path:
        found = (entry for entry in _entries(text, at) if entry[0] == step)
        _, begin, at = next(found, (step, -1, at))
        if begin < 0:
            break
        line = text.count("\n", 0, begin) + 1
    return line


def _entries(text: str, at: int) -> Iterator[tuple[str | int, int, int]]:
    """Yield the name or number of each entry of a JSON object or list, and where it and its value begin."""
    if text[at] not in "{[":
        return
    is_object, number, scan = text[at] == "{", 0, json.JSONDecoder().raw_decode
    at = _after_space(text, at + 1)
    while text[at] not in "}]":
        name, begin = number, at
        if is_object:
            name, at = scan(text, at)
            at = _after_space(text, _after_space(text, at) + 1)  # after the colon
        yield name, begin, at
        at = _after_space(text, scan(text, at)[1])
        at = _after_space(text, at + 1) if text[at] == "," else at
        number += 1


def _after_space(text: str, at: int) -> int:
    while text[at : at + 1].isspace():
        at += 1
    return at
