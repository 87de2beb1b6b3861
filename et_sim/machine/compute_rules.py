"""The key `compute` of the system file: which model times which kernels, as rules.

A new model is a module and a line in `MODELS`. Not here: whether operations and attributes exist that rules
name, and applying rules (`et_sim.compute`).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Any, ClassVar, Protocol, Self

from et_sim.basics.lazy_names import loaded
from et_sim.basics.patterns import matching
from et_sim.basics.quick_dataclass import quick_dataclass
from et_sim.documents.keys import (
    Key,
    Kind,
    Remarks,
    Section,
    Slot,
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
    """What a device does with a node."""

    KERNEL = "kernel"
    COPY = "copy"


@quick_dataclass(frozen=True)
class Recorded:
    """Kernels take their recorded times."""

    timer: ClassVar[str] = "et_sim.compute.registry:replay"
    scope: ClassVar[Scope | None] = None

    @property
    def figures(self) -> tuple[str, ...]:
        """None."""
        return ()

    def scaled(self, name: str, multiple: float) -> None:
        """There is nothing to multiply."""


class Settings(Protocol):
    """What a model needs to time kernels: a class whose fields are its keys.

    `timer` is `module:name` of what makes a `TimingModel` of it and a rule's label and place; `scope` is what
    its times include and leave out.
    """

    timer: ClassVar[str]
    scope: ClassVar[Scope | None]

    @property
    def figures(self) -> tuple[str, ...]:
        """Names of what can be multiplied, as the critical path has them where it can predict them."""

    def scaled(self, name: str, multiple: float) -> tuple[Self, float] | None:
        """The same with one of them multiplied, and by what in the end; None: it has no such figure."""


def _text_or_number(slot: Slot, value: Any) -> str | int:
    if isinstance(value, str) or type(value) in (int, bool):
        return value  # type: ignore[no-any-return]
    raise slot.refusal(value)


TEXT_OR_NUMBER = Kind(
    "text or whole number", lambda _: "a text in quotes, or a whole number", _text_or_number
)


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())


@quick_dataclass(frozen=True)
class Where:
    """Nodes of which all that is given holds."""

    name: str | None = text('Nodes with this name; `*` stands for any text: `"*gemm*"`.', None)
    kind: WorkOf | None = choice(
        "`copy`: nodes marked as copies of the device's memory; `kernel`: all others.", None, choices=WorkOf
    )
    operations: tuple[str, ...] = text(
        "Nodes whose `layer_shape` begins with this word; several with commas between.",
        (),
        name="operation",
        becomes=_words,
    )
    datatype: str | None = key(DATATYPE, "Nodes whose attribute `dtype` is this one.", None, name="dtype")
    attribute: str | None = text("Nodes that carry this attribute.", None)
    value: str | int | None = key(
        TEXT_OR_NUMBER, "The attribute's value. Without the key: any.", None, needs="attribute"
    )
    ranks: tuple[range, ...] | None = ranks("Which ranks.", None)  # None: all
    regex: str | None = text(
        "Nodes whose whole name matches this regular expression of RE2.", None, name="name-regex"
    )

    @staticmethod
    def complete(given: Mapping[str, Any], section: Section, _: Remarks) -> dict[str, Any]:
        """Refuse two patterns of names, and what is no regular expression."""
        if not given:
            raise section.fault("nothing is said of the kernels", 'leave "where" out for all')
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


@quick_dataclass(frozen=True, eq=False)
class ComputeRule:
    """A model for some kernels."""

    settings: Settings
    label: str  # what the timeline calls the model
    where: Where | None = None  # None: all that are left
    place: str = ""


NAME = "compute"
MODEL, WHERE, LABEL = "model", "where", "label"
MOST_RULES = 100
# The settings of each, as `module:name`.
MODELS: Mapping[str, str] = MappingProxyType(
    {
        "roofline": "et_sim.machine.roofline:RooflineDevice",
        "systolic": "et_sim.machine.systolic:ClockedArray",
        "table": "et_sim.machine.operator_times:OperatorTimes",
        "replay": f"{__name__}:Recorded",
    }
)
RULE_KEYS = (
    Key(
        MODEL,
        TEXT,
        f"What times the kernels: {', '.join(f'`{name}`' for name in MODELS)}. The last one takes their "
        "recorded times, and has no other keys.",
        required=True,
    ),
    Key(
        WHERE,
        OBJECT,
        "Which kernels: all that is given must hold. Without the key: all that no rule before has.",
        of=Where,
    ),
    Key(LABEL, TEXT, "What the timeline calls the rule in `timed_by`. Without the key: the model."),
)


def _rules(slot: Slot, value: Any) -> tuple[ComputeRule, ...]:
    """A single model is one rule."""
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
    """A rule's own keys, and those of its model beside them."""
    model = section.content.get(MODEL)
    if isinstance(model, str) and model not in MODELS:
        remedy = f"{nearest(model, tuple(MODELS))} allowed: {', '.join(MODELS)}".strip()
        raise section.fault(f'key "{MODEL}" is {show(model)}', remedy)
    settings = loaded(MODELS[model]) if isinstance(model, str) else Recorded
    given = read_keys(section, (*RULE_KEYS, *keys_of(settings)), remarks)
    built = build(settings, given, section, remarks)
    return ComputeRule(built, given.get(LABEL, given[MODEL]), given.get(WHERE), section.place)


COMPUTE = Kind(
    "object, or list of objects",
    lambda _: "an object that names a model, or a list of such objects",
    _rules,
)
