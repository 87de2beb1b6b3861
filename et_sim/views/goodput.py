"""Months of a job as text: goodput, tokens, lost time by cause, checkpoints and changes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from et_sim.basics.errors import UsageError
from et_sim.basics.files import is_file
from et_sim.basics.units import format_bytes, plural
from et_sim.tables.registry import MANIFEST, SUMMARY
from et_sim.views.text import fact_lines

GOODPUT = "goodput"  # key of the manifest
_MOST_PARTS = 8


def is_goodput(path: str | Path) -> bool:
    """Return whether et-sim goodput wrote a directory."""
    manifest = Path(path) / MANIFEST
    if not is_file(manifest):
        return False
    try:
        content = json.loads(manifest.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(content, dict) and GOODPUT in content


def read_summary(path: str | Path) -> dict[str, Any]:
    """Return the summary of a directory that et-sim goodput wrote."""
    try:
        content = json.loads((Path(path) / SUMMARY).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        content = None
    if not isinstance(content, dict):
        raise UsageError("is damaged", place=str(Path(path) / SUMMARY), remedy="repeat et-sim goodput")
    return content


def percent(share: float) -> str:
    """Return a share as a percentage."""
    return f"{100 * share:.2f} %" if abs(share) < 0.0995 else f"{100 * share:.1f} %"


def duration(seconds: float) -> str:
    """Return a time span in the unit that reads best."""
    for unit, length in (("d", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= 1.5 * length or (unit != "d" and seconds >= length):
            return f"{seconds / length:.3g} {unit}"
    return f"{seconds:.3g} s"


def _quantiles(figure: Mapping[str, Any], form: Any) -> str:
    at = figure["percentiles"]
    mean, low, high = (figure[name] for name in ("mean", "mean_low", "mean_high"))
    if low is None:
        return f"{form(mean)} in one month"
    mean = f"{form(mean)} (95 %: {form(low)} to {form(high)})"
    return f"{mean}; months: p5 {form(at['5'])}, p50 {form(at['50'])}, p95 {form(at['95'])}"


def summary_lines(summary: Mapping[str, Any], width: int) -> list[str]:
    """Return the printed lines."""
    return [
        *fact_lines(_facts(summary), width),
        "",
        *_time_lines(summary),
        "",
        *_part_lines(summary),
        "",
        *_change_lines(summary),
    ]


def _facts(summary: Mapping[str, Any]) -> list[tuple[str, str]]:
    step, interruptions, costs = summary["step"], summary["interruptions"], summary["costs"]
    between = interruptions["hours_between_failures"]
    every = f", one failure in {between:.2f} h" if between else ""
    facts = [
        ("goodput", _quantiles(summary["goodput"], percent)),
        ("effective", f"{_quantiles(summary['effective'], percent)}; time in kept steps"),
        ("tokens", _quantiles(summary["tokens"], lambda value: f"{value:.4g}")),
    ]
    if summary["finish_days"] is not None:
        facts.append(("finish", _quantiles(summary["finish_days"], lambda value: f"{value:.1f} d")))
    facts += [
        (
            "months",
            f"{summary['months']:,} of {summary['days']:g} days, seed {summary['seed']}:"
            f" {interruptions['unplanned']:.1f} failures and {interruptions['planned']:.1f} planned"
            f" interruptions each{every}",
        ),
        (
            "step",
            f"{step['seconds']:.4g} s, {step['tokens']:,} tokens on {step['gpus']:,} GPUs"
            f" ({plural(step['nodes'], 'node')}): {step['source']}",
        ),
        *_degraded_facts(step),
        *_checkpoint_facts(summary["checkpoints"]),
        ("costs", _cost_text(costs)),
        ("left out", ", ".join(summary["not_simulated"])),
    ]
    return facts + [("note", text) for text in summary["notes"]]


def _degraded_facts(step: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the times of degraded steps, and of those with copies or writes of a checkpoint beside them."""
    times = {
        "a slow node": step["slow_node_seconds"],
        "half of a link": step.get("half_link_seconds"),
        "copies in memory": step["copies_seconds"],
    }
    texts = [f"{seconds:.4g} s with {what}" for what, seconds in times.items() if seconds is not None]
    texts += [
        f"{seconds:.4g} s with {share:.3g} of the replicas"
        for seconds, share in step["replicas_less"][:1]
        if seconds != step["seconds"]  # it was simulated
    ]
    if step["write_stall_seconds"]:
        texts.append(f"{step['write_stall_seconds']:.3g} s more in all beside the writing of a checkpoint")
    return [("other steps", ", ".join(texts))] if texts else []


