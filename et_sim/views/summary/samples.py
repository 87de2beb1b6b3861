"""Samples of a step: its mean and percentiles, the step without each cause, and blame of the slowest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from et_sim.basics.units import format_ns, plural
from et_sim.tables.summary import BlamedPart, Estimate, Samples
from et_sim.views.run.directory import RunDirectory
from et_sim.views.run.selection import Selection
from et_sim.views.sheet import Sheet, SheetColumn
from et_sim.views.text import FACT_INDENT, fact_lines, not_shown, share, signed
from et_sim.views.view import Forms

MOST_BARS, BAR_WIDTH = 12, 40
VIEWS_OF_BLAME = (("by_kind", "kind"), ("by_rank", "rank"), ("by_stage", "stage"), ("by_link", "link"))
STEP = Sheet(
    (SheetColumn("step", "name", "<"), SheetColumn("time", "time"), SheetColumn("95 %", "interval", "<"))
)
WITHOUT = Sheet(
    (
        SheetColumn("without", "cause", "<"),
        *(SheetColumn(name) for name in ("mean", "p50", "p90", "p99", "saves")),
        SheetColumn("95 %", "interval", "<"),
    )
)


def samples_of(run: RunDirectory) -> Samples:
    """Return the figures of the samples of a run that has them."""
    return run.summary["samples"]


def interval(estimate: Estimate) -> str:
    """Return the interval of an estimate."""
    low, high = (
        None if end is None else format_ns(round(end)) for end in (estimate["low_ns"], estimate["high_ns"])
    )
    match (low, high):
        case (None, None):
            return "not limited by so few samples"
        case (None, _):
            return f"up to {high}"
        case (_, None):
            return f"from {low} on; more samples would limit it above"
        case _:
            return f"{low} to {high}"


def facts(samples: Samples) -> Iterator[tuple[str, str]]:
    """Yield the facts about samples."""
    yield "step", f"{format_ns(samples['nominal_ns'])} without variation"
    yield "samples", f"{samples['samples']:,}, seed {samples['seed']}"
    actors, ranks = samples["actors"], samples["ranks"]
    yield "simulated", f"{plural(ranks, 'rank')} as {plural(actors, 'actor')}: {_folding(samples)}"


def _folding(samples: Samples) -> str:
    if samples["last_at_barriers"]:
        return "they meet only at barriers, and the last one to arrive decides (order statistics)"
    if samples["actors"] < samples["ranks"]:
        return "ranks share all draws where they are one actor"
    return "each rank by itself"


def _lines(run: RunDirectory, part: Selection, width: int) -> list[str]:
    samples = samples_of(run)
    lines = [*fact_lines(facts(samples), width), "", *STEP.lines(step_rows(samples), width), ""]
    lines += [*histogram(step_times(run)), ""]
    if len(samples["without"]) > 1:
        lines += [*WITHOUT.lines([*map(without_row, samples["without"])], width), ""]
    return lines + list(_blame_lines(samples, part.top))


def step_rows(samples: Samples) -> list[dict[str, str]]:
    """Return mean and percentiles with their intervals, as texts."""
    return [
        {"name": name, "time": format_ns(round(estimate["value_ns"])), "interval": interval(estimate)}
        for name, estimate in samples["step"].items()
    ]


def without_row(row: Mapping[str, Any]) -> dict[str, str]:
    """Return the times of the step without a cause, as texts."""
    times = {name: format_ns(round(row[name])) for name in ("mean", "p50", "p90", "p99")}
    saved = row["saved"]
    return {
        "cause": row["cause"],
        **times,
        "saves": format_ns(round(saved["value_ns"])),
        "interval": interval(saved),
    }


def step_times(run: RunDirectory) -> Any:
    """Return the times of all samples with all variation."""
    table = run.table("samples")
    whole = np.array([name == "nothing" for name in table["without"].to_pylist()])
    return np.array(table["step_ns"].to_pylist(), np.int64)[whole]


def histogram(steps: Any) -> list[str]:
    """Return a histogram, a line for each bar."""
    bars = max(1, min(MOST_BARS, len(np.unique(steps)), round(len(steps) ** 0.5) + 1))
    counts, edges = np.histogram(steps, bars)
    most = max(counts.tolist())
    ends = [format_ns(round(edge)) for edge in edges.tolist()]
    left, right = (max(map(len, some)) for some in (ends[:-1], ends[1:]))
    return [
        f"{low:>{left}} to {high:>{right}}  {'█' * round(BAR_WIDTH * count / most)} {count}".rstrip()
        for low, high, count in zip(ends, ends[1:], counts.tolist(), strict=False)
    ]


def _blame_lines(samples: Samples, top: int | None) -> Iterator[str]:
    blame = samples["blame"]
    slowest, rest = blame["slowest"], blame["rest"]
    if not blame["difference_ns"]:
        yield "no sample is slower: all samples took equally long"
        return
    longer = format_ns(round(blame["difference_ns"]))
    yield f"the slowest {plural(slowest, 'sample')} took {longer} longer than the other {rest}, because of"
    for key, name in VIEWS_OF_BLAME:
        yield from part_lines(name, blame[key], blame["difference_ns"], top)  # type: ignore[literal-required]


def part_lines(name: str, parts: Sequence[BlamedPart], whole: float, top: int | None) -> Iterator[str]:
    """Yield the parts of the difference by one view of it."""
    shown = parts if top is None else parts[:top]
    width = max((len(part["name"]) for part in shown), default=0)
    for at, part in enumerate(shown):
        head = f"by {name}" if not at else ""
        of_whole = f"  {share(part['ns'], whole)}" if whole > 0 and part["ns"] > 0 else ""
        yield f"{head:<{FACT_INDENT}}{part['name']:<{width}}  {signed(part['ns']):>12}{of_whole}"
    yield from not_shown(len(parts) - len(shown), "part")


def _data(run: RunDirectory, _: Selection) -> dict[str, Any]:
    return {**samples_of(run)}


SAMPLES = Forms(_lines, _data)
