"""The links of a run under their numbers: the columns of resources.arrow."""

from __future__ import annotations

import numpy as np

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
    }
    return Content(iter([columns]))
