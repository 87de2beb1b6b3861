"""A sweep as it is written: a YAML file, or a dict with its keys, read strictly.

Not here: the inputs that it names (`space`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from et_sim.basics.errors import InputError, UsageError, did_you_mean
from et_sim.basics.files import is_folder
from et_sim.machine.texts import parse_yaml
from et_sim.sweeps.axes import SCALES, Axis, Range
from et_sim.sweeps.expressions import Condition, parse_condition
from et_sim.sweeps.fields import Field, parse_field
from et_sim.sweeps.sampling import METHODS, MOST_CANDIDATES, Values, admitted, grid, sample
from et_sim.tables.of_sweeps import FIGURES, NUMBER

Given = str | Path | Mapping[str, Any]
NAMELESS = "<sweep>"
Shape = TypeVar("Shape", bound=msgspec.Struct)
_PLACE = re.compile(r"^(.*?)(?: - at `\$(.*)`)?$", re.DOTALL)
_TICKS = re.compile(r"`([^`]*)`")
_NAMES = {"str": "a text", "int": "a whole number", "float": "a number", "object": "an object"}
_NAMES |= {"array": "a list", "null": "nothing", "bool": "true or false"}
_COLUMNS = (NUMBER, *(figure.name for figure in FIGURES))
_ALWAYS_READ = ("workload", "system", "network")


class BaseSpec(msgspec.Struct, forbid_unknown_fields=True):
    """The run that axes change."""

    workload: str | dict[str, Any] | None = None
    system: str | dict[str, Any] | None = None
    network: str | dict[str, Any] | None = None
    memory: str | dict[str, Any] | None = None
    groups: str | dict[str, Any] | None = None
    machine: str | None = None
    model: str | None = None
    profile: str | None = None


class RangeSpec(msgspec.Struct, forbid_unknown_fields=True):
    """Numbers from one to another."""

    first: int | float = msgspec.field(name="from")
    last: int | float = msgspec.field(name="to")
    count: int | None = None
    scale: str = SCALES[0]


class AxisSpec(msgspec.Struct, forbid_unknown_fields=True):
    """An axis; one that is just a list is short for `values`."""

    field: str | None = None
    values: list[Any] | None = None
    range: RangeSpec | None = None


class SampleSpec(msgspec.Struct, forbid_unknown_fields=True):
    """Some points of the whole."""

    points: int
    method: str = METHODS[0]
    seed: int = 0


class SearchSpec(msgspec.Struct, forbid_unknown_fields=True):
    """What `et-sim search` looks for, and how much it may evaluate."""

    minimise: list[str] = []
    maximise: list[str] = []
    constraints: list[str] = []
    budget: int | None = None
    method: str | None = None
    seed: int = 0
    ladder: list[str] = []
    keep: int | None = None
    at_once: int = msgspec.field(name="at-once", default=8)


class SweepSpec(msgspec.Struct, forbid_unknown_fields=True):
    """The whole file."""

    base: BaseSpec
    axes: dict[str, Any]  # lists, or of the shape of AxisSpec
    zip: list[list[str]] = []
    sample: SampleSpec | None = None
    constraints: list[str] = []
    search: SearchSpec | None = None


@dataclass(frozen=True, slots=True)
class Text:
    """Where things stand, for refusals."""

    place: str
    content: str | None = None  # of a file

    def at(self, *path: str | int) -> str:
        """The place of what a path of keys leads to, with its line if there are lines."""
        line = None if self.content is None else _line(self.content, path)
        return self.place if line is None else f"{self.place}: line {line}"


@dataclass(frozen=True, slots=True)
class Sweep:
    """What is to be varied, and how."""

    text: Text
    folder: Path  # that files are named from
    base: BaseSpec
    axes: tuple[Axis, ...]
    zipped: tuple[tuple[str, ...], ...]
    sample: SampleSpec | None
    conditions: tuple[Condition, ...]
    search: SearchSpec | None

    def points(self) -> list[Values]:
        """The values of all points that meet the constraints."""
        try:
            candidates: Iterator[Values] = (
                grid(self.axes, self.zipped)
                if self.sample is None
                else sample(self.axes, self.sample.method, self.sample.points, self.sample.seed)
            )
            found = admitted(candidates, self.axes, self.conditions)
        except InputError as error:
            raise _placed(error, self.text.place) from None
        if not found:
            raise InputError(
                "no combination of the axes meets the constraints", place=self.text.at("constraints")
            )
        return found


def read_spec(given: Given) -> Sweep:
    """The sweep of a file, or of a dict with the keys of one."""
    if isinstance(given, Mapping):
        return _sweep(dict(given), Text(NAMELESS), Path())
    path = Path(given)
    try:
        content = path.read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as error:
        reason = "there is no such file" if isinstance(error, FileNotFoundError) else _reason(error)
        remedy = "name a YAML file that describes the sweep"
        remedy = "name the file, not its folder" if is_folder(path) else remedy
        raise UsageError(f"the sweep cannot be read: {reason}", place=str(path), remedy=remedy) from None
    found = parse_yaml(content, str(path))
    if not isinstance(found, dict):
        raise InputError(
            "is no description of a sweep", place=str(path), remedy='give it the keys "base" and "axes"'
        )
    return _sweep(found, Text(str(path), content), path.parent)


def _reason(error: Exception) -> str:
    return (error.strerror or str(error)) if isinstance(error, OSError) else str(error)


def _sweep(content: dict[str, Any], text: Text, folder: Path) -> Sweep:
    _refuse_unknown(content, text)
    spec = _converted(content, SweepSpec, text, ())
    if not spec.axes:
        raise InputError("has no axes", place=text.at("axes"), remedy="name a field and its values")
    axes = tuple(_axis(name, given, text) for name, given in spec.axes.items())
    _refuse_twice(axes, text)
    _check_base(spec.base, axes, text)
    _check_zip(spec, text)
    _check_sample(spec, text)
    return Sweep(
        text,
        folder,
        spec.base,
        axes,
        tuple(map(tuple, spec.zip)),
        spec.sample,
        _conditions(spec, axes, text),
        spec.search,
    )


def _conditions(spec: SweepSpec, axes: tuple[Axis, ...], text: Text) -> tuple[Condition, ...]:
    found = []
    for number, one in enumerate(spec.constraints):
        try:
            found.append(parse_condition(one, [axis.name for axis in axes]))
        except InputError as error:
            raise _placed(error, text.at("constraints", number)) from None
    return tuple(found)


def _refuse_unknown(content: dict[str, Any], text: Text) -> None:
    """Refuse keys that are not known, with the nearest one that is."""
    axes = content.get("axes")
    shapes: list[tuple[tuple[str, ...], Any, type[msgspec.Struct]]] = [((), content, SweepSpec)]
    shapes += [
        ((key,), content.get(key), shape)
        for key, shape in (("base", BaseSpec), ("sample", SampleSpec), ("search", SearchSpec))
    ]
    for name, axis in axes.items() if isinstance(axes, dict) else ():
        shapes.append((("axes", name), axis, AxisSpec))
        if isinstance(axis, dict):
            shapes.append((("axes", name, "range"), axis.get("range"), RangeSpec))
    for path, value, shape in shapes:
        known = [field.encode_name for field in msgspec.structs.fields(shape)]
        for key in value if isinstance(value, dict) else ():
            if key not in known:
                remedy = did_you_mean(str(key), known) or f"known: {', '.join(known)}"
                where = f" in {'.'.join(path)}" if path else ""
                raise InputError(
                    f"key {str(key)!r} is not known{where}", place=text.at(*path, key), remedy=remedy
                )


def _converted(content: Any, shape: type[Shape], text: Text, above: tuple[str, ...]) -> Shape:
    """The content in its shape; what does not fit is refused with its place, which lies in `above`."""
    try:
        return msgspec.convert(content, shape)
    except msgspec.ValidationError as error:
        raise _invalid(str(error), text, above) from None


def _invalid(message: str, text: Text, above: tuple[str, ...]) -> InputError:
    """What msgspec says, as a sentence with a place."""
    match = _PLACE.match(message)
    assert match is not None
    steps = re.findall(r"\.([^.\[]+)|\[(\d+|\.\.\.)\]", match[2] or "")
    path = [*above, *(key or (int(place) if place.isdigit() else place) for key, place in steps)]
    words = _TICKS.sub(
        lambda tick: " or ".join(_NAMES.get(w, f'"{w}"') for w in tick[1].split(" | ")), match[1]
    )
    where = f"{'.'.join(map(str, path))}: " if path else ""
    return InputError(f"{where}{words[0].lower()}{words[1:]}", place=text.at(*path))


def _axis(name: str, given: Any, text: Text) -> Axis:
    if isinstance(given, list):
        spec = AxisSpec(values=given)
    else:
        spec = _converted(given, AxisSpec, text, ("axes", name))
    place = text.at("axes", name)
    try:
        if name.lower() in _COLUMNS:  # SQL does not tell capital letters from small ones
            raise InputError(
                f"no axis can be called {name!r}: the table has such a column", remedy="rename it"
            )
        if not name.strip():
            raise InputError("an axis has no name", remedy="call it by its field, such as tp")
        field = parse_field(name if spec.field is None else spec.field)
        if (spec.values is None) == (spec.range is None):
            raise InputError(f"axis {name!r} needs either values or a range", remedy="give it one of them")
        if spec.values is not None:
            if not spec.values:
                raise InputError(f"axis {name!r} has no values", remedy="list at least one")
            return Axis(name, field, tuple(spec.values))
        assert spec.range is not None
        one = spec.range
        if not field.path:
            raise InputError(f"axis {name!r} has a range, and {field} is no number", remedy="list its values")
        if one.scale not in SCALES:
            remedy = did_you_mean(one.scale, SCALES) or f"known: {', '.join(SCALES)}"
            raise InputError(f"scale is {one.scale!r}", remedy=remedy)
        return Axis(name, field, range=Range(one.first, one.last, one.count, one.scale == SCALES[1]))
    except InputError as error:
        raise _placed(error, place) from None


def _refuse_twice(axes: tuple[Axis, ...], text: Text) -> None:
    """One field has one axis, and one name; of a whole input and its fields, the input is taken first."""
    for number, axis in enumerate(axes):
        for other in axes[:number]:
            if axis.name.lower() == other.name.lower():
                raise InputError(
                    f"two axes have one name but for capital letters: {other.name} and {axis.name}",
                    place=text.at("axes", axis.name),
                    remedy="rename one of them: SQL cannot tell them apart",
                )
            pair: tuple[Field, Field] = (axis.field, other.field)
            overlap = pair[0].holds(pair[1]) or pair[1].holds(pair[0])
            if overlap and (pair[0] == pair[1] or all(field.path for field in pair)):
                raise InputError(
                    f"two axes change one field: {other.name} and {axis.name} ({axis.field})",
                    place=text.at("axes", axis.name),
                    remedy="leave one of them out",
                )


def _check_base(base: BaseSpec, axes: tuple[Axis, ...], text: Text) -> None:
    """What a run needs must be there, or an axis."""
    varied = {axis.field.root for axis in axes if not axis.field.path}
    has_machine = base.machine is not None or "machine" in varied
    for name in _ALWAYS_READ:
        if getattr(base, name) is None and name not in varied and not (has_machine and name != "workload"):
            remedy = f'add "{name}" to base' + ("" if name == "workload" else ', or a "machine" by its name')
            raise InputError(f"the {name} is missing", place=text.at("base"), remedy=remedy)
    for axis in axes:
        root = axis.field.root
        there = getattr(base, root) is not None or root in varied
        if axis.field.path and not there and not (has_machine and root in ("system", "network")):
            raise InputError(
                f"axis {axis.name!r} changes the {root}, and there is none",
                place=text.at("axes", axis.name),
                remedy=f'add "{root}" to base',
            )


def _check_zip(spec: SweepSpec, text: Text) -> None:
    seen: set[str] = set()
    for number, names in enumerate(spec.zip):
        place = text.at("zip", number)
        if len(names) < 2:
            raise InputError(
                "a zip names fewer than two axes", place=place, remedy="name those that advance together"
            )
        for name in names:
            if name not in spec.axes:
                remedy = did_you_mean(name, list(spec.axes)) or f"axes: {', '.join(spec.axes)}"
                raise InputError(f"zip names {name!r}, which is no axis", place=place, remedy=remedy)
            if name in seen:
                raise InputError(f"axis {name!r} is zipped twice", place=place, remedy="name it once")
            seen.add(name)


def _check_sample(spec: SweepSpec, text: Text) -> None:
    one = spec.sample
    if one is None:
        return
    if one.method not in METHODS:
        remedy = did_you_mean(one.method, METHODS) or f"known: {', '.join(METHODS)}"
        raise InputError(
            f"the method of the sample is {one.method!r}", place=text.at("sample", "method"), remedy=remedy
        )
    if not 1 <= one.points <= MOST_CANDIDATES:
        raise InputError(
            f"the sample has {one.points} points",
            place=text.at("sample", "points"),
            remedy=f"give 1 to {MOST_CANDIDATES:,}",
        )
    if spec.zip:
        raise InputError(
            "a sample takes every axis by itself", place=text.at("zip"), remedy="leave zip or sample out"
        )


def _placed(error: InputError, place: str) -> InputError:
    """The same refusal, with its place."""
    return InputError(error.cause, place=error.place or place, remedy=error.remedy)


def _line(content: str, path: tuple[str | int, ...]) -> int | None:
    """The line of the last thing that a path of keys leads to."""
    import yaml

    node = yaml.compose(content, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    line = None
    for step in path:
        if isinstance(node, yaml.MappingNode):
            found = next((pair for pair in node.value if pair[0].value == str(step)), None)
            if found is None:
                break
            line, node = found[0].start_mark.line + 1, found[1]
        elif isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
            node = node.value[step]
            line = node.start_mark.line + 1
        else:
            break
    return line
