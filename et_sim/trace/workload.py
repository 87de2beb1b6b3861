"""A workload: the trace of each rank, the groups that ranks name, and the work of a step.

Many ranks may share one trace (a template), so a workload's size is the size of its distinct traces.

A run of the workload is one step. `model_operations` are those of the model's mathematics, masked scores
included, without recomputation; `unmasked_operations` the same without masked scores; `hardware_operations`
those that kernels execute. All are divided by a device's peak (`et_sim.timeline.recorded`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct, field
from msgspec.structs import force_setattr

from et_sim.basics.engine_names import ENGINES, EXPERT_EXCHANGES, SEPARATE
from et_sim.basics.errors import TraceError
from et_sim.basics.lazy_names import late_hints
from et_sim.basics.units import plural, ranks_text
from et_sim.documents.keys import key, keys_of
from et_sim.documents.kinds import INTEGER, choice, choices, count, flag, number, text, time
from et_sim.trace.columns import BoolColumn, RowColumn, Trace
from et_sim.trace.stack import Stack, Templates

if TYPE_CHECKING:
    from et_sim.trace.group_rule import GroupRule

_number = partial(key, INTEGER, minimum=1, maximum=10**30)


class Step(Struct, frozen=True):
    """The work of a step, over all ranks; None if unknown."""

    tokens: int = _number("The number of tokens, or samples, of all ranks.", required=True)
    model_operations: int | None = _number(
        "Operations that the model's mathematics need.", None, name="model_operations"
    )
    hardware_operations: int | None = _number(
        "Operations that kernels execute.", None, name="hardware_operations"
    )
    datatype: str = text(
        "The datatype of the products; utilisation refers to its peak.",
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
        """Return the step as a manifest holds it."""
        operations = (self.model_operations, self.hardware_operations)
        values = (
            *(self.tokens, *operations, self.datatype or None),
            *(self.unmasked_operations, self.kinds or None),
        )
        return {
            key.name: value for key, value in zip(keys_of(Step), values, strict=True) if value is not None
        }


class MadeFor(Struct, frozen=True):
    """The software that a workload was made for, and its effects on a run."""

    name: str = text("The name of the description.", required=True)
    about: str = text("A short description.", "", may_be_empty=True)
    launch_ns: float = time("The time of the host for a launch.", 0.0)
    step_ns: float = time("The time of the host before the first launch.", 0.0)
    processors: int = count(
        "The most processors that a collective takes from kernels; 0: as in its library.", 0
    )
    kernels: float = number("Factor on the times of kernels.", 1.0, above_minimum=True, maximum=100)
    is_assumed: bool = flag(
        "True if the job names no software and this is the default.", False, name="assumed"
    )
    host_waits: bool = flag(
        "True if the host waits for the messages that kernels wait for.", False, name="host-waits"
    )

    engine: str = choice("The inference engine whose own all-reduces run.", "", choices=ENGINES)
    expert_exchange: str = choice(
        "The kernels by which tokens reach their experts.",
        "",
        name="expert-exchange",
        choices=EXPERT_EXCHANGES,
    )
    eager: bool = flag("True if it launches kernels one by one, and not in a graph.", False)
    reserved: int = count(
        "The processors that exchanges hold throughout, at most half: no kernel runs on them. Exchanges of "
        "DeepEP with experts take memory from kernels beside them, too.",
        0,
    )
    separate: tuple[str, ...] = choices(
        "Work that has kernels of its own in the workload, which others do within other kernels.",
        (),
        choices=SEPARATE,
        may_be_empty=True,
    )

    def as_written(self) -> dict[str, Any]:
        """Return the keys of a manifest that it has values for."""
        keys = keys_of(MadeFor)
        factor = self.kernels if self.kernels != 1 else None
        figures = (self.launch_ns, self.step_ns, self.processors, factor)
        waits = (self.is_assumed, self.host_waits)
        engine = (self.engine, self.expert_exchange, self.eager, self.reserved, list(self.separate))
        values = (self.name, self.about, *figures, *waits, *engine)
        return {key.name: value for key, value in zip(keys, values, strict=True) if value}


FEW = 6  # ranks of a job that a sentence lists


class Job(Struct, frozen=True, eq=False):
    """One of several workloads side by side: its rank r runs on `npus[r]`, which is the rank of the run."""

    name: str
    workload: str  # as named in the job file
    npus: RowColumn
    placed: str  # placement of the NPUs: given, packed, spread, random
    seed: int | None = None  # of a random placement
    start_ns: int = 0

    def named(self, npu: int) -> str:
        """Return the rank of the job on an NPU, in words; empty if there is none."""
        ranks = np.flatnonzero(np.asarray(self.npus) == npu)
        return f"rank {ranks[0]} of job {self.name}" if len(ranks) else ""

    def numbered(self, npus: npt.ArrayLike) -> str:
        """Return the job with its ranks on some NPUs, as numbers in the job and in the run; empty: none."""
        ranks = np.flatnonzero(np.isin(self.npus, npus))
        if not len(ranks):
            return ""
        verb, here = "is" if len(ranks) == 1 else "are", np.asarray(self.npus)[ranks]
        if (np.diff(here) > 0).all():
            return f"{self.name}: its {ranks_text(ranks)} {verb} {ranks_text(here)} here"
        pairs = [f"{own} is {rank}" for own, rank in zip(ranks[:FEW], here[:FEW], strict=True)]
        more = ", …" if len(ranks) > FEW else ""
        return f"{self.name}: its rank {', '.join(pairs)}{more} here"


@late_hints
class Workload(Struct, frozen=True, eq=False):
    """A workload: `templates[template_of_rank[r]]` is the trace of rank r."""

    templates: Sequence[Trace]
    template_of_rank: RowColumn
    source: str = "<python>"
    # (path, content hash) of every file read, for the run's manifest
    inputs: tuple[tuple[str, str], ...] = ()
    # remarks of the reader, one sentence each
    notices: tuple[str, ...] = ()
    # per template: comm_src and comm_dst are distances from the rank, modulo the number of ranks; empty: in
    # none
    relative_peers: tuple[bool, ...] = ()
    # groups that follow a rule, by the name that nodes give as `pg_name`
    group_rules: Mapping[str, GroupRule] = field(default_factory=dict)
    # true if `inputs` are the files of the ranks, one each and in rank order
    has_file_per_rank: bool = False
    # the profile for machines that name none; empty: the default
    profile: str = ""
    # several jobs on one machine, in the order of the job file; other ranks are idle
    jobs: tuple[Job, ...] = ()
    # groups from jobs, which replace those of the machine
    job_groups: dict[str, tuple[int, ...]] = field(default_factory=dict)
    # the work of a run, for tokens per second and MFU, or None
    step: Step | None = None
    # the software that it represents, or None
    software: MadeFor | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.templates, Templates):
            force_setattr(self, "templates", Templates(self.templates))
        _check_templates(self)
        for name, rule in self.group_rules.items():
            if name.strip("0") == "" or (name.isdecimal() and name.startswith("0")):
                raise TraceError(
                    f'a group rule cannot be called "{name}"',
                    place=self.source,
                    remedy='"" and 0 mean all ranks; other numbers are written without leading zeros',
                )
            if self.ranks % rule.every:
                raise TraceError(
                    f'group rule "{name}" ({rule}) does not divide {self.ranks} ranks',
                    place=self.source,
                    remedy=f"the number of ranks must be a multiple of {rule.every}",
                )

    @property
    def ranks(self) -> int:
        """Return the number of ranks."""
        return len(self.template_of_rank)

    @property
    def ranks_per_template(self) -> npt.NDArray[np.int64]:
        """Return the number of ranks of each template."""
        return np.bincount(self.template_of_rank, minlength=len(self.templates)).astype(np.int64)

    @property
    def nodes(self) -> int:
        """Return the number of nodes of all ranks together."""
        return int(self.nodes_per_template @ self.ranks_per_template)

    @property
    def nodes_per_template(self) -> npt.NDArray[np.int64]:
        """Return the number of nodes of each template."""
        return np.concatenate([np.zeros(0, np.int64), *(np.diff(stack.first) for stack in self.stacks())])

    @property
    def starts_ns(self) -> npt.NDArray[np.int64]:
        """Return the start of each template, after the first rank."""
        return np.array([head.start_ns for stack in self.stacks() for head in stack.heads], np.int64)

    def stacks(self) -> Iterable[Stack]:
        """Return all templates in as few stacks as possible."""
        assert isinstance(self.templates, Templates)
        return self.templates.stacks()

    def is_idle(self, rank: int) -> bool:
        """Return whether there are jobs, and the rank has none."""
        return bool(self.jobs) and not any((job.npus == rank).any() for job in self.jobs)

    @property
    def late_ns(self) -> int:
        """Return the largest start of a rank after the first one of its job."""
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
        """Return a mask of the templates that name their peers by their distance."""
        relative: BoolColumn = np.array(self.relative_peers or [False] * len(self.templates), np.bool_)
        return relative

    @staticmethod
    def of(traces: Sequence[Trace], source: str = "<python>") -> Workload:
        """Return a workload with one trace per rank, in rank order; an object given twice is stored once."""
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
            f"relative_peers has {plural(len(workload.relative_peers), 'entry', 'entries')}, and there are "
            f"{plural(count, 'template')}",
            place=workload.source,
            remedy="give one for each template, or none",
        )
