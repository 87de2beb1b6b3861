"""Latencies of work that nothing else delays: after its launch, its stream, an event.

Work begins when its launch has arrived on the device, when earlier work of its stream has ended, and when the
awaited events have happened. A recording shows only the last of these. The others are estimated by the median
over all work for which only one of them can have decided. No estimate is later than the recorded start. If
work began after its launching call had returned, no estimate is earlier than that return: a call can take
long for other reasons (the first launch of a kernel may load its code for milliseconds), and that time
belongs to the host. If a kernel began within a long call and nothing else delayed it, the excess of the call
came before the launch.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from msgspec import Struct

from converters.pytorch.calls import Calls, DeviceWork, Flags, Recording, named, running_most
from converters.pytorch.columns import NONE, EventKind
from converters.pytorch.graph import Column
from et_sim.basics.unique import unique

_ENOUGH = 5  # samples that determine a median
_LONGEST_NS, _LONGEST_OF_WORKERS_NS = 100_000, 1_000_000  # a longer time is no latency
_LONG_AGO = -(1 << 62)
Pairs = tuple[Column, Column]


class Latencies(Struct, frozen=True, eq=False):
    """The usual latencies."""

    arrival_ns: Column  # by work: when its launch permitted its start
    turn_ns: int  # from the end of work to the start of the next on its stream
    event_ns: int  # from the end of work to the start of work that awaits it


def find_latencies(given: Recording, awaited: Pairs) -> Latencies:
    """Estimate the latencies from a recording."""
    device, calls, work = given.device, given.calls, given.work
    start, call = work.start_ns, np.maximum(work.call, 0)
    ended, happened = before_on_stream(work), np.full(len(work), _LONG_AGO)
    np.maximum.at(happened, awaited[1], work.end_ns[awaited[0]])
    arrival = start.copy()
    if not len(calls) or not len(work):
        return Latencies(arrival, 0, 0)
    by_operator = calls.is_operator[call]  # hands it to a worker; in linked files, represents its launches
    launched = (work.call != NONE) & ~(by_operator & (device.node_id is not None))
    begun = np.where(launched, calls.start_ns[call], start)
    most = np.where(by_operator, _LONGEST_OF_WORKERS_NS, _LONGEST_NS)
    by_launch = launched & (np.maximum(ended, happened) <= begun) & _is_latency(start - begun, most)
    names = device.name[calls.row[call]]
    lasts = calls.end_ns[call] - begun  # duration of the call: the fallback for arrival
    lasts = np.minimum(lasts, _median(lasts[launched], 0))
    samples = by_launch.sum() >= _ENOUGH
    usual = np.where(samples, _median((start - begun)[by_launch], 0), lasts)
    for name in unique(names[by_launch]).tolist():
        of_name = by_launch & (names == name)
        if of_name.sum() >= _ENOUGH:
            usual[names == name] = _median((start - begun)[of_name], 0)
    arrives = begun + usual
    is_after = (start >= calls.end_ns[call]) & ~_holds_others(calls)[call]
    arrives[is_after] = np.maximum(arrives, calls.end_ns[call])[is_after]
    longer = calls.end_ns[call] - begun - _median((calls.end_ns[call] - begun)[launched], 0)
    is_within = launched & ~is_after & (np.maximum(ended, happened) <= begun) & ~by_operator
    is_within &= device.kind[work.row] == EventKind.KERNEL
    is_within &= ~np.isin(names, named(device, "wait_own"))
    arrives[is_within] += np.maximum(longer, 0)[is_within]
    arrival[launched] = np.minimum(start, arrives)[launched]
    by_turn = launched & (ended > np.maximum(arrival, happened)) & _is_latency(start - ended)
    turn = _median((start - ended)[by_turn], 0)
    by_event = launched & (happened > np.maximum(arrival, ended)) & _is_latency(start - happened)
    return Latencies(arrival, turn, _median((start - happened)[by_event], turn))


def before_on_stream(work: DeviceWork) -> Column:
    """Return by work when all earlier work of its stream had ended."""
    latest = np.full(len(work), _LONG_AGO)
    if len(work):
        most = running_most(work.lane, work.end_ns)
        latest[1:] = np.where(work.lane[1:] == work.lane[:-1], most[:-1], _LONG_AGO)
    return latest


def _holds_others(calls: Calls) -> Flags:
    """Return a mask of the calls that make others: their nodes end before they return."""
    is_holding = np.zeros(len(calls), np.bool_)
    is_holding[calls.parent[calls.parent != NONE]] = True
    return is_holding


def _is_latency(lasted: Column, most: Column | int = _LONGEST_NS) -> Any:
    return (lasted >= 0) & (lasted < most)


def _median(samples: Column, otherwise: int) -> int:
    return int(np.median(samples)) if len(samples) else otherwise
