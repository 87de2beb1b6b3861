"""Kernels against the roofs of their machine: by operation, operations per byte and per second.

Only kernels count whose model gives their operations and bytes. The roofs follow from the timeline: a kernel
that reaches a share of a peak gives the peak. The longest kernel gives the best estimate, since times are
whole nanoseconds.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
from msgspec import Struct, to_builtins

from et_sim.basics.units import format_bandwidth
from et_sim.views.run.columns import Words, coded, integers, numbers, words
from et_sim.views.run.directory import RunDirectory
from et_sim.views.run.rows import Grouped, exact_total_by
from et_sim.views.run.selection import EVERYTHING, Selection
from et_sim.views.sheet import Sheet, SheetColumn
from et_sim.views.text import by_byte, prose, share
from et_sim.views.view import Forms

FIGURES = ("actor", "name", "start_ns", "end_ns", "bytes", "memory_bound")
SHARES = ("compute_utilisation", "memory_utilisation", "operational_intensity")
LABELS = ("peak", "level")  # columns of the timeline, if the machine has the key `compute`
PEAK, BANDWIDTH = "peak compute", "memory bandwidth"
SHOWN = 20
ENOUGH_NS = 1000  # a kernel of this length gives a roof to a thousandth
NO_KERNELS = (
    "no kernel's operations and bytes are known: only kernels have them that a roofline or another model of "
    "their arithmetic timed (the key roofline-enabled, or compute), and no replayed or measured ones"
)

PREFIXES = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))


class EqualKernels(Struct, frozen=True):
    """Equal kernels, over all ranks."""

    name: str
    peak: str  # their roof of arithmetic
    level: str  # their roof of memory
    count: int
    total_ns: int
    operations: float
    bytes: float
    memory_bound_share: float  # share of their time
    intensity: float  # operations per byte
    operations_per_second: float


class MeasuredRoofline(Struct, frozen=True):
    """Kernels, the longest first, and the roofs."""

    kernels: tuple[EqualKernels, ...]
    peaks: dict[str, float]  # operations per second
    bandwidths: dict[str, float]  # bytes per second

    def roof(self, kernel: EqualKernels) -> float:
        """Return the operations per second that the machine allows at a kernel's intensity."""
        peak, bandwidth = self.peaks.get(kernel.peak, np.inf), self.bandwidths.get(kernel.level, np.inf)
        return float(min(peak, bandwidth * kernel.intensity))

    def as_dict(self, top: int | None) -> dict[str, Any]:
        """Return it for `--json`."""
        rows = [
            {**to_builtins(kernel), "share_of_roof": kernel.operations_per_second / self.roof(kernel)}
            for kernel in self.kernels
        ]
        return {"peaks": self.peaks, "bandwidths": self.bandwidths, "kernels": rows[:top]}


class _Sums:
    """Sums over blocks of kernels."""

    def __init__(self) -> None:
        self.of: dict[tuple[str, str, str], list[Fraction | float]] = {}
        self.roofs: tuple[dict[str, tuple[float, float]], ...] = ({}, {})

    def estimate_roof(self, which: int, label: str, longest_ns: float, rate: float) -> None:
        """Estimate a roof by a kernel of this length; the longest kernel wins."""
        known = self.roofs[which].get(label, (0.0, 0.0))
        self.roofs[which][label] = max(known, (min(longest_ns, ENOUGH_NS), rate))


def roofline_of(run: RunDirectory, part: Selection = EVERYTHING) -> MeasuredRoofline:
    """Return the roofline of kernels with known operations; those at an edge of the window in proportion."""
    weights, sums = part.weights(run), _Sums()
    for rows in run.batches("timeline", _columns(run)):
        _add(rows, run.stems, weights, part, sums)
    kernels = [_kernel(key, figures) for key, figures in sums.of.items()]
    kernels.sort(key=lambda kernel: (-kernel.total_ns, kernel.name, kernel.peak, kernel.level))
    peaks, bandwidths = ({label: rate for label, (_, rate) in sorted(of.items())} for of in sums.roofs)
    return MeasuredRoofline(tuple(kernels), peaks, bandwidths)


def _columns(run: RunDirectory) -> tuple[str, ...]:
    known = run.columns("timeline")
    return (*FIGURES, *SHARES, *(name for name in LABELS if name in known))


