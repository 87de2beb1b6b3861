"""What a recording consists of, and what whoever reads its results must know.

Not here: the workload (`roles`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from et_sim.basics.units import format_bytes, plural
from recorder.recorded import SPREAD, Recorded, Remark, Work

SHOWN = 5  # remarks of a kind
NOT_YET = ("times of the host are those of --host-time, for every operator the same",)


def lines(recordings: Sequence[Recorded], stands_for: Mapping[int, str], step: int | None) -> Iterator[str]:
    """For people."""
    first = recordings[0]
    yield f"recorded     {plural(len(recordings), 'rank')} of {first.world:,}, torch {first.torch}"
    for rank, others in stands_for.items():
        yield f"role         rank {rank} stands for ranks {others}"
    yield f"weights      {first.weights:,}; {plural(first.steps, 'step')}"
    for one in recordings:
        kinds = Counter(node.work.value for node in one.nodes if step is None or node.step == step)
        told = ", ".join(f"{count:,} {kind}" for kind, count in sorted(kinds.items()))
        yield f"rank {one.rank:<7,} {told}; peak of memory {format_bytes(one.peak_bytes)}"
    for kind, found in _by_kind(recordings).items():
        count = sum(said.count for said in found)
        yield f"{kind}: {count:,}"
        for said in found[:SHOWN]:
            place = f"{said.place}: " if said.place else ""
            yield f"  {said.count:,} x {place}{said.text}"
        if len(found) > SHOWN:
            yield f"  and {plural(len(found) - SHOWN, 'other place')} (--report FILE has all)"


def as_json(recordings: Sequence[Recorded], stands_for: Mapping[int, str]) -> dict[str, Any]:
    """For programs."""
    return {
        "world": recordings[0].world,
        "torch": recordings[0].torch,
        "roles": {str(rank): others for rank, others in stands_for.items()},
        "not_yet": list(NOT_YET),
        "ranks": [
            {
                "rank": one.rank,
                "weights": one.weights,
                "steps": one.steps,
                "peak_bytes": one.peak_bytes,
                "nodes": dict(sorted(Counter(node.work.value for node in one.nodes).items())),
                "collectives": _collectives(one),
                "remarks": [
                    {"kind": said.kind, "text": said.text, "place": said.place, "count": said.count}
                    for said in one.remarks
                ],
            }
            for one in recordings
        ],
    }


def spreads_experts(recorded: Recorded) -> bool:
    """Whether a count was answered as one of tokens over experts."""
    return any(said.text.startswith(SPREAD) for said in recorded.remarks)


def _collectives(recorded: Recorded) -> list[dict[str, Any]]:
    counted: Counter[tuple[int, str, int, str]] = Counter()
    bytes_of: Counter[tuple[int, str, int, str]] = Counter()
    for node in recorded.nodes:
        if node.work in (Work.COLLECTIVE, Work.SEND, Work.RECEIVE):
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


def _by_kind(recordings: Sequence[Recorded]) -> dict[str, list[Remark]]:
    """Remarks of all ranks, the same ones once, as often as the rank says that says them most."""
    merged: dict[tuple[str, str, str], Remark] = {}
    for recorded in recordings:
        for one in recorded.remarks:
            key = (one.kind, one.text, one.place)
            known = merged.get(key)
            if known is None or one.count > known.count:
                merged[key] = one
    found: dict[str, list[Remark]] = {}
    for one in sorted(merged.values(), key=lambda one: (one.kind, -one.count, one.place, one.text)):
        found.setdefault(one.kind, []).append(one)
    return found
