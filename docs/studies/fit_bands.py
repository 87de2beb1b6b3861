"""Widths of bands, fitted to public rows left out: `python docs/studies/fit_bands.py FILE [--write]`.

FILE holds predictions, a JSON object a line, as `accuracy.py --predict FILE` writes them: the family of a
row, its measured and predicted time, and the shares of that. For each class of errors (`judged_rows`), the
bias is the middle of the tenth and the ninetieth percentile of the errors of all rows that the class matters
for, each source with the same weight, less the biases of other classes; the width is the least with which
four rows of five are in their bands. A source is a family, a table of a network, or training steps of one
software on one device.

Kinds of collectives on a node have terms of their own, as sizes of kernels and collectives on one device have
with many rows (`MANY`). Networks have one by kind: from errors with figures that were fitted without the lab
(`fit_networks`), and without bias, as labs differ either way. A network that its source does not state has
the errors of all tables, predicted as if theirs were not stated, with the same weight for each lab; one of a
kind that fewer than two labs measured has the wider of their errors and those of labs left out of all kinds.
A kind that nothing is fitted to has the figures of another kind, which err one way, and so a bias.
Machines that take the constants of another one
have a class that rows of all labs speak for. Software of which many rows are public has a term of its own;
any other one has that of all software, which is the spread between them.

All families are then judged with terms that were fitted without them, or without their lab; where nothing
else speaks for a class of one device or software, each half of the family's rows is judged by the other half.
`--write` writes the terms of all families, which machines by name take.

Not here: how errors add up (`et_sim.basics.uncertainty`). Kernels of devices without measurements are not
fitted, since there are none; their error is assumed (`et_sim.machine.accuracy`).
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from pathlib import Path
from statistics import median, pstdev
from typing import Any, TypeVar

from judged_rows import (
    BETWEEN,
    MATTERS,
    OF_DEVICES,
    OF_OTHERS,
    ON_A_NODE,
    ORDER,
    OTHERS,
    UNKNOWN,
    Judged,
    Terms,
    read_judged,
)
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
    ErrorTerm,
)
from et_sim.machine.accuracy import (
    COMMUNICATION,
    DEFAULTS,
    SMALL_COMMUNICATION,
    of_kind,
    of_network,
    of_software,
)
from et_sim.machine.collective_library.between import KINDS as NETWORK_KINDS
from et_sim.machine.collective_library.between import network_kind

BANDS = Path(__file__).parents[2] / "et_sim" / "machine" / "presets" / "bands.json"
NETWORKS = tuple(of_network(name, kind) for kind in (*NETWORK_KINDS, OTHERS) for name in BETWEEN)
AFTER_SOFTWARE = ORDER[ORDER.index(SOFTWARE) + 1 :]
OWN = (*OF_DEVICES, *(of_kind(name, "") for name in (COMMUNICATION, SMALL_COMMUNICATION, *ON_A_NODE)))
BARE = "software not stated: "  # begins the name of a family that was predicted without its software
LEAST = 0.02  # of a standard error
WIDE = 2.0  # the upper end by the lower one: a wider band does not count as met
FEWEST = 2  # sources that a term is fitted to: of fewer, the default holds
MANY = 16  # rows of one software, or of one class on one device, from which on it has a term of its own
DIGITS = 3
Key = TypeVar("Key", bound=Hashable)


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
    """Return terms of kinds of networks, from labs that the figures of networks were fitted without.

    A kind that too few labs measured has the wider of its own term and that of all kinds; networks that are
    not known have the errors of all tables, as if no source stated the network.
    """
    without = [row for row in rows if row.left_out is not None]
    unknown = [row.on_unknown for row in rows if row.as_unknown is not None]
    found = _by_labs(row.on_any for row in without) | _by_labs(unknown)
    for name, own in _by_labs(replace(row, error=row.unseen_error) for row in without).items():
        size = name.partition(" on ")[0]
        labs = {row.lab for row in without if name in row.shares}
        of_all = found.get(of_network(size, OTHERS), own)
        found[name] = own if len(labs) >= FEWEST else max(own, of_all, key=_width)
    return found


def _by_labs(rows: Iterable[Judged]) -> dict[str, ErrorTerm]:
    """Return terms of the classes of networks that rows were given."""
    return {
        name: _term(name, {}, some)
        for name, some in _by_class(rows).items()
        if name in NETWORKS and name.endswith(of_network("", some[0].network))
    }


def _has_bias(name: str) -> bool:
    """Return whether errors of a class have a bias: not on networks whose kind, or any kind, is fitted to."""
    size, _, kind = name.partition(of_network("", ""))
    if name not in NETWORKS:
        return True
    return kind != OTHERS and network_kind(kind)["accuracy"][size]["basis"] != CALIBRATED


def _width(term: ErrorTerm) -> float:
    return math.hypot(term.random, term.common)


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
    names = {name: some for name, some in found.items() if " on " in name and name.startswith(OWN)}
    return {name: _term(name, {}, some) for name, some in names.items() if len(some) >= MANY}


def _by_class(rows: Iterable[Judged]) -> dict[str, list[Judged]]:
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


def _term(name: str, terms: Terms, chosen: Sequence[Judged]) -> ErrorTerm:
    """Return a class's term: with it, `LEVEL` of the rows are in their bands.

    Sources have equal weights. Labs that measured one kind of network count by their rows; they have no bias
    where figures are fitted to the kind, as labs differ either way.
    """
    is_of_network = name in NETWORKS
    are_labs = is_of_network and not name.endswith((of_network("", UNKNOWN), of_network("", OTHERS)))
    without = {**terms, name: ErrorTerm(ASSUMED, 0.0, 0.0)}
    sizes = Counter(row.source for row in chosen)
    weights = [1.0 if are_labs else 1 / sizes[row.source] for row in chosen]
    rows = [(row, row.with_terms(without)) for row in chosen]
    errors = [(row.error - rest.bias) / row.share(name) for row, rest in rows]
    sigmas = [rest.sigma / row.share(name) for row, rest in rows]
    tail = (1 - LEVEL) / 2
    pairs = list(zip(errors, weights, strict=True))
    middle = round((quantile(pairs, tail) + quantile(pairs, 1 - tail)) / 2, DIGITS)
    bias = middle if _has_bias(name) else 0.0
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

    Collectives between nodes are judged with figures of networks and terms of other labs; classes of one
    device, and software of its own, with the other half of the family, too.
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
        "about": "Errors of classes of times, fitted by docs/studies/fit_bands.py to public rows: of"
        " software, plans and libraries of other machines to rows that no other constant was fitted to, of"
        " networks to labs that their figures were fitted without, of collectives on a node and of kernels of"
        " one device to all rows; docs/accuracy.md shows each family with the terms of other rows.",
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
