"""Widths of bands, fitted to public rows left out: `python docs/studies/fit_bands.py FILE [--write]`.

FILE holds predictions, a JSON object a line, as `accuracy.py --predict FILE` writes them: the family of a
row, its measured and predicted time, and the shares of that. For each of a few classes of errors (`ORDER`),
the bias is the middle of the tenth and the ninetieth percentile of the errors of all rows that the class
matters for, each source with the same weight, less the biases of other classes; the width is the least with
which four rows of five are in their bands. A source is a family, or training steps of one software on one
device.

A class may have two widths. Collectives of a machine whose library was fitted to it are one class, and those
of machines that take the constants of another one are a class that rows of all labs speak for. Software of
which many rows are public (`MANY`) has a term of its own; any other one has that of all software, which is
the spread between them.

All families are then judged with terms that were fitted without them; where nothing else speaks for software
of its own, each half of the family's rows is judged by the other half. `--write` writes the terms of all
families, which machines by name take.

Not here: how errors add up (`et_sim.basics.uncertainty`). Kernels of devices without measurements are not
fitted, since there are none; their error is assumed (`et_sim.machine.accuracy`).
"""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from statistics import median, pstdev
from typing import Any, TypeVar

from accuracy_lines import labs_of_tables
from fit_networks import left_out
from msgspec import Struct
from msgspec.structs import replace

from et_sim.basics.uncertainty import (
    ASSUMED,
    ASSUMED_SOFTWARE,
    CALIBRATED,
    LEVEL,
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
from et_sim.machine.collective_library.between import KINDS as NETWORK_KINDS

BANDS = Path(__file__).parents[2] / "et_sim" / "machine" / "presets" / "bands.json"
ON_A_NODE = (LIBRARY, SMALL_LIBRARY)
BETWEEN = (BETWEEN_NODES, SMALL_BETWEEN_NODES)
OF_OTHERS = tuple(of_other_machines(name) for name in ON_A_NODE)
NETWORKS = tuple(of_network(name, kind) for kind in NETWORK_KINDS for name in BETWEEN)
# Each is fitted to what those before it leave; a row counts where no later one matters.
ORDER = (*ON_A_NODE, *OF_OTHERS, SOFTWARE, *TRAITS.values(), ASSUMED_SOFTWARE)
AFTER_SOFTWARE = ORDER[ORDER.index(SOFTWARE) + 1 :]
# Errors of one device: no row of others speaks for them.
OF_DEVICES = (
    *(SHORT_ATTENTION, "layernorm", "softmax", "elementwise"),
    *(of_kind(name, "") for name in (COMMUNICATION, SMALL_COMMUNICATION, *ON_A_NODE)),  # and a kind
)
BARE = "software not stated: "  # begins the name of a family that was predicted without its software
MATTERS = 0.5  # share of the time
LEAST = 0.02  # of a standard error
WIDE = 2.0  # the upper end by the lower one: a wider band does not count as met
FEWEST = 2  # sources that a term is fitted to: of fewer, the default holds
MANY = 16  # rows of one software, or of one class on one device, from which on it has a term of its own
DIGITS = 3
Terms = Mapping[str, ErrorTerm]
Key = TypeVar("Key", bound=Hashable)
_POWER = re.compile(r"from 2\^(\d+) B on")
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

    @cached_property
    def is_evidence(self) -> bool:
        """Check that terms may be fitted to the row: no other constant is, and one of the classes matters."""
        return not self.is_fitted and any(self.share(name) >= MATTERS for name in ORDER)

    @property
    def unseen_error(self) -> float:
        """Return the error as if no figure of the network were fitted to the row's lab."""
        return self.error if self.left_out is None else self.left_out

    @cached_property
    def software(self) -> str:
        """Return the software that a row of training steps states."""
        return next((trait.item for trait in self.composition.traits if trait.of == SOFTWARE), "")

    @cached_property
    def source(self) -> tuple[str, str]:
        """Return the unit of equal weight: for training steps, one software on one device."""
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
        if name in BETWEEN and basis != ASSUMED:
            return (of_network(name, self.network),)
        if name in (COMMUNICATION, SMALL_COMMUNICATION) and (power := _POWER.search(part.item)):
            size = COMMUNICATION if 2 ** int(power[1]) >= LARGE_BYTES else SMALL_COMMUNICATION
            return of_device(of_kind(size, kind), self.composition.device), part.of
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
    rows, without, labs = [], left_out(), labs_of_tables()
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
                )
            )
    return rows


def _by(key: Callable[[Judged], Key], rows: Iterable[Judged]) -> dict[Key, list[Judged]]:
    """Return rows by a property."""
    found: dict[Key, list[Judged]] = {}
    for row in rows:
        found.setdefault(key(row), []).append(row)
    return found


