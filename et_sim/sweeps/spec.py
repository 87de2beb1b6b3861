"""The description of a sweep: a YAML file, or a dict with its keys, read strictly."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from et_sim.basics.errors import InputError, UsageError, did_you_mean, unreadable
from et_sim.basics.files import is_folder
from et_sim.documents.keys import Remarks, Section, Slot, ValueKind, key, read, show
from et_sim.documents.kinds import choice, count, flag, of_type, section, text
from et_sim.documents.kinds import number as real
from et_sim.machine.texts import parse_yaml
from et_sim.run.options import FEWEST_SAMPLES, MOST_SAMPLES
from et_sim.sweeps.axes import METHODS, MOST_CANDIDATES, Range, SweepAxis, Values, admitted, grid, sample
from et_sim.sweeps.expressions import Condition, parse_condition
from et_sim.sweeps.fields import InputField, parse_field
from et_sim.tables.sweep_tables import FIGURES, NUMBER

Given = str | Path | Mapping[str, Any]
NAMELESS = "<sweep>"
_COLUMNS = (NUMBER, *(figure.name for figure in FIGURES))
MODEL, WHEN_FULL = "model", "when-full"
OPTIONS = {
    MODEL: ("--network-model", "network models"),
    WHEN_FULL: ("--when-full", "the treatment of full runs"),
}
_ALWAYS_READ = ("workload", "system", "network")


def _names(slot: Slot, value: Any) -> list[str]:
    if isinstance(value, list) and all(isinstance(name, str) for name in value):
        return value
    raise slot.refusal(value)


def _lists(slot: Slot, value: Any) -> list[list[str]]:
    if isinstance(value, list):
        return [_names(slot, names) for names in value]
    raise slot.refusal(value)


INPUT = of_type("file or object", "the path of a file, or an object with its keys", str, dict)
LIST = of_type("list", "a list", list)
OBJECT_OF_ANY = of_type("object", "an object", dict)
NAMES = ValueKind("list of texts", lambda _: "a list of texts", _names)
LISTS = ValueKind("list of lists", lambda _: "a list of lists of texts", _lists)


def _input(meaning: str) -> Any:
    return key(INPUT, meaning, None)


def _texts(meaning: str, **more: Any) -> Any:
    return key(NAMES, meaning, (), becomes=list, **more)


class MonthsSpec(Struct, frozen=True):
    """Months of a long job whose step is that of a point."""

    job: str | dict[str, Any] = key(
        INPUT, "The job, as of et-sim goodput, without its step: a file, or its keys.", required=True
    )
    days: float = real("Days of each month.", 30.0, above_minimum=True, maximum=3660)
    runs: int = count("Months to draw.", 100, minimum=1, maximum=1_000_000)
    seed: int = count("The seed of the draws.", 0)


class BaseSpec(Struct, frozen=True):
    """The run that axes change."""

    workload: str | dict[str, Any] | None = _input("The workload.")
    system: str | dict[str, Any] | None = _input("The system file.")
    network: str | dict[str, Any] | None = _input("The network file.")
    memory: str | dict[str, Any] | None = _input("The memory file.")
    groups: str | dict[str, Any] | None = _input("The groups file.")
    machine: str | None = text("A machine by its name, in place of files.", None)
    model: str | None = text("The network model.", None)
    profile: str | None = text("The profile.", None)
    when_full: str | None = text("The treatment of a run that needs more memory than there is.", None)
    ties_alike: bool = flag(
        "As --ties-alike of et-sim run: folded ranks take events of one time in one order.", False
    )
    samples: int | None = count(
        "Samples of the step at each point, for `mean_ns`, `p50_ns` and `p99_ns`.",
        None,
        minimum=FEWEST_SAMPLES,
        maximum=MOST_SAMPLES,
    )
    seed: int | None = count("The seed of the samples, which all points share.", None, needs="samples")
    goodput: MonthsSpec | None = section(
        "Months of a long job with the step of each point, for `goodput` and `kept_tokens`.",
        None,
        of=MonthsSpec,
    )


class AxisSpec(Struct, frozen=True):
    """An axis; a bare list stands for `values`."""

    field: str | None = text("The field that changes; by default, the name of the axis.", None)
    values: list[Any] | None = key(LIST, "Its values.", None)
    range: Range | None = section("Its values, as a range.", None, of=Range)


class SampleSpec(Struct, frozen=True):
    """A sample of the points."""

    points: int = count("The number of points.", minimum=1, maximum=MOST_CANDIDATES, required=True)
    method: str = choice("The method of choice.", METHODS[0], choices=METHODS)
    seed: int = count("The seed of random numbers.", 0)


class SearchSpec(Struct, frozen=True):
    """The goal and the budget of `et-sim search`."""

    minimise: list[str] = _texts("Figures to minimise.")
    maximise: list[str] = _texts("Figures to maximise.")
    constraints: list[str] = _texts("Conditions on figures and axes.")
    budget: int | None = count("Points that may be evaluated.", None, minimum=1)
    method: str | None = text("The method that chooses points.", None)
    seed: int = count("The seed of random numbers.", 0, maximum=2**32 - 1)
    ladder: list[str] = _texts("Network models, the cheapest first.")
    keep: int | None = count(
        "The number of points that pass to the next model of the ladder.", None, minimum=1
    )
    at_once: int = count("Points that are evaluated at once.", 8, minimum=1, maximum=10_000)
    within: float = real(
        "The search ends when bounds show that no other point is better by more than this share.", 0.0
    )
    runners_up: int = count("Points besides the best one that are evaluated in any case.", 0)


class SweepSpec(Struct, frozen=True):
    """The whole file."""

    base: BaseSpec = section("The run that axes change.", None, of=BaseSpec, required=True)
    axes: dict[str, Any] = key(
        OBJECT_OF_ANY, "Lists of values, or objects with the keys of an axis.", None, required=True
    )
    zip: list[list[str]] = key(LISTS, "Axes that advance together.", (), becomes=list)
    sample: SampleSpec | None = section("Some points of the whole.", None, of=SampleSpec)
    constraints: list[str] = _texts("Conditions that points must meet.")
    search: SearchSpec | None = section("The goal of a search.", None, of=SearchSpec)


def _without_nothing(value: Any) -> Any:
    """Return an object without keys that have no value."""
    is_object = isinstance(value, dict)
    return {key: entry for key, entry in value.items() if entry is not None} if is_object else value


class Sweep(Struct, frozen=True):
    """A checked description of a sweep."""

    section: Section  # the whole description
    folder: Path  # base of relative file names
    base: BaseSpec
    axes: tuple[SweepAxis, ...]
    zipped: tuple[tuple[str, ...], ...]
    sample: SampleSpec | None
    conditions: tuple[Condition, ...]
    search: SearchSpec | None

    def points(self) -> list[Values]:
        """Return the values of all points that meet the constraints."""
        try:
            candidates: Iterator[Values] = (
                grid(self.axes, self.zipped)
                if self.sample is None
                else sample(self.axes, self.sample.method, self.sample.points, self.sample.seed)
            )
            points = admitted(candidates, self.axes, self.conditions)
        except InputError as error:
            raise _placed(error, self.section.place) from None
        if not points:
            raise InputError(
                "no combination of the axes meets the constraints", place=self.section.at("constraints")
            )
        return points


def read_spec(given: Given, model: str | None = None, when_full: str | None = None) -> Sweep:
    """Return the sweep of a file or dict; `model` and `when_full` override its base."""
    instead = {MODEL: model, WHEN_FULL: when_full}
    if isinstance(given, Mapping):
        return _sweep(dict(given), NAMELESS, Path(), instead)
    path = Path(given)
    try:
        content = path.read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as error:
        reason = "there is no such file" if isinstance(error, FileNotFoundError) else unreadable(error)
        remedy = "name a YAML file that describes the sweep"
        remedy = "name the file, not its folder" if is_folder(path) else remedy
        raise UsageError(f"the sweep cannot be read: {reason}", place=str(path), remedy=remedy) from None
    parsed = parse_yaml(content, str(path))
    if not isinstance(parsed, dict):
        raise InputError(
            "is no description of a sweep", place=str(path), remedy='give it the keys "base" and "axes"'
        )
    return _sweep(parsed, str(path), path.parent, instead)


def _sweep(content: dict[str, Any], place: str, folder: Path, instead: dict[str, str | None]) -> Sweep:
    content = _without_nothing(content)
    content |= {key: _without_nothing(content[key]) for key in ("base", "sample", "search") if key in content}
    section = Section(place, content, error_type=InputError).lined
    spec = read(SweepSpec, section, Remarks())
    if not spec.axes:
        raise section.fault(
            "the sweep has no axes", 'name at least one field and its values under "axes"', key="axes"
        )
    axes = tuple(_axis(name, given, section) for name, given in spec.axes.items())
    base = spec.base
    for root, value in instead.items():
        if value is None:
            continue
        base = replace(base, **{root.replace("-", "_"): value})
        if any(axis.field.root == root for axis in axes):
            option, named = OPTIONS[root]
            raise section.fault(f"an axis names {named}, and {option} {value}", "leave one out", key="axes")
    _refuse_twice(axes, section)
    _check_base(base, axes, section)
    _check_zip(spec, section)
    if spec.sample is not None and spec.zip:
        raise section.fault("a sample takes every axis by itself", "leave zip or sample out", key="zip")
    return Sweep(
        section,
        folder,
        base,
        axes,
        tuple(map(tuple, spec.zip)),
        spec.sample,
        _conditions(spec, axes, section),
        spec.search,
    )


def _conditions(spec: SweepSpec, axes: tuple[SweepAxis, ...], section: Section) -> tuple[Condition, ...]:
    conditions = []
    for number, constraint in enumerate(spec.constraints):
        try:
            conditions.append(parse_condition(constraint, [axis.name for axis in axes]))
        except InputError as error:
            raise _placed(error, section.at("constraints", number)) from None
    return tuple(conditions)


def _axis(name: str, given: Any, section: Section) -> SweepAxis:
    if isinstance(given, list):
        spec = AxisSpec(values=given)
    elif isinstance(given, dict):
        inner = section.entry("axes", section.content["axes"]).entry(name, _without_nothing(given))
        spec = read(AxisSpec, inner, Remarks())
    else:
        cause = f"axis {name!r} is {show(given)}"
        raise InputError(cause, place=section.at("axes", name), remedy="give a list of values, or an object")
    place = section.at("axes", name)
    try:
        if name.lower() in _COLUMNS:  # SQL ignores case
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
            return SweepAxis(name, field, tuple(spec.values))
        if not field.path:
            raise InputError(f"axis {name!r} has a range, and {field} is no number", remedy="list its values")
        return SweepAxis(name, field, range=spec.range)
    except InputError as error:
        raise _placed(error, place) from None


def _refuse_twice(axes: tuple[SweepAxis, ...], section: Section) -> None:
    """Refuse two axes with one name or one field; a whole input and its fields may both vary."""
    for number, axis in enumerate(axes):
        for other in axes[:number]:
            if axis.name.lower() == other.name.lower():
                raise InputError(
                    f"two axes have one name but for capital letters: {other.name} and {axis.name}",
                    place=section.at("axes", axis.name),
                    remedy="rename one of them: SQL ignores case",
                )
            pair: tuple[InputField, InputField] = (axis.field, other.field)
            overlap = pair[0].holds(pair[1]) or pair[1].holds(pair[0])
            if overlap and (pair[0] == pair[1] or all(field.path for field in pair)):
                raise InputError(
                    f"two axes change one field: {other.name} and {axis.name} ({axis.field})",
                    place=section.at("axes", axis.name),
                    remedy="leave one of them out",
                )


def _check_base(base: BaseSpec, axes: tuple[SweepAxis, ...], section: Section) -> None:
    """Check that every required input is in the base, or an axis."""
    varied = {axis.field.root for axis in axes if not axis.field.path}
    has_machine = base.machine is not None or "machine" in varied
    for name in _ALWAYS_READ:
        if getattr(base, name) is None and name not in varied and not (has_machine and name != "workload"):
            remedy = f'add "{name}" to base' + ("" if name == "workload" else ', or a "machine" by its name')
            raise InputError(f"the {name} is missing", place=section.at("base"), remedy=remedy)
    for axis in (axis for axis in axes if axis.field.path):
        root = axis.field.root
        there = getattr(base, root) is not None or root in varied
        if not there and not (has_machine and root in ("system", "network")):
            raise InputError(
                f"axis {axis.name!r} changes the {root}, and there is none",
                place=section.at("axes", axis.name),
                remedy=f'add "{root}" to base',
            )


def _check_zip(spec: SweepSpec, section: Section) -> None:
    seen: set[str] = set()
    for number, names in enumerate(spec.zip):
        place = section.at("zip", number)
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


def _placed(error: InputError, place: str) -> InputError:
    """Return the refusal with its place."""
    return InputError(error.cause, place=error.place or place, remedy=error.remedy)
