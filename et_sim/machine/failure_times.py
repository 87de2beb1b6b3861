"""Times of failures: keys and checks that those of networks and of GPUs share."""

from __future__ import annotations

from typing import Any

import numpy as np

from et_sim.basics.errors import InputError
from et_sim.basics.units import LONGEST_NS
from et_sim.documents.keys import Section, Slot, ValueKind, key
from et_sim.documents.kinds import TIME, count, number
from et_sim.machine.failure_effects import LEAST_SHARE

NS_PER_HOUR = 3_600_000_000_000


def _place(slot: Slot, value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
        raise slot.refusal(value)
    return str(value)


def _with_unit(slot: Slot, value: Any) -> float:
    if not isinstance(value, str):
        raise slot.refusal(value, why="it has no unit")
    found: float = TIME.read(slot, value)
    return found


PLACE = ValueKind("place", lambda _: "a name, a pattern or a number", _place)
NUMBERS = ValueKind("numbers", lambda _: "a number, or ranges such as 0-3,6", _place)
MOMENT = ValueKind("time with its unit", lambda _: "a time with its unit, such as 2s or 10ms", _with_unit)

AT = key(MOMENT, "When it fails, from the start of the run.", None, name="at")
RATE = number(
    "Failures per hour of each part, in place of `at`: the time of the first is drawn.",
    None,
    unit="1/h",
    above_minimum=True,
)
SEED = count("Another seed draws other times for `rate`.", 0)


def length(meaning: str) -> Any:
    """Return the key of the time from the failure to its end."""
    return key(MOMENT, f"{meaning} Without the key: to the end of the run.", None, name="for")


def share_left(meaning: str) -> Any:
    """Return the key of the share of its speed that a part keeps."""
    return number(meaning, None, minimum=LEAST_SHARE, below=1)


def first_failure(rate: float, seed: int, part: str) -> float:
    """Return the time of a part's first failure, which depends on the seed and its name only."""
    words = [seed, *part.encode()]
    drawn = float(np.random.default_rng(words).exponential(NS_PER_HOUR / rate))
    return min(drawn, float(LONGEST_NS))  # no run lasts longer


def check_times(section: Section, at_ns: float | None, rate: float | None, for_ns: float | None) -> None:
    """Refuse entries without a time, with two, or with times that change nothing."""
    if (at_ns is None) == (rate is None):
        cause = "the entry has both a time and a rate" if rate else "the entry has no time"
        raise section.fault(cause, 'give "at", such as 2s, or a "rate" per hour')
    if "seed" in section.content and rate is None:
        raise section.fault('key "seed" has no effect without "rate"', "leave it out", key="seed")
    if for_ns is not None and for_ns < 1:
        raise section.fault('key "for" is less than 1 ns', "leave the entry out", key="for")


def no_repair(section: Section, what: str) -> InputError:
    """Return the refusal of a length of a failure that loses state."""
    cause = f'key "for" is given, but a {what} that fails loses its state and cannot continue'
    return section.fault(cause, 'leave "for" out; et-sim goodput simulates restarts', key="for")
