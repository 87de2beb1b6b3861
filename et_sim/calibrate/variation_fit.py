"""A description of variation, fitted to half of the recorded steps and compared with the other half.

The logarithm of a time over the typical one is a sum: of a part of the rank, of a part of the rank in a step,
and a rest of the event. A level is described if its part is larger than the mean of a level below explains.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from msgspec import Struct

from et_sim.calibrate.variation_families import chosen, distance, empirical, fitted
from et_sim.calibrate.varied_times import Recorded, Series
from et_sim.machine.variation import MixturePart, Variation, VariationLevel, VariedKind

ELEMENT, STEP, EVENT = VariationLevel.ELEMENT, VariationLevel.STEP, VariationLevel.EVENT
BY_OPERATION, BY_KIND = "operation", "kind"
FEWEST_EVENTS = 500  # of an operation whose distance is judged
TIMES_NOISE = 2.0  # of variances: of a level, over the part that the level below explains
FEWEST_PAIRS = 30
LEAST_CORRELATION, MOST_CORRELATION = 0.05, 0.95
LEAST_SPREAD = 1e-4
DECIMALS = 9  # of logarithms that are ranked; recorded times have fewer digits
_DRAWN = 200_000


class FittedLevel(Struct, frozen=True, eq=False):
    """An entry of the description."""

    entry: Mapping[str, Any]
    spread: float  # standard deviation of the logarithms
    values: list[Any]  # logarithms, an array for each series

    @property
    def level(self) -> str:
        """Return the level."""
        return str(self.entry["level"])


class FittedWork(Struct, frozen=True, eq=False):
    """The levels of some operations that vary alike."""

    name: str
    series: tuple[Series, ...]
    levels: tuple[FittedLevel, ...]


class Comparison(Struct, frozen=True):
    """The times of an operation in steps that were left out, compared with drawn ones."""

    operation: str
    events: int
    ks: float


class _Parts(Struct, frozen=True, eq=False):
    """The parts of logarithms, one array for each series."""

    element: list[Any]  # rank
    step: list[Any]  # step, rank
    event: list[Any]  # step, rank, number


def fit_all(recorded: Recorded, steps: Sequence[int], by: str) -> list[FittedWork]:
    """Fit each operation, or each kind of work, to some of the steps, which are given by their places."""
    return [
        FittedWork(name, series, tuple(_levels(recorded, series, steps, head)))
        for name, series, head in _works(recorded, by)
    ]


def _works(recorded: Recorded, by: str) -> Iterator[tuple[str, tuple[Series, ...], dict[str, Any]]]:
    """Yield what is fitted together: its name, its series and the keys that select it."""
    together: dict[tuple[VariedKind, str], list[Series]] = {}
    for series in recorded.series:
        together.setdefault((series.kind, series.operation if by == BY_OPERATION else ""), []).append(series)
    for (kind, operation), found in together.items():
        if by == BY_KIND:
            yield kind, tuple(found), {"kind": kind}
            continue
        # traces of a table replay communication as kernels
        replayed = VariedKind.KERNEL if recorded.table is not None else kind
        yield operation, tuple(found), {"kind": replayed, "operations": [operation]}


def _parts(series: Sequence[Series], steps: Sequence[int]) -> _Parts:
    element, step, event = [], [], []
    for one in series:
        logs = np.log(one.times[list(steps)] / one.typical(steps))
        of_rank = np.median(logs, axis=(0, 2))
        of_step = logs.mean(2) - of_rank
        if logs.shape[2] == 1:  # a single event in a step has no part of its own
            of_step = np.zeros_like(of_step)
        element.append(of_rank)
        step.append(of_step)
        event.append(logs - of_rank[:, None] - of_step[:, :, None])
    return _Parts(element, step, event)


def _levels(
    recorded: Recorded, series: tuple[Series, ...], steps: Sequence[int], head: dict[str, Any]
) -> Iterator[FittedLevel]:
    whole = _parts(series, steps)
    folded = _in_noise(whole)
    parts = _without(whole, folded)
    halves = [_without(_parts(series, half), folded) for half in (steps[::2], steps[1::2])]
    is_centred = bool(_joined(parts.step).any())
    for level, values, mine, other in (
        (ELEMENT, parts.element, halves[0].element, halves[1].element),
        (STEP, parts.step, halves[0].step, halves[1].step),
        (EVENT, parts.event, halves[0].event, halves[1].event),
    ):
        logs = _joined(values)
        spread = float(np.std(logs))
        if spread < LEAST_SPREAD:
            continue
        # each rank is as likely as it was in the job
        is_of_rank = level is ELEMENT
        fit = empirical(logs) if is_of_rank else fitted(chosen(_joined(mine), _joined(other)), logs)
        correlation = _correlation(
            level, values, np.array(recorded.steps)[list(steps)], is_centred=is_centred
        )
        more = {"correlation": round(correlation, 3)} if correlation else {}
        yield FittedLevel({**head, "level": level, "family": fit.family, **fit.keys, **more}, spread, values)


def _joined(values: list[Any]) -> Any:
    return np.concatenate([np.ravel(of_series) for of_series in values])


def _in_noise(parts: _Parts) -> frozenset[VariationLevel]:
    """Return the levels whose parts the events explain."""
    steps, numbers = len(parts.event[0]), np.mean([one.shape[2] for one in parts.event])
    of_event, of_step = np.var(_joined(parts.event)), np.var(_joined(parts.step))
    found = set()
    if of_step <= TIMES_NOISE * of_event / numbers:
        found.add(STEP)
    if np.var(_joined(parts.element)) <= TIMES_NOISE * (of_step + of_event / numbers) / steps:
        found.add(ELEMENT)
    return frozenset(found)


def _without(parts: _Parts, levels: frozenset[VariationLevel]) -> _Parts:
    """Give the parts of some levels to the events."""
    element, step, event = parts.element, parts.step, parts.event
    if STEP in levels:
        event = [rest + of_step[:, :, None] for rest, of_step in zip(event, step, strict=True)]
        step = [np.zeros_like(of_step) for of_step in step]
    if ELEMENT in levels:
        event = [rest + of_rank[:, None] for rest, of_rank in zip(event, element, strict=True)]
        element = [np.zeros_like(of_rank) for of_rank in element]
    return _Parts(element, step, event)


def _correlation(level: VariationLevel, values: list[Any], steps: Any, *, is_centred: bool) -> float:
    """Return the correlation of values with the next ones along events or neighbouring steps, or 0 if it may
    be chance. `is_centred`: the mean of each row of events was subtracted.
    """
    found, pairs = 0.0, 0
    follows = np.flatnonzero(np.diff(steps) == 1)
    for of_series in values if level is not ELEMENT else ():
        scores = scores_of(of_series)
        of_events = level is EVENT
        a, b = (scores[:, :, :-1], scores[:, :, 1:]) if of_events else (scores[follows], scores[follows + 1])
        if not a.size or not np.std(a) or not np.std(b):
            continue
        one = float(np.corrcoef(a.ravel(), b.ravel())[0, 1])
        # subtracting the mean of a row of n values lowers the correlation by about 1 / n
        if is_centred or not of_events:
            one += (1 + one) / (scores.shape[2] if of_events else len(steps))
        found, pairs = found + one * a.size, pairs + a.size
    if pairs < FEWEST_PAIRS or abs(found / pairs) < max(LEAST_CORRELATION, 3 / np.sqrt(pairs)):
        return 0.0
    return float(np.clip(found / pairs, -MOST_CORRELATION, MOST_CORRELATION))


def scores_of(values: Any) -> Any:
    """Return normal scores of logarithms; those of equal times are equal, whatever their last digits are."""
    from scipy.special import ndtri
    from scipy.stats import rankdata

    ranks = rankdata(np.round(values, DECIMALS)).reshape(values.shape)
    return ndtri((ranks - 0.5) / values.size)


def compared(
    works: Sequence[FittedWork], fit_steps: Sequence[int], others: Sequence[int]
) -> list[Comparison]:
    """Compare the times of each operation in steps that were left out with drawn ones."""
    drawn: dict[str, list[Any]] = {}
    held: dict[str, list[Any]] = {}
    draw = np.random.default_rng(0)
    for work in works:
        for series in work.series:
            shape = (len(others), *series.times.shape[1:])
            repeats = max(1, min(20, _DRAWN // int(np.prod(shape))))
            for _ in range(repeats):
                factors = _draws(work, shape, draw)
                drawn.setdefault(series.operation, []).append(np.ravel(series.typical(fit_steps) * factors))
            # as often as they were drawn, so that all series have their weight
            of_steps = np.ravel(series.times[list(others)])
            held.setdefault(series.operation, []).append((of_steps, repeats))
    found = []
    for operation, several in held.items():
        events = sum(len(times) for times, _ in several)
        equal = np.concatenate([np.tile(times, repeats) for times, repeats in several])
        found.append(Comparison(operation, events, distance(np.concatenate(drawn[operation]), equal)))
    return found


def _draws(work: FittedWork, shape: tuple[int, ...], draw: Any) -> Any:
    """Return factors of events as the system file describes them, with fresh draws of every level."""
    from et_sim.samples.families import factors_of

    factors = np.ones(shape)
    for level in work.levels:
        size = {ELEMENT: (1, shape[1], 1), STEP: (*shape[:2], 1), EVENT: shape}[level.entry["level"]]
        by_score = factors_of(entry_of(level.entry))
        factors = factors * by_score(draw.standard_normal(size), partial(draw.standard_normal, size))
    return factors


def entry_of(entry: Mapping[str, Any]) -> Any:
    """Return an entry as the system file's reader returns it."""
    values = {**entry, "factors": tuple(entry.get("factors", ()))}
    values["operations"] = tuple(entry.get("operations", ()))
    values["parts"] = tuple(MixturePart(**part) for part in entry.get("parts", ()))
    return Variation(**{"spread": None, **values})
