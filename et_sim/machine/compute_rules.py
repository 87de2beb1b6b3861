"""Which kernels a compute model is for, and with what it times them.

Not here: the models (`compute_object`), and applying rules (`et_sim.compute.rules`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, ClassVar, Protocol, Self

from et_sim.basics.quick_dataclass import quick_dataclass
from et_sim.documents.keys import Key, Kind, Remarks, Section, Slot, key, show
from et_sim.documents.kinds import TEXT, choice, ranks, text
from et_sim.machine.datatypes import DATATYPE


class WorkOf(StrEnum):
    """What a device does with a node."""

    KERNEL = "kernel"
    COPY = "copy"


@quick_dataclass(frozen=True)
class Recorded:
    """Kernels take their recorded times."""

    @property
    def figures(self) -> tuple[str, ...]:
        """None."""
        return ()

    def scaled(self, name: str, multiple: float) -> None:
        """There is nothing to multiply."""


class Settings(Protocol):
    """What a model needs to time kernels: it names its own figures."""

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

    more_keys: ClassVar[tuple[Key, ...]] = (
        Key("name-regex", TEXT, "Nodes whose whole name matches this regular expression."),
    )
    name: str | None = text(  # a regular expression that the whole name matches
        'Nodes with this name; `*` stands for any text: `"*gemm*"`.', None
    )
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
    ranks: tuple[range, ...] | None = ranks(  # None: all
        'Which ranks: `"0-3,8"`, `"0-14/2"` for every second one, or `"all"`.', None
    )

    @staticmethod
    def complete(given: Mapping[str, Any], section: Section, _: Remarks) -> dict[str, Any]:
        """One pattern of names, of two forms."""
        if not given:
            raise section.fault("nothing is said of the kernels", 'leave "where" out for all')
        if "name" in given and "name-regex" in given:
            raise section.fault('keys "name" and "name-regex" are both given', "leave one out")
        name = given.get("name-regex")
        if "name" in given:
            name = ".*".join(map(re.escape, given["name"].split("*")))
        try:
            re.compile(name or "")
        except re.error as error:
            raise section.fault(
                f'key "name-regex" is {show(name)}: {error}', "give a regular expression"
            ) from None
        return {"name": name}


@quick_dataclass(frozen=True, eq=False)
class ComputeRule:
    """A model for some kernels."""

    settings: Settings
    label: str  # what the timeline calls the model
    where: Where | None = None  # None: all that are left
    place: str = ""
