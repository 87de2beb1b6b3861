"""Widths of bands, fitted to public rows left out: `python docs/studies/fit_bands.py FILE [--write]`.

FILE holds predictions, a JSON object a line, as `accuracy.py --predict FILE` writes them: the family of a
row, its measured and predicted time, and the shares of that. For each of a few classes of errors (`ORDER`),
the bias is the middle of the tenth and the ninetieth percentile of the errors of all rows that the class
matters for, each family with the same weight, less the biases of other classes; the width is the least with
which four rows of five are in their bands. All families are then judged with terms that were fitted without
them. `--write` writes the terms of all families, which machines by name take.

Not here: how errors add up (`et_sim.basics.uncertainty`). Kernels of devices without measurements are not
fitted, since there are none; their error is assumed (`et_sim.machine.accuracy`).
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median, pstdev
from typing import Any

from et_sim.basics.uncertainty import (
    ASSUMED,
    ASSUMED_SOFTWARE,
    LEVEL,
    MODELLED,
    QUANTILE,
    SOFTWARE,
    Composition,
    Term,
    Trait,
)
from et_sim.machine.accuracy import BETWEEN_NODES, DEFAULTS, LIBRARY, SMALL_LIBRARY, TRAITS

BANDS = Path(__file__).parents[2] / "et_sim" / "machine" / "presets" / "bands.json"
OF_LIBRARIES = (LIBRARY, BETWEEN_NODES, f"small_{BETWEEN_NODES}")
ASSUMED_CLASSES = (SMALL_LIBRARY,)  # public rows of other labs are of two clusters, too few to fit to
# Each is fitted to what those before it leave; a row counts where no later one matters.
ORDER = (*OF_LIBRARIES, SOFTWARE, *TRAITS.values(), ASSUMED_SOFTWARE)
BARE = "software not stated: "  # begins the name of a family that was predicted without its software
MATTERS = 0.5  # share of the time
LEAST = 0.02  # of a standard error
WIDE = 2.0  # the upper end by the lower one: a wider band does not count as met
FEWEST = 2  # families that a term is fitted to: of fewer, the default holds
DIGITS = 3
Terms = Mapping[str, Term]


@dataclass(frozen=True)
class Judged:
    """A row that was predicted."""

    family: str
    is_fitted: bool
    error: float  # logarithm of measured by predicted
    composition: Composition

    def share(self, name: str) -> float:
        """Return the share of a class in the time; of a trait, 1."""
        has_trait = any(trait.of == name for trait in self.composition.traits)
        return 1.0 if has_trait else self.composition.shares.get(name, 0.0)

    def with_terms(self, terms: Terms) -> Composition:
        """Return what the time consists of, with other terms."""
        found = self.composition
        of_parts = {name: terms.get(name, term) for name, term in found.terms.items()}
        traits = tuple(Trait(each.of, each.item, terms.get(each.of, each.term)) for each in found.traits)
        return Composition(found.device, found.whole, of_parts, found.parts, traits)

    def band(self, terms: Terms) -> tuple[float, float]:
        """Return the ends of the band as logarithms of measured by predicted."""
        composition = self.with_terms(terms)
        reach = QUANTILE * composition.sigma
        return composition.bias - reach, composition.bias + reach


def read_judged(path: Path) -> list[Judged]:
    """Return the rows of a file of predictions that have a band."""
    rows = []
    for line in path.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        if row["predicted_us"] is not None and row["measured_us"] is not None and row["composition"]:
            error = math.log(row["measured_us"] / row["predicted_us"])
            composition = Composition.read(row["composition"])
            rows.append(Judged(row["family"], row["is_fitted"], error, composition))
    return rows


def by_family(rows: Iterable[Judged]) -> dict[str, list[Judged]]:
    """Return rows by family."""
    families: dict[str, list[Judged]] = {}
    for row in rows:
        families.setdefault(row.family, []).append(row)
    return families


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


def fitted(rows: Sequence[Judged], left_out: str = "") -> dict[str, Term]:
    """Return the terms, from all families but one; a class of too few families keeps its default."""
    terms = {name: DEFAULTS[name] for name in (*ASSUMED_CLASSES, *ORDER) if name in DEFAULTS}
    families = by_family(row for row in rows if row.family != left_out and not row.is_fitted)
    for place, name in enumerate(ORDER):
        later = ORDER[place + 1 :]
        chosen = {
            family: some
            for family, each in families.items()
            if (some := [row for row in each if _matters(row, name, later)])
        }
        if len(chosen) >= FEWEST:
            terms[name] = _term(name, terms, chosen)
    return terms


def _matters(row: Judged, name: str, later: Collection[str]) -> bool:
    """Return whether a class explains most of a row's error, and none that is fitted later does."""
    return row.share(name) >= MATTERS and all(row.share(other) < MATTERS for other in later)


