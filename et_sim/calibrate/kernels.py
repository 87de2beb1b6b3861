"""A fit of a device's figures to measured kernels, and its errors on others.

Kernels are fitted family by family, products first: the launch overhead is fitted to them, and kept for the
others. A figure that the rows of a family do not determine stays as the machine has it, and the fit reports
it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from et_sim.basics.errors import InputError
from et_sim.basics.unique import unique_rows
from et_sim.calibrate.fitting import least_squares
from et_sim.calibrate.kernel_factors import (
    FAMILIES,
    Factor,
    OperationFamily,
    Target,
    factors,
    one_factor,
    starts,
    target_of,
)
from et_sim.compute.device import Device
from et_sim.compute.operations import Operation, Shape, read_shape
from et_sim.machine.efficiencies import OTHER, Curve, Efficiency
from et_sim.machine.roofline import RooflineDevice
from et_sim.run.workers import in_order
from et_sim.trace import TraceBuilder
from et_sim.trace.columns import IntColumn, Trace

FEWEST_ROWS = 4  # for each fitted figure
MOST_FACTOR = 30.0  # beyond this factor from its start, the model does not describe the rows
AT_BOUND = 0.98  # of its logarithm
PRIOR = 0.05  # pull to the start; rows that pull less do not determine a figure
LOSS = 0.1  # |ln| beyond which a row has less weight
WITHIN_PEAK = 1.02  # tolerance for rounding in tables, and for clocks
CACHES = 1 << 29  # bytes that no cache holds
FEW_VALUES = 16  # most values that are left out one by one


class MeasuredKernel(Struct, frozen=True):
    """A measured kernel that ran alone."""

    shape: str
    datatype: str
    us: float
    place: str
    size_class: str = "all"
    included: tuple[str, ...] = ()  # shapes of kernels that the time includes


class Kernels(Struct, frozen=True, eq=False):
    """Measured kernels as a trace, for the device's own model."""

    rows: tuple[MeasuredKernel, ...]
    shapes: tuple[Shape, ...]
    trace: Trace  # a node of each row, and then the included kernels
    owners: IntColumn  # the row of each included kernel
    _known: dict[str, Operation] = field(default_factory=dict)

    @staticmethod
    def of(rows: Sequence[MeasuredKernel]) -> Kernels:
        """Build the trace, and check the shapes."""
        build = TraceBuilder(source="measured kernels")
        for row in rows:
            build.compute(row.place, layer_shape=row.shape, dtype=row.datatype or None)
        owners = [at for at, row in enumerate(rows) for _ in row.included]
        for row in rows:
            for shape in row.included:
                build.compute(row.place, layer_shape=shape, dtype=row.datatype or None)
        shapes = tuple(read_shape(row.shape, row.place) for row in rows)
        return Kernels(tuple(rows), shapes, build.build(), np.array(owners, np.int64))

    def parts(self, device: RooflineDevice, which: IntColumn) -> tuple[Any, Any, Any]:
        """Return launch, arithmetic and traffic of some rows in ns, not rounded."""
        used = Device(device, "roofline", "the machine", self._known).durations(self.trace, which).utilisation
        assert used is not None
        return used.launch_ns, used.arithmetic_ns, used.traffic_ns

    def ratios(self, device: RooflineDevice, which: IntColumn) -> Any:
        """Return the ratios of predicted to measured times."""
        place = np.full(len(self.rows), -1, np.int64)
        place[which] = np.arange(len(which))
        included = np.flatnonzero(place[self.owners] >= 0)
        launch, arithmetic, traffic = self.parts(device, np.append(which, len(self.rows) + included))
        of_row = np.append(np.arange(len(which)), place[self.owners[included]])
        total = np.bincount(of_row, launch + np.maximum(arithmetic, traffic), len(which))
        return total / (np.array([self.rows[at].us for at in which.tolist()]) * 1000)

    def families(self, device: RooflineDevice) -> Iterator[tuple[OperationFamily, IntColumn]]:
        """Yield families and their rows, separately for datatypes with figures of their own."""
        for family in FAMILIES:
            apart: dict[str, list[int]] = {}
            for at, shape in enumerate(self.shapes):
                if shape.kind in family.kinds:
                    target = target_of(device, family, shape.kind, self.rows[at].datatype)
                    apart.setdefault(target.datatype, []).append(at)
            for _, which in sorted(apart.items()):
                yield family, np.array(which, np.int64)

    def target(self, device: RooflineDevice, family: OperationFamily, which: IntColumn) -> Target:
        """Return the target of the fit to rows of a family and a datatype."""
        first = int(which[0])
        included = (shape.partition(" ")[0] for at in which.tolist() for shape in self.rows[at].included)
        return target_of(
            device, family, self.shapes[first].kind, self.rows[first].datatype, frozenset(included)
        )


