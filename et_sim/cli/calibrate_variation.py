"""`et-sim calibrate variation`: fit the variation of times to recordings of several steps."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from et_sim.basics.declared_options import Command, Option
from et_sim.basics.errors import UsageError
from et_sim.basics.files import write_json
from et_sim.basics.units import format_ns, plural

if TYPE_CHECKING:
    from et_sim.calibrate.variation_fit import Comparison, FittedLevel, FittedWork
    from et_sim.calibrate.variation_steps import StepTimes
    from et_sim.calibrate.varied_times import Recorded

ENOUGH = 0.15  # distance of durations
WAYS = ("operation", "kind")


class Options(Command):
    """Fit how times vary from rank to rank, step to step and event to event, to every second step of a
    recording, and compare the other steps with it: distances of the distributions of times (KS). Writes the
    key "variation" of a system file. A table of steps (Parquet, as of et-convert steps) has all steps; traces
    and folders of runs have one step each. Each operation in records of NCCL's Inspector is a step.
    """

    recordings: Annotated[
        Sequence[str],
        "a table of steps, prefixes of traces or folders of runs, or records of NCCL's Inspector",
        "RECORDING",
    ]
    by: Annotated[
        str,
        "fit each operation, for the recorded job, or each kind of work, for other jobs",
        Option(choices=WAYS),
    ] = "operation"
    no_steps: Annotated[bool, "leave out the comparison of whole steps, which simulates them"] = False
    output: Annotated[Path | None, "write the system file here", "FILE", Option("-o --output")] = None
    json: Annotated[bool, "print the fit and its distances as JSON"] = False


def run(options: Options) -> int:
    """Read, fit to half of the steps, compare the other half, and write."""
    from et_sim.calibrate.variation_fit import compared, fit_all
    from et_sim.calibrate.variation_sharing import with_sharing
    from et_sim.calibrate.variation_steps import step_times
    from et_sim.calibrate.varied_times import read_recorded

    recorded = read_recorded(list(options.recordings))
    if not recorded.has_names and options.by == WAYS[0]:
        cause = "records of NCCL's Inspector have no names of operations"
        raise UsageError(cause, remedy="fit all collectives together: --by kind")
    every = range(len(recorded.steps))
    works = fit_all(recorded, every[::2], options.by)
    if recorded.table is not None and options.by == WAYS[0]:
        works = with_sharing(works)
    comparisons = compared(works, every[::2], every[1::2])
    steps = None
    if recorded.table is not None and options.by == WAYS[0] and not options.no_steps:
        steps = step_times(recorded.table, works, every[::2], every[1::2])
    variation = [dict(level.entry) for work in works for level in work.levels]
    if options.json:
        print(json.dumps(_data(recorded, comparisons, steps, variation), indent=2))
    else:
        print("\n".join(_text(recorded, works, comparisons, steps)))
    if options.output:
        write_json({"variation": variation}, options.output)
    return 0


def _text(
    recorded: Recorded,
    works: Sequence[FittedWork],
    comparisons: Sequence[Comparison],
    steps: StepTimes | None,
) -> Iterator[str]:
    from et_sim.basics.alignment import aligned
    from et_sim.calibrate.variation_fit import FEWEST_EVENTS

    count = len(recorded.steps)
    yield f"{plural(count, 'step')}: fitted to {(count + 1) // 2}, the others left out"
    header = ("varies", "level", "family", "spread %", "correlation", "shared")
    yield from aligned([header, *(row for work in works for row in _rows(work))], "<<<>><")
    yield ""
    rows = [("left out", "events", "KS", "")]
    for found in comparisons:
        few = found.events < FEWEST_EVENTS
        judged = "few events" if few else "near" if found.ks <= ENOUGH else "far"
        rows.append((found.operation, f"{found.events:,}", f"{found.ks:.3f}", judged))
    yield from aligned(rows, "<>><")
    if steps is not None:
        judged = f"KS {steps.ks:.3f}, {'within' if steps.ks <= steps.band else 'outside'} {steps.band:.3f}"
        mean = sum(steps.recorded) // len(steps.recorded), sum(steps.sampled) // len(steps.sampled)
        yield (
            f"steps: {len(steps.recorded)} left out, {format_ns(mean[0])} on average, "
            f"{len(steps.sampled)} sampled, {format_ns(mean[1])}; {judged}"
        )
    yield from (f"left out: {sentence}" for sentence in recorded.left)


def _rows(work: FittedWork) -> Iterator[tuple[str, ...]]:
    for level in work.levels:
        correlation = level.entry.get("correlation")
        shown = "" if correlation is None else f"{correlation:.2f}"
        yield (
            work.name,
            level.level,
            str(level.entry["family"]),
            f"{100 * level.spread:.2f}",
            shown,
            _shared(level),
        )
    if not work.levels:
        yield work.name, "none", "", "", "", ""


def _shared(level: FittedLevel) -> str:
    """Return who shares a draw, and the cause that several operations share."""
    by, cause = level.entry.get("shared", ""), level.entry.get("cause", "")
    return f"{by}; {cause}" if by and cause else str(by or cause)


def _data(
    recorded: Recorded,
    comparisons: Sequence[Comparison],
    steps: StepTimes | None,
    variation: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    from msgspec import structs

    data: dict[str, Any] = {
        "recording": recorded.source,
        "steps": len(recorded.steps),
        "left_out": [structs.asdict(found) for found in comparisons],
        "notes": list(recorded.left),
        "variation": list(variation),
    }
    if steps is not None:
        data["step_times"] = {**structs.asdict(steps), "ks": steps.ks, "band": steps.band}
    return data
