"""A fit of a collective library's calibration to measured collectives, and its errors on others.

The library's choice follows from its constants. The time of the choice has a handful of factors that are
fitted, by the class of algorithm: rings and trees on a node, reductions by switches, copies of all pairs, and
groups on several nodes. Classes that were not measured keep the factors of the machine, and the fit reports
them; it also reports steps if one number of ranks cannot separate them from launches, and classes for which a
fit is worse than the machine was.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from et_sim.basics.errors import InputError
from et_sim.machine.collective_library import Calibration, Call, Library
from et_sim.machine.collective_library.candidates import Candidate
from et_sim.machine.collective_library.choice import ALL_TO_ALL
from et_sim.machine.collective_library.constants import NVLS, NVLS_TREE, LibraryProtocol

MIB = 1 << 20
FEWEST_SIZES = 8
LARGE = 64 * MIB  # sizes from this one on determine bandwidth
MOST_FACTOR = 30.0  # beyond this factor from its start, the model does not describe the rows
AT_BOUND = 0.98  # of its logarithm
PRIOR = 0.05  # pull to the start, for factors that the rows hardly determine
DIGITS = 4  # of fitted factors; errors are those of the rounded ones, which a machine's file has
RIDGE_LOSS = 0.1  # |ln| beyond which a row has less weight
WITHIN_WIRE = 1.02  # tolerance of the line rate, for rounding in logs


class MeasuredCollective(Struct, frozen=True):
    """A measured collective that ran alone; bytes as nccl-tests counts them."""

    call: Call
    us: float
    place: str = ""


class AlgorithmClass(Struct, frozen=True):
    """A class of algorithms, its fitted factors, and the starts of fits."""

    name: str
    fields: tuple[str, ...]
    starts: tuple[dict[str, float], ...]


RINGS = AlgorithmClass(
    "rings and trees on a node",
    (
        "base_ll",
        "base",
        "step_ll",
        "step_ll128",
        "step_simple",
        "bandwidth_ll",
        "bandwidth_ll128",
        "bandwidth_simple",
        "copy",
        "start_simple",
    ),
    ({"copy": 800.0, "start_simple": 5.0},),
)
SWITCHES = AlgorithmClass(
    "reductions by switches", ("nvls_step", "nvls_bandwidth", "nvls_copy"), ({"nvls_copy": 2000.0},)
)
PAIRS_WAY = AlgorithmClass(
    "copies of all pairs",
    (
        "pairs_base",
        "pairs_step",
        "pairs_bandwidth_short",
        "pairs_start",
        "pairs_bandwidth",
        "pairs_copy",
    ),
    (
        {},
        {"pairs_bandwidth_short": 0.05, "pairs_step": 0.5},
        {"pairs_copy": 3.0, "pairs_bandwidth_short": 0.5, "pairs_start": 2.0},
    ),
)
BETWEEN = AlgorithmClass("groups on several nodes", ("between_latency", "between_bandwidth"), ({},))
WAYS = (RINGS, SWITCHES, PAIRS_WAY, BETWEEN)
# Factors that are not determined without sizes from `LARGE` on, or without measured protocols.
OF_LARGE = (
    "copy",
    "bandwidth_simple",
    "nvls_copy",
    "nvls_bandwidth",
    "pairs_copy",
    "pairs_bandwidth",
    "between_bandwidth",
)
OF_STEPS = ("step_ll", "step_ll128", "step_simple")  # one number of ranks cannot separate them from launches
OF_PROTOCOL = {
    LibraryProtocol.LL: ("base_ll", "step_ll", "bandwidth_ll"),
    LibraryProtocol.LL128: ("step_ll128", "bandwidth_ll128"),
    LibraryProtocol.SIMPLE: ("step_simple", "bandwidth_simple", "copy", "start_simple"),
}


class LibraryFit(Struct, frozen=True):
    """The result of a fit, its number of rows, and the factors that they do not determine."""

    calibration: Calibration
    fitted: tuple[str, ...]
    rows: int
    unknown: tuple[str, ...]
    kept: tuple[str, ...] = ()  # classes that keep the machine's factors, as a fit is worse


def fit(library: Library, rows: Sequence[MeasuredCollective]) -> LibraryFit:
    """Return the calibration nearest to the rows; refuse rows that cannot separate its factors."""
    _refuse_too_fast(library, rows)
    calibration, fitted, unknown = library.calibration, list[str](), list[str]()
    ways = [(row, _way_of(library, row)) for row in rows]
    for way in WAYS:
        rows_of_way = [row for row, kind in ways if kind is way]
        if not rows_of_way:
            unknown.append(f"{way.name}: not measured")
            continue
        if way is BETWEEN:
            unknown.append(
                f"groups on more than {max(row.call.nodes for row in rows_of_way)} nodes: not measured"
            )
        _check_rows(way, rows_of_way)
        free = _free(library, way, rows_of_way, unknown)
        calibration = _nearest(replace(library, calibration=calibration), way, free, rows_of_way)
        fitted += free
    return LibraryFit(calibration, tuple(fitted), len(rows), tuple(unknown))


def ratios(library: Library, rows: Sequence[MeasuredCollective]) -> list[float]:
    """Return the ratios of predicted to measured times."""
    return [library.choice(row.call).time_us / row.us for row in rows]


def left_out(library: Library, rows: Sequence[MeasuredCollective]) -> list[tuple[MeasuredCollective, float]]:
    """Return rows with the ratios that a fit to the other rows predicts.

    Each number of ranks between the smallest and the largest is left out in turn. With only two numbers,
    which a fit needs, every third size in bytes is left out.
    """
    sizes = sorted({(row.call.ranks, row.call.nodes) for row in rows})
    if len(sizes) > 2:
        parts = [[row for row in rows if (row.call.ranks, row.call.nodes) == shape] for shape in sizes[1:-1]]
    else:
        bytes_of = sorted({row.call.size for row in rows})
        parts = [[row for row in rows if row.call.size in bytes_of[remainder::3]] for remainder in range(3)]
    pairs = []
    for part in parts:
        held = set(map(id, part))
        rest = [row for row in rows if id(row) not in held]
        try:
            calibrated = replace(library, calibration=fit(library, rest).calibration)
        except InputError:
            continue
        pairs += list(zip(part, ratios(calibrated, part), strict=True))
    return pairs


def _way_of(library: Library, row: MeasuredCollective) -> AlgorithmClass:
    if row.call.kind == ALL_TO_ALL:
        return PAIRS_WAY if row.call.nodes == 1 else BETWEEN
    if row.call.nodes > 1:
        return BETWEEN
    return SWITCHES if library.choice(row.call).algorithm in (NVLS, NVLS_TREE) else RINGS


LONG_US = 200.0  # above it, times matter most to a job, and a fit must not be worse than before
SHOWN = 0.1  # percent of E: the resolution of a report
RUN_TO_RUN = 1.0  # percent of E: the noise of rows outside a fit


def without_worse(
    library: Library,
    fitting: LibraryFit,
    rows: Sequence[MeasuredCollective],
    unseen: Sequence[tuple[MeasuredCollective, float]],
) -> LibraryFit:
    """Return the fit without the factors that make it worse than the machine above 200 us.

    It is judged by the fitted rows, and by the rows that were left out, if a class has any. For rings and
    trees, factors of LL are kept if possible, as they belong to small messages.
    """
    calibration, fitted, kept = fitting.calibration, fitting.fitted, list[str]()
    for way in WAYS:
        names = [name for name in way.fields if name in fitted]
        long = [row for row in rows if row.us >= LONG_US and _way_of(library, row) is way]
        held = [pair for pair in unseen if pair[0].us >= LONG_US and _way_of(library, pair[0]) is way]
        before = _percent(ratios(library, long)), _percent(ratios(library, [row for row, _ in held]))
        after = (
            _percent(ratios(replace(library, calibration=calibration), long)),
            _percent([ratio for _, ratio in held]),
        )
        if not names or not (after[0] > before[0] + SHOWN or after[1] > before[1] + RUN_TO_RUN):
            continue
        restored = [name for name in names if name not in OF_PROTOCOL[LibraryProtocol.LL]]
        trial = _restored(library, calibration, restored)
        if _percent(ratios(replace(library, calibration=trial), long)) > before[0] + SHOWN:
            restored = names
        calibration = _restored(library, calibration, restored)
        fitted = tuple(name for name in fitted if name not in restored)
        which = after[1] > before[1] + RUN_TO_RUN
        rest = ", but for the protocol LL" if len(restored) < len(names) else ""
        kept.append(
            f"{way.name}{rest}: above {LONG_US:g} us the fit has an error E of {after[which]:.1f} %, the "
            f"unchanged machine {before[which]:.1f} %"
        )
    return LibraryFit(calibration, fitted, fitting.rows, fitting.unknown, tuple(kept))


def _restored(library: Library, calibration: Calibration, names: Sequence[str]) -> Calibration:
    return replace(calibration, **{name: getattr(library.calibration, name) for name in names})


def _percent(ratios_of: Sequence[float]) -> float:
    """Return E in percent, as in `validation.rows`; 0 without rows."""
    logs = [abs(math.log(ratio)) for ratio in ratios_of]
    return 100 * (math.exp(sum(logs) / len(logs)) - 1) if logs else 0.0


def as_taken(
    library: Library, fitting: LibraryFit, unseen: Sequence[tuple[MeasuredCollective, float]]
) -> list[tuple[MeasuredCollective, float]]:
    """Return left-out rows with their ratios, the unchanged machine's for classes that keep its factors."""
    kept = [way for way in WAYS if any(reason.startswith(way.name) for reason in fitting.kept)]
    calibrated = replace(library, calibration=fitting.calibration)
    return [
        (row, ratios(calibrated, [row])[0] if _way_of(library, row) in kept else ratio)
        for row, ratio in unseen
    ]


