"""Inputs and outputs of edits: distinct traces with the records of their files, and new files.

Unchanged records keep their bytes. Edited traces are written in the form of the input: one file per rank, or
a manifest and its templates. et-sim's own reader checks every file before any is written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct, field
from msgspec.structs import replace

from converters.files import trace_path, write_files
from converters.records import EXPECTED_MEMBER, Dropped, frame_bytes, parse, split
from converters.report import Converted, make_report
from et_sim.basics.errors import TraceError
from et_sim.basics.files import is_file
from et_sim.trace import Trace, Workload, decode, read_workload
from et_sim.trace.columns import IntColumn, RowColumn
from et_sim.trace.disk import ENDING, is_manifest, read_unpacked
from et_sim.trace.manifest import manifest_files
from et_sim.trace.schema import messages


class RecordedTrace(Struct, frozen=True):
    """A trace and the records of its file; `row[k]` is the trace's row of record k."""

    trace: Trace
    header: bytes
    records: list[bytes]
    row: RowColumn

    @property
    def source(self) -> str:
        """Return the name of the file."""
        return self.trace.source

    def nodes(self) -> Iterator[Any]:
        """Yield the messages of all nodes, in the order of the file."""
        return parse(iter((self.header, *self.records)), self.source, only_nodes=True)


class Input(Struct, frozen=True):
    """The input of an edit; `traces` are those of the workload's templates."""

    workload: Workload
    traces: tuple[RecordedTrace, ...]
    is_manifest: bool

    @property
    def files(self) -> list[Path]:
        """Return all files that were read."""
        return [Path(path) for path, _ in self.workload.inputs]


