"""Times of the same operations in several steps, from recordings of all kinds.

A series has the times of an operation on ranks that do alike work: those with as many of it in a step. Its
times have the axes step, rank and number within the step. Its typical times are the medians over steps and
ranks. Records of NCCL's Inspector have no ranks and steps of their own here: each operation is a step of one
rank, and its time one of all collectives, by the median of its kind, size and group.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct

from et_sim.basics.errors import InputError, UsageError
from et_sim.basics.units import format_bytes, plural
from et_sim.calibrate.inspector import read_inspector
from et_sim.calibrate.logs import inspector_files
from et_sim.compute.registry import is_recorded, recorded_ns
from et_sim.machine.variation import VariedKind
from et_sim.trace.columns import NodeKind, Trace
from et_sim.trace.files import read_trace, traces_of
from et_sim.trace.recorded_steps.table import StepRecording, is_step_table, read_steps
from et_sim.trace.recorded_steps.work import COMPUTATIONS, recorded_work

FEWEST_STEPS = 4
FEWEST_OPERATIONS = 10  # of a kind, size and group of the Inspector
UNIT_NS = 1_000_000.0  # of times over the median
_RUN_TABLE = "timeline.arrow"
_COLLECTIVES = frozenset(("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast"))

Key = tuple[VariedKind, str, int]  # kind, name and rank
Times = Mapping[Key, list[int]]  # of one step, in the order of the program


class Series(Struct, frozen=True, eq=False):
    """The times of an operation on ranks that do alike work, in nanoseconds."""

    kind: VariedKind
    operation: str
    times: Any  # step, rank, number within the step

    def typical(self, steps: Sequence[int]) -> Any:
        """Return the median over some steps and all ranks."""
        return np.median(self.times[list(steps)], axis=(0, 1), keepdims=True)


class Recorded(Struct, frozen=True, eq=False):
    """The times of several steps of one job."""

    source: str
    steps: tuple[int, ...]  # numbers; neighbours follow each other if they differ by 1
    series: tuple[Series, ...]
    table: StepRecording | None  # of a recording that can be simulated
    left: tuple[str, ...]  # sentences on operations that were left out
    has_names: bool = True  # whether operations have those of nodes


def read_recorded(paths: Sequence[str]) -> Recorded:
    """Read a table of recorded steps; or traces or folders of runs, each of which is a step."""
    first = Path(paths[0])
    given = [Path(path) for path in paths]
    if records := inspector_files(given):
        for path in given:
            if not inspector_files([path]):
                raise UsageError(
                    f"{path} has no records of NCCL's Inspector, and other recordings have some",
                    remedy="name records, or other recordings",
                )
        return _of_inspector(records, ", ".join(paths))
    if is_step_table(first):
        if len(paths) > 1:
            raise UsageError(f"{first} has several steps, and there is another recording", remedy="name one")
        return _of_table(read_steps(first))
    steps = [
        _of_run(Path(path)) if (Path(path) / _RUN_TABLE).is_file() else _of_traces(path) for path in paths
    ]
    if len(steps) < FEWEST_STEPS:
        raise UsageError(
            f"{len(steps)} steps are too few for variation by step",
            remedy=f"name at least {FEWEST_STEPS} recordings of one step each, or a table of steps",
        )
    series, left = _series(steps)
    if not series:
        raise InputError(
            "no operation is in all steps", place=paths[0], remedy="name recordings of steps of one job"
        )
    return Recorded(", ".join(paths), tuple(range(len(steps))), tuple(series), None, tuple(left))


def _of_inspector(files: Sequence[Path], source: str) -> Recorded:
    """Return the times of operations to which the ranks came together, over the median of equal ones."""
    shares, left = list[Any](), list[str]()
    for (kind, ranks, _, size), times in read_inspector(files).table():
        chosen = times.is_complete & ~times.is_apart
        if chosen.sum() < FEWEST_OPERATIONS:
            left.append(
                f"{kind} of {format_bytes(size)} by {ranks} ranks: {plural(int(chosen.sum()), 'operation')} "
                f"to which all ranks came together, of {FEWEST_OPERATIONS} at least"
            )
            continue
        took = (times.us + times.late_us / 2)[chosen]
        shares.append(took / np.median(took))
    if not shares:
        remedy = "give records of all ranks, and of more operations"
        raise InputError("; ".join(left[:3]), place=source, remedy=remedy)
    values = np.concatenate(shares)[:, None, None] * UNIT_NS
    series = Series(VariedKind.COLLECTIVE, "collectives", values)
    return Recorded(source, tuple(range(len(values))), (series,), None, tuple(left), has_names=False)


def _of_table(recording: StepRecording) -> Recorded:
    if len(recording.steps) < FEWEST_STEPS:
        raise InputError(
            f"{len(recording.steps)} steps are too few for variation by step",
            place=recording.source,
            remedy=f"give a recording of at least {FEWEST_STEPS} steps",
        )
    series, left = [], []
    for kind, values in recorded_work(recording).items():
        if not values.any():
            left.append(f"{kind}: takes no time")
            continue
        varied = VariedKind.KERNEL if kind in COMPUTATIONS else VariedKind.COLLECTIVE
        # a clock that is fast may leave no time
        positive = np.maximum(values, 1).astype(np.float64)
        series += [Series(varied, kind, positive[:, :, at]) for at in range(positive.shape[2])]
    return Recorded(recording.source, recording.steps, tuple(series), recording, tuple(left))


def _of_traces(prefix: str) -> Times:
    """Return the recorded times of the traces of a prefix."""
    paths = traces_of(prefix)
    if not paths:
        if Path(prefix).is_file():
            raise InputError(
                "is no sound table of steps",
                place=prefix,
                remedy="give a whole Parquet file of StragglerAnalysis, or prefixes of converted recordings",
            )
        raise UsageError(
            f"there is no {prefix}.0.et, no run and no table of steps",
            remedy="convert recordings with et-convert, one prefix for each step",
        )
    times: dict[Key, list[int]] = {}
    for rank, path in paths.items():
        trace = read_trace(path)
        for kind, row in _rows(trace):
            times.setdefault((kind, trace.node_name(row), rank), []).append(int(recorded_ns(trace)[row]))
    return times


def _rows(trace: Trace) -> Iterator[tuple[VariedKind, int]]:
    recorded = is_recorded(trace)
    communicates = np.isin(trace.kind, (NodeKind.COLL, NodeKind.SEND, NodeKind.RECV))
    kernel = (trace.kind == NodeKind.COMP) & ~trace.is_cpu
    host = (trace.kind == NodeKind.COMP) & trace.is_cpu
    for kind, rows in (
        (VariedKind.KERNEL, kernel),
        (VariedKind.HOST, host),
        (VariedKind.COLLECTIVE, communicates),
    ):
        yield from ((kind, row) for row in np.flatnonzero(rows & recorded).tolist())


def _of_run(folder: Path) -> Times:
    """Return the simulated times of a run, without waiting for others."""
    import pyarrow as pa

    columns = ["actor", "node", "name", "kind", "lane", "start_ns", "end_ns", "waiting_ns"]
    try:
        with pa.OSFile(str(folder / _RUN_TABLE)) as file:
            table = pa.ipc.open_file(file).read_all().select(columns).to_pylist()
    except (OSError, KeyError, pa.ArrowException) as error:
        cause = f"is not the table of a run: {str(error).splitlines()[0]}"
        raise InputError(cause, place=str(folder / _RUN_TABLE), remedy="simulate again") from None
    times: dict[Key, list[int]] = {}
    for row in sorted(table, key=lambda row: (row["actor"], row["node"])):
        kind = _kind_of_row(row)
        if kind is not None and row["end_ns"] is not None:
            took = row["end_ns"] - row["start_ns"] - (row["waiting_ns"] or 0)
            times.setdefault((kind, row["name"], row["actor"]), []).append(took)
    return times


def _kind_of_row(row: Mapping[str, Any]) -> VariedKind | None:
    if row["lane"] == "cpu":
        return VariedKind.HOST
    if row["kind"] == "compute":
        return VariedKind.KERNEL
    return VariedKind.COLLECTIVE if row["kind"] in _COLLECTIVES else None


def _series(steps: Sequence[Times]) -> tuple[list[Series], list[str]]:
    """Return the series of operations that are in all steps equally often, and sentences on the others."""
    alike: dict[tuple[VariedKind, str, int], list[Any]] = {}
    left: dict[str, None] = {}
    keys: Iterable[Key] = sorted({key for step in steps for key in step})
    for key in keys:
        counts = {len(step.get(key, ())) for step in steps}
        if len(counts) > 1:
            left[f"{key[1]}: not equally often in all steps"] = None
            continue
        times = np.array([step[key] for step in steps], np.float64)
        if times.max() <= 1:
            left[f"{key[1]}: takes no time"] = None
            continue
        alike.setdefault((key[0], key[1], counts.pop()), []).append(np.maximum(times, 1))
    return [Series(kind, name, np.stack(ranks, axis=1)) for (kind, name, _), ranks in alike.items()], list(
        left
    )