def _check_rows(way: AlgorithmClass, rows: Sequence[MeasuredCollective]) -> None:
    if len({row.call.size for row in rows}) < FEWEST_SIZES:
        raise InputError(
            f"{way.name}: {len({row.call.size for row in rows})} sizes were measured, and a fit requires "
            f"{FEWEST_SIZES}",
            place=rows[0].place,
            remedy="measure sizes from 1 KiB to 1 GiB, doubled each time",
        )


def _refuse_too_fast(library: Library, rows: Sequence[MeasuredCollective]) -> None:
    """Refuse rows that are faster than the links of this machine."""
    for row in rows:
        n, wires = row.call.ranks, library.wires
        if row.call.nodes > 1:
            continue
        rate = wires.line_rate * (n - 1 if wires.is_mesh else 1)
        least = row.call.size * (n - 1) / n / (1000 * rate) / WITHIN_WIRE
        if row.us < least:
            raise InputError(
                f"{row.call.kind} of {row.call.size:,} B on {n} took {row.us:g} us, and its bytes alone take "
                f"{least:.4g} us at {rate:g} GB/s",
                place=row.place,
                remedy="name the machine that was measured",
            )


def _free(
    library: Library, way: AlgorithmClass, rows: Sequence[MeasuredCollective], unknown: list[str]
) -> list[str]:
    """Return the factors that the rows determine."""
    without: set[str] = set()
    if max(row.call.size for row in rows) < LARGE:
        without.update(OF_LARGE)
        unknown.append(f"{way.name}: bandwidth and copies, without sizes from 64 MiB on")
    if way is RINGS and len({row.call.ranks for row in rows}) == 1:
        without.update(OF_STEPS)
        unknown.append(
            f"{way.name}: steps apart from launches, as all rows have {rows[0].call.ranks} ranks; they stay "
            "as the machine has them"
        )
    if way is RINGS:
        taken = {library.choice(row.call).protocol for row in rows}
        for protocol, names in OF_PROTOCOL.items():
            if protocol not in taken:
                without.update(names)
                unknown.append(f"{way.name}: protocol {protocol.name}, which was never chosen")
    return [name for name in way.fields if name not in without]


