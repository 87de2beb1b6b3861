"""Results of a layer file: the columns of layers.arrow, and figures of the whole run.

Bytes of rank 0 in collectives are counted by dimension. On a network of ASTRA-sim 1.0, a message counts for
the highest level in which its ends differ, otherwise for the dimension of its phase. With rendezvous,
requests for received data count too. `et_sim.layerfile.statistics` counts the sends of traces.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import numpy as np
from msgspec import Struct

from et_sim.machine.model import Network
from et_sim.network.levels import LevelTables, next_leg
from et_sim.network.levels import tables as level_tables
from et_sim.plan.records import REQUEST_BYTES, LoweredPlan


def bytes_sent(plan: LoweredPlan, network: Network, logged: Iterable[Any]) -> list[int]:
    """Return bytes by level, or by dimension without levels; `logged` are the phases of the run."""
    actor = plan.actor_of_rank[0]
    count = np.zeros(len(plan.phases), np.int64)
    for phases in logged:
        phase_rows = phases["phase_row"][phases["actor"] == actor]
        count += np.bincount(phase_rows, minlength=len(count))
    sent = np.zeros(len(network.levels or network.grid.dimensions), np.int64)
    levels = level_tables(network) if network.levels else None
    for row in np.flatnonzero(count).tolist():
        for place, size in _of_phase(plan, levels, row):
            sent[place] += count[row] * size
    return [int(total) for total in sent]


def _of_phase(plan: LoweredPlan, levels: LevelTables | None, row: int) -> list[tuple[int, int]]:
    """Return (level or dimension, bytes) of the messages that rank 0 sends in a phase."""
    phase = plan.phases[row]
    program, dimension = plan.programs[phase["program"]], int(phase["dimension"])
    if program["custom_first"] >= 0:
        return []
    if program["tree_first"] >= 0:  # the first place is a leaf of one tree and the root of the other
        messages = [(1, int(plan.trees[program["tree_first"]]["up_bytes"]))]
        messages += [(1, REQUEST_BYTES)] * plan.rendezvous
    else:
        messages = _of_steps(plan, program)
    if levels is None:
        return [(dimension, size) for _, size in messages]
    stride = int(plan.axes[phase["axis"]]["stride"]) if phase["axis"] >= 0 else 1
    return [(max(next_leg(levels, 0, place * stride).row, 0), size) for place, size in messages]


def _of_steps(plan: LoweredPlan, program: Any) -> list[tuple[int, int]]:
    """Return (place of the peer, bytes) for every step, and for the requests for its received data."""
    first, period = int(program["step_first"]), int(program["step_period"])
    laps, rest = divmod(int(program["sends"]), period)
    steps = plan.steps[first : first + period]
    messages = []
    for number, step in enumerate(steps):
        distance, count = int(step["distance"]), laps + (number < rest)
        messages.append((distance, count * int(step["bytes"])))
        source = distance if program["pairs"] else int(program["members"]) - distance
        messages += [(source, count * REQUEST_BYTES)] * plan.rendezvous
    return messages


class LayerOfNode(Struct, frozen=True, eq=False):
    """Layer and phase (of three) of each collective of a layer file's trace."""

    layer: Any  # per row of the trace; -1: none
    phase: Any


class LayerRun(Struct, frozen=True, eq=False):
    """Times of rank 0 in nanoseconds as [layer, phase], and of the whole run."""

    names: tuple[str, ...]
    compute_ns: Any
    exposed_ns: Any
    total_ns: Any
    finish_ns: int
    pass_end_ns: list[int]
    sent_bytes: list[int]  # by rank 0, per dimension
    dimensions: list[str]  # the dimensions of collectives
    dollars: float | None  # cost of the network; None: it is not one of ASTRA-sim 1.0
    layer_of: LayerOfNode

    def figures(self) -> str:
        """Return the metadata of layers.arrow."""
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
