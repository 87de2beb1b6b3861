"""What there is of a run once it is over: all that its tables and its summary are made of."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from et_sim.engine.driver import Outcome
from et_sim.timeline.layers import LayerRun
from et_sim.timeline.measurement import Measurement
from et_sim.timeline.spool import CausalEvents, Messages, Phases
from et_sim.trace.workload import Workload


@dataclass(eq=False)
class RecordedRun:
    """An outcome, what went in, and what was recorded on the way."""

    outcome: Outcome
    workload: Workload
    manifest: dict[str, Any]
    command: dict[str, Any] | None = None  # what was simulated, and how, if all of it is in files
    causal_events: CausalEvents | None = None  # what caused what, if that was recorded
    phases: Phases | None = None  # what became of the chunks of collectives, if that was logged
    layers: LayerRun | None = None  # of a layer file
    messages: Messages | None = None  # all of them, if they were logged

    @cached_property
    def measurement(self) -> Measurement:
        """The rows of the timeline, and what they add up to."""
        return Measurement(self.outcome, self.workload)

    @property
    def manifest_text(self) -> str:
        """The manifest as canonical JSON."""
        return json.dumps(self.manifest, sort_keys=True)
