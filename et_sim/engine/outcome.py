"""What a run leaves behind, for those who make tables of it or explain why it stalled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from et_sim.engine.load import Load, Ports
from et_sim.engine.state.queue_tables import Queues
from et_sim.engine.state.resources import ResourceTable
from et_sim.engine.state.run import Run
from et_sim.plan.tables import Plan


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """What a run leaves behind. Node columns follow the plan: actor by actor, row by row."""

    plan: Plan
    nodes: Any  # NODE_STATE records
    finish_ns: Any  # per actor; NONE: never finished
    busy_ns: Any  # per actor: time its compute nodes took, summed
    end_ns: int  # when the last thing happened
    messages: int
    run: Run
    resources: ResourceTable | None  # of the network, if anything was recorded that names them
    has_contention: bool  # whether messages wait for each other
    load: Load | None  # of links, if it was counted
    ports: Ports | None = None  # if the network has packets
    queues: Queues | None = None  # what packets met at ports over time, if that was recorded

    @property
    def is_complete(self) -> bool:
        """Whether every actor finished."""
        return bool((self.finish_ns >= 0).all())
