"""Draws that ranks and operations share: of a table of steps, whose ranks are replicas and stages.

Ranks share the draws of a level if their values are correlated: those of all replicas, or of the stages of
one replica (a node of the traces' machine). The passes of a micro-batch have one cause if theirs
are, such as the length of its sequences. Shared draws are fully correlated; quantiles keep them so. The times
of other operations have a shared part, such as that of a collective, and a part of each rank, such as its
place among the members that the collective reaches one after the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from msgspec import structs

from et_sim.calibrate.variation_families import Fit, chosen, empirical, fitted
from et_sim.calibrate.variation_fit import ELEMENT, LEAST_SPREAD, FittedLevel, FittedWork, scores_of
from et_sim.machine.variation import SharedBy
from et_sim.trace.recorded_steps.table import BACKWARD, FORWARD

ENOUGH = 0.5  # of a correlation
_REPLICA, _STAGE = 1, 0


def with_sharing(works: Sequence[FittedWork]) -> list[FittedWork]:
    """Return the works with the keys `shared` and `cause` of the levels that have them."""
    shared = [
        structs.replace(work, levels=tuple(_with_scope(level) for level in work.levels)) for work in works
    ]
    by_name = {work.name: work for work in shared}
    if not {FORWARD, BACKWARD} <= set(by_name):
        return [_divided(work) for work in shared]
    passes = by_name[FORWARD], by_name[BACKWARD]
    causes = {
        level.level: f"passes, by {level.level}"
        for level in passes[0].levels
        for other in passes[1].levels
        if level.level == other.level != ELEMENT and _is_one_cause(level, other)
    }
    return [_with_causes(work, causes) if work in passes else _divided(work) for work in shared]


def _with_scope(level: FittedLevel) -> FittedLevel:
    if level.level == ELEMENT:
        return level
    values = _scores(level)
    if _correlation(values, _REPLICA + 1) >= ENOUGH:
        return _with_key(level, "shared", SharedBy.MACHINE)
    if _correlation(values, _STAGE) >= ENOUGH:
        return _with_key(level, "shared", SharedBy.NODE)
    return level


def _with_causes(work: FittedWork, causes: dict[str, str]) -> FittedWork:
    levels = (
        _with_cause(level, causes[level.level]) if level.level in causes else level for level in work.levels
    )
    return structs.replace(work, levels=tuple(levels))


def _with_cause(level: FittedLevel, cause: str) -> FittedLevel:
    fit = empirical(np.concatenate([np.ravel(values) for values in level.values]))
    entry = {key: value for key, value in level.entry.items() if key not in ("factor", "spread", "parts")}
    return structs.replace(level, entry={**entry, "family": fit.family, **fit.keys, "cause": cause})


def _divided(work: FittedWork) -> FittedWork:
    """Return a work whose shared levels have a part that is shared, and one of each rank."""
    return structs.replace(work, levels=tuple(part for level in work.levels for part in _parts(level)))


def _parts(level: FittedLevel) -> tuple[FittedLevel, ...]:
    scope = level.entry.get("shared")
    if scope is None:
        return (level,)
    values = np.stack(level.values)
    members = (_STAGE, _REPLICA + 1) if scope is SharedBy.MACHINE else (_STAGE,)
    shared = values.mean(members, keepdims=True)
    own = values - shared
    if float(np.std(own)) < LEAST_SPREAD:
        return (level,)
    logs = np.ravel(own)
    of_rank = fitted(chosen(own[:, ::2], own[:, 1::2]), logs)
    return (
        _refitted(level, empirical(np.ravel(shared)), np.broadcast_to(shared, values.shape), scope),
        _refitted(level, of_rank, own, None),
    )


def _refitted(level: FittedLevel, fit: Fit, values: Any, scope: SharedBy | None) -> FittedLevel:
    """Return a level with another distribution, of these values."""
    kept = {
        key: value
        for key, value in level.entry.items()
        if key in ("kind", "operations", "level", "correlation")
    }
    entry = {**kept, "family": fit.family, **fit.keys, **({"shared": scope} if scope else {})}
    return FittedLevel(entry, float(np.std(values)), list(values))


def _with_key(level: FittedLevel, key: str, value: Any) -> FittedLevel:
    return structs.replace(level, entry={**level.entry, key: value})


def _scores(level: FittedLevel) -> Any:
    """Return normal scores with the axes stage, step, replica and perhaps number."""
    return np.stack([scores_of(values) for values in level.values])


def _correlation(values: Any, axis: int) -> float:
    """Return the mean correlation of members of an axis, from the variance of their mean."""
    members = values.shape[axis]
    total = float(np.var(values))
    if members == 1 or not total:
        return 0.0
    return float((members * np.var(values.mean(axis)) / total - 1) / (members - 1))


def _is_one_cause(level: FittedLevel, other: FittedLevel) -> bool:
    if level.entry.get("shared") != other.entry.get("shared"):
        return False
    pair = np.stack([_scores(level), _scores(other)])
    return _correlation(pair, 0) >= ENOUGH
