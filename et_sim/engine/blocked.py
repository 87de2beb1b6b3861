"""Queues of collectives that wait for each other when nothing else is left to happen (`collectives.queues`).

The loop stops before the first of these, and Python looks at the queues before they admit chunks over their
limit. Runs without such queues need nothing for it.
"""

from __future__ import annotations

from msgspec import Struct

from et_sim.engine.containers import NONE
from et_sim.engine.state.chunks import sequence_of
from et_sim.engine.state.run import NO_MORE_LOOKS, SEEN, Run

MOST_LOOKS = 64


class Waiting(Struct, frozen=True):
    """A collective of an actor that waits in a queue, and those that occupy the queue; nodes by row."""

    actor: int
    node: int
    since_ns: int
    behind: tuple[tuple[int, int], ...]  # node, since


class Blocked(Struct, frozen=True):
    """The queues that wait for each other at a time."""

    ns: int
    waits: tuple[Waiting, ...]


def look_at_queues(run: Run, looks: int, bits: int) -> Blocked:
    """Return the queues that are blocked now, and let them admit chunks; after the last look, always."""
    run.clock["blocked"] = SEEN if looks + 1 < MOST_LOOKS else NO_MORE_LOOKS
    found: dict[tuple[int, int], set[tuple[int, int]]] = {}
    issued: dict[tuple[int, int], int] = {}

    def node_of(chunk_row: int) -> tuple[int, int]:
        running = run.running[run.visits[chunk_row].running]
        actor, node = int(running.actor), int(running.node)
        place = int(run.plan.actors[actor].node_first) + node
        issued[actor, node] = int(run.nodes[place].start_ns) >> bits
        return actor, node

    for queue in run.queues[run.queues["waiting"] != NONE]:
        waiting = _chunks(run, int(queue.waiting), NONE)
        oldest = min(waiting, key=lambda row: int(sequence_of(run.chunks[row])))
        in_front = {node_of(row) for row in _chunks(run, int(queue.head), int(queue.waiting))}
        found.setdefault(node_of(oldest), set()).update(in_front)
    waits = [
        Waiting(*key, issued[key], tuple((node, issued[actor, node]) for actor, node in sorted(behind)))
        for key, behind in sorted(found.items())
    ]
    return Blocked(int(run.clock[0].now) >> bits, tuple(waits))


def _chunks(run: Run, first: int, end: int) -> list[int]:
    """Return the chunks of a queue from one on, up to another one."""
    rows: list[int] = []
    while first not in (end, NONE):
        rows.append(first)
        first = int(run.visits[first].next)
    return rows
