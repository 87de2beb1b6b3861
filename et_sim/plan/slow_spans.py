"""Kernels of GPUs that slow down within a run: their speed over time, as the engine reads it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from msgspec import Struct

from et_sim.machine.networks import Failure
from et_sim.machine.system_parts import WorkKind
from et_sim.plan.records import SPAN, Action, table
from et_sim.plan.straggler_variants import of_kind


class SlowSpans(Struct, frozen=True):
    """The speeds of kernels of each actor."""

    spans: Any  # by actor, then by time; empty: no GPU slows down
    span_first: Any  # by actor, and the end of the last
    is_kernel: Any  # by node


def slow_spans(lowering: Any, representative: Any) -> SlowSpans:
    """Return the speeds of the actors' representatives."""
    slow = lowering.machine.slow
    if not slow:
        return SlowSpans(table(SPAN, 0), np.zeros(0, np.int64), np.zeros(0, np.int8))
    of_rank = _by_rank(slow)
    of_actor = [_speeds([slow[row] for row in of_rank.get(rank, ())]) for rank in representative.tolist()]
    first = np.cumsum([0, *map(len, of_actor)])
    spans = table(SPAN, int(first[-1]))
    for row, (begin, share) in enumerate(each for speeds in of_actor for each in speeds):
        spans["from_ns"][row], spans["share"][row] = begin, share
    is_kernel = np.zeros(len(lowering.nodes), np.int8)
    begins = lowering.templates["node_first"].tolist()
    for trace, begin in zip(lowering.workload.templates, begins, strict=True):
        rows = slice(begin, begin + len(trace))
        takes_time = lowering.nodes["action"][rows] == Action.DELAY
        is_kernel[rows] = of_kind(trace, WorkKind.KERNELS) & takes_time
    return SlowSpans(spans, first, is_kernel)


def _speeds(failures: Sequence[Failure]) -> list[tuple[int, float]]:
    """Return the times from which a GPU has another speed, with the share of the usual one."""
    moments = {each.at_ns for each in failures} | {each.until_ns for each in failures if each.until_ns}
    speeds = []
    for moment in sorted(moment for moment in moments if moment is not None):
        during = [each for each in failures if each.at_ns <= moment and moment < (each.until_ns or math.inf)]
        speeds.append((moment, math.prod(each.left for each in during)))
    return speeds


def classes_of_ranks(slow: Sequence[Failure], ranks: int) -> Any:
    """Return a number for the failures of each rank."""
    classes = np.zeros(ranks, np.int64)
    numbers: dict[tuple[int, ...], int] = {}
    for rank, rows in _by_rank(slow).items():
        classes[rank] = numbers.setdefault(tuple(rows), len(numbers) + 1)
    return classes


def _by_rank(slow: Sequence[Failure]) -> dict[int, list[int]]:
    """Return the failures of each rank that has any, by their places in the sequence."""
    found: dict[int, list[int]] = {}
    for row, failure in enumerate(slow):
        for rank in failure.ranks:
            found.setdefault(rank, []).append(row)
    return found
