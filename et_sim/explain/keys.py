"""The keys of input files, their values, and the corrections, as `et_sim.machine` declares them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from et_sim.explain.meaning import Meaning
from et_sim.machine.checks import show
from et_sim.machine.corrections import CORRECTION_NOTES, Correction
from et_sim.machine.credit_tables import CREDIT_KEYS
from et_sim.machine.keys import Key, Kind
from et_sim.machine.loggops_file import LOGGOPS_KEYS
from et_sim.machine.pool_tables import STAGE_KEYS
from et_sim.machine.profiles import Profile, behaviour_of
from et_sim.machine.protocol_tables import PROTOCOL_KEYS
from et_sim.machine.reference_page import EXAMPLES, GROUPS
from et_sim.machine.tables import MEMORY_KEYS, NETWORK_KEYS, SYSTEM_KEYS
from et_sim.machine.uneven_tables import IN_NETWORK_KEYS, LINK_KEYS, STRAGGLER_KEYS, TIME_FACTOR_KEYS
from et_sim.machine.unused_keys import UNUSED_KEYS
from et_sim.machine.version_1 import LEVEL_KEYS, SYSTEM_1_KEYS

SYSTEM, NETWORK, MEMORY = "system file", "network file", "memory file"
_LINK = re.compile(r"\[([^]]*)\]\([^)]*\)")


@dataclass(frozen=True, slots=True)
class KeyFile:
    """An input file and its keys; `example` is one such file."""

    name: str
    keys: tuple[Key, ...]
    example: str = ""


FILES = (
    KeyFile(SYSTEM, SYSTEM_KEYS, EXAMPLES["system"]),
    KeyFile("entry of stragglers, in the system file", STRAGGLER_KEYS),
    KeyFile("entry of time-factors, in the system file", TIME_FACTOR_KEYS),
    KeyFile(NETWORK, NETWORK_KEYS, EXAMPLES["network"]),
    KeyFile("entry of links, in the network file", LINK_KEYS),
    KeyFile("protocol, in the network file", PROTOCOL_KEYS),
    KeyFile("credits, in the network file", CREDIT_KEYS),
    KeyFile("entry of in-network, in the network file", IN_NETWORK_KEYS),
    KeyFile("loggops, in the network file", LOGGOPS_KEYS),
    KeyFile(MEMORY, MEMORY_KEYS, EXAMPLES["memory"]),
    KeyFile("entry of stages, in the memory file", STAGE_KEYS),
    KeyFile("system file of ASTRA-sim 1.0", SYSTEM_1_KEYS),
    KeyFile("network file of ASTRA-sim 1.0", LEVEL_KEYS),
)


def of_keys() -> Iterator[Meaning]:
    """Every key of every file, those without effect too, and the values that have names."""
    for file in FILES:
        for key in file.keys:
            example = _example(key, file.example)
            yield Meaning(key.name, "key", file.name, plain(key.meaning), _facts(key) | example)
    yield Meaning("groups", "file", "groups file", plain(GROUPS.partition("```\n\n")[2]), also=("group",))
    for name, why in UNUSED_KEYS.items():
        yield Meaning(name, "key without effect", "any other input file", f"Accepted with a warning: {why}.")
    for file in FILES:
        for key in file.keys:
            if key.kind in (Kind.CHOICE, Kind.TEXT):
                for value in key.choices:
                    facts = {"one of": key.allowed}
                    yield Meaning(value, f"value of {key.name}", file.name, plain(key.meaning), facts)


def of_corrections() -> Iterator[Meaning]:
    """Every correction, and which profiles make it."""
    for note in CORRECTION_NOTES:
        name = note.correction.value
        example = f'"corrections": {{"{name}": true}}'
        text = f"The reference: {note.defect} Corrected: {note.instead}"
        facts = {"profiles": _profiles(note.correction, "on", "off"), "example": example}
        yield Meaning(name, "correction", SYSTEM, plain(text), facts)


def plain(text: str) -> str:
    """Text of a page without its links, as one paragraph."""
    return " ".join(_LINK.sub(r"\1", text).split())


def _facts(key: Key) -> dict[str, str]:
    default = "required" if key.required else "none" if key.default is None else show(key.default)
    if key.default_reason:
        default += f" ({key.default_reason})"
    facts = {"default": default, "allowed": key.allowed, "unit": key.unit, "in ASTRA-sim 2.x": key.reference}
    if key.needs:
        facts["needs"] = f"{key.needs}: without it, this key has no effect"
    if key.correction:
        profiles = _profiles(Correction(key.correction), "as said here", "no effect")
        facts["profiles"] = f"{profiles} (it needs the correction {key.correction})"
    return {name: plain(fact) for name, fact in facts.items() if fact}


def _profiles(correction: Correction, with_it: str, without: str) -> str:
    """What each profile makes of a correction."""
    said = ((one.value, behaviour_of(one).corrects(correction)) for one in Profile)
    return "; ".join(f"{name}: {with_it if corrects else without}" for name, corrects in said)


def _example(key: Key, file: str) -> dict[str, str]:
    """The line of the example file that has the key."""
    line = re.search(rf'^\s*("?{re.escape(key.name)}"?: .*?),?$', file, re.MULTILINE)
    return {"example": line[1]} if line else {}
