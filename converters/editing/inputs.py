"""What is edited: a workload, and beside each of its distinct traces the records of the file it came from.

Not here: any edit.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from converters.records import parse, split
from et_sim.basics.errors import TraceError
from et_sim.basics.files import is_file
from et_sim.trace import Trace, Workload, decode, read_workload
from et_sim.trace.columns import IntColumn, RowColumn
from et_sim.trace.disk import read_unpacked
from et_sim.trace.manifest import is_manifest


@dataclass(frozen=True, slots=True)
class Recorded:
    """A trace and the records of its file; `row[k]` is the trace's row of record k."""

    trace: Trace
    header: bytes
    records: list[bytes]
    row: RowColumn

    @property
    def source(self) -> str:
        """The file's name."""
        return self.trace.source

    def nodes(self) -> Iterator[Any]:
        """The messages of all nodes, in the order of the file."""
        return parse(iter((self.header, *self.records)), self.source, only_nodes=True)


@dataclass(frozen=True, slots=True)
class Input:
    """Everything that an edit starts from; `traces` are those of the workload's templates."""

    workload: Workload
    traces: tuple[Recorded, ...]
    is_manifest: bool

    @property
    def files(self) -> list[Path]:
        """All files that were read."""
        return [Path(path) for path, _ in self.workload.inputs]


def read_input(named: str, *, drop_dangling: bool = False) -> Input:
    """A prefix, a manifest, or one trace file, as `INPUT` of a command names it.

    With `drop_dangling`, dependencies on nodes that are not there are left out of the columns.
    """
    if is_file(Path(named)) and not is_manifest(named):
        workload = _of_one_file(Path(named), drop_dangling)
    else:
        workload = read_workload(named, drop_dangling=drop_dangling)
    content_of: dict[str, bytes] = {}
    recorded = []
    for trace in workload.templates:
        if trace.source not in content_of:
            content_of[trace.source] = read_unpacked(Path(trace.source))
        recorded.append(recorded_as(trace, content_of[trace.source]))
    return Input(workload, tuple(recorded), is_manifest(named))


def recorded_as(trace: Trace, content: bytes) -> Recorded:
    """`trace` is what the decoder made of `content`."""
    header, *records = split(content)
    nodes = parse(iter((header, *records)), trace.source, only_nodes=True)
    ids = np.fromiter((node.id for node in nodes), np.uint64, len(records))
    return Recorded(trace, header, records, np.searchsorted(trace.node_id, ids).astype(np.int32))


def _of_one_file(path: Path, drop_dangling: bool) -> Workload:
    import hashlib

    content = read_unpacked(path)
    trace = decode(content, str(path), drop_dangling=drop_dangling)
    of_rank = np.zeros(1, np.int32)
    inputs = ((str(path), hashlib.sha256(content).hexdigest()),)
    return Workload((trace,), of_rank, str(path), inputs, has_file_per_rank=True)


def start_micros(recorded: Recorded) -> IntColumn:
    """When each row was recorded to start, in microseconds; 0 if the file does not say."""
    starts: npt.NDArray[np.int64] = np.zeros(len(recorded.trace), np.int64)
    given = (min(node.start_time_micros, 2**63 - 1) for node in recorded.nodes())
    starts[recorded.row] = np.fromiter(given, np.int64, len(recorded.records))
    return starts


def refuse_cycle(recorded: Recorded) -> TraceError:
    """What to raise where an edit needs an order and there is none."""
    return TraceError(
        "nodes wait for each other in a circle, so they have no order",
        place=recorded.source,
        remedy="et-sim check names them: repair the trace first",
    )
