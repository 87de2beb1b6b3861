"""Templates that name their peers by distance, to which messages beside a step are added."""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from et_sim.trace import Trace, Workload
from et_sim.trace.expansion import peer_rows, with_distances


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
