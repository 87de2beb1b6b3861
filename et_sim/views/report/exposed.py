"""How much of the communication of each group is exposed: under way while nothing but communication is.

Per actor, the time that a group's communication adds to that of everything that is not communication; times
of actors count once per rank. Not here: the exposed time of ranks, which the run's summary has.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from et_sim.intervals import union
from et_sim.views.operations import integers, words
from et_sim.views.run_directory import RunDirectory

MESSAGES = "sends and receives"
OTHER_KINDS = ("compute", "memory_load", "memory_store", "metadata", "invalid")
COLUMNS = ("actor", "kind", "group", "start_ns", "end_ns", "bytes")


@dataclass(frozen=True, slots=True)
class Exposed:
    """Communication of a group, over all ranks."""

    group: str
    count: int
    bytes: int
    active_ns: int
    exposed_ns: int


def exposed_by_group(run: RunDirectory) -> list[Exposed]:
    """All groups, the most exposed first."""
    table = run.timeline(COLUMNS).unify_dictionaries().combine_chunks()
    ranks = run.actors()["rank_count"].to_numpy()
    kinds, groups = words(table["kind"]), words(table["group"])
    actor, start = table["actor"].to_numpy().astype(np.int64), table["start_ns"].to_numpy()
    end = integers(table["end_ns"], missing=-1)
    end = np.where(end < 0, run.summary["makespan_ns"], end)
    is_other = np.isin(kinds.codes, [code for code, kind in enumerate(kinds.texts) if kind in OTHER_KINDS])
    size = integers(table["bytes"], missing=0)
    named = [text or MESSAGES for text in groups.texts]
    texts = sorted(set(named))  # groups of one name are shown as one
    group = np.array([texts.index(text) for text in named])[groups.codes]
    others = np.flatnonzero(is_other)
    without = union(actor[others], start[others], end[others]).lengths(len(ranks))
    found = []
    for code in np.unique(group[~is_other]).tolist():
        rows = np.flatnonzero((group == code) & ~is_other)
        both = np.concatenate((rows, others))
        active = union(actor[rows], start[rows], end[rows]).lengths(len(ranks))
        exposed = union(actor[both], start[both], end[both]).lengths(len(ranks)) - without
        weight = ranks[actor[rows]]
        found.append(
            Exposed(
                texts[code],
                int(weight.sum()),
                _dot(weight, size[rows]),
                _dot(ranks, active),
                _dot(ranks, exposed),
            )
        )
    return sorted(found, key=lambda one: (-one.exposed_ns, -one.active_ns, one.group))


def _dot(counts: Any, values: Any) -> int:
    """The sum of products, in Python's unbounded integers where it might not fit."""
    if float(np.abs(values).max(initial=0)) * float(counts.sum()) < 2**62:
        return int((counts * values).sum())
    return sum(c * v for c, v in zip(counts.tolist(), values.tolist(), strict=True))
