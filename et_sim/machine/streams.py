"""Streams: the entries of the system file that say what runs side by side on an NPU.

Not here: which nodes they take (`et_sim.plan.streams`).
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from et_sim.errors import MachineError
from et_sim.machine.checks import fill_defaults, read_keys
from et_sim.machine.keys import Remarks
from et_sim.machine.model import SlowedWork, Stream, StreamWork
from et_sim.machine.object_tables import MOST_STREAMS, OVERLAP, OVERLAP_KEYS, STREAM_KEYS, STREAMS
from et_sim.machine.sources import Source
from et_sim.machine.stragglers import entry_place

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