def _checkpoint_facts(checkpoints: Mapping[str, Any]) -> list[tuple[str, str]]:
    size = checkpoints["bytes"]
    written = "" if size is None else f" of {format_bytes(size)}"
    first = checkpoints["first_order_seconds"]
    formula = f"; to first order the best is {duration(first)}" if first else ""
    kind = "given" if checkpoints["interval_is_given"] else "the best of those below"
    given, write = checkpoints.get("given_interval_seconds"), checkpoints["write_seconds"]
    if given is not None and given < write <= checkpoints["interval_seconds"] * 1.01:
        kind = f"{duration(given)} is given, but one is written after the other"
    tried = ", ".join(
        f"{duration(seconds)} {percent(value)}" for seconds, value, _ in checkpoints["intervals"]
    )
    return [
        (
            "checkpoints",
            f"one{written} every {duration(checkpoints['interval_seconds'])} ({kind}), written in"
            f" {duration(checkpoints['write_seconds'])}{formula}",
        ),
        ("intervals", f"goodput: {tried}"),
    ]


def _cost_text(costs: Mapping[str, Any]) -> str:
    hours = f"{costs['gpu_hours']:,.0f} GPU-hours"
    if costs["spare_gpu_hours"]:
        hours += f" and {costs['spare_gpu_hours']:,.0f} of spares"
    if costs["price"] is None:
        return hours
    currency, per_million = costs["currency"], costs["price_per_million_tokens"]
    if per_million is None:
        return f"{hours}: {costs['price']:,.0f} {currency}"
    return (
        f"{hours}: {costs['price']:,.0f} {currency}, {per_million:.4g} {currency} per"
        f" million tokens; a spare node: {costs['price_of_spare']:,.0f} {currency}"
    )


def _time_lines(summary: Mapping[str, Any]) -> list[str]:
    time = summary["time"]
    rows = [(name, share) for name, share in time.items() if abs(share) > 1e-9]
    shown = [f"{name:<26}{percent(share):>9}" for name, share in rows]
    return [f"{'time goes to':<26}{'share':>9}", *shown, f"{'sum':<26}{percent(sum(time.values())):>9}"]


def _part_lines(summary: Mapping[str, Any]) -> list[str]:
    rows: Sequence[Mapping[str, Any]] = summary["parts"]
    rows = [row for row in rows if row["interruptions"] or row["share"]]
    lines = [f"{'interruptions by part':<26}{'each month':>12}{'time':>9}"]
    lines += [
        f"{row['part']:<26}{row['interruptions']:>12.1f}{percent(row['share']):>9}"
        for row in rows[:_MOST_PARTS]
    ]
    rest = rows[_MOST_PARTS:]
    if rest:
        count, share = sum(row["interruptions"] for row in rest), sum(row["share"] for row in rest)
        lines.append(f"{f'{len(rest)} others':<26}{count:>12.1f}{percent(share):>9}")
    return lines


def _change_lines(summary: Mapping[str, Any]) -> list[str]:
    lines = [f"{'on the same failures':<34}{'goodput':>9}{'change':>9}{'95 %':>9}"]
    for change in summary["changes"]:
        more, error = 100 * change["more"], 100 * change["error"]
        lines.append(f"{change['name']:<34}{percent(change['goodput']):>9}{more:>+9.3f}{f'±{error:.3f}':>9}")
    spares = summary["spares_for_95_percent"]
    if spares is not None:
        lines.append(f"with {plural(spares, 'spare node')}, enough nodes are usable for 95 % of the time")
    return lines


def goodput_text(path: str | Path, width: int) -> str:
    """Return the text of a directory."""
    return "\n".join(summary_lines(read_summary(path), width))
