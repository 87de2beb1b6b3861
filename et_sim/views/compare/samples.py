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
    """Return a sentence about the difference; empty without equal draws."""
    found = sampled_difference(a, b)
    if found is None:
        return ""
    longer = found["longer"]
    word = f"{signed(longer['value_ns'])} in the mean of {found['samples']:,} samples with equal draws"
    slower = round(100 * found["slower_share"])
    return f"{word} (95 %: {interval(longer)}); {slower} % of them are slower than before"
