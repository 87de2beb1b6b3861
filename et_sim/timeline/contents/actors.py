"""Who the actors are, and what they did with their time: the columns of actors.arrow."""

from __future__ import annotations

import numpy as np

from et_sim.timeline.content import Content
from et_sim.timeline.output_filter import OutputFilter
from et_sim.timeline.recorded import RecordedRun
from et_sim.units import format_ranks


def actors_content(run: RecordedRun, _: OutputFilter) -> Content:
    """actors.arrow: who the actors are, with their figures; always all of them."""
    measurement = run.measurement
    columns = {
        "actor": np.arange(measurement.source.actors, dtype=np.int32),
        "ranks": [format_ranks(ranks) for ranks in measurement.ranks_of_actors()],
        "rank_count": measurement.ranks_per_actor,
    }
    return Content(iter([columns | measurement.statistics.columns()]))
