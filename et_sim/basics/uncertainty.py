"""Uncertainty of a time that is a sum of parts: its band, and the band of the ratio of two such times.

Errors are of logarithms, so a standard error of 0.1 is about 10 %. Each part has its own error (`random`) and
shares one with all parts of its class (`common`); the whole has one, too. Errors of unlike parts average out,
common ones do not:

    sigma^2 = sum over parts (share x random)^2 + sum over classes (share x common)^2 + whole^2

A time that depends on some software, or belongs to some kind of plan, has an error as a whole (`traits`).
Biases add up, so the band covers the true times, and is not centred on the predicted one.

Equal parts of two times on one device have equal errors, which cancel in the ratio.

`et_sim.machine.accuracy` states the errors of a machine, `et_sim.timeline.composition` the parts of a run.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import cached_property
from types import MappingProxyType
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict

LEVEL = 0.8  # the share of true times within the band
QUANTILE = 1.2815515655446004  # of the normal distribution, exceeded by a tenth
MEASURED, CALIBRATED, MODELLED, ASSUMED = BASES = ("measured", "calibrated", "modelled", "assumed")
WHOLE = "all"
MOST_PARTS = 24  # limit of parts that are listed
OTHERS = "others"
# Classes of errors in summaries.
SOFTWARE, ASSUMED_SOFTWARE, UNMEASURED = "software", "software_assumed", "unmeasured_kernels"
DIGITS = 6

Errors = Mapping[tuple[Any, ...], float]  # standard errors of independent sources


class ErrorTerm(Struct, frozen=True):
    """Errors of one class of time."""

    basis: str  # one of BASES
    random: float
    common: float
    bias: float = 0.0  # logarithm of true by predicted, on average
    rows: int = 0  # number of measurements; 0: not stated

    def as_dict(self) -> dict[str, Any]:
        """Return the term in the form of system files."""
        return {name: value for name, value in asdict(self).items() if name != "rows" or value}

    @staticmethod
    def read(content: Mapping[str, Any]) -> ErrorTerm:
        """Return the term of an `as_dict` result, which may have more keys."""
        random, common, bias = (content[name] for name in ("random", "common", "bias"))
        return ErrorTerm(content["basis"], random, common, bias, content.get("rows", 0))


class UncertainPart(Struct, frozen=True):
    """A share of the time, with its class and item; equal items have equal errors."""

    of: str
    item: str
    share: float


class Trait(Struct, frozen=True):
    """A property of a whole run that its errors depend on."""

    of: str  # class of the errors
    item: str  # such as the name of the software; equal ones have equal errors
    term: ErrorTerm
    job: str = ""  # the random part belongs to it; equal jobs have equal errors, runs without a job their own


class Composition(Struct, frozen=True, dict=True):
    """Composition of a time; shares add up to 1."""

    device: str  # device with these errors
    whole: ErrorTerm
    terms: Mapping[str, ErrorTerm]  # of the classes of its parts
    parts: tuple[UncertainPart, ...]
    traits: tuple[Trait, ...] = ()

    @staticmethod
    def of(
        device: str,
        whole: ErrorTerm,
        terms: Mapping[str, ErrorTerm],
        amounts: Mapping[tuple[str, str], float],
        traits: Iterable[Trait] = (),
    ) -> Composition | None:
        """Return the composition of an amount for each (class, item); None if all are 0.

        Small items of a class become one part.
        """
        total = sum(amounts.values())
        if total <= 0:
            return None
        order = sorted((item for item in amounts if amounts[item] > 0), key=lambda key: (-amounts[key], key))
        joined: dict[tuple[str, str], float] = {}
        for place, (name, item) in enumerate(order):
            key = (name, item if place < MOST_PARTS else OTHERS)
            joined[key] = joined.get(key, 0.0) + amounts[name, item] / total
        parts = tuple(
            UncertainPart(name, item, round(share, DIGITS)) for (name, item), share in joined.items()
        )
        used = {name: terms[name] for name in sorted({part.of for part in parts})}
        return Composition(device, whole, MappingProxyType(used), parts, tuple(traits))

    @cached_property
    def shares(self) -> Mapping[str, float]:
        """Return the share of every class."""
        return _sums((part.of, part.share) for part in self.parts)

    @cached_property
    def bases(self) -> Mapping[str, float]:
        """Return the share of every basis that occurs, in the order of BASES."""
        sums = _sums((self.terms[part.of].basis, part.share) for part in self.parts)
        return {basis: sums[basis] for basis in BASES if basis in sums}

    @property
    def bias(self) -> float:
        """Return the mean logarithm of the true time by the predicted one."""
        of_run = self.whole.bias + math.fsum(trait.term.bias for trait in self.traits)
        return of_run + sum(self.terms[name].bias * share for name, share in self.shares.items())

    @property
    def sigma(self) -> float:
        """Return the standard error of the logarithm of the time."""
        return _length(self.errors("").values())

    def band(self, time_ns: int) -> tuple[int, int]:
        """Return the band that holds the true time with the probability LEVEL."""
        low, high = _around(self.bias, self.sigma)
        return round(time_ns * low), round(time_ns * high)

    def errors(self, run: str) -> Errors:
        """Return the errors by source; `run` marks sources of one run only."""
        errors: dict[tuple[Any, ...], float] = {
            (run, WHOLE): self.whole.random,
            (self.device, WHOLE, self.whole.common): self.whole.common,
        }
        for trait in self.traits:
            errors[(trait.job and self.device) or run, trait.of, trait.job] = trait.term.random
            errors[self.device, trait.of, trait.item, trait.term] = trait.term.common
        for name, share in self.shares.items():
            errors[self.device, name, self.terms[name]] = share * self.terms[name].common
        for part in self.parts:
            term = self.terms[part.of]
            of_run = run if part.item == OTHERS else ""
            errors[self.device, part.of, term, of_run, part.item] = part.share * term.random
        return errors

    def ratio(self, other: Composition, ratio: float) -> tuple[float, float]:
        """Return the band of the ratio of the other time to this one, given the predicted ratio."""
        before, after = self.errors("before"), other.errors("after")
        apart = (after.get(key, 0.0) - before.get(key, 0.0) for key in before.keys() | after.keys())
        low, high = _around(other.bias - self.bias, _length(apart))
        return ratio * low, ratio * high

    def summary(self, time_ns: int) -> dict[str, Any]:
        """Return the entry of summaries about the time."""
        low, high = self.band(time_ns)
        return {
            "level": LEVEL,
            "low_ns": low,
            "high_ns": high,
            "shares": {basis: round(share, DIGITS) for basis, share in self.bases.items()},
            **self.as_dict(),
        }

    def as_dict(self) -> dict[str, Any]:
        """Return the data that determine the band, for JSON."""
        return {
            "device": self.device,
            "whole": self.whole.as_dict(),
            "classes": [{"class": name, **term.as_dict()} for name, term in self.terms.items()],
            "parts": [{"class": part.of, "item": part.item, "share": part.share} for part in self.parts],
            "traits": [
                {"class": trait.of, "item": trait.item, **trait.term.as_dict(), "job": trait.job}
                for trait in self.traits
            ],
        }

    @staticmethod
    def read(content: Mapping[str, Any]) -> Composition:
        """Return the composition of an `as_dict` result."""
        terms = {entry["class"]: ErrorTerm.read(entry) for entry in content["classes"]}
        parts = tuple(
            UncertainPart(entry["class"], entry["item"], entry["share"]) for entry in content["parts"]
        )
        traits = tuple(
            Trait(entry["class"], entry["item"], ErrorTerm.read(entry), entry.get("job", ""))
            for entry in content.get("traits", ())
        )
        return Composition(content["device"], ErrorTerm.read(content["whole"]), terms, parts, traits)


def _sums(pairs: Iterable[tuple[str, float]]) -> dict[str, float]:
    sums: dict[str, float] = {}
    for name, amount in pairs:
        sums[name] = sums.get(name, 0.0) + amount
    return sums


def _length(errors: Iterable[float]) -> float:
    """Return the root of the sum of squares of independent errors, independent of their order."""
    return math.sqrt(math.fsum(error * error for error in errors))


def _around(bias: float, sigma: float) -> tuple[float, float]:
    return math.exp(bias - QUANTILE * sigma), math.exp(bias + QUANTILE * sigma)