def read_input(named: str, *, drop_dangling: bool = False) -> Input:
    """Read a prefix, a manifest, or one trace file, as `INPUT` of a command names it.

    With `drop_dangling`, dependencies on missing nodes are left out of the columns.
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


def recorded_as(trace: Trace, content: bytes) -> RecordedTrace:
    """Return the records of `content` with `trace`, which was decoded from it."""
    header, *records = split(content)
    nodes = parse(iter((header, *records)), trace.source, only_nodes=True)
    ids = np.fromiter((node.id for node in nodes), np.uint64, len(records))
    return RecordedTrace(trace, header, records, np.searchsorted(trace.node_id, ids).astype(np.int32))


def _of_one_file(path: Path, drop_dangling: bool) -> Workload:
    import hashlib

    content = read_unpacked(path)
    trace = decode(content, str(path), drop_dangling=drop_dangling)
    of_rank = np.zeros(1, np.int32)
    inputs = ((str(path), hashlib.sha256(content).hexdigest()),)
    return Workload((trace,), of_rank, str(path), inputs, has_file_per_rank=True)


def start_micros(recorded: RecordedTrace) -> IntColumn:
    """Return the recorded start of each row in microseconds; 0 if the file has none."""
    starts: npt.NDArray[np.int64] = np.zeros(len(recorded.trace), np.int64)
    given = (min(node.start_time_micros, 2**63 - 1) for node in recorded.nodes())
    starts[recorded.row] = np.fromiter(given, np.int64, len(recorded.records))
    return starts


def refuse_cycle(recorded: RecordedTrace) -> TraceError:
    """Return the error for an edit that needs an order of a graph with a cycle."""
    return TraceError(
        "nodes wait for each other in a circle, so they have no order",
        place=recorded.source,
        remedy="et-sim check names them: repair the trace first",
    )


_MEMBER = dict(EXPECTED_MEMBER)


class Rewiring(Struct):
    """New parents (rows) of the nodes whose dependencies change, and counts of the old dependencies."""

    data: dict[int, list[int]] = field(default_factory=dict)
    ctrl: dict[int, list[int]] = field(default_factory=dict)
    bridged: int = 0  # dependencies on removed nodes that became dependencies on kept nodes
    dropped: int = 0  # dependencies on removed nodes without kept ancestors
    added: int = 0  # dependencies that replace the bridged ones


def set_attributes(node: Any, values: Mapping[str, Any]) -> None:
    """Set attributes to new values, in their present member or the usual one."""
    left = dict(values)
    for attribute in node.attr:
        if attribute.name in left:
            member = attribute.WhichOneof("value") or _MEMBER[attribute.name]
            setattr(attribute, member, _as(member, left.pop(attribute.name)))
    for name, value in left.items():
        setattr(node.attr.add(name=name), _MEMBER[name], value)


def _as(member: str, value: Any) -> Any:
    """Return the value as the member holds it: some writers store sizes as floating-point numbers."""
    return float(value) if member in ("double_val", "float_val") else value


Change = Callable[[Any], None]  # of a node's message, in place


def edited(
    recorded: RecordedTrace,
    keep: Any,
    bridges: Rewiring,
    changes: Mapping[int, Change] | None = None,
    added: Sequence[Any] = (),
) -> bytes:
    """Return the file with the rows for which `keep` holds, their new dependencies and changes, then new
    nodes.

    Dependencies on new nodes are numbers from `len(trace)` on.
    """
    ids = [*recorded.trace.node_id.tolist(), *(node.id for node in added)]
    stays = keep.tolist()
    changes = changes or {}
    kind = messages().Node
    records = [recorded.header]
    for row, record in zip(recorded.row.tolist(), recorded.records, strict=True):
        if not stays[row]:
            continue
        if row in bridges.data or row in changes:
            node = kind.FromString(record)
            if row in bridges.data:
                node.data_deps[:] = [ids[parent] for parent in bridges.data[row]]
                node.ctrl_deps[:] = [ids[parent] for parent in bridges.ctrl[row]]
            if row in changes:
                changes[row](node)
            record = node.SerializeToString(deterministic=True)
        records.append(record)
    records += [node.SerializeToString(deterministic=True) for node in added]
    return frame_bytes(records)


Notes = tuple[tuple[str, str], ...]


class Edited(Struct):
    """The result of an edit: per template its new file and the notes on it."""

    workload: Workload  # its traces are the old ones
    contents: list[bytes]
    notes: list[Notes]
    word: str  # the word of the report for the edit
    sources: list[str]  # the old file of each rank; of a manifest, of each template
    more: list[tuple[Path, bytes]] = field(default_factory=list)  # further files
    remarks: list[str] = field(default_factory=list)  # about all files together


def sources_of(given: Input) -> list[str]:
    """Return the file of each rank; of a manifest, of each template."""
    if given.workload.has_file_per_rank:
        return [path for path, _ in given.workload.inputs]
    return [trace.source for trace in given.traces]


def write_edited(given: Input, edit: Edited, prefix: str) -> list[Converted]:
    """Write all files or none; return the report, one entry per rank or template."""
    of_rank = edit.workload.template_of_rank.tolist()
    templates = range(len(edit.contents))
    if given.is_manifest:
        files = manifest_files(edit.workload, edit.contents, f"{prefix.removesuffix(ENDING)}{ENDING}")
        place_of = {content: str(path) for path, content in files[1:]}
        entries = [(template, place_of[edit.contents[template]]) for template in templates]
        files = [*files[1:], *edit.more, files[0]]
    else:
        entries = [(template, str(trace_path(prefix, rank))) for rank, template in enumerate(of_rank)]
        files = [*((Path(path), edit.contents[template]) for template, path in entries), *edit.more]
    first_path = dict(reversed(entries))
    traces = decoded([(edit.contents[template], first_path[template]) for template in templates])
    edit.workload = replace(edit.workload, templates=tuple(traces))
    reports = [make_report(trace, Dropped(), notes) for trace, notes in zip(traces, edit.notes, strict=True)]
    write_files(given.files, [path for path, _ in files], files)
    return [
        Converted(source, edit.word, (path,), reports[template])
        for source, (template, path) in zip(edit.sources, entries, strict=True)
    ]


def decoded(contents: Iterable[tuple[bytes, str]]) -> list[Trace]:
    """Return the traces that files will hold; equal files share one."""
    held: dict[bytes, Trace] = {}
    traces = []
    for content, source in contents:
        if content not in held:
            held[content] = decode(content, source)
        traces.append(held[content])
    return traces
