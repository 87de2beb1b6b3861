"""Words of sources for software, plans and datatypes, and their meaning here: `phrases.json`.

A text of software is a product, and optionally a year or a release; the first entry whose words are in the
text, and whose years include it, gives the description. Clauses of a note are read one by one, in the same
way.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

import msgspec
from msgspec import Struct

_RELEASE = re.compile(r"(?<![\d.])(2\d)\.(?:0[1-9]|1[0-2])(?!\d)")  # such as 25.11
_YEAR = re.compile(r"(?<!\d)(20[12]\d)(?:0[1-9]|1[0-2])?(?!\d)")
_ARXIV = re.compile(r"(?<!\d)(\d\d)(?:0[1-9]|1[0-2])\.\d{4,5}(?!\d)")
_POWER = re.compile(r"(?<![\d.])(\d+(?:\.\d+)?) ?(k?W)\b")
_CLAUSES = re.compile(r"\s*;\s*")
NODE = "node"  # in place of a number of replicas: the devices of a node


class NamedProduct(Struct, frozen=True, forbid_unknown_fields=True):
    """A product as sources name it."""

    words: list[str]  # the text has all of them
    software: str
    since: int = 0  # years; an entry with years does not match a text without one
    until: int = 9999
    plan: dict[str, Any] = {}
    source: str = ""

    def holds(self, text: str, year: int) -> bool:
        """Check whether a text matches the product."""
        is_bound = self.since > 0 or self.until < 9999
        patterns = (rf"(?<![a-z0-9]){re.escape(word)}(?![a-z0-9])" for word in self.words)
        has_words = all(re.search(pattern, text) for pattern in patterns)
        return has_words and (self.since <= year <= self.until if year else not is_bound)


class Phrase(Struct, frozen=True, forbid_unknown_fields=True):
    """A clause of a note."""

    pattern: str
    plan: dict[str, Any] = {}  # `\1` is the first group of the pattern
    lacks: str = ""  # part of the clause that the prediction does not use
    model: str = ""  # the clause is for models with this word in their names
    dense_layers: int = -1

    def values(self, match: re.Match[str]) -> dict[str, Any]:
        """Return the fields of the plan that the clause gives."""
        return {
            key: match.expand(value) if isinstance(value, str) else value for key, value in self.plan.items()
        }


class Site(Struct, frozen=True, forbid_unknown_fields=True):
    """Hardware that a source states once for all its rows."""

    pattern: str
    of: str  # machine of the rows
    machine: str  # its replacement
    source: str


class MeasuringProgram(Struct, frozen=True, forbid_unknown_fields=True):
    """A program whose collectives are launched by one process for a node."""

    words: str  # in the text of a source
    source: str


class Phrases(Struct, frozen=True, forbid_unknown_fields=True):
    """The content of the file."""

    about: str
    software: list[NamedProduct]
    notes: list[Phrase]
    hardware: list[Site]
    process_per_node: list[MeasuringProgram]
    precisions: dict[str, str]  # `products` of a plan


class NoteMeaning(Struct, frozen=True):
    """The meaning of a note."""

    plan: Mapping[str, Any]
    dense_layers: int | None
    remarks: tuple[str, ...]


@cache
def phrases() -> Phrases:
    """Read the file."""
    text = (files("et_sim.validation") / "phrases.json").read_text(encoding="utf-8")
    return msgspec.json.decode(text, type=Phrases)


def software_of(text: str, source: str) -> NamedProduct | None:
    """Return the entry of a text of software, or None if it is not known.

    The year is that of the text, else that of the source.
    """
    lowered = text.lower().replace("_", " ")
    year = year_of(text) or year_of(source)
    return next((product for product in phrases().software if product.holds(lowered, year)), None)


def has_process_per_node(source: str) -> bool:
    """Check whether a source is of a program with one process for the GPUs of a node."""
    return any(program.words in source for program in phrases().process_per_node)


def unknown_software(text: str) -> str:
    """Return the remark on software without an entry."""
    return f"software {text!r} is not known: the default" if text else "software is not stated: the default"


def year_of(text: str) -> int:
    """Return the year of a text, from a date, a release or a paper's number; 0: it has none."""
    for pattern, base in ((_RELEASE, 2000), (_ARXIV, 2000), (_YEAR, 0)):
        if match := pattern.search(text):
            return base + int(match[1])
    return 0


def power_of(hardware: str) -> str:
    """Return the power cap in a text of hardware, such as 500W; empty: none."""
    match = _POWER.search(hardware)
    return f"{match[1]}{match[2]}" if match else ""


def machine_of_source(source: str, machine: str) -> str:
    """Return the machine of a row, with the hardware that its source states for all rows."""
    sites = (site for site in phrases().hardware if site.of == machine and re.search(site.pattern, source))
    return next((site.machine for site in sites), machine)


def read_note(note: str, model: str = "") -> NoteMeaning:
    """Return the meaning of a note's clauses; unknown clauses become remarks."""
    plan: dict[str, Any] = {}
    dense_layers: int | None = None
    remarks: list[str] = []
    for clause in filter(None, _CLAUSES.split(note.strip())):
        matches = ((phrase, re.search(phrase.pattern, clause)) for phrase in phrases().notes)
        found = [(phrase, match) for phrase, match in matches if match]
        if not found:
            remarks.append(f"note {clause!r} is not understood")
        for phrase, match in found[:1]:
            plan.update(phrase.values(match))
            if phrase.lacks:
                remarks.append(f"note {clause!r}: {phrase.lacks}")
            if phrase.dense_layers >= 0 and phrase.model in model:
                dense_layers = phrase.dense_layers
    return NoteMeaning(plan, dense_layers, tuple(remarks))


def fitting(plan: Mapping[str, Any], node: int) -> dict[str, Any]:
    """Return the fields of a plan that apply to its axes; `node` is the size of a node."""
    values = dict(plan)
    tensor, pipeline, data = (int(values.get(axis, 1)) for axis in ("tensor", "pipeline", "data"))
    if values.get("shard") == NODE:
        values["shard"] = node if node and data > node and data % node == 0 else 0
    if tensor == 1:
        values |= {"sequence_parallel": False, "tensor_overlap": 1}
    if tensor == 1 or pipeline == 1:
        values["scatter_gather"] = False
    if not values.get("zero"):
        values.pop("shard", None)
    return values
