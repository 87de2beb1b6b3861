"""Which part of the nodes a run holds, if it was not asked to write all of them.

Not here: what was done with them; the summary and the actors are always those of the whole run.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from et_sim.basics.units import LONGEST_NS, format_ns, parse_ranks
from et_sim.views.run.directory import RunDirectory


def recorded_part(run: RunDirectory) -> str:
    """Ranks and time whose nodes were written, such as `ranks 0-3 from 1 ms`; empty if all were."""
    kept = run.manifest.get("recorded_part", {})
    parts = [f"ranks {kept['ranks']}"] if "ranks" in kept else []
    if "window_ns" in kept:
        first, last = kept["window_ns"]
        parts.append(f"from {format_ns(first)}" + (f" to {format_ns(last)}" if last < LONGEST_NS else ""))
    return " ".join(parts)


def recorded_actors(run: RunDirectory) -> Any:
    """Per actor, whether its nodes were written."""
    names = run.actors()["ranks"].to_pylist()
    if "ranks" not in run.manifest.get("recorded_part", {}):
        return np.ones(len(names), np.bool_)
    kept = parse_ranks(run.manifest["recorded_part"]["ranks"])
    return np.array(
        [any(_meet(chosen, recorded) for chosen in parse_ranks(name) for recorded in kept) for name in names]
    )


def _meet(first: range, second: range) -> bool:
    return first.start < second.stop and second.start < first.stop
