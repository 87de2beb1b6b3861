"""The links of a run under their numbers: the columns of resources.arrow."""

from __future__ import annotations

from typing import Any

import numpy as np

from et_sim.engine.state.resources import NOBODY, Ends
from et_sim.tables.kinds import DIMENSION_SIZES
from et_sim.timeline.content import Content, Texts, not_negative
from et_sim.timeline.output_filter import OutputFilter
from et_sim.timeline.recorded import RecordedRun


def resources_content(run: RecordedRun, _: OutputFilter) -> Content | None:
    """resources.arrow; always all of them."""
    resources = run.outcome.resources
    if resources is None:
        return None
    columns = {
        "resource": np.arange(len(resources), dtype=np.int32),
        "actor": not_negative(resources.actor),
        "dimension": resources.dimension,
        "link": Texts(resources.port, resources.port_names),
        "links": resources.links_like(run.outcome.plan.actor_of_rank).astype(np.int32),
        "tier": Texts(resources.tier, resources.tier_names),
        "bytes_per_ns": np.ma.masked_equal(resources.bytes_per_ns, 0),
        **_ends(resources.ends, len(resources)),
    }
    sizes = {DIMENSION_SIZES: " ".join(map(str, resources.sizes))} if resources.sizes else {}
    return Content(iter([columns]), sizes)


def _ends(ends: Ends | None, count: int) -> dict[str, Any]:
    """Devices at both ends of every link, and the rows in which they are drawn."""
    if ends is None:
        none = np.full(count, NOBODY, np.int32)
        ends = Ends(none, none, (), np.zeros(0, np.int32))
    found: dict[str, Any] = {}
    for side, device in (("source", ends.source), ("target", ends.target)):
        rows = np.append(ends.rows, NOBODY)[device]
        found |= {side: Texts(device, ends.names), f"{side}_row": not_negative(rows.astype(np.int32))}
    return found
