"""The clocks of ranks, fitted to ends that are one moment for all members of a group.

A clock is off by an offset, and by a drift that grows with time. Both follow from the ends by least squares,
against the mean clock of the ranks; ends that differ much from the others of their moment count less. The
stated error holds the true clock in 95 % of all cases, if ends vary by chance around the common moment.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from msgspec import Struct

from et_sim.basics.estimates import student_t

MOST_RANKS = 500  # the fit needs a matrix of twice as many rows
FEWEST = 3  # moments of a group that show a drift
PASSES = 3  # times of moments follow from clocks, and these from the times
FAR = 6.0  # usual distances from the others, beyond which a moment does not count
SURE = 3.0  # standard errors beyond which a drift is one

Ends = Sequence[tuple[list[int], Any]]  # ranks of a group, and the end of each moment on each


class Clocks(Struct, frozen=True, eq=False):
    """The clocks, each ahead of the mean by `offset_ns` at `origin_ns`, and by `drift` of the time since."""

    origin_ns: int
    offset_ns: Any
    drift: Any
    covariance: Any  # of offsets and drifts together
    quantile: float  # of Student's distribution, for 95 %

    def since_ns(self, times: Any, ranks: Any = slice(None)) -> Any:
        """Return the time since the origin by the mean clock, for times by the clocks of some ranks."""
        local = (np.asarray(times, np.int64) - self.origin_ns).T
        return ((local - self.offset_ns[ranks]) / (1 + self.drift[ranks])).T

    def ahead_ns(self, times: Any, ranks: Any = slice(None)) -> Any:
        """Return by how much the clocks of some ranks are ahead of the mean one, at times by each of them."""
        return (self.offset_ns[ranks] + self.drift[ranks] * self.since_ns(times, ranks).T).T

    def error_ns(self, times: Any) -> Any:
        """Return the error of `ahead_ns`, of 95 %."""
        since, ranks = self.since_ns(times), len(self.offset_ns)
        variance = (
            np.diag(self.covariance)[:ranks]
            + since**2 * np.diag(self.covariance)[ranks:]
            + 2 * since * np.diag(self.covariance[:ranks, ranks:])
        )
        return self.quantile * np.sqrt(np.maximum(variance, 0))

    @property
    def drifts(self) -> bool:
        """Return whether a drift is larger than chance makes it."""
        ranks = len(self.offset_ns)
        deviation = np.sqrt(np.maximum(np.diag(self.covariance)[ranks:], 0))
        return bool((np.abs(self.drift) > SURE * deviation).any())


def fit_clocks(ends: Ends, correction_ns: Any) -> Clocks | None:
    """Fit the clocks; `correction_ns` is what roughly makes ends agree. None: the ends do not suffice."""
    ranks = len(correction_ns)
    chosen = [
        (np.array(of), np.asarray(values, np.int64)) for of, values in ends if values.shape[1] >= FEWEST
    ]
    if ranks > MOST_RANKS or len({rank for of, _ in chosen for rank in of.tolist()}) < ranks:
        return None
    origin = int(np.median(np.concatenate([values.ravel() for _, values in chosen])))
    local = [(of, (values - origin).astype(float)) for of, values in chosen]
    scale = max(float(np.ptp(values + correction_ns[of][:, None])) for of, values in local) or 1.0
    offset, drift = -np.asarray(correction_ns, float), np.zeros(ranks)
    counts = [np.ones(values.shape[1], bool) for _, values in local]
    covariance, freedom = np.zeros((2 * ranks, 2 * ranks)), 0
    for _ in range(PASSES):
        moments = [_moments(of, values, offset, drift) for of, values in local]
        solved = _solved(local, moments, counts, scale, ranks)
        if solved is None:
            return None
        offset, drift, covariance, freedom = solved
        counts = _near(local, moments, offset, drift)
    return Clocks(origin, offset, drift, covariance, student_t(freedom))


def _moments(of: Any, values: Any, offset: Any, drift: Any) -> Any:
    """Return the time of each moment by the mean clock."""
    return np.median((values - offset[of][:, None]) / (1 + drift[of][:, None]), axis=0)


def _solved(
    local: list[tuple[Any, Any]], moments: list[Any], counts: list[Any], scale: float, ranks: int
) -> tuple[Any, Any, Any, int] | None:
    """Return offsets, drifts, their covariance and the degrees of freedom."""
    matrix, right, rows, common = np.zeros((2 * ranks, 2 * ranks)), np.zeros(2 * ranks), 0, 0
    parts = []
    for (of, values), all_moments, is_near in zip(local, moments, counts, strict=True):
        time = all_moments[is_near] / scale
        apart = values[:, is_near] - values[:, is_near].mean(axis=0)
        centre = np.eye(len(of)) - 1 / len(of)
        both = np.concatenate([of, of + ranks])
        sums = np.array([[len(time), time.sum()], [time.sum(), (time**2).sum()]])
        matrix[np.ix_(both, both)] += np.kron(sums, centre)
        right[both] += np.concatenate([apart.sum(axis=1), (apart * time).sum(axis=1)])
        rows, common = rows + apart.size, common + len(time)
        parts.append((of, time, apart))
    freedom = rows - common - int(np.linalg.matrix_rank(matrix))
    if freedom < 1:
        return None
    inverse = np.linalg.pinv(matrix, hermitian=True)
    solution = inverse @ right
    squares = 0.0
    for of, time, apart in parts:
        fitted = solution[of][:, None] + solution[of + ranks][:, None] * time
        squares += float(((apart - fitted + fitted.mean(axis=0)) ** 2).sum())
    units = np.concatenate([np.ones(ranks), np.full(ranks, 1 / scale)])
    covariance = inverse * (squares / freedom) * np.outer(units, units)
    return solution[:ranks], solution[ranks:] / scale, covariance, freedom


def _near(local: list[tuple[Any, Any]], moments: list[Any], offset: Any, drift: Any) -> list[Any]:
    """Return which moments of each group have no end far from the others."""
    distances = []
    for (of, values), time in zip(local, moments, strict=True):
        now = values - offset[of][:, None] - drift[of][:, None] * time
        distances.append(np.abs(now - np.median(now, axis=0)).max(axis=0))
    limit = FAR * max(float(np.median(np.concatenate(distances))), 1.0)
    near = [distance <= limit for distance in distances]
    return [is_near if is_near.sum() >= FEWEST else np.ones(len(is_near), bool) for is_near in near]
