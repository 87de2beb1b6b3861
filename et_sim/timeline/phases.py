"""What became of every chunk in every phase, on its way from the engine to phases.arrow.

Not here: when phases are logged (`engine.progress`), and what the rows add up to (`views`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from et_sim.engine.drive import Outcome
from et_sim.engine.records import PHASE_LOG
from et_sim.timeline.spool import Spool
from et_sim.trace.workload import Workload


class Phases(Spool):
    """All phases of a run, in the order in which they ended."""

    def __init__(self) -> None:
        super().__init__(PHASE_LOG)


@dataclass(frozen=True, slots=True, eq=False)
class LayerOfNode:
    """To which layer, and to which of its three phases, the collectives of a layer file's trace belong."""

    layer: Any  # per row of the trace; -1: to none
    phase: Any


class PhaseSource:
    """Makes the columns of phases.arrow."""

    def __init__(
        self, phases: Phases, outcome: Outcome, workload: Workload, layer_of: LayerOfNode | None = None
    ) -> None:
        self._phases, self._plan, self._workload, self._layer_of = phases, outcome.plan, workload, layer_of

    def blocks(self) -> Iterator[dict[str, Any]]:
        """Columns of all phases, block by block."""
        plan = self._plan
        for log in self._phases.blocks():
            rows = plan.phases[log["phase_row"]]
            first = plan.templates["node_first"][plan.actors["template"][log["actor"]]]
            columns = {name: log[name] for name in ("actor", "chunk", "phase", "messages")}
            columns |= {
                "node": self._node_ids[first + log["node"]],
                "dimension": rows["dimension"],
                "operation": rows["operation"].astype(np.int8),
                "bytes": rows["bytes"],
                "queued_ns": log["queued_ns"],
                "start_ns": log["start_ns"],
                "end_ns": log["end_ns"],
                "message_wait_ns": log["waited_ns"],
            }
            if self._layer_of is not None:  # the workload has one trace
                columns["layer"] = self._layer_of.layer[log["node"]]
                columns["layer_phase"] = self._layer_of.phase[log["node"]]
            yield columns

    @cached_property
    def _node_ids(self) -> Any:
        return np.concatenate([trace.node_id for trace in self._workload.templates])
