"""GOAL texts of the workloads that LogGOPSim and ATLAHS were run on, and traces of texts."""

from __future__ import annotations

from collections.abc import Iterable

from et_sim.trace import Trace, Workload
from et_sim.trace.goal.schedule import Totals, traces
from et_sim.trace.goal.statements import statements


def rank_texts(ranks: int, bodies: Iterable[list[str]]) -> str:
    """Return the text of ranks with these bodies."""
    parts = (f"rank {rank} {{\n" + "\n".join(body) + "\n}\n" for rank, body in enumerate(bodies))
    return f"num_ranks {ranks}\n\n" + "\n".join(parts)


def ring_all_reduce(ranks: int, size: int) -> str:
    """Return a ring in which each rank passes on the part that it received in the step before."""
    bodies, part = [], size // ranks
    for rank in range(ranks):
        before, own = (rank - 1) % ranks, []
        dependencies, number, received = [], 0, ""
        for step in range(2 * (ranks - 1)):
            send = f"send {part}b to {(rank + 1) % ranks} tag {ranks * step + rank}"
            receive = f"recv {part}b from {before} tag {ranks * step + before}"
            order = (send, receive) if rank == 0 else (receive, send)
            labels = [f"l{number + 1}", f"l{number + 2}"]
            own += [f"{label}: {statement}" for label, statement in zip(labels, order, strict=True)]
            if received:
                dependencies.append(f"{labels[order.index(send)]} requires {received}")
            received = labels[order.index(receive)]
            number += 2
        bodies.append(own + dependencies)
    return rank_texts(ranks, bodies)


def incast(ranks: int, size: int) -> str:
    """Return sends of all ranks to rank 0."""
    first = [f"l{peer}: recv {size}b from {peer} tag {peer - 1}" for peer in range(1, ranks)]
    return rank_texts(
        ranks, [first, *([f"l1: send {size}b to 0 tag {peer - 1}"] for peer in range(1, ranks))]
    )


def direct(ranks: int, size: int, phases: int) -> str:
    """Return sends of a part to all others; a second phase repeats them after all receives of the first."""
    bodies: list[list[str]] = [[] for _ in range(ranks)]
    dependencies: list[list[str]] = [[] for _ in range(ranks)]
    received: list[list[str]] = [[] for _ in range(ranks)]
    tag = 0
    for _ in range(phases):
        now: list[list[str]] = [[] for _ in range(ranks)]
        for source in range(ranks):
            for target in ((source + ahead) % ranks for ahead in range(1, ranks)):
                send, receive = f"l{len(bodies[source]) + 1}", f"l{len(bodies[target]) + 1}"
                bodies[source].append(f"{send}: send {size // ranks}b to {target} tag {tag}")
                bodies[target].append(f"{receive}: recv {size // ranks}b from {source} tag {tag}")
                dependencies[source] += [f"{send} requires {label}" for label in received[source]]
                now[target].append(receive)
                tag += 1
        received = now
    return rank_texts(ranks, [own + after for own, after in zip(bodies, dependencies, strict=True)])


def linear_all_to_all(ranks: int, size: int) -> str:
    """Return sends of all ranks to all, nearest ranks first."""
    return rank_texts(
        ranks,
        [
            [
                line
                for ahead in range(1, ranks)
                for line in (
                    f"send {size}b to {(rank + ahead) % ranks} tag 0",
                    f"recv {size}b from {(rank - ahead) % ranks} tag 0",
                )
            ]
            for rank in range(ranks)
        ],
    )


def dissemination(ranks: int, size: int) -> str:
    """Return rounds k in which every rank sends to the one 2^k ahead, after its send and receive of the round
    before.
    """
    bodies = []
    for rank in range(ranks):
        own: list[str] = []
        for step in range((ranks - 1).bit_length()):
            ahead = 1 << step
            own.append(f"s{step}: send {size}b to {(rank + ahead) % ranks} tag {step}")
            own.append(f"r{step}: recv {size}b from {(rank - ahead) % ranks} tag {step}")
            if step:
                own += [f"s{step} requires s{step - 1}", f"s{step} requires r{step - 1}"]
        bodies.append(own)
    return rank_texts(ranks, bodies)


def traces_of(text: str, totals: Totals | None = None) -> list[Trace]:
    """Return the traces of a text by rank."""
    totals = Totals() if totals is None else totals
    by_rank = dict(traces(statements(text.splitlines(), "a.goal"), "a.goal", totals))
    return [by_rank[rank] for rank in sorted(by_rank)]


def workload_of(text: str) -> Workload:
    """Return the workload of a text."""
    return Workload.of(traces_of(text))
