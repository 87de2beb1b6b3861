"""Whether the two recordings of a rank are of the same rank, run and time.

Recordings that were mixed up link by their names as well as those that belong together, so that processes,
ranks and spans are compared, too. Not here: recordings of different ranks (`folders`).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from converters.pytorch.calls import Calls
from converters.pytorch.columns import ABSENT, DeviceTrace, HostTrace
from converters.pytorch.linking import Links
from converters.pytorch.nesting import NONE
from et_sim.basics.errors import TraceError
from et_sim.basics.units import format_ns

_FEW = 0.5  # of the smaller recording's operators
_LEEWAY = 1.1  # by which what is linked may be longer than the execution trace was recorded
_LEEWAY_NS = 50_000_000


def doubts(host: HostTrace, device: DeviceTrace, calls: Calls, links: Links) -> Iterator[str]:
    """What speaks against the two belonging together."""
    if device.node_id is not None:  # one file
        return
    processes = sorted({lane.process for lane in device.lanes if lane.device == ABSENT} - {ABSENT})
    if host.process in processes:
        pass  # a rank may be that of a file's name only
    elif ABSENT not in (host.rank, device.rank) and host.rank != device.rank:
        yield f"one is of rank {host.rank} and the other of rank {device.rank}"
    elif processes and host.process != ABSENT:
        yield f"one is of process {host.process} and the other of process {processes[0]}"
    smaller = min(links.host_operators, links.device_operators)
    if links.linked <= _FEW * smaller:
        yield f"only {_rate(links)}" if smaller else "one of them holds no operators"
    elif took := _longer(host, calls, links):
        yield f"{took}"


def refuse_unrelated(host: HostTrace, device: DeviceTrace, links: Links, found: list[str]) -> None:
    """Raise for the first of some doubts."""
    if found:
        linked = "" if "operators" in found[0] else f"; {_rate(links)}"
        raise TraceError(
            f"does not belong to {host.path}: {found[0]}{linked}",
            place=device.path,
            remedy="give two recordings of one rank, made at the same time, or --force to convert these",
        )


def _rate(links: Links) -> str:
    smaller = max(min(links.host_operators, links.device_operators), 1)
    share = f"{100 * links.linked / smaller:.0f} %"
    return f"{links.linked:,} of {smaller:,} operators of the smaller one link ({share})"


def _longer(host: HostTrace, calls: Calls, links: Links) -> str:
    """How what is linked is longer than what was recorded, if it is."""
    linked = links.host_of_call != NONE
    recorded_ns = (host.finish_ms - host.start_ms) * 1_000_000
    if ABSENT in (host.start_ms, host.finish_ms) or recorded_ns <= 0 or not np.any(linked):
        return ""
    span = int(calls.end_ns[linked].max() - calls.start_ns[linked].min())
    if span <= _LEEWAY * recorded_ns + _LEEWAY_NS:
        return ""
    return (
        f"what links takes {format_ns(span)} in the timeline, and the execution trace was recorded for "
        f"{format_ns(recorded_ns)}"
    )
