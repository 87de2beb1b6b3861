"""Merging of jobs into one workload: rank p is NPU p, and NPUs without a job are idle.

Templates are in the order of the jobs' lowest NPUs, so the order of the file has no effect.

In the trace of a job, peers, roots and groups become those of the NPUs that the job runs on. The group of all
ranks of a job has the name of the job, its group 7 the name JOB/7. `job_file` assigns the NPUs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct, structs
from msgspec.structs import replace

from et_sim.basics.errors import EtSimError, TraceError
from et_sim.basics.group_names import group_key
from et_sim.documents.recognise import FileKind, kind_of
from et_sim.jobs.job_file import JobEntry, JobFile, place_jobs, read_job_file
from et_sim.machine.readers import read_groups
from et_sim.machine.recognise import MachineFile
from et_sim.machine.sources import load
from et_sim.trace import TraceBuilder, Workload, read_workload
from et_sim.trace.builder_nodes import ROOT_COLUMN
from et_sim.trace.columns import NodeKind, RowColumn, Trace
from et_sim.trace.expansion import Expansion, with_distances
from et_sim.trace.group_attributes import ALL_RANKS, process_group_text, read_process_groups
from et_sim.trace.workload import Job, MadeFor


class Renaming:
    """Names of the ranks and groups of a job in a run on all NPUs of a machine."""

    def __init__(self, job: Job, npus: int, labels: Mapping[str, str]) -> None:
        """Initialise the names; `labels` holds other names of groups."""
        self._job, self._labels = job, labels
        self._spans_system = len(job.npus) == npus

    def group(self, name: str) -> str:
        """Return the name of a group of the job."""
        key = group_key(name)
        if key:
            return f"{self._job.name}/{self._labels.get(key, key)}"
        return "" if self._spans_system else self._job.name

    def members(self, ranks: Sequence[int]) -> tuple[int, ...]:
        """Return the NPUs of ranks of the job."""
        return tuple(self._job.npus[np.array(ranks, np.int64)].tolist())

    def trace(self, trace: Trace) -> Trace:
        """Return the trace as a rank of the job runs it; its peers are ranks of the job."""
        ends = {}
        for name, has_peer in (("comm_src", NodeKind.RECV), ("comm_dst", NodeKind.SEND)):
            ends[name] = getattr(trace, name).copy()
            rows = np.flatnonzero(_names_peer(trace, name, has_peer) | _names_root(trace, name))
            ends[name][rows] = self._placed(trace, rows, ends[name][rows])
        number: dict[str, int] = {"": 0}
        of_name = [number.setdefault(self.group(name), len(number)) for name in trace.group_names]
        return replace(
            trace,
            **ends,
            group=np.array(of_name, np.int32)[trace.group],
            group_names=tuple(number),
            metadata_text=self._metadata(trace),
            start_ns=trace.start_ns + self._job.start_ns,
        )

    def _placed(self, trace: Trace, rows: Any, ranks: RowColumn) -> Any:
        count = len(self._job.npus)
        outside = np.flatnonzero((ranks < 0) | (ranks >= count))
        if len(outside):
            at = outside[0]
            raise TraceError(
                f"{trace.describe(int(rows[at]))} names rank {int(ranks[at])}, and job"
                f' "{self._job.name}" has ranks 0 to {count - 1}',
                place=trace.source,
                remedy="correct comm_src or comm_dst, or give the job the traces of all its ranks",
            )
        return self._job.npus[ranks]

    def _metadata(self, trace: Trace) -> dict[int, str]:
        """Return the descriptions of the trace's groups as metadata."""
        described = read_process_groups(trace)
        if not described:
            return trace.metadata_text
        count = len(self._job.npus)
        groups = {}
        for name, ranks in described.items():
            members = range(count) if ranks == ALL_RANKS else ranks
            beyond = [rank for rank in members if not 0 <= rank < count]
            if beyond or (not name and len(members) != count):
                members_text = f"rank {beyond[0]}" if beyond else f"{len(members)} ranks"
                raise TraceError(
                    f'process group "{name or 0}" lists {members_text}, and job "{self._job.name}"'
                    f" has ranks 0 to {count - 1}",
                    place=trace.source,
                    remedy="give the job the traces of all its ranks, or correct the trace's metadata",
                )
            if name:
                groups[self.group(name)] = self.members(members)
        row = min(trace.metadata_text)
        return {row: process_group_text(groups)} if groups else {}


