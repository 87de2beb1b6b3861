"""Meanings of words: keys of input files, corrections, tables, columns, parts of time, options.

Everything comes from the registries of the readers, the tables and the command line.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase

from msgspec import Struct, field
from msgspec.structs import replace

from et_sim.basics.errors import UsageError, did_you_mean
from et_sim.documents.keys import Key, keys_of, show
from et_sim.documents.keys_without_effect import UNUSED_KEYS
from et_sim.documents.kinds import CHOICE, TEXT
from et_sim.glossary import terms
from et_sim.machine.corrections import CORRECTION_NOTES, Correction, Profile, behaviour_of
from et_sim.machine.topology.generators import GENERATORS
from et_sim.machine.topology.keys import Common
from et_sim.reference_page import SYSTEM, TABLES
from et_sim.reference_texts import GROUPS
from et_sim.tables.rank_tables import ACTORS
from et_sim.tables.registry import all_tables
from et_sim.tables.sweep_tables import OF_STEPS
from et_sim.views.summary.parts import PARTS

_LINK = re.compile(r"\[([^]]*)\]\([^)]*\)")


class Meaning(Struct, frozen=True):
    """A word's meaning; `place` is its file or command; `facts` are its default, allowed values, …"""

    name: str
    kind: str
    place: str
    text: str
    facts: Mapping[str, str] = field(default_factory=dict)
    also: tuple[str, ...] = ()  # other names of the word


def of_keys() -> Iterator[Meaning]:
    """Yield every key of every file, including keys without effect, and the values that have names."""
    yield Meaning("groups", "file", "groups file", plain(GROUPS.partition("```\n\n")[2]), also=("group",))
    for file in TABLES:
        for key in file.keys:
            example = _example(key, file.text)
            yield Meaning(key.name, "key", file.name, plain(key.meaning), _facts(key) | example)
    yield from _of_generators()
    for name, why in UNUSED_KEYS.items():
        yield Meaning(name, "key without effect", "any other input file", f"Accepted with a warning: {why}.")
    for file in TABLES:
        for key in file.keys:
            if key.kind in (CHOICE, TEXT):
                for value in key.words:
                    facts = {"one of": key.allowed}
                    yield Meaning(value, f"value of {key.name}", file.name, plain(key.meaning), facts)


def _of_generators() -> Iterator[Meaning]:
    """Yield the generators of graphs, with their keys besides the common ones."""
    common = {key.name for key in keys_of(Common)}
    for name, made in GENERATORS.items():
        own = ", ".join(key.name for key in keys_of(made) if key.name not in common)
        about = (made.__doc__ or "").partition("\n\n")[0]
        facts = {"keys": own or "those of all generators", "example": f"graph: {{ generator: {name}, … }}"}
        yield Meaning(name, "generator of graphs", "network file", plain(about), facts)


def of_corrections() -> Iterator[Meaning]:
    """Yield every correction, with the profiles that include it."""
    for note in CORRECTION_NOTES:
        name = note.correction.value
        example = f'"corrections": {{"{name}": true}}'
        text = f"The reference: {note.defect} Corrected: {note.instead}"
        facts = {"profiles": _profiles(note.correction, "on", "off"), "example": example}
        yield Meaning(name, "correction", SYSTEM, plain(text), facts)


def plain(text: str) -> str:
    """Return text of a page without its links, as one paragraph."""
    return " ".join(_LINK.sub(r"\1", text).split())


def _facts(key: Key) -> dict[str, str]:
    default = "required" if key.required else "none" if key.default is None else show(key.default)
    if key.default_reason:
        default += f" ({key.default_reason})"
    facts = {"default": default, "allowed": key.allowed, "unit": key.unit, "in ASTRA-sim 2.x": key.reference}
    if key.needs:
        facts["needs"] = f"{key.needs}: without it, this key has no effect"
    if key.correction:
        profiles = _profiles(Correction(key.correction), "as described", "no effect")
        facts["profiles"] = f"{profiles} (it needs the correction {key.correction})"
    return {name: plain(fact) for name, fact in facts.items() if fact}


def _profiles(correction: Correction, with_it: str, without: str) -> str:
    """Return the effect of a correction in each profile."""
    behaviours = ((profile.value, behaviour_of(profile).corrects(correction)) for profile in Profile)
    return "; ".join(f"{name}: {with_it if corrects else without}" for name, corrects in behaviours)


def _example(key: Key, file: str) -> dict[str, str]:
    """Return the line of the example file that has the key."""
    line = re.search(rf'^\s*("?{re.escape(key.name)}"?: .*?),?$', file, re.MULTILINE)
    return {"example": line[1]} if line else {}


TO_GET_STEPS = "runs of made training jobs have it, and of manifests with a step"


class CommandOption(Struct, frozen=True):
    """An option of commands, as the command line declares it."""

    name: str
    commands: tuple[str, ...]
    text: str
    default: str = ""
    allowed: str = ""


def all_meanings(options: Iterable[CommandOption]) -> list[Meaning]:
    """Return all meanings in the order of the list."""
    words = *_of_options(options), *_of_parts(), *_of_lines(), *_of_terms()
    return [*of_keys(), *of_corrections(), *words, *_of_tables()]


