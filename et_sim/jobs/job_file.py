"""Job files: workloads, their NPUs, and their start times.

    jobs:
      - name: training
        workload: step              # a trace prefix or a manifest, from this file's folder
        npus: 0-7                   # rank r runs on the r-th of these; or packed, spread, random
      - { name: serving, workload: serve, npus: random, seed: 1, start: 20us }

Jobs that name their NPUs get these. The others, in the order of the file, then choose among the free ones, in
ascending order:

- packed: the first ones;
- spread: every k-th, at distances as equal as whole numbers allow;
- random: the first ones of a shuffled order, which depends only on the seed; ranks are in that order, too.

Refusals name the line of a value. `merging` reads the traces.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from et_sim.basics.errors import InputError, TraceError
from et_sim.basics.units import LONGEST_NS, plural
from et_sim.documents.keys import Remarks, Section, Slot, ValueKind, key, nearest, read, show
from et_sim.documents.kinds import COUNT, COUNTS, SOME_RANKS, TIME, of_type, sections
from et_sim.machine.texts import parse_yaml
from et_sim.plan.splitmix import splitmix64
from et_sim.trace.disk import read_bytes
from et_sim.trace.workload import Workload

GIVEN, PACKED, SPREAD, RANDOM = "given", "packed", "spread", "random"
PLACEMENTS = (PACKED, SPREAD, RANDOM)
IN_PYTHON = "<jobs>"
_NAME = re.compile(r"[A-Za-z_][\w.-]{0,63}", re.ASCII)
MOST = (1 << 24) - 1  # largest number of an NPU
_MOST_SEED = (1 << 63) - 1


def _name(slot: Slot, value: Any) -> str:
    if isinstance(value, str) and _NAME.fullmatch(value):
        return value
    raise slot.refusal(value)


def _npus(slot: Slot, value: Any) -> tuple[str, tuple[int, ...]]:
    """Return the placement of the job, and its NPUs in the order of ranks if they are given."""
    if isinstance(value, str) and value.isalpha():
        if value in PLACEMENTS:
            return value, ()
        raise slot.refusal(value, hint=nearest(value, PLACEMENTS))
    if isinstance(value, str):
        pieces = SOME_RANKS.read(slot, value)
        if max(piece[-1] for piece in pieces) > slot.key.maximum:
            raise slot.refusal(value, why=f"there is no NPU beyond {slot.key.maximum}")
        return GIVEN, tuple(npu for piece in pieces for npu in piece)
    is_list = isinstance(value, Sequence) or hasattr(value, "tolist")
    if hasattr(value, "__index__"):
        return GIVEN, (COUNT.read(slot, value),)
    return GIVEN, COUNTS.read(slot, list(value) if is_list else value)


def _start(slot: Slot, value: Any) -> int:
    start: float = TIME.read(slot, value)
    if start != int(start):
        raise slot.refusal(value, why="no whole number of nanoseconds")
    return int(start)


def _as_text(value: Any) -> Any:
    return str(value) if isinstance(value, Path) else value


NAME = ValueKind("name of a job", lambda _: "a letter, then letters, digits and . _ -", _name)
WORKLOAD = of_type("workload", "the prefix of its traces, or its manifest, as a text", str, Path, Workload)
GROUPS = of_type(
    "groups", "a groups file, in which ranks are those of the job", str, Path, Mapping, type(None)
)
NPUS = ValueKind(
    "NPUs", lambda _: 'NPUs such as 0-7 or "0-14/2", a list of them, or packed, spread or random', _npus
)
SEED = replace(
    COUNT, name="seed", read=lambda slot, value: None if value is None else COUNT.read(slot, value)
)
START = ValueKind(
    "start", lambda _: "whole nanoseconds from 0 on, such as 500ns or 20us; a bare number is in ns", _start
)


class JobEntry(Struct, frozen=True, eq=False):
    """An entry of the file."""

    section: Section  # place of the entry
    placed: str
    name: str = key(NAME, "Name of the job; no two jobs have the same name.", required=True)
    workload: str | Workload = key(
        WORKLOAD, "Workload of the job, from the job file's folder.", required=True, becomes=_as_text
    )
    npus: tuple[int, ...] = key(NPUS, "NPUs of the job; `packed` without the key.", (), maximum=MOST)
    seed: int | None = key(SEED, "Seed of a random placement.", None, maximum=_MOST_SEED)
    start_ns: int = key(START, "Time at which its ranks begin.", 0, maximum=LONGEST_NS)
    groups: str | Mapping[str, Any] | None = key(
        GROUPS, "Its groups file, from the job file's folder.", None, becomes=_as_text
    )

    @staticmethod
    def complete(given: Mapping[str, Any], *_: Any) -> dict[str, Any]:
        """Return the placement and the NPUs."""
        placed, npus = given.get("npus", (PACKED, ()))
        return {"placed": placed, "npus": npus}

    def check(self, *_: Any) -> None:
        """Refuse random placements without a seed, and seeds of others."""
        if self.placed != RANDOM and self.seed is not None:
            cause = f"has a seed, which has no effect: its NPUs are {self.placed}"
            raise self.fault("seed", cause, "leave it out, or write npus: random")
        if self.placed == RANDOM and self.seed is None:
            cause = "is placed at random, and has no seed"
            raise self.fault("npus", cause, "give one, so that the run can be repeated: seed: 1")

    def fault(self, key: str, cause: str, remedy: str, index: int | None = None) -> InputError:
        """Return an error about one of its keys, or an entry of the list of a key."""
        return self.section.fault(f"job {show(self.name)} {cause}", remedy, key=key, index=index)


class Jobs(Struct, frozen=True, eq=False):
    """Content of a job file."""

    jobs: tuple[JobEntry, ...] = sections("The jobs.", required=True, of=JobEntry)


class JobFile(Struct, frozen=True):
    """Jobs in the order of the file."""

    place: str
    text: str  # empty: it is no file
    digest: str  # sha256 of the file
    entries: tuple[JobEntry, ...]

    def beside(self, name: str) -> Path:
        """Return a file that the job file names, relative to its folder."""
        return Path(self.place).parent / name if self.text else Path(name)


def read_job_file(given: str | Path | Mapping[str, Any]) -> JobFile:
    """Read the file at a path, or a dict with the same keys."""
    if isinstance(given, Mapping):
        place, text, content, digest = IN_PYTHON, "", dict(given), ""
    else:
        place, raw = str(given), read_bytes(Path(given))
        try:
            text = raw.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise TraceError(f"byte {error.start} is not UTF-8 text", place=place) from None
        content, digest = parse_yaml(text, place), hashlib.sha256(raw).hexdigest()
    section = Section(place, content, error_type=TraceError).lined
    return JobFile(place, text, digest, read(Jobs, section, Remarks()).jobs)


LEAST_STRIDED = 3  # NPUs from which on a range has a step


def npus_text(npus: Any) -> str:
    """Return the NPU of each rank, in the form of `parse_ranks`."""
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
    """Return the NPUs of each job's ranks, on a machine with `npus` NPUs."""
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