def _names_peer(trace: Trace, name: str, has_peer: NodeKind) -> Any:
    """Return the sends and receives that name a rank in this column: the peer, or their own end if given."""
    is_peer = trace.kind == has_peer
    is_message = (trace.kind == NodeKind.SEND) | (trace.kind == NodeKind.RECV)
    return is_message & (is_peer | trace.has(name)) & ~trace.is_unsized


def _names_root(trace: Trace, name: str) -> Any:
    """Return the collectives whose root is in this column."""
    kinds = [kind for kind, column in ROOT_COLUMN.items() if column == name]
    return (trace.kind == NodeKind.COLL) & np.isin(trace.comm_type, kinds) & trace.has(name)


_INSTEAD = {
    FileKind.LAYERS: "make traces of it first: et-convert text",
    FileKind.JOBS: "list its jobs in this file",
}


class _Part(Struct, frozen=True):
    """A job and its workload."""

    entry: JobEntry
    workload: Workload
    groups: Mapping[str, tuple[int, ...]]
    inputs: tuple[tuple[str, str], ...]  # files of its groups


def read_jobs(given: str | Path | Mapping[str, Any], npus: int, *, profile_is_open: bool) -> Workload:
    """Return the workload of a job file, or of a dict like one, on a machine with `npus` NPUs.

    `profile_is_open`: no other source selects the profile, so the jobs must agree on one.
    """
    file = read_job_file(given)
    parts = [_part(file, entry) for entry in file.entries]
    placed = place_jobs(file.entries, [part.workload.ranks for part in parts], npus)
    profile = _profile(parts, profile_is_open=profile_is_open)
    jobs = tuple(_job(part.entry, chosen) for part, chosen in zip(parts, placed, strict=True))
    inputs = dict.fromkeys(path for part in parts for path in (*part.workload.inputs, *part.inputs))
    software, differing = _software_of(parts)
    merger = _Merger(npus)
    for job, part in sorted(zip(jobs, parts, strict=True), key=lambda pair: int(pair[0].npus.min())):
        merger.add(job, part)
    return Workload(
        **merger.templates(),
        source=file.place,
        inputs=((file.place, file.digest), *inputs) if file.text else tuple(inputs),
        notices=(*dict.fromkeys(text for part in parts for text in part.workload.notices), *differing),
        profile=profile,
        jobs=jobs,
        job_groups=merger.groups,
        software=software,
    )


def _software_of(parts: Sequence[_Part]) -> tuple[MadeFor | None, tuple[str, ...]]:
    """Return the software that all jobs were made for, and a remark if it differs."""
    different = list(dict.fromkeys(part.workload.software for part in parts))
    if len(different) == 1:
        return different[0], ()
    lost = {
        "the host takes no time": any(made and (made.launch_ns or made.step_ns) for made in different),
        "no processors are reserved for exchanges": any(made and made.reserved for made in different),
    }
    if not any(lost.values()):
        return None, ()
    names = ", ".join(made.name if made else "none" for made in different)
    effects = ", and ".join(effect for effect, is_lost in lost.items() if is_lost)
    return None, (f"jobs were made for different software ({names}), so {effects}",)


def only(workload: Workload, job: Job) -> Workload:
    """Return the workload with only one job."""
    kept = np.zeros(workload.ranks, np.bool_)
    kept[job.npus] = True
    of_rank = np.where(kept, workload.template_of_rank, len(workload.templates))
    used, of_rank = np.unique(of_rank, return_inverse=True)
    templates = (*workload.templates, TraceBuilder().build())
    relative = (*workload.relative_peers, False) if workload.relative_peers else ()
    return structs.replace(
        workload,
        templates=tuple(templates[number] for number in used.tolist()),
        template_of_rank=of_rank.reshape(-1).astype(np.int32),
        relative_peers=tuple(relative[number] for number in used.tolist()) if relative else (),
        jobs=(job,),
    )


