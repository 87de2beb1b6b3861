"""The table of a recording: a row per operation, in the Parquet files of StragglerAnalysis (ByteDance).

Operations of a kind are kept in one array with the axes step, replica (data-parallel rank), stage and number
within the step. All times are in nanoseconds; starts count from the beginning of their step.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct

from et_sim.basics.errors import TraceError, unreadable
from et_sim.trace.columns import IntColumn

FORWARD, BACKWARD = "forward-compute", "backward-compute"
FORWARD_SEND, FORWARD_RECEIVE = "forward-send", "forward-recv"
BACKWARD_SEND, BACKWARD_RECEIVE = "backward-send", "backward-recv"
GATHER, SCATTER = "params-all-gather", "grads-reduce-scatter"
GARBAGE, NORMS, EMBEDDING = "gc", "layernorm-grads-all-reduce", "embedding-grads-all-reduce"
CLIP, OPTIMIZER = "optimizer-clip-main-grad", "optimizer"

COLUMNS = ("dp_rank", "stage", "rank", "step", "optype", "start_ts", "duration", "seq_id", "mc")
_ABOVE = frozenset((FORWARD_RECEIVE, BACKWARD_SEND))  # on all stages but the first
_BELOW = frozenset((FORWARD_SEND, BACKWARD_RECEIVE))  # on all stages but the last
_ENDS = frozenset((EMBEDDING,))
KINDS = (
    GATHER,
    FORWARD_RECEIVE,
    FORWARD,
    FORWARD_SEND,
    BACKWARD_RECEIVE,
    BACKWARD,
    BACKWARD_SEND,
    GARBAGE,
    NORMS,
    EMBEDDING,
    SCATTER,
    CLIP,
    OPTIMIZER,
)
_OPTIONAL = frozenset((GATHER, GARBAGE, NORMS, EMBEDDING, SCATTER))
_REMEDY = "give a recording with every operation of every rank in every step"
_MOST_SECONDS = 1e9
_MOST_MISSING = 16  # times as many operations as there are


class Operations(Struct, frozen=True, eq=False):
    """All operations of a kind; arrays have the axes step, replica, stage and number within the step."""

    stages: tuple[int, ...]  # that have them
    start: IntColumn
    duration: IntColumn

    @property
    def end(self) -> IntColumn:
        """Return the ends."""
        return self.start + self.duration


class StepRecording(Struct, frozen=True, eq=False):
    """Some steps of a job, each with the same operations."""

    source: str
    steps: tuple[int, ...]
    replicas: int
    stages: int
    ranks: IntColumn  # of the job, by replica and stage
    kinds: dict[str, Operations]

    @property
    def shape(self) -> tuple[int, int, int]:
        """Return the numbers of steps, replicas and stages."""
        return len(self.steps), self.replicas, self.stages

    def chosen(self, places: Any) -> StepRecording:
        """Return the recording of some steps, which are given by their places."""
        kinds = {
            kind: Operations(found.stages, found.start[places], found.duration[places])
            for kind, found in self.kinds.items()
        }
        steps = tuple(np.array(self.steps)[places].tolist())
        return StepRecording(self.source, steps, self.replicas, self.stages, self.ranks, kinds)


def is_step_table(path: Path) -> bool:
    """Check whether a file is a Parquet file with the columns of such a table."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with path.open("rb") as file:
            if file.read(4) != b"PAR1":
                return False
        names = pq.read_schema(path).names
    except (OSError, pa.ArrowException):
        return False
    return {"optype", "start_ts", "seq_id"} <= set(names)


def read_steps(path: Path) -> StepRecording:
    """Read the recording in a file; it must be complete."""
    columns = _columns(path)
    source = str(path)
    if not len(columns["step"]):
        raise TraceError(
            "the table has no rows", place=source, remedy="give a recording of at least one step"
        )
    unknown = sorted(set(columns["optype"].tolist()) - set(KINDS))
    if unknown:
        remedy = f"known kinds: {', '.join(KINDS)}"
        raise TraceError(f"operations of kind {unknown[0]!r} are not read", place=source, remedy=remedy)
    if columns["mc"].max() > 0:
        raise TraceError(
            f"model chunk {columns['mc'].max()} (column mc): stages of several chunks are not read",
            place=source,
            remedy="give the recording of a pipeline that is not interleaved",
        )
    steps, step = np.unique(columns["step"], return_inverse=True)
    replicas, stages = int(columns["dp_rank"].max()) + 1, int(columns["stage"].max()) + 1
    shape = (len(steps), replicas, stages)
    if math.prod(shape) > len(step):
        cause = f"{len(steps)} steps of {replicas} x {stages} ranks have {len(step)} operations in all"
        raise TraceError(cause, place=source, remedy=_REMEDY)
    kinds = {kind: _operations(kind, columns, step, shape, source) for kind in KINDS}
    found = {kind: operations for kind, operations in kinds.items() if operations is not None}
    _check_messages(found, source)
    return StepRecording(
        source, tuple(steps.tolist()), replicas, stages, _ranks(columns, (replicas, stages), source), found
    )


