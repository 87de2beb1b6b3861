"""Rows that were predicted, with the classes that their errors belong to.

A part of a time may belong to several classes, the narrowest first: a collective on a node to its kind on
this device, to its kind, and to all collectives of its size. Machines whose library was fitted to another one
have classes of their own, and so has each kind of network between nodes.

Not here: terms of classes, and their judgement (`fit_bands`).
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path

from accuracy_lines import labs_of_tables
from fit_networks import as_unknown, left_out
from msgspec import Struct
from msgspec.structs import replace

from et_sim.basics.uncertainty import (
    ASSUMED,
    ASSUMED_SOFTWARE,
    CALIBRATED,
    MODELLED,
    QUANTILE,
    SOFTWARE,
    WHOLE,
    Composition,
    ErrorTerm,
    Trait,
    UncertainPart,
)
from et_sim.machine.accuracy import (
    BETWEEN_NODES,
    COMMUNICATION,
    DEFAULTS,
    LARGE_BYTES,
    LIBRARY,
    SHORT_ATTENTION,
    SMALL_BETWEEN_NODES,
    SMALL_COMMUNICATION,
    SMALL_LIBRARY,
    TRAITS,
    of_device,
    of_kind,
    of_network,
    of_other_machines,
    of_software,
)
from et_sim.timeline.composition import judged_bytes

ON_A_NODE = (LIBRARY, SMALL_LIBRARY)
BETWEEN = (BETWEEN_NODES, SMALL_BETWEEN_NODES)
OF_OTHERS = tuple(of_other_machines(name) for name in ON_A_NODE)
# Each is fitted to what those before it leave; a row counts where no later one matters.
ORDER = (*ON_A_NODE, *OF_OTHERS, SOFTWARE, *TRAITS.values(), ASSUMED_SOFTWARE)
# Errors of one device: no row of others speaks for them.
OF_DEVICES = (SHORT_ATTENTION, "layernorm", "softmax", "elementwise")
MATTERS = 0.5  # share of the time
Terms = Mapping[str, ErrorTerm]
_SIZE = re.compile(r"of ([\d,]+) ranks, from 2\^(\d+) B on")
UNKNOWN = "unknown"
OTHERS = "others"  # stands for kinds of networks that too few labs measured
_NETWORK = re.compile(r"network=([a-z]+)")


class Judged(Struct, frozen=True, dict=True):
    """A row that was predicted."""

    family: str
    is_fitted: bool
    error: float  # logarithm of measured by predicted
    composition: Composition
    network: str = ""  # kind of network between nodes
    lab: str = ""  # who measured a collective between nodes
    table: str = ""  # of collectives between nodes
    left_out: float | None = None  # the error with figures of networks that were fitted without this lab
    as_unknown: float | None = None  # the error if the source did not state the network

    @cached_property
    def is_evidence(self) -> bool:
        """Check that terms may be fitted to the row: no other constant is, and one of the classes matters."""
        return not self.is_fitted and any(self.share(name) >= MATTERS for name in ORDER)

    @property
    def unseen_error(self) -> float:
        """Return the error as if no figure of the network were fitted to the row's lab."""
        return self.error if self.left_out is None else self.left_out

    @property
    def on_unknown(self) -> Judged:
        """Return the row as if its source did not state the network."""
        return replace(self, error=self.as_unknown, network=UNKNOWN)

    @property
    def on_any(self) -> Judged:
        """Return the row as one of a network of any kind, with figures of other labs."""
        return replace(self, error=self.left_out, network=OTHERS)

    @cached_property
    def software(self) -> str:
        """Return the software that a row of training steps states."""
        return next((trait.item for trait in self.composition.traits if trait.of == SOFTWARE), "")

    @cached_property
    def source(self) -> tuple[str, str]:
        """Return the unit of equal weight: for training steps, one software on one device.

        For networks that are not known, or of any kind, it is the lab.
        """
        if self.lab and self.network in (UNKNOWN, OTHERS):
            return self.lab, ""
        is_step = bool(self.composition.traits)
        return self.table or self.software or self.family, self.composition.device if is_step else ""

    def share(self, name: str) -> float:
        """Return the share of a class in the time; of a trait, 1."""
        return self.shares.get(name, 0.0)

    @cached_property
    def shares(self) -> Mapping[str, float]:
        """Return the share of every class that a part or the whole may belong to."""
        found: Counter[str] = Counter()
        for part, classes in zip(self.composition.parts, self.classes, strict=True):
            found.update(dict.fromkeys(classes, part.share))
        return {**found, **{trait.of: 1.0 for trait in self.composition.traits}}

    @cached_property
    def classes(self) -> tuple[tuple[str, ...], ...]:
        """Return the classes of each part, the narrowest first."""
        return tuple(self._classes(part) for part in self.composition.parts)

    def _classes(self, part: UncertainPart) -> tuple[str, ...]:
        name, _, _ = part.of.partition(" ")
        basis, kind = self.composition.terms[part.of].basis, part.item.partition(" of ")[0]
        if name in ON_A_NODE:
            if basis != CALIBRATED:
                return (f"{name} {basis}",)
            return of_device(of_kind(name, kind), self.composition.device), of_kind(name, kind), name
        if name in BETWEEN:
            kinds = (UNKNOWN,) if basis == ASSUMED else (self.network, OTHERS)
            kinds = kinds if self.network else ("",)
            return tuple(dict.fromkeys(of_network(name, kind) for kind in kinds))
        if name in (COMMUNICATION, SMALL_COMMUNICATION) and (words := _SIZE.search(part.item)):
            size = judged_bytes(kind, int(words[1].replace(",", "")), int(words[2]))
            own = COMMUNICATION if size >= LARGE_BYTES else SMALL_COMMUNICATION
            return of_device(of_kind(own, kind), self.composition.device), part.of
        return (of_device(name, self.composition.device),) if name in OF_DEVICES else (part.of,)

    def with_terms(self, terms: Terms) -> Composition:
        """Return what the time consists of, with other terms."""
        found = self.composition
        parts, used = [], {}
        for part, classes in zip(found.parts, self.classes, strict=True):
            name = next((name for name in classes if name in terms), classes[0])
            parts.append(replace(part, of=name))
            used[name] = terms.get(name, found.terms[part.of])
        traits = tuple(
            Trait(each.of, each.item, _of_trait(each, terms, found.device))
            for each in found.traits
            if each.of in ORDER
        )
        return Composition(found.device, found.whole, used, tuple(parts), traits)

    @cached_property
    def on_another_machine(self) -> Judged:
        """Return the row as if its library were fitted to another machine."""
        found = self.composition
        terms = {
            name: replace(term, basis=MODELLED) if name.partition(" ")[0] in ON_A_NODE else term
            for name, term in found.terms.items()
        }
        composition = Composition(found.device, found.whole, terms, found.parts, found.traits)
        return replace(self, composition=composition)

    def band(self, terms: Terms) -> tuple[float, float]:
        """Return the ends of the band as logarithms of measured by predicted."""
        composition = self.with_terms(terms)
        reach = QUANTILE * composition.sigma
        return composition.bias - reach, composition.bias + reach


def _of_trait(trait: Trait, terms: Terms, device: str) -> ErrorTerm:
    """Return the term of a trait: of software, its own on this device if there is one."""
    own = terms.get(of_software(trait.item, device)) if trait.of == SOFTWARE else None
    return own or terms.get(trait.of, trait.term)


def read_judged(path: Path) -> list[Judged]:
    """Return the rows of a file of predictions that have a band."""
    rows, without, unknown, labs = [], left_out(), as_unknown(), labs_of_tables()
    for line in path.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        if row["predicted_us"] is not None and row["measured_us"] is not None and row["composition"]:
            error = math.log(row["measured_us"] / row["predicted_us"])
            read = Composition.read(row["composition"])
            # Machines by name have no error of the whole of their own.
            composition = Composition(read.device, DEFAULTS[WHOLE], read.terms, read.parts, read.traits)
            network = _NETWORK.search(row["how"])
            rows.append(
                Judged(
                    row["family"],
                    row["is_fitted"],
                    error,
                    composition,
                    network[1] if network else "",
                    labs.get(row["table"], "") if network else "",
                    row["table"] if network and row["table"] in labs else "",
                    without.get((row["table"], row["row"])),
                    unknown.get((row["table"], row["row"])),
                )
            )
    return rows
