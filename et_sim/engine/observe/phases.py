"""The log of chunks, phase by phase, which is empty unless it is needed."""

from __future__ import annotations

from et_sim.compiled.tables_by_reference import works_on_tables
from et_sim.engine.observe.observers import observes
from et_sim.engine.state.run import NONE, Run


@works_on_tables
def logs_phases(run: Run) -> bool:
    """Return whether phases are logged."""
    return len(run.phase_log) > 0


when_logged = observes(logs_phases)


@when_logged
def chunk_queued(run: Run, chunk_row: int) -> None:
    """Note when a chunk joins the queue of its phase."""
    run.chunk_times[chunk_row].queued_ns = run.clock[0].now


@works_on_tables
def chunk_starts(run: Run, chunk_row: int) -> None:
    """Note when a chunk starts; it has waited for no message yet."""
    now = run.clock[0].now
    if logs_phases(run):
        times = run.chunk_times[chunk_row]
        times.start_ns, times.waited_ns = now, 0
    running = run.running[run.visits[chunk_row].running]
    state = run.nodes[run.plan.actors[running.actor].node_first + running.node]
    if state.admitted_ns == NONE:
        state.admitted_ns = now


@when_logged
def receive_posted(run: Run, chunk_row: int, step_key: int) -> None:
    """Note that a chunk begins to wait for a message."""
    run.chunk_times[chunk_row].waited_ns -= run.clock[0].now


@when_logged
def step_received(run: Run, chunk_row: int) -> None:
    """Note that a chunk has waited for a message until now."""
    run.chunk_times[chunk_row].waited_ns += run.clock[0].now


@when_logged
def phase_done(run: Run, chunk_row: int) -> None:
    """Log a finished phase of a chunk."""
    chunk, visit, times = run.chunks[chunk_row], run.visits[chunk_row], run.chunk_times[chunk_row]
    running, clock = run.running[visit.running], run.clock[0]
    log = run.phase_log[clock.phases_logged]
    clock.phases_logged += 1
    log.actor, log.node = running.actor, running.node
    log.chunk, log.phase = chunk_row - running.chunks_first, chunk.phase
    log.phase_row, log.messages = visit.phase_first + chunk.phase, chunk.received
    log.queued_ns, log.start_ns = times.queued_ns, times.start_ns
    log.end_ns, log.waited_ns = clock.now, times.waited_ns