def find(word: str, meanings: Iterable[Meaning]) -> list[Meaning]:
    """Return the meanings of a word; case counts only between names that differ in nothing else."""
    named: dict[str, list[Meaning]] = {}
    exact = []
    for meaning in meanings:
        if word in (meaning.name, *meaning.also):
            exact.append(meaning)
        for name in dict.fromkeys(map(_bare, (meaning.name, *meaning.also))):
            named.setdefault(name, []).append(meaning)
    alike = named.get(_bare(word)) or _with_wildcard(word, named)
    differ_in_case = len({meaning.name for meaning in alike if meaning.name.lower() == word.lower()}) > 1
    if matches := exact if differ_in_case and exact else alike:
        return _merged(matches)
    remedy = did_you_mean(_bare(word), tuple(named)) or "et-sim explain without a word lists all words"
    raise UsageError(f"there is no entry {word!r}", remedy=remedy)


def _with_wildcard(word: str, named: Mapping[str, list[Meaning]]) -> list[Meaning]:
    """Return the meanings of the longest name whose "…" stands for a part of the word: "time of …".

    At its beginning, it stands for one word, as it does then at its end: "leaf to spine".
    """
    forms = [name for name in named if "…" in name and (name[0] != "…" or len(word.split()) == 3)]
    fitting = [name for name in forms if fnmatchcase(_bare(word), name.replace("…", "*"))]
    return named[max(fitting, key=len)] if fitting else []


def _merged(meanings: Iterable[Meaning]) -> list[Meaning]:
    """Merge equal meanings from several places."""
    merged: dict[str, Meaning] = {}
    for meaning in meanings:
        facts = {name: fact for name, fact in meaning.facts.items() if name != "example"}
        key = repr((meaning.name, meaning.kind, meaning.text, facts))
        before = merged.get(key)
        merged[key] = replace(before, place=f"{before.place}, {meaning.place}") if before else meaning
    return list(merged.values())


def _bare(name: str) -> str:
    """Return a name in one spelling: "--no-fold", "exposed communication", "ready_ns"."""
    return name.strip(" `'\"").lstrip("-").lower().replace("_", "-").replace(" ", "-")


def _of_options(options: Iterable[CommandOption]) -> Iterator[Meaning]:
    for option in options:
        facts = {"default": option.default, "allowed": option.allowed}
        place = f"et-sim {', '.join(option.commands)}"
        given = {name: fact for name, fact in facts.items() if fact}
        also = (option.name.replace("--no-", ""),)
        yield Meaning(option.name, "option", place, option.text, given, also)


def _of_parts() -> Iterator[Meaning]:
    columns = {column.name: column for column in ACTORS.columns}
    order = ", ".join(part.text for part in PARTS)
    for part in PARTS:
        facts = {"order": f"each moment belongs to the first of {order} that is under way"}
        facts |= {"column": f"{part.figure} in {ACTORS.file}", "in bars": part.mark.strip() or "blank"}
        text = columns[part.figure].meaning
        yield Meaning(part.text, "part of a rank's time", "summary", text, facts, (part.short, part.figure))


def _of_lines() -> Iterator[Meaning]:
    yield Meaning(
        "bottleneck",
        "line of the summary",
        "summary, summary.json",
        "The link that had the most to carry for its bandwidth over the run, and its tier; or the switches "
        "that reduce, if their rate was used more than any link.",
        {"to get it": "always with the link and flow models, with --detail links on the analytical model"},
    )
    yield Meaning(
        "uncertainty",
        "line of the summary",
        "summary, summary.json",
        "The band that shall hold the makespan of the real machine in 80 of 100 cases, and how much of the "
        "time is measured, calibrated, modelled or assumed; of two runs, the band of the difference.",
        {"to get it": 'machines by name state their errors, and system files with the key "accuracy"'},
        ("band", "low_ns", "high_ns", "made_of"),
    )
    for figure in OF_STEPS:
        facts = {"type": figure.kind, "also in": "throughput of summary.json", "to get it": TO_GET_STEPS}
        short = figure.name.replace("_per_s", "/s").replace("_per_rank", "/NPU").replace("_", " ")
        also = (short, figure.name.replace("_per_s", "/s").replace("_per_rank", "/GPU"))
        place = "sweep.arrow"
        yield Meaning(figure.name, "figure of a step", place, figure.meaning, facts, also)
    yield Meaning(
        "packets",
        "line of the summary",
        "summary, summary.json",
        "The packets that the run sent, those that were lost, marked or paused, and the link with the most.",
        {"to get it": "--network-model packet"},
        ("ports.arrow", "lost_at", "paused_at"),
    )
    yield Meaning(
        "jobs",
        "file",
        "job file",
        "Several workloads on one machine, in place of WORKLOAD: a list of jobs, each with its name, "
        "workload and npus, and maybe seed, start and groups.",
        {"example": "jobs: [ { name: a, workload: step, npus: 0-7 }, { name: b, workload: more } ]"},
        ("job-file",),
    )


def _of_terms() -> Iterator[Meaning]:
    for term in terms():
        yield Meaning(term.name, "word", "summaries, tables, pages", term.text, also=term.also)


def _of_tables() -> Iterator[Meaning]:
    for table in all_tables():
        facts = {"columns": ", ".join(column.name for column in table.columns)}
        if table.is_optional:
            facts["to get it"] = table.how_to_get_it
        yield Meaning(table.name, "table", "run directory", table.about, facts, (table.file,))
        for column in table.columns:
            facts = {"type": column.kind, "unit": column.unit, "only of": column.only_of}
            facts["refers to"] = column.refers_to
            given = {name: fact for name, fact in facts.items() if fact}
            also = (f"{table.name}.{column.name}",)
            yield Meaning(column.name, "column", table.file, column.meaning, given, also)


__all__ = ["CommandOption", "Meaning", "all_meanings", "find"]
