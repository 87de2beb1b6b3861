"""Durations of nodes: those of their template, or of the pace of their actor."""

from __future__ import annotations

from et_sim.compiled.tables_by_reference import works_on_tables
from et_sim.engine.state.run import NONE, Run


@works_on_tables
def duration_of(run: Run, actor_row: int, node: int) -> int:
    """Return how long a node takes that begins now, if no other work slows it."""
    actor = run.plan.actors[actor_row]
    row = run.plan.templates[actor.template].node_first + node
    if actor.pace_first != NONE:
        duration = run.plan.paces[actor.pace_first + node]
    else:
        duration = run.plan.nodes[row].duration_ns
    if len(run.plan.spans) > 0 and run.plan.is_kernel[row]:
        return _over_time(run, actor_row, duration)
    return duration


@works_on_tables
def _over_time(run: Run, actor_row: int, duration: int) -> int:
    """Return how long a kernel takes at the speeds of its GPU from now on."""
    now = run.clock[0].now
    at, left, speed = now, float(duration), 1.0
    for row in range(run.plan.span_first[actor_row], run.plan.span_first[actor_row + 1]):
        span = run.plan.spans[row]
        if span.from_ns > at:
            done = (span.from_ns - at) * speed
            if done >= left:
                break
            left -= done
            at = span.from_ns
        speed = span.share
    return int(at - now) + int(left / speed)
