"""The variation of times from step to step: the entries of `variation` of the system file.

An entry multiplies the times of one kind of work by factors that are drawn at random. Entries with the same
kind multiply each other. They have an effect on samples (`et-sim run --samples`), and none on the run itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from msgspec import Struct

from et_sim.documents.keys import Remarks, Section, Slot, ValueKind, key, show
from et_sim.documents.kinds import TEXT, choice, number, sections

MOST_PARTS, MOST_FACTORS = 16, 1_000_000
MOST_SPREAD, MOST_NORMAL_SPREAD, MOST_FACTOR = 4, 0.25, 1000


class VariedKind(StrEnum):
    """The kinds of work whose times vary."""

    KERNEL = "kernel"
    HOST = "host"
    LAUNCH = "launch"
    COLLECTIVE = "collective"
    LINK = "link"


class VariationLevel(StrEnum):
    """The time for which a drawn factor holds."""

    ELEMENT = "element"
    STEP = "step"
    EVENT = "event"


class Family(StrEnum):
    """The families of distributions."""

    NORMAL = "normal"
    LOG_NORMAL = "log-normal"
    GAMMA = "gamma"
    MIXTURE = "mixture"
    EMPIRICAL = "empirical"


class SharedBy(StrEnum):
    """The ranks that share a draw."""

    RANK = "rank"
    NODE = "node"
    RACK = "rack"
    MACHINE = "machine"


def _factors(slot: Slot, value: Any) -> tuple[float, ...]:
    if not isinstance(value, list) or not value:
        raise slot.refusal(value)
    if len(value) > MOST_FACTORS:
        raise slot.refusal(value, why=f"it has {len(value):,} factors, more than {MOST_FACTORS:,}")
    for index, factor in enumerate(value):
        is_number = isinstance(factor, int | float) and not isinstance(factor, bool)
        if not is_number or not 0 < factor <= MOST_FACTOR:
            raise slot.refusal(factor, index=index)
    return tuple(map(float, value))


FACTORS = ValueKind(
    "list of factors", lambda _: f"a list of numbers > 0 and at most {MOST_FACTOR:,}", _factors
)


def _names(slot: Slot, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not value or not all(isinstance(name, str) and name for name in value):
        raise slot.refusal(value)
    return tuple(value)


NAMES = ValueKind("list of names", lambda _: "a list of texts", _names)


class MixturePart(Struct, frozen=True):
    """One distribution of a mixture: log-normal, or a single factor if it has no spread."""

    weight: float = number(
        "Probability of the part, relative to the weights of all parts.", required=True, above_minimum=True
    )
    factor: float = number(
        "Mean of its factors. Without the key: 1.", 1.0, above_minimum=True, maximum=MOST_FACTOR
    )
    spread: float = number(
        "Standard deviation of its factors over their mean; the part is log-normal. Without the key: 0.",
        0.0,
        maximum=MOST_SPREAD,
    )


class Variation(Struct, frozen=True):
    """A distribution of factors of the times of a kind of work, and what shares a draw."""

    kind: VariedKind = choice(
        "The work whose times vary: a `kernel` or copy of a device; an operator of a `host`, and the time "
        "between two; a `launch` by a host; a `collective`; all messages on a `link`.",
        choices=VariedKind,
        required=True,
    )
    level: VariationLevel = choice(
        "The time for which a draw holds: for an `element` (an NPU, host or link) through all samples; "
        "for one `step` of an element; for one `event` (kernel, operator, launch or collective).",
        choices=VariationLevel,
        required=True,
    )
    family: Family = choice(
        "The distribution of the factors. `normal` draws below 0 count as 0; `gamma` with a spread of 1 is "
        "the exponential distribution; `mixture` takes `parts`; each factor of `empirical` is equally "
        "likely.",
        choices=Family,
        required=True,
    )
    spread: float | None = number(
        "Standard deviation of the factors over their mean, for `normal` (at most "
        f"{MOST_NORMAL_SPREAD}), `log-normal` and `gamma`.",
        None,
        maximum=MOST_SPREAD,
    )
    factor: float = number(
        "Multiplies every draw. `normal`, `log-normal` and `gamma` have a mean of 1 before. Without the "
        "key: 1.",
        1.0,
        above_minimum=True,
        maximum=MOST_FACTOR,
    )
    correlation: float = number(
        "Correlation of a draw with the next one of the same element (lag 1), of the normal scores of both: "
        "along steps, or along the events of a step. Without the key: 0.",
        0.0,
        minimum=-1,
        above_minimum=True,
        below=1,
    )
    shared: SharedBy = choice(
        "The ranks that share a draw: each `rank` has its own; or all of a `node` or `rack`, the innermost "
        "and the two innermost dimensions of the network; or all of the `machine`. Without the key: `rank`.",
        SharedBy.RANK,
        choices=SharedBy,
    )
    parts: tuple[MixturePart, ...] = sections(
        "The parts of a `mixture`.", (), of=MixturePart, most=MOST_PARTS
    )
    factors: tuple[float, ...] = key(FACTORS, "The factors of `empirical`, such as measured ones.", ())
    operations: tuple[str, ...] = key(
        NAMES,
        "Names of nodes: only these vary. The events of each name are counted by themselves. Without the "
        "key: all of the kind.",
        (),
    )
    cause: str = key(
        TEXT,
        "Entries of one level and cause draw together: where one draws a large factor, the others do, too; "
        "such as the passes of a micro-batch, by the length of its sequences.",
        "",
    )
    place: str = ""  # of the entry, for messages

    def check(self, given: Mapping[str, Any], section: Section, _: Remarks) -> None:
        """Refuse keys of other families, a family without its keys, and levels without an order."""
        needed = _needed(self.family)
        if needed not in given:
            raise section.fault(
                f'family "{self.family}" without "{needed}"', f'give "{needed}", or choose another family'
            )
        for name in ("spread", "parts", "factors"):
            if name != needed and name in given:
                raise section.fault(
                    f'key "{name}" has no effect: family "{self.family}" takes "{needed}"',
                    f'leave "{name}" out, or choose another family',
                )
        if self.family is Family.NORMAL and (self.spread or 0) > MOST_NORMAL_SPREAD:
            raise section.fault(
                f'key "spread" is {show(self.spread)}, and normal factors would often be below 0',
                f'allowed: at most {MOST_NORMAL_SPREAD}; or take "log-normal" or "gamma"',
            )
        if self.level is VariationLevel.ELEMENT and given.get("correlation"):
            raise section.fault(
                'key "correlation" has no effect: an element draws once', 'take the level "step" or "event"'
            )
        if self.kind is VariedKind.LINK and self.operations:
            raise section.fault(
                'key "operations" has no effect: links have no nodes', 'leave "operations" out'
            )
        if self.kind is VariedKind.LINK:
            self._check_link(given, section)

    def _check_link(self, given: Mapping[str, Any], section: Section) -> None:
        if self.level is VariationLevel.EVENT:
            raise section.fault(
                'kind "link" has no events: a factor holds for all messages of a step',
                'take the level "element" or "step"',
            )
        if "shared" in given and self.shared is not SharedBy.RANK:
            raise section.fault('key "shared" has no effect: each link draws by itself', 'leave "shared" out')


def _needed(family: Family) -> str:
    """Return the key that a family requires."""
    match family:
        case Family.MIXTURE:
            return "parts"
        case Family.EMPIRICAL:
            return "factors"
        case _:
            return "spread"
