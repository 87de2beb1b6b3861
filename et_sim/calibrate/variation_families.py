"""Families of distributions fitted to logarithms of factors, and their distance from other ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from msgspec import Struct

from et_sim.machine.variation import MOST_FACTOR, MOST_SPREAD, Family

LOG_NORMAL, MIXTURE, EMPIRICAL = Family.LOG_NORMAL, Family.MIXTURE, Family.EMPIRICAL
MOST_QUANTILES = 128
FEWEST_FOR_MIXTURE, MOST_FOR_MIXTURE = 20, 20_000
NEARER = 0.01  # distance that further figures have to save
_ROUNDS = 60
_LEAST_SIGMA = 1e-5
_DIGITS = 6


class Fit(Struct, frozen=True, eq=False):
    """A family with its keys of the system file."""

    family: Family
    keys: Mapping[str, Any]


def distance(a: Any, b: Any) -> float:
    """Return the largest difference of the distributions of two samples (Kolmogorov and Smirnov)."""
    a, b = np.sort(np.ravel(a)), np.sort(np.ravel(b))
    every = np.concatenate([a, b])
    below = [np.searchsorted(sample, every, side="right") / len(sample) for sample in (a, b)]
    return float(np.abs(below[0] - below[1]).max())


def log_normal(logs: Any) -> Fit:
    """Return the log-normal distribution with the mean and spread of these logarithms."""
    mean, sigma = float(np.mean(logs)), float(np.std(logs))
    return Fit(LOG_NORMAL, {"spread": _spread(sigma), "factor": _factor(mean + sigma**2 / 2)})


def mixture(logs: Any) -> Fit:
    """Return the mixture of two log-normal distributions that is the likeliest (found by turns)."""
    logs = np.ravel(logs)
    logs = logs[:: -(-len(logs) // MOST_FOR_MIXTURE)]
    means = np.quantile(logs, [0.4, 0.97])
    sigmas, weights = np.full(2, max(float(np.std(logs)), _LEAST_SIGMA)), np.array([0.9, 0.1])
    for _ in range(_ROUNDS):
        part = weights / sigmas * np.exp(-0.5 * ((logs[:, None] - means) / sigmas) ** 2)
        part /= np.maximum(part.sum(1, keepdims=True), 1e-300)
        counts = np.maximum(part.sum(0), 1e-9)
        weights, means = counts / counts.sum(), (part * logs[:, None]).sum(0) / counts
        sigmas = np.sqrt((part * (logs[:, None] - means) ** 2).sum(0) / counts)
        sigmas = np.maximum(sigmas, _LEAST_SIGMA)
    parts = [
        {"weight": round(weight, _DIGITS), "factor": _factor(mean + sigma**2 / 2), "spread": _spread(sigma)}
        for weight, mean, sigma in zip(weights.tolist(), means.tolist(), sigmas.tolist(), strict=True)
        if round(weight, _DIGITS) > 0
    ]
    return Fit(MIXTURE, {"parts": parts})


def empirical(logs: Any) -> Fit:
    """Return quantiles of these logarithms, or all where they are few."""
    count = min(np.size(logs), MOST_QUANTILES)
    logs = np.sort(np.ravel(logs)) if count == np.size(logs) else np.quantile(logs, _middles(count))
    return Fit(EMPIRICAL, {"factors": [_factor(value) for value in logs.tolist()]})


def chosen(logs: Any, others: Any) -> Family:
    """Return the family that, fitted to logarithms, is nearest to others; one with fewer figures if it is as
    near.
    """
    candidates = [log_normal, mixture, empirical] if np.size(logs) >= FEWEST_FOR_MIXTURE else [log_normal]
    fits = [fit(logs) for fit in candidates]
    far = [distance(quantiles_of(fit), others) for fit in fits]
    best = 0
    for place in range(1, len(fits)):
        if far[place] < far[best] - NEARER:
            best = place
    return fits[best].family


def fitted(family: Family, logs: Any) -> Fit:
    """Return a family fitted to logarithms."""
    return {LOG_NORMAL: log_normal, MIXTURE: mixture, EMPIRICAL: empirical}[family](logs)


def quantiles_of(fit: Fit) -> Any:
    """Return logarithms of factors as the fit distributes them."""
    from statistics import NormalDist

    normal = np.array([NormalDist().inv_cdf(middle) for middle in _middles(2048).tolist()])
    if fit.family is EMPIRICAL:
        return np.log(np.repeat(fit.keys["factors"], 16))
    parts: Sequence[Mapping[str, float]] = fit.keys.get("parts") or [{"weight": 1.0, **fit.keys}]
    logs = []
    for part in parts:
        variance = np.log1p(part["spread"] ** 2)
        several = normal[:: max(1, round(1 / max(part["weight"], 1 / 256)))] if len(parts) > 1 else normal
        logs.append(np.log(part["factor"]) - variance / 2 + np.sqrt(variance) * several)
    return np.concatenate(logs)


def _middles(count: int) -> Any:
    return (np.arange(count) + 0.5) / count


def _factor(log: float) -> float:
    return round(min(max(float(np.exp(log)), 1e-6), MOST_FACTOR), _DIGITS)


def _spread(sigma: float) -> float:
    return round(min(float(np.sqrt(np.expm1(sigma**2))), MOST_SPREAD), _DIGITS)