def quantile(values: Sequence[tuple[float, float]], share: float) -> float:
    """Return the value that this share of the weight is below, between two neighbours in proportion."""
    ordered = sorted(values)
    total = math.fsum(weight for _, weight in ordered)
    below = 0.0
    places = []
    for value, weight in ordered:
        places.append(((below + weight / 2) / total, value))
        below += weight
    before = places[0]
    for place in places:
        if place[0] >= share:
            between = (share - before[0]) / ((place[0] - before[0]) or 1.0)
            return before[1] + min(max(between, 0.0), 1.0) * (place[1] - before[1])
        before = place
    return before[1]


def fitted(rows: Sequence[Judged]) -> dict[str, ErrorTerm]:
    """Return the terms that rows lead to; a class of too few sources keeps its default."""
    terms = {name: DEFAULTS[name] for name in ORDER if name in DEFAULTS}
    evidence = [row for row in rows if row.is_evidence]
    for place, name in enumerate(ORDER):
        # Rows of all labs speak for machines whose library is fitted to another one.
        others = [row.on_another_machine for row in evidence] if name in OF_OTHERS else evidence
        seen = rows if name in ON_A_NODE else others
        chosen = [row for row in seen if _matters(row, name, ORDER[place + 1 :])]
        if len({row.source for row in chosen}) >= FEWEST:
            terms[name] = _term(name, terms, chosen)
    return terms | _of_kinds(rows) | _of_networks(rows) | _of_devices(rows) | _of_software(terms, rows)


def _of_kinds(rows: Sequence[Judged]) -> dict[str, ErrorTerm]:
    """Return terms of the kinds of collectives on a node."""
    narrow = {classes[-2] for row in rows for classes in row.classes if classes[-1] in ON_A_NODE}
    return {
        name: _term(name, {}, some)
        for name, some in _by_class(rows).items()
        if name in narrow and len({row.source for row in some}) >= FEWEST
    }


def _of_networks(rows: Sequence[Judged]) -> dict[str, ErrorTerm]:
    """Return terms of kinds of networks, from labs that the figures of networks were fitted without."""
    without = [replace(row, error=row.unseen_error) for row in rows if row.left_out is not None]
    return {
        name: _term(name, {}, some, are_labs=True)
        for name, some in _by_class(without).items()
        if name in NETWORKS
    }


def _of_software(terms: Terms, rows: Sequence[Judged]) -> dict[str, ErrorTerm]:
    """Return terms of software with many rows on one device, but for those that `terms` have.

    They hold on this device only: on others the software has the spread between software.
    """
    chosen = [row for row in rows if row.is_evidence and _matters(row, SOFTWARE, AFTER_SOFTWARE)]
    return {
        of_software(*source): _term(SOFTWARE, terms, some)
        for source, some in _by(lambda row: row.source, chosen).items()
        if some[0].software and len(some) >= MANY and of_software(*source) not in terms
    }


def _of_devices(rows: Sequence[Judged]) -> dict[str, ErrorTerm]:
    """Return terms of classes of one device of which it has many rows."""
    found = _by_class(rows)
    names = {name: some for name, some in found.items() if " on " in name and name.startswith(OF_DEVICES)}
    return {name: _term(name, {}, some) for name, some in names.items() if len(some) >= MANY}


def _by_class(rows: Sequence[Judged]) -> dict[str, list[Judged]]:
    """Return rows by the classes that matter for them."""
    found: dict[str, list[Judged]] = {}
    for row in rows:
        for name, share in row.shares.items():
            if share >= MATTERS:
                found.setdefault(name, []).append(row)
    return found


def _matters(row: Judged, name: str, later: Collection[str]) -> bool:
    """Return whether a class explains most of a row's error, and none that is fitted later does."""
    return row.share(name) >= MATTERS and all(row.share(other) < MATTERS for other in later)


def _term(name: str, terms: Terms, chosen: Sequence[Judged], *, are_labs: bool = False) -> ErrorTerm:
    """Return a class's term: with it, `LEVEL` of the rows are in their bands.

    Sources have equal weights.
    """
    without = {**terms, name: ErrorTerm(ASSUMED, 0.0, 0.0)}
    sizes = Counter(row.source for row in chosen)
    weights = [1.0 if are_labs else 1 / sizes[row.source] for row in chosen]
    rows = [(row, row.with_terms(without)) for row in chosen]
    errors = [(row.error - rest.bias) / row.share(name) for row, rest in rows]
    sigmas = [rest.sigma / row.share(name) for row, rest in rows]
    tail = (1 - LEVEL) / 2
    pairs = list(zip(errors, weights, strict=True))
    middle = round((quantile(pairs, tail) + quantile(pairs, 1 - tail)) / 2, DIGITS)
    bias = 0.0 if are_labs else middle  # labs differ either way
    # A row is inside from this width of the class on.
    enough = [
        math.sqrt(max(((error - bias) / QUANTILE) ** 2 - sigma**2, 0.0))
        for error, sigma in zip(errors, sigmas, strict=True)
    ]
    # With rows of one device, one row more would be inside with the probability LEVEL.
    share = min(LEVEL * (1 + 1 / len(chosen)), 1.0) if " on " in name else LEVEL
    width = max(quantile(list(zip(enough, weights, strict=True)), share), LEAST)
    medians = [median(row.error for row in some) for some in _by(lambda row: row.source, chosen).values()]
    common = min(pstdev(medians), width)
    random = math.sqrt(width**2 - common**2)
    return ErrorTerm(
        ASSUMED if name == ASSUMED_SOFTWARE else MODELLED,
        round(random, DIGITS),
        round(common, DIGITS),
        bias,
        len(errors),
    )


