"""The endpoint a transfer must cross: a fixed delay, or the shared memory bus of the actor."""

from __future__ import annotations

from et_sim.compiled.tables_by_reference import works_on_tables
from et_sim.engine.calendar.clock import schedule_own
from et_sim.engine.collectives.bus import enter_bus
from et_sim.engine.state.kinds import TRANSFER_AT_ENDPOINT
from et_sim.engine.state.run import Run


@works_on_tables
def cross_endpoint(
    run: Run, chunk_row: int, step_key: int, size: int, reduction_ns: int, inward: int, returns: int
) -> None:
    """Send a transfer across; what runs along a list of ranks never uses the bus."""
    chunk = run.chunks[chunk_row]
    axis = run.plan.axes[chunk.axis]
    if len(run.bus_sides) > 0 and axis.members_first < 0:
        enter_bus(run, chunk_row, step_key, size, reduction_ns, inward, returns)
    else:
        schedule_own(
            run, chunk.actor, axis.endpoint_ns, TRANSFER_AT_ENDPOINT, chunk_row, step_key, reduction_ns
        )
