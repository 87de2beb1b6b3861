"""A workload: which rank runs which trace, the groups the ranks name, and what a step does for its user.

Many ranks may share one trace (a template), so a workload's size is the size of its distinct traces.

A run of the workload is one step. `model_operations` are those that the mathematics of the model need,
masked scores included, whatever is computed again; `unmasked_operations` the same without masked scores;
`hardware_operations` those that kernels execute. All are divided by a device's peak
(`et_sim.timeline.recorded`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct, field
from msgspec.structs import force_setattr

from et_sim.basics.errors import TraceError
from et_sim.basics.quick_dataclass import quick_dataclass
from et_sim.documents.keys import key, keys_of
from et_sim.documents.kinds import INTEGER, count, flag, number, text, time
from et_sim.trace.columns import BoolColumn, RowColumn, Trace
from et_sim.trace.group_rule import GroupRule
from et_sim.trace.stack import Stack, Templates

_number = partial(key, INTEGER, minimum=1, maximum=10**30)


@quick_dataclass(frozen=True)
class Step:
    """Of all ranks together; None: nobody says."""

    tokens: int = _number("How many tokens, or samples, all ranks work on.", required=True)
    model_operations: int | None = _number(
        "Operations that the model's mathematics need.", None, name="model_operations"
    )
    hardware_operations: int | None = _number(
        "Operations that kernels execute.", None, name="hardware_operations"
    )
    datatype: str = text(
        "Of the products, whose peak operations are held against.",
        "",
        name="dtype",
        form='a name such as "bf16"',
    )
    unmasked_operations: int | None = _number(
        "`model_operations` without scores that masks leave out.", None, name="unmasked_operations"
    )
    kinds: str = text(
        "Words for the kind of job and plan, by which errors of its time differ: `training`, `experts`, "
        "`long-sequences`.",
        "",
        form='words such as "training experts"',
    )

    def as_written(self) -> dict[str, Any]:
        """As a manifest has it."""
        operations = (self.model_operations, self.hardware_operations)
        values = (
            *(self.tokens, *operations, self.datatype or None),
            *(self.unmasked_operations, self.kinds or None),
        )
        return {
            key.name: value for key, value in zip(keys_of(Step), values, strict=True) if value is not None
        }


@quick_dataclass(frozen=True)
class MadeFor:
    """The software that a workload was made for, and what its runs take of it."""

    name: str = text("What the description is called.", required=True)
    about: str = text("What it is, in a few words.", "", may_be_empty=True)
    launch_ns: float = time("Of the host, for a launch.", 0.0)
    step_ns: float = time("Of the host, before the first launch.", 0.0)
    processors: int = count("That a collective takes from kernels at most; 0: as its library has it.", 0)
    kernels: float = number("Factor on the times of kernels.", 1.0, above_minimum=True, maximum=100)
    is_assumed: bool = flag("Whether it is the default, since the job names none.", False, name="assumed")
    host_waits: bool = flag(
        "Whether the host waits for the messages that kernels wait for.", False, name="host-waits"
    )

    def as_written(self) -> dict[str, Any]:
        """Return the keys of a manifest that it has values for."""
        keys = keys_of(MadeFor)
        factor = self.kernels if self.kernels != 1 else None
        figures = (self.launch_ns, self.step_ns, self.processors, factor)
        values = (self.name, self.about, *figures, self.is_assumed, self.host_waits)
        return {key.name: value for key, value in zip(keys, values, strict=True) if value}


class Job(Struct, frozen=True, eq=False):
    """One of several workloads side by side: its rank r runs on `npus[r]`, which is the rank of the run."""

    name: str
    workload: str  # as the job file names it
    npus: RowColumn
    placed: str  # how the NPUs were found: given, packed, spread, random
    seed: int | None = None  # of a random placement
    start_ns: int = 0

    def named(self, npu: int) -> str:
        """Which rank of the job an NPU is, in words; empty: none."""
        ranks = np.flatnonzero(np.asarray(self.npus) == npu)
        return f"rank {ranks[0]} of job {self.name}" if len(ranks) else ""


class Workload(Struct, frozen=True, eq=False):
    """`templates[template_of_rank[r]]` is the trace of rank r."""

    templates: Sequence[Trace]
    template_of_rank: RowColumn
    source: str = "<python>"
    # (path, content hash) of every file read, for the run's manifest.
    inputs: tuple[tuple[str, str], ...] = ()
    # What the reader accepted but somebody should know, one sentence each.
    notices: tuple[str, ...] = ()
    # Per template: comm_src and comm_dst are distances from the rank, modulo the number of ranks. Empty:
    # in no template.
    relative_peers: tuple[bool, ...] = ()
    # Groups that follow a rule, by the name that nodes give as `pg_name`.
    group_rules: Mapping[str, GroupRule] = field(default_factory=dict)
    # Whether `inputs` are the files of the ranks, one each and in rank order.
    has_file_per_rank: bool = False
    # The profile it is to be simulated in where no machine names one; empty: whichever is the default.
    profile: str = ""
    # Several jobs on one machine, in the order of the job file; ranks of none of them do nothing.
    jobs: tuple[Job, ...] = ()
    # Groups that jobs bring, instead of those of the machine.
    job_groups: dict[str, tuple[int, ...]] = field(default_factory=dict)
    # What a run of it does, for tokens per second and MFU; None: nobody says.
    step: Step | None = None
    # What software it stands for; None: nothing states that.
    software: MadeFor | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.templates, Templates):
            force_setattr(self, "templates", Templates(self.templates))
        _check_templates(self)
        _check_groups(self)

    @property
    def ranks(self) -> int:
        """How many ranks the workload has."""
        return len(self.template_of_rank)

    @property
    def ranks_per_template(self) -> npt.NDArray[np.int64]:
        """How many ranks run each template."""
        return np.bincount(self.template_of_rank, minlength=len(self.templates)).astype(np.int64)

    @property
    def nodes(self) -> int:
        """Return nodes of all ranks together."""
        return int(self.nodes_per_template @ self.ranks_per_template)

    @property
    def nodes_per_template(self) -> npt.NDArray[np.int64]:
        """How many nodes each template has."""
        return np.concatenate([np.zeros(0, np.int64), *(np.diff(stack.first) for stack in self.stacks())])

    @property
    def starts_ns(self) -> npt.NDArray[np.int64]:
        """When each template begins, after the first rank."""
        return np.array([head.start_ns for stack in self.stacks() for head in stack.heads], np.int64)

    def stacks(self) -> Iterable[Stack]:
        """Return all templates, as few."""
        assert isinstance(self.templates, Templates)
        return self.templates.stacks()

    def is_idle(self, rank: int) -> bool:
        """Return whether there are jobs, and the rank has none."""
        return bool(self.jobs) and not any((job.npus == rank).any() for job in self.jobs)

    @property
    def late_ns(self) -> int:
        """How much later than its first rank the last one begins; of several jobs, the largest such span."""
        starts = self.starts_ns
        if not self.jobs:
            return int(starts.max(initial=0))
        of_rank = starts[self.template_of_rank]
        return max(int(of_rank[job.npus].max()) - job.start_ns for job in self.jobs)

    def trace(self, rank: int) -> Trace:
        """Return the trace of one rank."""
        return self.templates[int(self.template_of_rank[rank])]

    def has_relative_peers(self, template: int) -> bool:
        """Return whether a template names its peers by their distance."""
        return bool(self.relative_peers) and self.relative_peers[template]

    @property
    def are_relative(self) -> BoolColumn:
        """Which templates name their peers by their distance."""
        relative: BoolColumn = np.array(self.relative_peers or [False] * len(self.templates), np.bool_)
        return relative

    @staticmethod
    def of(traces: Sequence[Trace], source: str = "<python>") -> Workload:
        """One trace per rank, in rank order; the same object given twice is stored once."""
        index: dict[int, int] = {}
        templates: list[Trace] = []
        of_rank = np.empty(len(traces), np.int32)
        for rank, trace in enumerate(traces):
            if id(trace) not in index:
                index[id(trace)] = len(templates)
                templates.append(trace)
            of_rank[rank] = index[id(trace)]
        return Workload(tuple(templates), of_rank, source)


def _check_templates(workload: Workload) -> None:
    of_rank, count = workload.template_of_rank, len(workload.templates)
    if len(of_rank) and not 0 <= int(of_rank.min()) <= int(of_rank.max()) < count:
        raise TraceError(
            f"template_of_rank names templates {int(of_rank.min())} to {int(of_rank.max())}, "
            f"and there are {count}",
            place=workload.source,
            remedy="number the templates from 0",
        )
    if len(workload.relative_peers) not in (0, count):
        raise TraceError(
            f"relative_peers has {len(workload.relative_peers)} entries, and there are {count} templates",
            place=workload.source,
            remedy="give one for each template, or none",
        )


def _check_groups(workload: Workload) -> None:
    for name, rule in workload.group_rules.items():
        if name.strip("0") == "" or (name.isdecimal() and name.startswith("0")):
            raise TraceError(
                f'a group rule cannot be called "{name}"',
                place=workload.source,
                remedy='"" and 0 mean all ranks; other numbers are written without leading zeros',
            )
        if workload.ranks % rule.every:
            raise TraceError(
                f'group rule "{name}" ({rule}) does not divide {workload.ranks} ranks',
                place=workload.source,
                remedy=f"the number of ranks must be a multiple of {rule.every}",
            )
