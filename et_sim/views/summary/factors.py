"""The time factors of a run in words."""

from __future__ import annotations

from et_sim.views.run.directory import RunDirectory
from et_sim.views.summary.rank_table import called
from et_sim.views.text import shortened


def factors_text(run: RunDirectory) -> str:
    """By what the time of some work was multiplied."""
    said = []
    for entry in run.summary["time_factors"]:
        named = f' "{shortened(entry["name"], 40)}"' if "name" in entry else ""
        whose = "" if entry["ranks"] == "all" else f" of {called(entry['ranks'], 24)}"
        factors = ((kind, value) for kind, value in entry.items() if kind not in ("ranks", "name"))
        said += [f"time of {kind}{named}{whose} x {value:g}" for kind, value in factors]
    return ", ".join(said)