class Coverage(Struct, frozen=True):
    """The rows of a family inside their bands, whose terms were fitted without the family."""

    family: str
    rows: int
    inside: int
    width: float  # median of the upper end by the lower one

    @property
    def share(self) -> float:
        """Return the share of rows inside."""
        return self.inside / self.rows

    @property
    def expected(self) -> tuple[int, int]:
        """Return the least and the largest number of rows that should be inside."""
        if self.rows >= 60:
            return math.ceil(0.7 * self.rows), math.floor(0.9 * self.rows)
        return central(self.rows)

    @property
    def is_met(self) -> bool | None:
        """Check that the band holds its share of rows, and is no wider than `WIDE`; None: too few rows."""
        if self.rows < 8:
            return None
        least, most = self.expected
        return least <= self.inside <= most and self.width <= WIDE


def central(rows: int) -> tuple[int, int]:
    """Return the counts between which 95 % of a binomial with p = LEVEL lie."""
    counts = range(rows + 1)
    chances = [math.comb(rows, count) * LEVEL**count * (1 - LEVEL) ** (rows - count) for count in counts]
    least = next(count for count in range(rows + 1) if math.fsum(chances[: count + 1]) > 0.025)
    most = next(count for count in range(rows, -1, -1) if math.fsum(chances[count:]) > 0.025)
    return least, most


def coverages(rows: Sequence[Judged]) -> list[Coverage]:
    """Return that of every family, each with the terms of the others.

    Collectives between nodes are judged with the terms of other labs, and classes of one device with the other
    half of the family.
    """
    found = []
    for family, some in _by(lambda row: row.family, rows).items():
        bands = []
        for lab, of_lab in _by(lambda row: row.lab, some).items():
            others = [row for row in rows if (row.lab != lab if lab else row.family != family)]
            terms = fitted(others)
            halves = of_lab[::2], of_lab[1::2]
            for half, rest in (halves, halves[::-1]):
                all_terms = terms | _of_software(terms, rest) | _of_devices([*rest, *others])
                bands += [(row.unseen_error, *row.band(all_terms)) for row in half]
        inside = sum(low <= error <= high for error, low, high in bands)
        width = median(math.exp(high - low) for _, low, high in bands)
        found.append(Coverage(family, len(some), inside, width))
    return found


def lines(found: Sequence[Coverage]) -> list[str]:
    """Return a table of coverages, and their mean with equal weights."""
    words = {True: "met", False: "not met", None: "few rows"}
    texts = [f"{'family':64} {'rows':>6} {'inside':>6} {'expected':>9} {'width':>6}"]
    texts += [
        f"{each.family:64} {each.rows:6} {each.inside:6} {'-'.join(map(str, each.expected)):>9}"
        f" {each.width:6.2f}  {words[each.is_met]}"
        for each in sorted(found, key=lambda each: each.family)
    ]
    return [*texts, f"all families, equal weights: {100 * mean_share(found):.0f} % inside"]


def mean_share(found: Sequence[Coverage]) -> float:
    """Return the mean of families with equal weight, as they were measured: with their software."""
    shares = [each.share for each in found if not each.family.startswith(BARE)]
    return math.fsum(shares) / len(shares)


def content(terms: Terms) -> dict[str, Any]:
    """Return what `bands.json` holds."""
    return {
        "about": "Errors of classes of times, fitted by docs/studies/fit_bands.py to public rows that no"
        " other constant was fitted to; docs/accuracy.md shows each family with the terms of the others.",
        "terms": {name: term.as_dict() for name, term in terms.items()},
    }


def main() -> None:
    """Fit, print, and perhaps write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("file", type=Path, help="predictions, as accuracy.py --predict writes them")
    parser.add_argument("--write", action="store_true", help="write the terms for machines by name")
    options = parser.parse_args()
    rows = read_judged(options.file)
    texts = lines(coverages(rows))
    terms = fitted(rows)
    for name, term in terms.items():
        numbers = f"random {term.random:.3f}  common {term.common:.3f}  bias {term.bias:+.3f}"
        texts.append(f"{name:20} {numbers}")
    sys.stdout.write("\n".join(texts) + "\n")
    if options.write:
        BANDS.write_text(json.dumps(content(terms), indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
