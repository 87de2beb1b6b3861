"""Collectives whose members give different sizes, as in recordings without the splits of an all-to-all.

Without sizes for each member, a simulation moves equal parts. Where every member gives the largest size of
any, a collective takes no less time than it would with the sizes as they are.

A trace file without the dependencies that lead nowhere. Chakra's PyTorch converter removes the root of a
trace although other nodes still name it in their control dependencies; readers that honour these refuse the
file. Only the records concerned are written anew, so attributes that the simulator does not use stay for
other tools.

Not here: members that start different collectives, which nobody can correct but the workload's maker.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from converters.editing.groups import Groups
from converters.editing.inputs import recorded_as
from converters.editing.partners import collectives
from converters.editing.remove_nodes import Rewiring
from converters.editing.writing import edited, set_attributes
from converters.records import Dropped, without_dangling
from et_sim.basics.units import plural
from et_sim.trace import Trace, Workload
from et_sim.trace.columns import CollectiveKind
from et_sim.trace.disk import read_unpacked
from et_sim.trace.splits import has_splits


def repaired(path: Path, trace: Trace) -> tuple[bytes, Dropped]:
    """The new content, and what was dropped; `trace` is `path`, read with `drop_dangling`."""
    content = read_unpacked(path)
    if not trace.dropped_dependencies:
        return content, Dropped()
    return without_dangling(content, set(trace.node_id.tolist()), str(path))


class SizeEqualiser:
    """What has to change, by rank."""

    def __init__(self, workload: Workload) -> None:
        self._sizes: dict[int, dict[int, int]] = {}  # rank -> row -> bytes
        self.uneven: Counter[str] = Counter()  # collectives by type
        for meeting in collectives(workload, Groups(workload, {})):
            if len(meeting.rows) > 1:
                self._look_at(workload, meeting.rows)

    def _look_at(self, workload: Workload, rows: dict[int, Any]) -> None:
        """The k-th of each rank meet; those of one type are given the largest size."""
        shortest = min(map(len, rows.values()))
        traces = {rank: workload.trace(rank) for rank in rows}
        kinds = np.stack([traces[rank].comm_type[of_rank[:shortest]] for rank, of_rank in rows.items()])
        sizes = np.stack([traces[rank].comm_bytes[of_rank[:shortest]] for rank, of_rank in rows.items()])
        largest = sizes.max(axis=0)
        differs = (sizes != largest).any(axis=0) & (kinds == kinds[0]).all(axis=0)
        differs &= kinds[0] != CollectiveKind.BARRIER
        for rank, of_rank in rows.items():  # members that list sizes for each other may differ
            differs &= ~has_splits(traces[rank])[of_rank[:shortest]]
        for number in kinds[0][differs].tolist():
            known = number in CollectiveKind._value2member_map_
            self.uneven[CollectiveKind(number).name.lower() if known else f"comm_type {number}"] += 1
        for at, (rank, of_rank) in enumerate(rows.items()):
            for k in np.flatnonzero(differs & (sizes[at] != largest)).tolist():
                self._sizes.setdefault(rank, {})[int(of_rank[k])] = int(largest[k])

    def of_rank(self, rank: int, content: bytes, trace: Trace) -> tuple[bytes, int]:
        """The rank's file with the new sizes, and how many nodes have one."""
        sizes = self._sizes.get(rank, {})
        if not sizes:
            return content, 0
        changes = {row: partial(set_attributes, values={"comm_size": size}) for row, size in sizes.items()}
        keep = np.ones(len(trace), np.bool_)
        return edited(recorded_as(trace, content), keep, Rewiring(), changes), len(sizes)

    def remark(self) -> str:
        """What was uneven, in a sentence; "" if nothing was."""
        listed = ", ".join(plural(count, kind) for kind, count in sorted(self.uneven.items()))
        return f"members gave different sizes to {listed}: now all give the largest" if listed else ""
