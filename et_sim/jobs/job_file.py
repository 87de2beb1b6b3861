"""The job file: which workloads run, on which NPUs, and from when on.

    jobs:
      - name: training
        workload: step              # a trace prefix or a manifest, from this file's folder
        npus: 0-7                   # rank r runs on the r-th of these; or packed, spread, random
      - { name: serving, workload: serve, npus: random, seed: 1, start: 20us }

Jobs that name their NPUs get these. Then the others, in the order of the file, choose among those that are
free, in ascending order:

- packed: the first ones;
- spread: every k-th, at distances as equal as whole numbers allow;
- random: the first ones of a shuffled order, which depends on the seed and nothing else; ranks are in that
  order, too.

Everything is checked where it stands. Not here: traces (`merging`).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct

from et_sim.basics.errors import EtSimError, InputError, TraceError, UsageError
from et_sim.basics.units import LONGEST_NS, format_ns, parse_ranks, parse_time_ns, plural
from et_sim.documents.keys import Section, nearest, show
from et_sim.machine.texts import parse_yaml
from et_sim.machine.topology.fields import MOST, Fields
from et_sim.plan.splitmix import splitmix64
from et_sim.trace.disk import read_bytes
from et_sim.trace.workload import Workload

GIVEN, PACKED, SPREAD, RANDOM = "given", "packed", "spread", "random"
PLACEMENTS = (PACKED, SPREAD, RANDOM)
IN_PYTHON = "<jobs>"
_NAME = re.compile(r"[A-Za-z_][\w.-]{0,63}", re.ASCII)
_NPUS_FORMS = 'allowed: NPUs such as 0-7 or "0-14/2", a list of them, or packed, spread or random'
_MOST_SEED = (1 << 63) - 1


class JobEntry(Struct, frozen=True):
    """A job as the file has it."""

    section: Section  # where it stands
    name: str
    workload: str | Workload
    groups: str | Mapping[str, Any] | None
    placed: str
    npus: tuple[int, ...]  # only where they are given
    seed: int | None
    start_ns: int

    def fault(self, key: str, cause: str, remedy: str, index: int | None = None) -> InputError:
        """An error about one of its keys, or an entry of the list that stands there."""
        return self.section.fault(f"job {show(self.name)} {cause}", remedy, key=key, index=index)


class JobFile(Struct, frozen=True):
    """All jobs, in the order of the file."""

    place: str
    text: str  # empty: it is no file
    digest: str  # sha256 of the file
    entries: tuple[JobEntry, ...]

    def beside(self, name: str) -> Path:
        """A file that the job file names, which is looked for in its folder."""
        return Path(self.place).parent / name if self.text else Path(name)


def read_job_file(given: str | Path | Mapping[str, Any]) -> JobFile:
    """Read the file at a path, or take a dict with the same keys."""
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
    _refuse_odd_keys(section)
    return JobFile(place, text, digest, _entries(Fields(section)))


def _entries(fields: Fields) -> tuple[JobEntry, ...]:
    for place, entry in enumerate(fields.entries("jobs")):
        _refuse_odd_keys(fields.section.entry("jobs", entry, place))
    parts = fields.parts("jobs")
    fields.done()
    if not parts:
        remedy = "list them: jobs: [ { name: training, workload: step, npus: 0-7 }, … ]"
        raise fields.fault("jobs", "there are no jobs", remedy)
    entries = tuple(_entry(part) for part in parts)
    known: dict[str, int] = {}
    for row, entry in enumerate(entries):
        if entry.name in known:
            first = entries[known[entry.name]].section.at("name")
            where = f"at {first.rpartition(': ')[2]}"
            raise entry.fault("name", f"is named like the one {where}", "give every job a name of its own")
        known[entry.name] = row
    return entries


def _refuse_odd_keys(section: Section) -> None:
    for key in section.content if isinstance(section.content, dict) else ():
        if not isinstance(key, str):
            raise section.fault(f"key {show(key)} is not known", "keys are texts, such as name")


def _entry(part: Fields) -> JobEntry:
    name = part.value("name")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        remedy = "allowed: a letter, then letters, digits and . _ -"
        if name is None:
            raise part.missing("name", remedy)
        raise part.fault("name", f"a job cannot be called {show(name)}", remedy)
    workload = part.value("workload")
    if not isinstance(workload, Workload) and (not isinstance(workload, str | Path) or not str(workload)):
        if workload is None:
            raise part.missing("workload", "give the prefix of its traces, or its manifest")
        cause = f"the workload of job {show(name)} is {show(workload)}"
        raise part.fault("workload", cause, "give the prefix of its traces, or its manifest, as a text")
    groups = part.value("groups")
    if groups is not None and not isinstance(groups, str | Path | Mapping):
        cause = f"the groups of job {show(name)} are {show(groups)}"
        raise part.fault("groups", cause, "give a groups file, in which ranks are those of the job")
    placed, npus = _npus(part, name)
    entry = JobEntry(
        section=part.section,
        name=name,
        workload=workload if isinstance(workload, Workload) else str(workload),
        groups=str(groups) if isinstance(groups, Path) else groups,
        placed=placed,
        npus=npus,
        seed=_seed(part, name, placed),
        start_ns=_start_ns(part, name),
    )
    part.done()
    return entry


def _npus(part: Fields, name: str) -> tuple[str, tuple[int, ...]]:
    """How the job is placed, and the NPUs if they are given, in the order of the ranks."""
    value = part.value("npus", PACKED)
    if isinstance(value, str) and value.isalpha():
        if value in PLACEMENTS:
            return value, ()
        raise part.fault("npus", f"job {show(name)} is placed {show(value)}", _hint(value))
    try:
        if isinstance(value, str):
            pieces = parse_ranks(value)
            beyond = max(piece[-1] for piece in pieces)
            if beyond >= MOST:
                raise part.fault("npus", f"job {show(name)} is placed on NPU {beyond}", _NPUS_FORMS)
            return GIVEN, tuple(npu for piece in pieces for npu in piece)
        listed = [value] if _is_whole(value) else list(value) if _is_list(value) else None
    except UsageError as error:
        cause = f"the NPUs of job {show(name)}: {error.cause}"
        raise part.fault("npus", cause, _NPUS_FORMS) from None
    if not listed:
        raise part.fault("npus", f"the NPUs of job {show(name)} are {show(value)}", _NPUS_FORMS)
    for place, npu in enumerate(listed):
        if not _is_whole(npu):
            cause = f"job {show(name)} is placed on {show(npu)}"
            raise part.section.fault(cause, _NPUS_FORMS, key="npus", index=place)
    return GIVEN, tuple(int(npu) for npu in listed)


def _hint(word: str) -> str:
    return nearest(word, PLACEMENTS) or _NPUS_FORMS


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) or hasattr(value, "tolist")


def _is_whole(value: Any) -> bool:
    return not isinstance(value, bool) and hasattr(value, "__index__")


def _seed(part: Fields, name: str, placed: str) -> int | None:
    value = part.value("seed")
    forms = f"allowed: a whole number from 0 to {_MOST_SEED}"
    if placed != RANDOM:
        if value is not None:
            cause = f"the seed of job {show(name)} has no effect: its NPUs are {placed}"
            raise part.fault("seed", cause, "leave it out, or write npus: random")
        return None
    if value is None:
        cause = f"job {show(name)} is placed at random, and has no seed"
        raise part.fault("npus", cause, "give one, so that the run can be repeated: seed: 1")
    if not _is_whole(value) or not 0 <= value <= _MOST_SEED:
        raise part.fault("seed", f"the seed of job {show(name)} is {show(value)}", forms)
    return int(value)


def _start_ns(part: Fields, name: str) -> int:
    value = part.value("start", 0)
    forms = "allowed: whole nanoseconds from 0 on, such as 500ns or 20us; a bare number is in ns"
    called = f"the start of job {show(name)} is {show(value)}"
    if isinstance(value, int | float) and not isinstance(value, bool) and value < 0:
        raise part.fault("start", f"{called}, which is before the beginning", forms)
    try:
        start = parse_time_ns(value)
    except EtSimError:
        raise part.fault("start", called, forms) from None
    if start != int(start):
        raise part.fault("start", f"{called}, which is no whole number of nanoseconds", forms)
    if start > LONGEST_NS:
        raise part.fault("start", called, f"allowed: at most {format_ns(LONGEST_NS)}")
    return int(start)


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
