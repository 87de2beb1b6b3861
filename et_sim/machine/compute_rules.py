"""The key `compute` of the system file: the rules that assign timing models to kernels.

A new model is a module and an entry of `MODELS`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Any, ClassVar, Protocol, Self

from msgspec import Struct

from et_sim.basics.lazy_names import loaded
from et_sim.documents.keys import (
    Key,
    Remarks,
    Section,
    Slot,
    ValueKind,
    build,
    key,
    keys_of,
    nearest,
    read_keys,
    show,
)
from et_sim.documents.kinds import OBJECT, TEXT, choice, ranks, text
from et_sim.machine.datatypes import DATATYPE

Scope = tuple[str, str]


class WorkOf(StrEnum):
    """The kind of work of a node on a device."""

    KERNEL = "kernel"
    COPY = "copy"


class RecordedTimes(Struct, frozen=True):
    """The model by which kernels take their recorded times."""

    timer: ClassVar[str] = "et_sim.compute.registry:replay"
    scope: ClassVar[Scope | None] = None

    @property
    def figures(self) -> tuple[str, ...]:
        """Return no names."""
        return ()

    def scaled(self, name: str, multiple: float) -> None:
        """Return None: recorded times have no figures."""


class Settings(Protocol):
    """The settings of a model: a class whose fields are its keys.

    `timer` is the `module:name` of the function that makes a `TimingModel` from the settings, the label and
    the place of a rule; `scope` describes what its times include and leave out.
    """

    timer: ClassVar[str]
    scope: ClassVar[Scope | None]

    @property
    def figures(self) -> tuple[str, ...]:
        """Return the names of figures that can be multiplied, as the critical path shows them."""

    def scaled(self, name: str, multiple: float) -> tuple[Self, float] | None:
        """Return the settings with a figure multiplied, and the multiple applied; None without the figure."""


def _text_or_number(slot: Slot, value: Any) -> str | int:
    if isinstance(value, str) or type(value) in (int, bool):
        return value  # type: ignore[no-any-return]
    raise slot.refusal(value)


TEXT_OR_NUMBER = ValueKind(
    "text or whole number", lambda _: "a text in quotes, or a whole number", _text_or_number
)


class Where(Struct, frozen=True):
    """The conditions of a rule, all of which a node must meet."""

    name: str | None = text('Nodes with this name; `*` stands for any text: `"*gemm*"`.', None)
    kind: WorkOf | None = choice(
        "`copy`: nodes marked as copies of the device's memory; `kernel`: all others.", None, choices=WorkOf
    )
    operations: tuple[str, ...] = text(
        "Nodes whose `layer_shape` begins with this word; several with commas between.",
        (),
        name="operation",
        becomes=lambda text: tuple(word.strip() for word in text.split(",") if word.strip()),
    )
    datatype: str | None = key(DATATYPE, "Nodes whose attribute `dtype` is this one.", None, name="dtype")
    attribute: str | None = text("Nodes that carry this attribute.", None)
    value: str | int | None = key(
        TEXT_OR_NUMBER, "The attribute's value. Without the key: any.", None, needs="attribute"
    )
    ranks: tuple[range, ...] | None = ranks("Nodes of these ranks.", None)  # None: all
    regex: str | None = text(
        "Nodes whose whole name matches this regular expression of RE2.", None, name="name-regex"
    )

    @staticmethod
    def complete(given: Mapping[str, Any], section: Section, _: Remarks) -> dict[str, Any]:
        """Refuse an empty object, two patterns of names, and an invalid regular expression."""
        from et_sim.basics.patterns import matching

        if not given:
            raise section.fault('"where" is empty', "leave it out for all kernels")
        if "name" in given and "name-regex" in given:
            raise section.fault('keys "name" and "name-regex" are both given', "leave one out")
        regex = given.get("name-regex")
        try:
            if regex is not None:
                matching(regex, ())
        except ValueError as error:
            remedy = "give a regular expression of RE2, without lookahead and back-references"
            raise section.fault(f'key "name-regex" is {show(regex)}: {error}', remedy) from None
        return {}


class ComputeRule(Struct, frozen=True, eq=False):
    """A model for some kernels."""

    settings: Settings
    label: str  # name of the model in the timeline
    where: Where | None = None  # None: all remaining kernels
    place: str = ""


NAME = "compute"
MODEL, WHERE, LABEL = "model", "where", "label"
MOST_RULES = 100
# Settings of each model, as `module:name`.
MODELS: Mapping[str, str] = MappingProxyType(
    {
        "roofline": "et_sim.machine.roofline:RooflineDevice",
        "systolic": "et_sim.machine.systolic:ClockedArray",
        "table": "et_sim.machine.operator_times:OperatorTimes",
        "replay": f"{__name__}:RecordedTimes",
    }
)
RULE_KEYS = (
    Key(
        MODEL,
        TEXT,
        f"The timing model: {', '.join(f'`{name}`' for name in MODELS)}. The last one takes recorded "
        "times, and has no other keys.",
        required=True,
    ),
    Key(
        WHERE,
        OBJECT,
        "The kernels of the rule. Without the key: all that match no earlier rule.",
        of=Where,
    ),
    Key(LABEL, TEXT, "The name of the rule in `timed_by` of the timeline. Without the key: the model."),
)


def _rules(slot: Slot, value: Any) -> tuple[ComputeRule, ...]:
    """Read a list of rules, or a single model as one rule."""
    section = slot.section
    entries = [value] if isinstance(value, dict) else value
    if not isinstance(entries, list) or not entries or not all(isinstance(rule, dict) for rule in entries):
        raise slot.refusal(value)
    if len(entries) > MOST_RULES:
        raise section.fault(f'key "{NAME}" has {len(entries)} rules', f"allowed: at most {MOST_RULES}")
    return tuple(
        _rule(section.entry(NAME, rule, None if len(entries) == 1 else index), slot.remarks)
        for index, rule in enumerate(entries)
    )


def _rule(section: Section, remarks: Remarks) -> ComputeRule:
    """Read the keys of a rule and of its model."""
    model = section.content.get(MODEL)
    if isinstance(model, str) and model not in MODELS:
        remedy = f"{nearest(model, tuple(MODELS))} allowed: {', '.join(MODELS)}".strip()
        raise section.fault(f'key "{MODEL}" is {show(model)}', remedy)
    settings = loaded(MODELS[model]) if isinstance(model, str) else RecordedTimes
    given = read_keys(section, (*RULE_KEYS, *keys_of(settings)), remarks)
    built = build(settings, given, section, remarks)
    return ComputeRule(built, given.get(LABEL, given[MODEL]), given.get(WHERE), section.place)


COMPUTE = ValueKind(
    "object, or list of objects",
    lambda _: "an object that names a model, or a list of such objects",
    _rules,
)