def _nearest(
    library: Library, way: AlgorithmClass, free: Sequence[str], rows: Sequence[MeasuredCollective]
) -> Calibration:
    """Return the least squares of |ln|, with each factor drawn towards its start, and rounded."""
    from et_sim.calibrate.fitting import least_squares

    predict = [_predictor(library, row) for row in rows]
    best: tuple[float, Calibration] | None = None
    for start in way.starts:
        begin = {name: start.get(name) or getattr(library.calibration, name) or 1.0 for name in free}

        def made(logs: Any, begin: dict[str, float] = begin) -> Calibration:
            values = {
                name: value * math.exp(log) for (name, value), log in zip(begin.items(), logs, strict=True)
            }
            return replace(library.calibration, **values)

        def residuals(logs: Any, made: Callable[[Any], Calibration] = made) -> list[float]:
            calibration = made(logs)
            off = [
                math.log(predicted(calibration) / row.us)
                for predicted, row in zip(predict, rows, strict=True)
            ]
            return [*off, *(PRIOR * log for log in logs)]

        minimum = least_squares(residuals, [0.0] * len(begin), most=math.log(MOST_FACTOR), loss=RIDGE_LOSS)
        if best is None or minimum.cost < best[0]:
            best = minimum.cost, made(minimum.x)
    assert best is not None
    rounded = {name: float(f"{getattr(best[1], name):.{DIGITS}g}") for name in free}
    for name, value in rounded.items():
        first = way.starts[0].get(name) or getattr(library.calibration, name) or 1.0
        if abs(math.log(value / first)) > AT_BOUND * math.log(MOST_FACTOR):
            raise InputError(
                f"{way.name}: {name.replace('_', '-')} would be {value:.3g}, which no library has",
                place=rows[0].place,
                remedy="check that all rows were measured on the named machine, and leave out others",
            )
    return replace(best[1], **rounded)


def _predictor(library: Library, row: MeasuredCollective) -> Callable[[Calibration], float]:
    """Return a function from a calibration to the time of a row; the choice does not depend on it."""
    call, group = row.call, row.call.group
    if call.kind == ALL_TO_ALL:
        return lambda calibration: replace(library, calibration=calibration).choice(call).time_us
    way: Candidate = library.way(call)
    return lambda calibration: calibration.time_us(way, group, call.size, library.between)
