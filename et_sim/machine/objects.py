"""Reading the objects of the system file: `accuracy`, `costs`, `streams` and `time-factors`.

Not here: their keys (`object_tables`, `uneven_tables`), which nodes streams take (`et_sim.plan.streams`), and
what is known of accuracy where a file says nothing (`accuracy`).
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from types import MappingProxyType
from typing import Any

from et_sim.basics.errors import MachineError
from et_sim.basics.uncertainty import Term
from et_sim.machine.accuracy import DEFAULTS, DEVICE, FAMILY, Accuracy
from et_sim.machine.checks import fill_defaults, nearest, read_keys, refusal
from et_sim.machine.costs import Costs
from et_sim.machine.keys import Remarks
from et_sim.machine.model import SlowedWork, Stream, StreamWork, TimeFactors, WorkKind
from et_sim.machine.object_tables import (
    ACCURACY,
    ACCURACY_KEYS,
    COSTS,
    COSTS_KEYS,
    MOST_STREAMS,
    OVERLAP,
    OVERLAP_KEYS,
    STREAM_KEYS,
    STREAMS,
    TERM_KEYS,
)
from et_sim.machine.sources import Source
from et_sim.machine.stragglers import ALL, entry_place, read_ranks
from et_sim.machine.uneven_tables import TIME_FACTOR_KEYS

DECIMALS = 1000


def read_streams(entries: list[dict[str, Any]], place: str, remarks: Remarks) -> tuple[Stream, ...]:
    """The entries of the key "streams"."""
    if len(entries) > MOST_STREAMS:
        raise MachineError(
            f'key "{STREAMS}" has {len(entries)} entries',
            place=place,
            remedy=f"allowed: at most {MOST_STREAMS}",
        )
    found: dict[str, Stream] = {}
    for index, entry in enumerate(entries):
        where = entry_place(place, STREAMS, index)
        stream = _stream(Source(where, entry, ""), remarks)
        if stream.name in found:
            raise MachineError(
                f'an entry before is called "{stream.name}", too',
                place=where,
                remedy="give each its own name",
            )
        found[stream.name] = stream
    return tuple(found.values())


def read_overlap(given: dict[str, Any], place: str, remarks: Remarks) -> tuple[SlowedWork, ...]:
    """The key "overlap"; factors of 1 change nothing."""
    source = Source(f'{place}: "{OVERLAP}"', given, "")
    factors = read_keys(source, OVERLAP_KEYS, remarks)
    found = []
    for name, number in factors.items():
        factor = Fraction(str(number))
        if (factor * DECIMALS).denominator != 1:
            cause = f'key "{name}" is {number}, with more than three decimals'
            raise MachineError(cause, place=source.place, remedy="round it: work is counted exactly")
        if factor > 1:
            found.append(SlowedWork(StreamWork(name), factor, source.place))
    return tuple(found)


def _stream(source: Source, remarks: Remarks) -> Stream:
    values = fill_defaults(read_keys(source, STREAM_KEYS, remarks), STREAM_KEYS, source.place, remarks)
    takes = frozenset(StreamWork(work) for work in values["takes"])
    if "group" in values and StreamWork.COLLECTIVES not in takes:
        raise MachineError(
            'key "group" has no effect: the entry takes no collectives',
            place=source.place,
            remedy='add "collectives" to "takes", or leave "group" out',
        )
    return Stream(
        name=values["name"],
        takes=takes,
        at_a_time=values["at-a-time"],
        nodes=values.get("nodes"),
        group=values.get("group"),
        recorded=values.get("stream"),
        place=source.place,
    )


TIME_FACTORS = "time-factors"


def read_time_factors(entries: list[dict[str, Any]], place: str, remarks: Remarks) -> tuple[TimeFactors, ...]:
    """The entries of the key "time-factors"."""
    return tuple(
        _entry(Source(entry_place(place, TIME_FACTORS, index), entry, ""), remarks)
        for index, entry in enumerate(entries)
    )


def _entry(source: Source, remarks: Remarks) -> TimeFactors:
    given = read_keys(source, TIME_FACTOR_KEYS, remarks)
    factors = {kind: given[kind.value] for kind in WorkKind if kind.value in given}
    if not factors:
        raise MachineError(
            "the entry gives no factor",
            place=source.place,
            remedy=f"give at least one of {', '.join(WorkKind)}",
        )
    return TimeFactors(
        ranks=read_ranks(given.get("ranks", ALL), source.place),
        name=given.get("name"),
        factors=factors,
        place=source.place,
    )


WATTS = ("busy-watts", "idle-watts", "network-watts")


def read_costs(given: dict[str, Any], place: str, remarks: Remarks) -> Costs | None:
    """The object `costs`; None where it says nothing."""
    if not given:
        return None
    source = Source(f'{place}: "{COSTS}"', given, "")
    values = read_keys(source, COSTS_KEYS, remarks)
    named = [name for name in WATTS if name in values]
    if named and not {"busy-watts", "idle-watts"} <= set(named):
        missing = next(name for name in WATTS if name not in values)
        raise MachineError(
            f'key "{named[0]}" without "{missing}": the energy of a run would leave a part out',
            place=source.place,
            remedy='give "busy-watts" and "idle-watts", or neither',
        )
    if values.get("busy-watts", 0) < values.get("idle-watts", 0):
        raise MachineError(
            f'"busy-watts" {values["busy-watts"]:g} is below "idle-watts" {values["idle-watts"]:g}',
            place=source.place,
            remedy="exchange them",
        )
    if "currency" in values and "price-per-hour" not in values:
        raise MachineError(
            'key "currency" has no effect without "price-per-hour"',
            place=source.place,
            remedy="give both, or neither",
        )
    filled = fill_defaults(values, COSTS_KEYS, source.place, Remarks())
    fields: dict[str, Any] = {key.field: filled.get(key.name) for key in COSTS_KEYS}
    return Costs(**fields)


def read_accuracy(given: dict[str, Any], place: str, remarks: Remarks) -> Accuracy | None:
    """The object `accuracy`; None where there is none."""
    if ACCURACY not in given:
        return None
    place = f'{place}: "{ACCURACY}"'
    terms, device = dict(DEFAULTS), ""
    for name, value in given[ACCURACY].items():
        if name == DEVICE:
            device = read_keys(Source(place, {name: value}, ""), ACCURACY_KEYS, remarks)[name]
            continue
        if name not in DEFAULTS and name not in FAMILY:
            known = (DEVICE, *DEFAULTS, *FAMILY)
            remedy = nearest(name, known) or f"known keys: {', '.join(known)}"
            raise MachineError(f'key "{name}" is not known', place=place, remedy=remedy)
        if not isinstance(value, dict):
            raise refusal(replace(ACCURACY_KEYS[-1], name=name), value, place)
        read = read_keys(Source(f'{place}: "{name}"', value, ""), TERM_KEYS, remarks)
        usual = DEFAULTS[name if name in DEFAULTS else FAMILY[name]]
        terms[name] = Term(**{**usual.as_dict(), **read})
    return Accuracy(device, MappingProxyType(terms))