def _term(name: str, terms: Terms, families: Mapping[str, Sequence[Judged]]) -> Term:
    """Return a class's term: with it, `LEVEL` of the rows are in their bands.

    Families have equal weights, but those of libraries: a few runs of one lab say little of all others.
    """
    without = {**terms, name: Term(ASSUMED, 0.0, 0.0)}
    weights = [1.0 if name in OF_LIBRARIES else 1 / len(some) for some in families.values() for _ in some]
    rows = [(row, row.with_terms(without)) for some in families.values() for row in some]
    errors = [(row.error - rest.bias) / row.share(name) for row, rest in rows]
    sigmas = [rest.sigma / row.share(name) for row, rest in rows]
    tail = (1 - LEVEL) / 2
    pairs = list(zip(errors, weights, strict=True))
    bias = round((quantile(pairs, tail) + quantile(pairs, 1 - tail)) / 2, DIGITS)
    # A row is inside from this width of the class on.
    enough = [
        math.sqrt(max(((error - bias) / QUANTILE) ** 2 - sigma**2, 0.0))
        for error, sigma in zip(errors, sigmas, strict=True)
    ]
    width = max(quantile(list(zip(enough, weights, strict=True)), LEVEL), LEAST)
    medians = [median(row.error for row in some) for some in families.values()]
    common = min(pstdev(medians), width)
    return Term(
        ASSUMED if name == ASSUMED_SOFTWARE else MODELLED,
        round(math.sqrt(width**2 - common**2), DIGITS),
        round(common, DIGITS),
        bias,
        len(errors),
    )


@dataclass(frozen=True)
class Coverage:
    """How many rows of a family are in their bands, whose terms were fitted without it."""

    family: str
    rows: int
    inside: int
    width: float  # median of the upper end by the lower one

    @property
    def share(self) -> float:
        """The share of rows that are inside."""
        return self.inside / self.rows

    @property
    def is_met(self) -> bool | None:
        """Whether the band holds as many as it should, and is no wider than `WIDE`; None: too few rows."""
        if self.rows < 8:
            return None
        least, most = (0.7 * self.rows, 0.9 * self.rows) if self.rows >= 60 else central(self.rows)
        return least <= self.inside <= most and self.width <= WIDE


def central(rows: int) -> tuple[int, int]:
    """Return the counts between which 95 % of a binomial with p = LEVEL lie."""
    counts = range(rows + 1)
    chances = [math.comb(rows, count) * LEVEL**count * (1 - LEVEL) ** (rows - count) for count in counts]
    least = next(count for count in range(rows + 1) if math.fsum(chances[: count + 1]) > 0.025)
    most = next(count for count in range(rows, -1, -1) if math.fsum(chances[count:]) > 0.025)
    return least, most


def coverages(rows: Sequence[Judged]) -> list[Coverage]:
    """Return that of every family, each with the terms of the others."""
    found = []
    for family, some in by_family(rows).items():
        terms = fitted(rows, family)
        bands = [row.band(terms) for row in some]
        inside = sum(low <= row.error <= high for row, (low, high) in zip(some, bands, strict=True))
        width = median(math.exp(high - low) for low, high in bands)
        found.append(Coverage(family, len(some), inside, width))
    return found


def lines(found: Sequence[Coverage]) -> list[str]:
    """Return a table of coverages, and their mean with equal weights."""
    words = {True: "met", False: "not met", None: "few rows"}
    texts = [f"{'family':64} {'rows':>6} {'in %':>6} {'width':>6}"]
    texts += [
        f"{each.family:64} {each.rows:6} {100 * each.share:6.0f} {each.width:6.2f}  {words[each.is_met]}"
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
