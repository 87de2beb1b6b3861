"""The report of a recording: its contents, and remarks that the readers of its results need."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from et_sim.basics.units import format_bytes, plural
from recorder.recorded import SPREAD, RankRecording, RecordedKind, Remark

SHOWN = 5  # remarks of a kind
NOT_YET = ("times of the host are those of --host-time, for every operator the same",)


def lines(
    recordings: Sequence[RankRecording], stands_for: Mapping[int, str], step: int | None
) -> Iterator[str]:
    """Yield the report as text."""
    first = recordings[0]
    yield f"recorded     {plural(len(recordings), 'rank')} of {first.world:,}, torch {first.torch}"
    for rank, others in stands_for.items():
        yield f"role         rank {rank} stands for ranks {others}"
    yield f"weights      {first.weights:,}; {plural(first.steps, 'step')}"
    for recording in recordings:
        kinds = Counter(node.work.value for node in recording.nodes if step is None or node.step == step)
        counts = ", ".join(f"{count:,} {kind}" for kind, count in sorted(kinds.items()))
        yield f"rank {recording.rank:<7,} {counts}; peak of memory {format_bytes(recording.peak_bytes)}"
    for kind, remarks in _by_kind(recordings).items():
        count = sum(remark.count for remark in remarks)
        yield f"{kind}: {count:,}"
        for remark in remarks[:SHOWN]:
            place = f"{remark.place}: " if remark.place else ""
            yield f"  {remark.count:,} x {place}{remark.text}"
        if len(remarks) > SHOWN:
            yield f"  and {plural(len(remarks) - SHOWN, 'other place')} (--report FILE has all)"


def as_json(recordings: Sequence[RankRecording], stands_for: Mapping[int, str]) -> dict[str, Any]:
    """Return the report as plain data."""
    return {
        "world": recordings[0].world,
        "torch": recordings[0].torch,
        "roles": {str(rank): others for rank, others in stands_for.items()},
        "not_yet": list(NOT_YET),
        "ranks": [
            {
                "rank": recording.rank,
                "weights": recording.weights,
                "steps": recording.steps,
                "peak_bytes": recording.peak_bytes,
                "nodes": dict(sorted(Counter(node.work.value for node in recording.nodes).items())),
                "collectives": _collectives(recording),
                "remarks": [
                    {"kind": remark.kind, "text": remark.text, "place": remark.place, "count": remark.count}
                    for remark in recording.remarks
                ],
            }
            for recording in recordings
        ],
    }


def spreads_experts(recorded: RankRecording) -> bool:
    """Return whether a count was taken as one of tokens over experts."""
    return any(remark.text.startswith(SPREAD) for remark in recorded.remarks)


def _collectives(recorded: RankRecording) -> list[dict[str, Any]]:
    counted: Counter[tuple[int, str, int, str]] = Counter()
    bytes_of: Counter[tuple[int, str, int, str]] = Counter()
    for node in recorded.nodes:
        if node.work in (RecordedKind.COLLECTIVE, RecordedKind.SEND, RecordedKind.RECEIVE):
            key = (node.step, node.phase.value, node.group, node.operator)
            counted[key] += 1
            bytes_of[key] += max(node.bytes, 0)
    return [
        {
            "step": step,
            "phase": phase,
            "group": recorded.groups[group].name,
            "members": len(recorded.groups[group].members),
            "kind": kind,
            "count": count,
            "bytes": bytes_of[step, phase, group, kind],
        }
        for (step, phase, group, kind), count in sorted(counted.items())
    ]


def _by_kind(recordings: Sequence[RankRecording]) -> dict[str, list[Remark]]:
    """Return the remarks of all ranks by kind; equal ones are merged with the largest count of a rank."""
    merged: dict[tuple[str, str, str], Remark] = {}
    for recorded in recordings:
        for remark in recorded.remarks:
            key = (remark.kind, remark.text, remark.place)
            known = merged.get(key)
            if known is None or remark.count > known.count:
                merged[key] = remark
    by_kind: dict[str, list[Remark]] = {}
    for remark in sorted(
        merged.values(), key=lambda remark: (remark.kind, -remark.count, remark.place, remark.text)
    ):
        by_kind.setdefault(remark.kind, []).append(remark)
    return by_kind
