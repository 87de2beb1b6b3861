"""The clocks of hosts, from the ends of kernels that verbose records of NCCL's Inspector have.

An operation with an input from every rank ends at one moment on all of them. The clocks are compared as those
of PyTorch's recordings are.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct

from converters.pytorch.clocks import FEWEST
from converters.pytorch.meetings import corrections
from et_sim.basics.units import format_ns, plural

if TYPE_CHECKING:
    from et_sim.calibrate.inspector import InspectorLog

JOINT = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
MOST_SHOWN = 5


class HostClocks(Struct, frozen=True):
    """The clocks of hosts, or the reason for which they are not known."""

    entries: tuple[dict[str, Any], ...] = ()
    operations: int = 0
    apart_ns: int = 0  # the typical distance of an end from the others of its operation, by set clocks
    why: str = ""

    def lines(self) -> Iterator[str]:
        """Yield the clocks that are furthest off, or why they are not known."""
        if self.why:
            yield f"clocks: not compared: {self.why}"
            return
        count = f"{plural(self.operations, 'operation')} on {plural(len(self.entries), 'host')}"
        off = sorted(self.entries, key=lambda entry: (-abs(entry["ahead_us"]), entry["host"]))
        agree = f"ends of {count} agree within {format_ns(self.apart_ns)}"
        if not off[0]["ahead_us"]:
            yield f"clocks: {agree}, as recorded"
            return
        yield f"clocks: {agree}, after these are set against the middle one:"
        for entry in off[:MOST_SHOWN]:
            error = f" ± {entry['error_us']:,.1f}" if entry["error_us"] is not None else ""
            drift = f", drift {entry['drift_ppm']:+.3g} ppm" if entry["drift_ppm"] else ""
            yield f"  {entry['host']}: {entry['ahead_us']:+,.1f}{error} us{drift}"
        if len(off) > MOST_SHOWN:
            yield f"  … and {len(off) - MOST_SHOWN} more (--json)"


def host_clocks(log: InspectorLog) -> HostClocks:
    """Return the clocks of the hosts of a log."""
    hosts, ends = log.ends(JOINT)
    if len(hosts) < 2:
        return HostClocks(why="the records are of one host")
    if not log.timed:
        return HostClocks(why="records have no times of kernels (NCCL_INSPECTOR_DUMP_VERBOSE=1 writes them)")
    ends = [(of, values) for of, values in ends if values.shape[1] >= FEWEST]
    known = sorted({at for of, _ in ends for at in of})
    if not known:
        return HostClocks(why=f"no communicator has {FEWEST} operations with times of all ranks")
    if len(_joined([set(of) for of, _ in ends])) < len(known):
        return HostClocks(
            why="some hosts share no operations with the others, not even through further hosts"
        )
    places = {host: at for at, host in enumerate(known)}
    ends = [([places[at] for at in of], values) for of, values in ends]
    begins = np.full(len(known), np.iinfo(np.int64).max)
    for of, values in ends:
        begins[of] = np.minimum(begins[of], values.min(axis=1))
    offset, apart, clocks = corrections(ends, begins)
    nothing = [None] * len(known)
    errors = nothing if clocks is None else (clocks.error_ns(begins) / 1000).tolist()
    drifts = nothing if clocks is None or not clocks.drifts else (1e6 * clocks.drift).tolist()
    entries = tuple(
        {"host": hosts[host], "ahead_us": -ahead / 1000, "error_us": error, "drift_ppm": drift}
        for host, ahead, error, drift in zip(known, offset.tolist(), errors, drifts, strict=True)
    )
    return HostClocks(entries, sum(values.shape[1] for _, values in ends), apart)


def _joined(groups: list[set[int]]) -> set[int]:
    """Return the hosts that operations connect with those of the first group."""
    found = set(groups[0])
    while more := {host for of in groups if found & of for host in of} - found:
        found |= more
    return found
