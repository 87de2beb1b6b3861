"""What a run of a layer file adds up to: the columns of layers.arrow, and figures of the whole run.

Not here: how they are counted (`et_sim.layerfile.statistics`).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, eq=False)
class LayerOfNode:
    """To which layer, and to which of its three phases, the collectives of a layer file's trace belong."""

    layer: Any  # per row of the trace; -1: to none
    phase: Any


@dataclass(frozen=True, slots=True, eq=False)
class LayerRun:
    """Nanoseconds of rank 0 as [layer, phase], and of the whole run."""

    names: tuple[str, ...]
    compute_ns: Any
    exposed_ns: Any
    total_ns: Any
    finish_ns: int
    pass_end_ns: list[int]
    sent_bytes: list[int]  # by rank 0, per dimension
    dimensions: list[str]  # those that collectives run along
    dollars: float | None  # what the network costs; None: it is not one of ASTRA-sim 1.0
    layer_of: LayerOfNode

    def figures(self) -> str:
        """The metadata of layers.arrow."""
        compute = int(self.compute_ns.sum())
        return json.dumps(
            {
                "finish_ns": self.finish_ns,
                "compute_ns": compute,
                "exposed_ns": self.finish_ns - compute,
                "pass_end_ns": self.pass_end_ns,
                "sent_bytes": self.sent_bytes,
                "dimensions": self.dimensions,
                "dollars": self.dollars,
            }
        )