def _add(rows: Any, stems: Words, weights: Any, part: Selection, sums: _Sums) -> None:
    start, end = numbers(rows["start_ns"]), integers(rows["end_ns"], missing=-1)
    if all(rows[name].null_count == len(rows) for name in SHARES):
        return
    compute, memory, intensity = (numbers(rows[name]) for name in SHARES)
    size, actor = numbers(rows["bytes"]), numbers(rows["actor"])
    is_known = (
        (intensity > 0) & (compute > 0) & (memory > 0) & (size > 0) & (end > start) & (weights[actor] > 0)
    )
    at = np.flatnonzero(is_known & part.touches(start, end))
    if not len(at):
        return
    taken = (end - start)[at].astype(np.float64)
    first, last = part.clipped(start[at], end[at])
    within = (last - first) / taken
    operations = intensity[at] * size[at]
    has_labels = all(name in rows.schema.names for name in LABELS)
    labels = [words(rows[name]) for name in LABELS] if has_labels else []
    codes = [stems.codes[coded(rows["name"])][at], *(label.codes[at] for label in labels)]
    groups = Grouped(*codes, weights[actor[at]])
    bound = np.where(numbers(rows["memory_bound"])[at], last - first, 0)
    figures = (np.ones(len(at)), last - first, operations * within, size[at] * within, bound)
    totals = [exact_total_by(groups.of_row, len(groups.keys), figure) for figure in figures]
    rates = operations / taken * 1e9 / compute[at], size[at] / taken * 1e9 / memory[at]
    for number, key in enumerate(groups.keys.tolist()):
        texts = [str(label.texts[code]) for label, code in zip(labels, key[1:-1], strict=True)]
        names = (texts[0], texts[1]) if texts else (PEAK, BANDWIDTH)
        old = sums.of.setdefault((str(stems.texts[key[0]]), *names), [Fraction(0)] * len(totals))
        for place, total in enumerate(totals):
            old[place] += key[-1] * total[number]
        of_kernel = np.flatnonzero(groups.of_row == number)
        for which in (0, 1):
            lengths = np.minimum(taken[of_kernel], ENOUGH_NS)
            best = of_kernel[np.lexsort((rates[which][of_kernel], lengths))[-1]]
            sums.estimate_roof(which, names[which], float(taken[best]), float(rates[which][best]))


def _kernel(key: tuple[str, str, str], figures: list[Fraction | float]) -> EqualKernels:
    count, total, operations, size, bound = map(float, figures)
    return EqualKernels(
        *key,
        count=round(count),
        total_ns=round(total),
        operations=operations,
        bytes=size,
        memory_bound_share=bound / max(total, 1),
        intensity=operations / size,
        operations_per_second=operations / total * 1e9,
    )


def per_second(rate: float) -> str:
    """Return operations per second as text."""
    scale, prefix = next(
        (scale_and_prefix for scale_and_prefix in PREFIXES if rate >= scale_and_prefix[0]), PREFIXES[-1]
    )
    return f"{rate / scale:.3g} {prefix}FLOP/s"


def roofline_lines(run: RunDirectory, part: Selection, width: int) -> list[str]:
    """Return a line for each operation, and the roofs."""
    roofline = roofline_of(run, part)
    if not roofline.kernels:
        return prose([NO_KERNELS], width)
    columns = (
        SheetColumn("kernel", "name", "<"),
        SheetColumn("total", "total_ns"),
        SheetColumn("ops/byte", lambda kernel: by_byte(kernel.intensity)),
        SheetColumn("achieved", lambda kernel: per_second(kernel.operations_per_second)),
        SheetColumn("of roof", lambda kernel: share(kernel.operations_per_second, roofline.roof(kernel))),
        SheetColumn("bandwidth", lambda kernel: format_bandwidth(kernel.bytes / kernel.total_ns)),
        SheetColumn("bound", lambda kernel: "memory" if kernel.memory_bound_share > 0.5 else "compute", "<"),
    )
    drop, hint = ("bandwidth", "bound"), ": --top, or --json"
    sheet = Sheet(columns, {"kernel": 10}, drop, ("kernel",), SHOWN, hint=hint)
    lines = sheet.shown(roofline.kernels, part, width)
    roofs = [f"{label} {per_second(rate)}" for label, rate in roofline.peaks.items()]
    roofs += [f"{label} {format_bandwidth(rate / 1e9)}" for label, rate in roofline.bandwidths.items()]
    note = "roofs follow from the times of kernels; times are summed over ranks"
    return prose([*lines, "", f"roofs: {', '.join(roofs)}", note], width)


def roofline_data(run: RunDirectory, part: Selection = EVERYTHING) -> Any:
    """Return the roofline for `--json`."""
    return roofline_of(run, part).as_dict(part.top)


ROOFLINE = Forms(roofline_lines, roofline_data)
