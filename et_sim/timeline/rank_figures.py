"""The figures of all ranks as the summary has them: ranks with equal figures are one entry."""

from __future__ import annotations

from typing import Any

import numpy as np

from et_sim.timeline.measurement import Measurement
from et_sim.timeline.waiting.slowest import slowest, waited_for_most
from et_sim.units import format_ranks


def figures_of_ranks(measurement: Measurement) -> dict[str, Any]:
    """The entries in order of their first rank, and which of them is waited for most."""
    columns = measurement.statistics.columns()
    entry, actor = _entries(measurement, columns)
    of_rank = entry[measurement.actor_of_rank]
    counts = np.bincount(of_rank, minlength=len(actor))
    members = np.split(np.argsort(of_rank, kind="stable"), np.cumsum(counts)[:-1])
    names = [format_ranks(ranks) for ranks in members]
    waits = measurement.source.waits.by_class(entry, measurement.ranks_per_actor)
    per_rank: list[dict[str, Any]] = []
    for name, of, most in zip(names, actor, waited_for_most(waits, len(names)), strict=True):
        figures = {key: column[of] for key, column in columns.items()}
        given = {key: None if v is np.ma.masked else v.item() for key, v in figures.items()}
        per_rank.append({"ranks": name, **given, "waits_for": None if most is None else names[most]})
    at_work = np.bincount(of_rank[measurement.has_work], minlength=len(actor))
    found = slowest(waits, [one["waiting_ns"] for one in per_rank], at_work.tolist())
    return {
        "slowest": found and {"ranks": names[found.place], "cost_ns": found.cost_ns},
        "per_rank": per_rank,
    }


def _entries(measurement: Measurement, columns: dict[str, Any]) -> tuple[Any, Any]:
    """The entry of every actor, numbered by lowest rank, and an actor of every entry."""
    bits = [np.ma.getdata(column).view(np.uint64) for column in columns.values()]
    _, actor, entry = np.unique(np.stack(bits, axis=1), axis=0, return_index=True, return_inverse=True)
    entry, ranks = entry.reshape(-1), measurement.actor_of_rank
    lowest = np.full(len(actor), len(ranks))
    np.minimum.at(lowest, entry[ranks], np.arange(len(ranks)))
    order = np.argsort(lowest)
    return np.argsort(order)[entry], actor[order]
