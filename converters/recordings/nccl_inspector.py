"""Records of NCCL's Inspector: times by group and size, and the ranks that come late."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from converters.recordings.format import RecordingFormat, RecordingTask
from et_sim.basics.errors import UsageError

if TYPE_CHECKING:
    from et_sim.calibrate.inspector import InspectorLog, OperationTimes

QUANTILES = (5, 50, 95, 99)
MOST_LATE = 5  # ranks that the report names


def _recognises(path: Path, begin: bytes) -> bool:  # noqa: ARG001
    return begin.lstrip()[:1] == b"{" and b'"inspector_output_format_version"' in begin


def _convert(task: RecordingTask) -> Iterator[str]:
    from converters.recordings.inspector_clocks import host_clocks
    from et_sim.calibrate.inspector import read_inspector

    if task.output:
        raise UsageError(
            "no traces can be made of it: records hold the times of collectives, and not what lies between",
            place=str(task.path),
            remedy="leave -o out, and calibrate a machine: et-sim calibrate nccl",
        )
    log = read_inspector(task.files)
    entries = [_entry(key, times) for key, times in log.table()]
    late = _late(log)
    clocks = host_clocks(log)
    notes = list(log.notes())
    if task.as_json:
        times = {"apart_ns": clocks.apart_ns, "hosts": list(clocks.entries), "unknown": clocks.why}
        yield json.dumps({"operations": entries, "late": late, "clocks": times, "notes": notes}, indent=2)
        return
    yield from _lines(log, entries, late)
    yield from clocks.lines()
    yield from (f"note: {note}" for note in notes)
    if any(times.is_complete.any() for _, times in log.table()):
        yield f"next: et-sim calibrate nccl {task.path} --machine NAME -o machine.json"
    else:
        yield "next: record all ranks: a machine is calibrated by operations of which each rank has a record"


def _entry(key: tuple[str, int, int, int], times: OperationTimes) -> dict[str, Any]:
    import numpy as np

    kind, ranks, nodes, size = key
    complete = times.is_complete
    chosen = complete if complete.any() else np.ones(len(complete), bool)
    us, late = (np.percentile(column[chosen], QUANTILES).tolist() for column in (times.us, times.late_us))
    named = [f"p{quantile}" for quantile in QUANTILES]
    return {
        "collective": kind,
        "ranks": ranks,
        "nodes": nodes,
        "bytes": size,
        "operations": len(complete),
        "complete": int(complete.sum()),
        "us": dict(zip(named, us, strict=True)),
        "late_us": dict(zip(named, late, strict=True)),
    }


def _late(log: InspectorLog) -> list[dict[str, Any]]:
    """Return the ranks that came last most often, with the time by which they did, at the median."""
    import numpy as np

    groups, ranks, late = [], [], []
    complete = np.zeros(len(log.communicators), np.int64)
    for _, times in log.table():
        complete += np.bincount(times.communicator[times.is_complete], minlength=len(complete))
        chosen = times.is_complete & times.is_apart
        groups.append(times.communicator[chosen])
        ranks.append(times.last[chosen])
        late.append(times.late_us[chosen])
    group, rank, by = (np.concatenate(parts) for parts in (groups, ranks, late))
    members, of = np.unique(np.stack([group, rank]), axis=1, return_inverse=True)
    counts = np.bincount(of.reshape(-1), minlength=members.shape[1])
    listed = []
    for at in np.argsort(-counts, kind="stable")[:MOST_LATE].tolist():
        number, member = (int(value) for value in members[:, at])
        known = log.communicators[number]
        listed.append(
            {
                "communicator": known.name or known.id,
                "rank": member,
                "process": log.processes.get((number, member), ""),
                "last_in": int(counts[at]),
                "of": int(complete[number]),
                "late_us": float(np.median(by[of.reshape(-1) == at])),
            }
        )
    return listed


def _lines(log: InspectorLog, entries: list[dict[str, Any]], late: list[dict[str, Any]]) -> Iterator[str]:
    from et_sim.basics.alignment import aligned
    from et_sim.basics.units import format_bytes, plural

    groups = plural(len(log.communicators), "communicator")
    versions = ", ".join(filter(None, log.versions)) or "no version"
    operations = plural(sum(entry["operations"] for entry in entries), "operation")
    yield f"{len(log.us):,} records of {operations} in {groups}, {versions}"
    head = (
        "collective",
        "ranks",
        "nodes",
        "bytes",
        "operations",
        "complete",
        "us: p50",
        "p95",
        "last one late: p50",
    )
    rows = [
        (
            *(str(entry[key]) for key in ("collective", "ranks", "nodes")),
            format_bytes(entry["bytes"]),
            *(f"{entry[key]:,}" for key in ("operations", "complete")),
            *(f"{entry['us'][key]:,.1f}" for key in ("p50", "p95")),
            f"{entry['late_us']['p50']:,.1f}",
        )
        for entry in entries
    ]
    yield from aligned([head, *rows], "<" + ">" * (len(head) - 1))
    for entry in late:
        who = f"rank {entry['rank']} of {entry['communicator']} ({entry['process']})"
        often = f"last in {entry['last_in']:,} of {entry['of']:,} operations"
        yield f"late: {who} came {often}, by {entry['late_us']:,.1f} us at the median"


FORMAT = RecordingFormat("records of NCCL's Inspector (JSON)", recognises=_recognises, convert=_convert)
