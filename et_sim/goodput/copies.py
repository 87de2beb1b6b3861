"""A step beside which each rank copies its part of a checkpoint into the memory of other nodes.

Messages beside a step are added to templates that name their peers by distance."""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from et_sim.trace import Trace, TraceBuilder, Workload
from et_sim.trace.builder_nodes import appended
from et_sim.trace.expansion import peer_rows, with_distances

TAG = 1 << 30  # of the first copy; other messages of a step have lower tags


def with_copies(workload: Workload, size: int, copies: int, node: int) -> Workload:
    """Return the workload in which each rank also sends `size` bytes to the ranks one, two, … nodes beyond
    it, from the beginning of the step on.
    """
    workload = by_distance(workload)
    distances = [number * node for number in range(1, copies + 1)]
    templates = [_with_messages(trace, workload.ranks, size, distances) for trace in workload.templates]
    return replace(workload, templates=tuple(templates))


def _with_messages(trace: Trace, ranks: int, size: int, distances: list[int]) -> Trace:
    build, first = TraceBuilder(source=trace.source), int(trace.node_id.max(initial=0)) + 1
    for number, distance in enumerate(distances):
        tag, name = TAG + number, f"copy {number + 1}"
        build.send(
            distance, size, tag, name=f"send {name}", concurrent=True, node_id=first + 2 * number, after=[]
        )
        build.receive(
            ranks - distance, size, tag, name=f"receive {name}", node_id=first + 2 * number + 1, after=[]
        )
    nothing = np.zeros(0, np.int64)
    return appended(trace, build.build(), nothing, nothing)


def by_distance(workload: Workload) -> Workload:
    """Return the workload with distances in place of ranks; ranks of equal distances share a template."""
    if all(workload.has_relative_peers(number) for number in range(len(workload.templates))):
        return workload
    templates, of_rank = list[Trace](), np.zeros(workload.ranks, np.int32)
    number_of: dict[tuple[int, bytes], int] = {}
    for rank, template in enumerate(workload.template_of_rank.tolist()):
        trace, distances = workload.templates[template], b""
        if not workload.has_relative_peers(template) and len(peer_rows(trace)):
            trace, distances = with_distances(trace, rank, workload.ranks)
        number = number_of.setdefault((template, distances), len(templates))
        if number == len(templates):
            templates.append(trace)
        of_rank[rank] = number
    return replace(
        workload,
        templates=tuple(templates),
        template_of_rank=of_rank,
        relative_peers=(True,) * len(templates),
        has_file_per_rank=False,
    )
