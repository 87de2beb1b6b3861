"""What every layer of a layer file took: the columns of layers.arrow."""

from __future__ import annotations

from typing import Any

import numpy as np

from et_sim.tables.of_collectives import PHASES_OF_LAYERS
from et_sim.timeline.content import Content, Texts
from et_sim.timeline.layers import LayerRun
from et_sim.timeline.output_filter import OutputFilter
from et_sim.timeline.recorded import RecordedRun


def layers_content(run: RecordedRun, _: OutputFilter) -> Content | None:
    """layers.arrow; its metadata have figures of the whole run."""
    if run.layers is None:
        return None
    return Content(iter([_columns(run.layers)]), {"figures": run.layers.figures()})


def _columns(layers: LayerRun) -> dict[str, Any]:
    """A row per layer."""
    figures = {"compute": layers.compute_ns, "exposed": layers.exposed_ns, "total": layers.total_ns}
    columns: dict[str, Any] = {"layer": Texts(np.arange(len(layers.names)), layers.names)}
    for figure, values in figures.items():
        for number, phase in enumerate(PHASES_OF_LAYERS):
            columns[f"{phase.replace(' ', '_')}_{figure}_ns"] = values[:, number]
    return columns