def _columns(path: Path) -> dict[str, Any]:
    """Return the columns of a file as arrays, after checks of their types and ranges."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    source = str(path)
    if path.is_dir():
        raise TraceError("is a folder", place=source, remedy="name a Parquet file of recorded steps")
    try:
        table = pq.read_table(path)
    except OSError as error:
        raise TraceError(f"cannot be read: {unreadable(error)}", place=source, remedy="name a file") from None
    except pa.ArrowException as error:
        cause = f"is not a sound Parquet file: {str(error).splitlines()[0]}"
        raise TraceError(cause, place=source, remedy="fetch the file again") from None
    missing = [name for name in COLUMNS if name not in table.column_names]
    if missing:
        raise TraceError(
            f"there is no column {missing[0]!r}", place=source, remedy=f"needed: {', '.join(COLUMNS)}"
        )
    return {name: _column(name, table[name], source) for name in COLUMNS}


def _column(name: str, column: Any, source: str) -> Any:
    import pyarrow as pa

    wanted = {"optype": pa.string(), "start_ts": pa.float64(), "duration": pa.float64()}.get(name, pa.int64())
    if column.null_count:
        raise TraceError(f"column {name!r} has empty values", place=source, remedy=_REMEDY)
    try:
        values = column.cast(wanted).to_numpy()
    except (pa.ArrowException, NotImplementedError):
        cause = f"column {name!r} has values of type {column.type}"
        raise TraceError(cause, place=source, remedy=f"give values of type {wanted}") from None
    if name in ("start_ts", "duration"):
        # a comparison with a value that is no number is false
        if not ((values >= 0) & (values < _MOST_SECONDS)).all():
            raise TraceError(
                f"column {name!r} has times outside 0 to 1e9 s", place=source, remedy="give seconds"
            )
        return np.rint(values * 1e9).astype(np.int64)
    if name in ("dp_rank", "stage", "rank", "step", "seq_id") and len(values) and values.min() < 0:
        raise TraceError(f"column {name!r} has negative numbers", place=source, remedy="count from 0")
    return values


def _operations(
    kind: str, columns: dict[str, Any], step: Any, shape: tuple[int, int, int], source: str
) -> Operations | None:
    rows = np.flatnonzero(columns["optype"] == kind)
    stages = _stages_of(kind, shape[2])
    if not len(rows) and (kind in _OPTIONAL or not stages):
        return None
    stage = columns["stage"][rows]
    strange = np.flatnonzero(~np.isin(stage, stages))
    if len(strange):
        cause = f"stage {stage[strange[0]]} of {shape[2]} has {kind}"
        raise TraceError(cause, place=source, remedy="such a stage has no partner for it")
    numbers = int(columns["seq_id"][rows].max()) + 1 if len(rows) else 1
    size = (shape[0], shape[1], len(stages), numbers)
    if math.prod(size) > _MOST_MISSING * len(rows):
        cause = f"{math.prod(size):,} {kind} are expected, and {len(rows):,} are there"
        raise TraceError(cause, place=source, remedy=_REMEDY)
    place = np.searchsorted(stages, stage)
    flat = np.ravel_multi_index((step[rows], columns["dp_rank"][rows], place, columns["seq_id"][rows]), size)
    count = np.bincount(flat, minlength=math.prod(size))
    if not (count == 1).all():
        cause = _miscounted(kind, count.reshape(size), stages, columns)
        raise TraceError(cause, place=source, remedy=_REMEDY)
    order = np.argsort(flat)
    start, duration = (columns[name][rows][order].reshape(size) for name in ("start_ts", "duration"))
    return Operations(tuple(stages), start, duration)


def _miscounted(kind: str, count: IntColumn, stages: list[int], columns: dict[str, Any]) -> str:
    """Return a sentence on the first operation that is missing or there twice."""
    step, replica, stage, number = (int(place[0]) for place in np.nonzero(count != 1))
    times = "is missing" if count[step, replica, stage, number] == 0 else "is there more than once"
    steps = np.unique(columns["step"])
    where = f"step {steps[step]}, dp_rank {replica}, stage {stages[stage]}"
    return f"{kind} number {number} of {where} {times}"


def _stages_of(kind: str, stages: int) -> list[int]:
    if kind in _ABOVE:
        return list(range(1, stages))
    if kind in _BELOW:
        return list(range(stages - 1))
    return sorted({0, stages - 1}) if kind in _ENDS else list(range(stages))


def _check_messages(kinds: dict[str, Operations], source: str) -> None:
    """Check that every micro-batch has a pass and a message of each direction."""
    micro_batches = kinds[FORWARD].start.shape[3]
    for kind in (BACKWARD, FORWARD_SEND, FORWARD_RECEIVE, BACKWARD_SEND, BACKWARD_RECEIVE):
        if kind in kinds and kinds[kind].start.shape[3] != micro_batches:
            raise TraceError(
                f"a step has {kinds[kind].start.shape[3]} {kind} and {micro_batches} {FORWARD}",
                place=source,
                remedy="give a recording with one of each for every micro-batch",
            )
    for kind in (CLIP, OPTIMIZER):
        if kinds[kind].start.shape[3] != 1:
            raise TraceError(f"a step has several {kind}", place=source, remedy="give steps with one update")


def _ranks(columns: dict[str, Any], shape: tuple[int, int], source: str) -> IntColumn:
    """Return the rank of the job by replica and stage."""
    pairs = np.unique(np.stack([columns["dp_rank"], columns["stage"], columns["rank"]]), axis=1)
    places, ranks = pairs[0] * shape[1] + pairs[1], pairs[2]
    if len(places) != shape[0] * shape[1] or len(np.unique(ranks)) != len(ranks):
        raise TraceError(
            "column rank is not one rank for each dp_rank and stage", place=source, remedy="give each its own"
        )
    return np.asarray(ranks.reshape(shape), np.int64)