def _part(file: JobFile, entry: JobEntry) -> _Part:
    """Read a job's files; errors name the line of the job file that names them."""
    _refuse_others(file, entry)
    key = "workload"
    try:
        given = entry.workload
        workload = given if isinstance(given, Workload) else read_workload(file.beside(given))
        groups: Mapping[str, tuple[int, ...]] = {}
        inputs: tuple[tuple[str, str], ...] = ()
        if entry.groups is not None and workload.ranks:
            key = "groups"
            path = file.beside(entry.groups) if isinstance(entry.groups, str) else entry.groups
            source = load(path, MachineFile.GROUPS)
            groups, inputs = read_groups(source, workload.ranks), ((source.place, source.digest),)
    except EtSimError as error:
        input_noun = "a workload" if key == "workload" else "a groups file"
        cause = f"has {input_noun} that cannot be used: {error.place}: {error.cause}"
        raise entry.fault(key, cause, error.remedy) from None
    if not workload.ranks:
        raise entry.fault("workload", "has a workload of no ranks", "give one with traces")
    return _Part(entry, workload, groups, inputs)


def _refuse_others(file: JobFile, entry: JobEntry) -> None:
    """Refuse files that are clearly no workload of a job."""
    if not isinstance(entry.workload, Workload):
        path = file.beside(entry.workload)
        kind = kind_of(path)
        if kind in _INSTEAD:
            raise entry.fault("workload", f"has as its workload {kind}, {path}", _INSTEAD[kind])


def _profile(parts: list[_Part], *, profile_is_open: bool) -> str:
    named = {part.workload.profile: part.entry for part in parts if part.workload.profile}
    if len(named) > 1 and profile_is_open:
        first, second = named
        cause = f"is to run in the profile {second}, and job {named[first].name} in {first}"
        raise named[second].fault("workload", cause, "select one: --profile corrected")
    return next(iter(named)) if len(named) == 1 else ""


def _job(entry: JobEntry, npus: Any) -> Job:
    source = entry.workload if isinstance(entry.workload, str) else entry.workload.source
    return Job(entry.name, source, npus, entry.placed, entry.seed, entry.start_ns)


class _Merger:
    """Collector of the templates of jobs, and of the groups that these name."""

    def __init__(self, npus: int) -> None:
        self._npus = npus
        self._templates: list[Trace] = []
        self._relative: list[bool] = []
        self._of_rank = np.full(npus, -1, np.int32)
        self.groups: dict[str, tuple[int, ...]] = {}

    def add(self, job: Job, part: _Part) -> None:
        """Add a job; each of its ranks gets a template that names NPUs, or their distances."""
        workload, expansion = part.workload, Expansion(part.workload)
        labels = {number: f"{name}[{index}]" for number, (name, index) in expansion.rule_of_group.items()}
        renaming = Renaming(job, self._npus, labels)
        listed = {**part.groups, **expansion.groups, "": range(workload.ranks)}
        named = {renaming.group(name): renaming.members(of) for name, of in listed.items()}
        self.groups |= {name: members for name, members in named.items() if name}
        number_of: dict[tuple[Any, ...], int] = {}
        for rank, npu in enumerate(job.npus.tolist()):
            variant: tuple[Any, ...] = expansion.variant(rank)
            is_relative = workload.has_relative_peers(int(workload.template_of_rank[rank]))
            trace = None
            if is_relative:
                trace, distances = with_distances(renaming.trace(expansion.trace(rank)), npu, self._npus)
                variant = (variant[0], distances, *variant[2:])
            number = number_of.setdefault(variant, len(self._templates))
            if number == len(self._templates):
                self._templates.append(trace or renaming.trace(expansion.trace(rank)))
                self._relative.append(is_relative)
            self._of_rank[npu] = number

    def templates(self) -> dict[str, Any]:
        """Return all templates, and the template of each NPU, as arguments of a workload."""
        idle = self._of_rank < 0
        if idle.any():
            self._of_rank[idle] = len(self._templates)
            self._templates.append(TraceBuilder().build())
            self._relative.append(False)
        return {
            "templates": tuple(self._templates),
            "template_of_rank": self._of_rank,
            "relative_peers": tuple(self._relative),
        }