class FittedDevice(Struct, frozen=True):
    """The fitted device, the rows of the fit, and the figures that they do not determine."""

    device: RooflineDevice
    fitted: dict[str, float]
    which: IntColumn
    unknown: tuple[str, ...]


def fit(device: RooflineDevice, kernels: Kernels, *, takes_few: bool = False) -> FittedDevice:
    """Return the device nearest to the rows; refuse rows faster than the device's peaks.

    Too few rows for the figures of a family are refused as well, unless `takes_few`: then they determine one
    figure of the family, or none if no rows can be left out to judge it.
    """
    _refuse_too_fast(device, kernels)
    fitted, unknown, taken = dict[str, float](), list[str](), [np.zeros(0, np.int64)]
    measured = list(kernels.families(device))
    names = {family.name for family, _ in measured}
    unknown += [f"{family.name}: not measured" for family in FAMILIES if family.name not in names]
    for family, which in measured:
        is_coarse = takes_few and _is_few(device, family, kernels, which)
        if is_coarse and all(len(rest) < FEWEST_ROWS for _, rest in _folds(kernels, family, which)):
            unknown.append(f"{family.name}: {len(which)} rows are too few to judge a fit")
            continue
        device, family_factors, undetermined = _fit_family(
            device, family, kernels, which, is_coarse=is_coarse
        )
        if is_coarse:
            undetermined.append(f"{family.name}: {len(which)} rows are too few for more than one figure")
        fitted |= family_factors
        unknown += undetermined
        taken.append(which)
    types = sorted({kernels.rows[at].datatype for at in np.concatenate(taken).tolist()} - {""})
    if types and len(device.peaks) > 1:
        unknown.append(f"datatypes but {' and '.join(types)}: not measured; they keep the same figures")
    others = {shape.kind for shape in kernels.shapes} - {kind for known in FAMILIES for kind in known.kinds}
    unknown += [f"{kind}: no figure to fit" for kind in sorted(others)]
    return FittedDevice(device, fitted, np.concatenate(taken), tuple(unknown))


def left_out(
    device: RooflineDevice, kernels: Kernels, *, takes_few: bool = False
) -> Iterator[tuple[MeasuredKernel, float]]:
    """Yield rows with the ratios of a fit to rows that share none of their sizes.

    Rows are left out by N and K for products, by heads for attention, by all sizes for others: one value at a
    time if there are few, else every second. `device` has been fitted to all rows, for the other families.
    """
    folds = [
        _Fold(family, held, rest, takes_few and _is_few(device, family, kernels, which))
        for family, which in kernels.families(device)
        for held, rest in _folds(kernels, family, which)
    ]
    for fold, ratios in zip(folds, in_order(_judging, (device, kernels), folds), strict=True):
        rows = (kernels.rows[at] for at in fold.held.tolist())
        yield from zip(rows, ratios, strict=True) if ratios else ()


class _Fold(Struct, frozen=True, eq=False):
    """Rows that are left out, and the rows of the fit."""

    family: OperationFamily
    held: IntColumn
    rest: IntColumn
    is_coarse: bool


def _judging(given: tuple[RooflineDevice, Kernels]) -> Callable[[_Fold], list[float]]:
    """Return the function of a worker process: ratios of left-out rows, or nothing if the rest is too few."""
    device, kernels = given

    def judge(fold: _Fold) -> list[float]:
        try:
            fitted, _, _ = _fit_family(device, fold.family, kernels, fold.rest, is_coarse=fold.is_coarse)
        except InputError:
            return []
        ratios: list[float] = kernels.ratios(fitted, fold.held).tolist()
        return ratios

    return judge


def _is_few(device: RooflineDevice, family: OperationFamily, kernels: Kernels, which: IntColumn) -> bool:
    """Check whether rows are too few for all figures of their family."""
    return len(which) < FEWEST_ROWS * len(factors(device, kernels.target(device, family, which)))


