"""Max-min fair sharing in exact fractions: an oracle for the flow model.

Flows are fluids that begin at given times. Between two begins or ends, all have the rates of
progressive filling: all grow together, and those on a full link stop growing. Among flows with one `pair`,
the earliest go first, and flows that begin together share one rate equally.

The model sets rates once per nanosecond only, after all ends in it. With `once_per_ns`, so does the oracle.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from fractions import Fraction
from typing import NamedTuple


class Flow(NamedTuple):
    """A flow of bytes over links from a time on; its acknowledgements take the links `back`."""

    begin_ns: int
    size: int
    links: tuple[Hashable, ...]
    back: tuple[Hashable, ...] = ()
    pair: Hashable = None  # None: like no other


def end_times(
    flows: Sequence[Flow],
    capacity: Mapping[Hashable, Fraction],
    acknowledged: Mapping[Hashable, Fraction] | None = None,
    *,
    once_per_ns: bool = False,
) -> list[Fraction]:
    """Return the time at which the last byte of each flow leaves.

    `acknowledged`: the rate of acknowledgements on a link, relative to the rate that they acknowledge.
    """
    loads = [dict.fromkeys(flow.links, Fraction(1)) for flow in flows]
    for flow, load in zip(flows, loads, strict=True):
        for link in flow.back if acknowledged else ():
            load[link] = load.get(link, Fraction(0)) + acknowledged[link]
    left = {number: Fraction(flow.size) for number, flow in enumerate(flows)}
    to_begin = sorted(left, key=lambda number: flows[number].begin_ns)
    ends: dict[int, Fraction] = {}
    active: set[int] = set()
    now = Fraction(0)
    while to_begin or active:
        turns = first_of_pairs(flows, active)
        rates = fair_rates({numbers[0]: loads[numbers[0]] for numbers in turns}, capacity)
        rates = {number: rates[numbers[0]] / len(numbers) for numbers in turns for number in numbers}
        times = {number: now + left[number] / rate for number, rate in rates.items()}
        after = min([*times.values(), *(Fraction(flows[number].begin_ns) for number in to_begin[:1])])
        through = [number for number, end in times.items() if end <= after]
        if once_per_ns:
            through = [number for number, end in times.items() if whole_ns(end) <= whole_ns(after)]
        after = max([max(after, now), *(times[number] for number in through)])
        for number, rate in rates.items():
            left[number] -= rate * (after - now)
        now = after
        for number in through:
            active.remove(number)
            ends[number] = times[number]
        while to_begin and flows[to_begin[0]].begin_ns <= now:
            active.add(to_begin.pop(0))
    return [ends[number] for number in range(len(flows))]


def first_of_pairs(flows: Sequence[Flow], active: set[int]) -> list[list[int]]:
    """Return the flows whose turn it is, by their pairs."""
    lines: dict[Hashable, list[int]] = {}
    for number in sorted(active):
        pair = flows[number].pair
        lines.setdefault(("alone", number) if pair is None else pair, []).append(number)
    first = (min(flows[number].begin_ns for number in line) for line in lines.values())
    return [
        [number for number in line if flows[number].begin_ns == begin]
        for line, begin in zip(lines.values(), first, strict=True)
    ]


def whole_ns(time: Fraction) -> int:
    """Return the nanosecond in which a flow ends, or the next one if it ends just before that one."""
    return math.floor(time + Fraction(1, 2048))


def fair_rates(
    loads: Mapping[int, Mapping[Hashable, Fraction]], capacity: Mapping[Hashable, Fraction]
) -> dict[int, Fraction]:
    """Return rates of which none can grow without reducing one that is no larger.

    `loads`: the use of links by each flow, relative to its rate.
    """
    rates: dict[int, Fraction] = {}
    growing = set(loads)
    while growing:
        room = {}
        for link in {link for number in growing for link in loads[number]}:
            taken = sum((rates[number] * loads[number].get(link, 0) for number in rates), Fraction(0))
            users = sum((loads[number].get(link, 0) for number in growing), Fraction(0))
            room[link] = (capacity[link] - taken) / users
        level = min(room.values())
        full = {link for link, share in room.items() if share == level}
        for number in [number for number in growing if full & set(loads[number])]:
            growing.remove(number)
            rates[number] = level
    return rates
