"""Which NPUs jobs run on.

Jobs that name their NPUs get these. Then the others, in the order of the file, choose among those that are
free, in ascending order:

- packed: the first ones;
- spread: every k-th, at distances as equal as whole numbers allow;
- random: the first ones of a shuffled order, which depends on the seed and nothing else; ranks are in that
  order, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from et_sim.basics.units import plural
from et_sim.documents.keys import show
from et_sim.jobs.job_file import GIVEN, PACKED, SPREAD, JobEntry
from et_sim.plan.splitmix import splitmix64

LEAST_STRIDED = 3  # NPUs that are worth a range with a step


def npus_text(npus: Any) -> str:
    """Which NPU each rank runs on, as `parse_ranks` reads it."""
    ranges, listed, at = [], [int(npu) for npu in npus], 0
    while at < len(listed):
        step = listed[at + 1] - listed[at] if at + 1 < len(listed) else 0
        end = at + 1
        while step > 0 and end < len(listed) and listed[end] - listed[end - 1] == step:
            end += 1
        if step == 1 and end - at > 1:
            ranges.append(f"{listed[at]}-{listed[end - 1]}")
        elif end - at >= LEAST_STRIDED:
            ranges.append(f"{listed[at]}-{listed[end - 1]}/{step}")
        else:
            end = at + 1
            ranges.append(str(listed[at]))
        at = end
    return ",".join(ranges)


FREE = -1


def place_jobs(entries: Sequence[JobEntry], ranks: Sequence[int], npus: int) -> list[Any]:
    """The NPUs of each job's ranks, on a machine with `npus` NPUs."""
    job_of_npu = np.full(npus, FREE, np.int64)
    placed: list[Any] = [None] * len(entries)
    order = sorted(range(len(entries)), key=lambda job: entries[job].placed != GIVEN)
    for job in order:
        entry = entries[job]
        if entry.placed == GIVEN:
            chosen = _as_given(entry, ranks[job], npus)
            _refuse_overlap(entries, entry, job_of_npu[chosen], chosen)
        else:
            chosen = _chosen(entry, ranks[job], np.flatnonzero(job_of_npu == FREE), npus)
        job_of_npu[chosen] = job
        placed[job] = chosen.astype(np.int32)
    return placed


def _as_given(entry: JobEntry, ranks: int, npus: int) -> Any:
    beyond = next((place for place, npu in enumerate(entry.npus) if not 0 <= npu < npus), None)
    if beyond is not None:
        cause = f"is placed on NPU {entry.npus[beyond]}, and the network has {plural(npus, 'NPU')}"
        raise entry.fault("npus", cause, f"allowed: NPUs from 0 to {npus - 1}", beyond)
    if len(entry.npus) != ranks:
        cause = f"has {plural(ranks, 'rank')} and is placed on {plural(len(entry.npus), 'NPU')}"
        raise entry.fault("npus", cause, "name one NPU for each rank of its workload")
    chosen = np.array(entry.npus, np.int64)
    twice = np.flatnonzero(np.bincount(chosen) > 1)
    if len(twice):
        again = int(np.flatnonzero(chosen == twice[0])[1])
        raise entry.fault("npus", f"names NPU {twice[0]} twice", "an NPU runs one rank", again)
    return chosen


def _refuse_overlap(entries: Sequence[JobEntry], entry: JobEntry, owners: Any, chosen: Any) -> None:
    taken = np.flatnonzero(owners != FREE)
    if len(taken):
        first = taken[np.argmin(chosen[taken])]
        more = f" and {len(taken) - 1} more" if len(taken) > 1 else ""
        other = entries[int(owners[first])].name
        cause = f"overlaps with job {show(other)} on NPU {chosen[first]}{more}"
        raise entry.fault("npus", cause, "an NPU runs one job: give each of them other NPUs", int(first))


def _chosen(entry: JobEntry, ranks: int, free: Any, npus: int) -> Any:
    if ranks > len(free):
        cause = f"has {plural(ranks, 'rank')}, and {len(free)} of {plural(npus, 'NPU')} are free"
        raise entry.fault("npus", cause, "run fewer jobs together, or describe a machine of more NPUs")
    if entry.placed == PACKED:
        return free[:ranks]
    if entry.placed == SPREAD:
        return free[np.arange(ranks, dtype=np.int64) * len(free) // max(ranks, 1)]
    assert entry.seed is not None
    keys = splitmix64(splitmix64(free, entry.seed), 1)
    return free[np.argsort(keys, kind="stable")[:ranks]]