def _fit_family(
    device: RooflineDevice,
    family: OperationFamily,
    kernels: Kernels,
    which: IntColumn,
    *,
    is_coarse: bool = False,
) -> tuple[RooflineDevice, dict[str, float], list[str]]:
    if not len(which):
        raise InputError(f"{family.name}: no row is left", remedy="measure more sizes")
    place = kernels.rows[int(which[0])].place
    _one_datatype(family, kernels, which)
    target = kernels.target(device, family, which)
    best: tuple[float, RooflineDevice, list[Factor], Any] | None = None
    for start in starts(device, target):
        free = (one_factor if is_coarse else factors)(start, target)
        if len(which) < FEWEST_ROWS * len(free):
            raise InputError(
                f"{family.name}: {len(which)} rows are too few for {len(free)} fitted figures",
                place=place,
                remedy=f"measure at least {FEWEST_ROWS * len(free)} shapes",
            )
        minimum = _nearest(start, free, kernels, which)
        if best is None or minimum.cost < best[0]:
            best = minimum.cost, start, free, minimum
    assert best is not None
    _, device, free, minimum = best
    fitted, unknown = {}, []
    pull = np.sqrt((minimum.jac[: len(which)] ** 2).sum(axis=0))
    for factor, log, is_determined in zip(free, minimum.x.tolist(), (pull > PRIOR).tolist(), strict=True):
        if not is_determined:
            unknown.append(f"{factor.name}: no row depends on it; it stays {factor.start:g}")
            continue
        value = factor.start * math.exp(log)
        if factor.is_included and value > AT_BOUND * factor.highest:
            unknown.append(f"{factor.name}: the rows leave no time for it; it is taken as {factor.highest:g}")
            device = factor.change(device, factor.highest)
            continue
        if abs(log) > AT_BOUND * math.log(MOST_FACTOR) or value > AT_BOUND * factor.highest:
            why = "above its limit" if value > AT_BOUND * factor.highest else "not plausible"
            raise InputError(
                f"{family.name}: {factor.name} would be {value:.3g}, which is {why}",
                place=place,
                remedy="check that all rows were measured on the named machine, each a kernel alone, without "
                "tensors in caches",
            )
        name = f"{target.datatype} {factor.name}".strip()
        fitted[name] = float(f"{value:.4g}")
        device = factor.change(device, fitted[name])
    if family.kinds[1:] and not target.datatype:
        measured = {kernels.shapes[at].kind for at in which.tolist()}
        rest = [kind for kind in family.kinds if kind not in measured]
        unknown += [f"{kind}: not measured; kept in proportion to {target.lead}" for kind in rest]
    return device, fitted, unknown


def _nearest(start: RooflineDevice, free: Sequence[Factor], kernels: Kernels, which: IntColumn) -> Any:
    def residuals(logs: Any) -> Any:
        device = start
        for factor, log in zip(free, logs.tolist(), strict=True):
            device = factor.change(device, factor.start * math.exp(log))
        return np.concatenate((np.log(kernels.ratios(device, which)), PRIOR * logs))

    highest = [math.log(factor.highest / factor.start) + 1e-9 for factor in free]
    return least_squares(residuals, [0.0] * len(free), most=math.log(MOST_FACTOR), loss=LOSS, highest=highest)


def _folds(
    kernels: Kernels, family: OperationFamily, which: IntColumn
) -> Iterator[tuple[IntColumn, IntColumn]]:
    """Yield rows that are left out, and rows that share none of their sizes."""
    keys = np.array([family.sizes_of(kernels.shapes[at]) for at in which.tolist()], np.int64)
    ranks = [np.unique(column, return_inverse=True)[1] for column in keys.T]
    varied = [rank for rank in ranks if rank.max() > 0]
    if not varied:
        return
    sizes = np.stack(varied)
    values = unique_rows(*varied)
    if len(values) > FEW_VALUES:
        sizes, values = sizes % 2, np.array([[1], [0]])
    for value in values:
        is_held = sizes == value[:, np.newaxis]
        yield which[is_held.all(axis=0)], which[~is_held.any(axis=0)]


def _one_datatype(family: OperationFamily, kernels: Kernels, which: IntColumn) -> None:
    names = sorted({kernels.rows[at].datatype for at in which.tolist()})
    if len(names) > 1:
        raise InputError(
            f"{family.name}: rows have {' and '.join(name or 'no dtype' for name in names)}; a machine has "
            "one set of figures for them",
            place=kernels.rows[int(which[0])].place,
            remedy="fit one of them: --table NAME",
        )


def _refuse_too_fast(device: RooflineDevice, kernels: Kernels) -> None:
    """Refuse rows that exceed the peak or the bandwidth of this machine."""
    every = np.arange(len(kernels.rows))
    whole = Efficiency({OTHER: Curve()})
    ideal = replace(
        device,
        efficiency=whole,
        memory_efficiency=whole,
        tiles=(),
        query_tile=0,
        score_operations=0.0,
        launch_ns=0.0,
        kinds=MappingProxyType({}),
    )
    _, arithmetic, traffic = kernels.parts(ideal, every)
    size = traffic * ideal.levels[0].bandwidth
    least = np.maximum(arithmetic, np.where(size > CACHES, traffic, 0.0)) / WITHIN_PEAK / 1000
    for row, bound in zip(kernels.rows, least.tolist(), strict=True):
        if row.us < bound:
            raise InputError(
                f"{row.shape} took {row.us:g} us, and the device's peak allows {bound:.4g} us",
                place=row.place,
                remedy="name the machine that was measured, and the dtype of its table",
            )
