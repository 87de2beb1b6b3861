"""The lever of a run: the one figure that shortens it most if it is twice as good.

Of a recorded critical path: what halving the figure's durations takes off the path. Nothing is simulated, and
other paths may stay longer, so it is the most that can be saved while all is served in the same order.

Of other runs, it is estimated from the parts of the average rank's time. Not here: how far the makespan
follows each figure (`critical.sensitivity`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from et_sim.views.summary.rank_table import called

if TYPE_CHECKING:
    from et_sim.views.critical.path import CriticalPath

RANKS = 24  # letters
FASTER = {  # causes that one figure sets, whichever link it is on
    ("compute", "contention"): "kernels",
    ("host",): "operators of the host",
    ("memory",): "remote memory",
    ("bus",): "the shared bus",
    ("replayed",): "recorded communication",
    ("reduction",): "reductions",
}
HALVED = {"endpoint": "the endpoint delay", "latency": "the latency of all links", "gap": "the recorded gaps"}


@dataclass(frozen=True, slots=True)
class Lever:
    """What gets better, and how much shorter the run is then at most, or by estimate."""

    text: str
    saved_ns: int


def lever_of_path(path: CriticalPath) -> Lever | None:
    """The best one."""
    found = [one for one in _of_path(path) if one.saved_ns > 0]
    return min(found, key=lambda one: (-one.saved_ns, one.text), default=None)


def _of_path(path: CriticalPath) -> Iterator[Lever]:
    causes = path.by_cause()
    for names, text in FASTER.items():
        yield Lever(f"{text} twice as fast", sum(causes.get(name, 0) for name in names) // 2)
    for one in path.by_link():
        moving = one["serialisation"] + one["queueing"]
        yield Lever(f"twice the bandwidth of {one['link']}", moving // 2)
        if one["latency"] is not None:
            yield Lever(f"half the latency of {one['link']}", one["latency"] // 2)
    for name, text in HALVED.items():
        yield Lever(f"half of {text}", causes.get(name, 0) // 2)
    yield Lever("ranks that begin together", causes.get("idle", 0))


def lever_of_parts(summary: Mapping[str, Any], mean: Mapping[str, float]) -> Lever | None:
    """An estimate: as if the average rank's time shrank by what the figure sets of it."""
    tier = (summary["bottleneck"] or {}).get("tier")
    links = f"twice the bandwidth of {tier}" if tier else "communication twice as fast"
    found = [
        Lever("kernels twice as fast", round(mean["compute_ns"] / 2)),
        Lever(links, round(mean["exposed_comm_ns"] / 2)),
        Lever("remote memory twice as fast", round(mean["exposed_memory_ns"] / 2)),
        Lever("operators of the host twice as fast", round(mean["host_ns"] / 2)),
    ]
    if slowest := summary["slowest"]:
        whom = called(slowest["ranks"], RANKS)
        found.append(Lever(f"{whom} never waited for", slowest["cost_ns"]))
    best = min(found, key=lambda one: (-one.saved_ns, one.text))
    return best if best.saved_ns > 0 else None
