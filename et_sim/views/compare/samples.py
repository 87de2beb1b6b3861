"""The difference of the samples of two runs with equal draws."""

from __future__ import annotations

from typing import Any

from msgspec import structs

from et_sim.basics.estimates import mean_of, percentile_of
from et_sim.views.run.directory import RunDirectory
from et_sim.views.summary.samples import interval, samples_of, step_times
from et_sim.views.text import signed


def sampled_difference(a: RunDirectory, b: RunDirectory) -> dict[str, Any] | None:
    """Return by how much the steps of `b` are longer, sample by sample; None without equal draws."""
    if not (a.holds("samples") and b.holds("samples")):
        return None
    seeds = [samples_of(run)["seed"] for run in (a, b)]
    if seeds[0] != seeds[1]:
        return None
    before, after = step_times(a), step_times(b)
    count = min(len(before), len(after))
    longer = after[:count] - before[:count]
    return {
        "samples": count,
        "seed": seeds[0],
        "longer": structs.asdict(mean_of(longer)),
        "p50_longer": structs.asdict(percentile_of(longer, 50)),
        "slower_share": float((longer > 0).mean()),
    }


def sampled_text(a: RunDirectory, b: RunDirectory) -> str:
    """Return a sentence about the difference, or why there is none; empty if neither run has samples."""
    found = sampled_difference(a, b)
    if found is None:
        return _not_compared(a, b)
    longer = found["longer"]
    word = f"{signed(longer['value_ns'])} in the mean of {found['samples']:,} samples with equal draws"
    slower = round(100 * found["slower_share"])
    return f"{word} (95 %: {interval(longer)}); {slower} % of them are slower than before"


def _not_compared(a: RunDirectory, b: RunDirectory) -> str:
    """Return why samples of the runs are not compared; empty if neither has any."""
    match a.holds("samples"), b.holds("samples"):
        case True, True:
            seeds = " and ".join(str(samples_of(run)["seed"]) for run in (a, b))
            return f"not compared: their seeds are {seeds}, so their draws are not equal"
        case False, False:
            return ""
        case _:
            return "not compared: only one of the runs has any"
