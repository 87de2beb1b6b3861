"""`et-sim inspect` as text: the one-screen summary of a run, and its tables in full.

Plain text, at most 100 columns wide for ordinary figures, without colours. Not here: machine-readable
output, which is the files themselves.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from et_sim.units import format_ns
from et_sim.views.machine_use import kernel_lines, kernel_sentence, memory_sentence, use_lines
from et_sim.views.memory import NOT_TRACKED, memory_lines, memory_peaks
from et_sim.views.operation_table import operation_lines
from et_sim.views.operations import operations
from et_sim.views.rank_table import other_ns, rank_count, rank_lines, slowest_first
from et_sim.views.run_directory import RunDirectory, open_run
from et_sim.views.stalls import stall_lines
from et_sim.views.text import plural, share, shortened

RANK_ROWS = 12
OPERATION_ROWS = 8
MARGIN = 12
WIDTH = 100


def summary_text(path: str | Path) -> str:
    """The one-screen summary."""
    run = open_run(path)
    sections = (_status(run), _facts(run), _ranks(run), _operations(run), _coverage(run), _notices(run))
    return "\n\n".join("\n".join(lines) for lines in sections if lines)


def ranks_text(path: str | Path) -> str:
    """All entries of `per_rank`, in rank order."""
    summary = open_run(path).summary
    lines = rank_lines(summary["per_rank"], summary["makespan_ns"])
    use = use_lines(summary["per_rank"])
    return "\n".join([*lines, *(["", *use] if use else [])])


def operations_text(path: str | Path) -> str:
    """All operations."""
    found = operations(open_run(path))
    kernels = kernel_lines(found)
    return "\n".join([*operation_lines(found), *(["", *kernels] if kernels else [])])


def memory_text(path: str | Path) -> str:
    """Peaks of local memory, and what is alive then."""
    found = memory_peaks(open_run(path))
    return NOT_TRACKED if found is None else "\n".join(memory_lines(found))


def layers_of(directory: str | Path) -> str:
    """The layers of a layer file."""
    from et_sim.views.layers import Layers, layers_text

    return layers_text(Layers(open_run(directory)))


def stalls_text(path: str | Path) -> str:
    """Who waits for whom, if anybody does."""
    stall = open_run(path).stall
    if stall is None:
        return "no rank is stuck: every node of every rank completed"
    return "\n".join(stall_lines(stall))


def notices_text(path: str | Path) -> str:
    """Every warning and every default taken."""
    summary = open_run(path).summary
    lines = [f"warning: {_notice(notice)}" for notice in summary["warnings"]]
    lines += [f"default: {_notice(notice)}" for notice in summary["defaults"]]
    return "\n".join(lines) or "no warnings, and no default was taken"


def _status(run: RunDirectory) -> list[str]:
    if run.summary["status"] == "complete":
        return []
    stuck = sum(rank_count(e["ranks"]) for e in run.summary["per_rank"] if e["finish_ns"] is None)
    of = plural(run.summary["ranks"], "rank")
    lines = [f"STALLED: {stuck:,} of {of} never finished; figures are up to the last thing that happened"]
    if run.stall:
        lines.append(run.stall["cause"])
    return [*lines, f"more: et-sim inspect {run.path} stalls"]


def _facts(run: RunDirectory) -> list[str]:
    summary = run.summary
    actors, ranks = summary["folded"]["actors"], summary["ranks"]
    how = "each simulated" if actors == ranks else f"simulated as {plural(actors, 'actor')}"
    facts = (
        ("makespan", f"{format_ns(summary['makespan_ns'])} ({summary['makespan_ns']:,} ns)"),
        ("ranks", f"{ranks:,}, {how}; {plural(summary['messages'], 'message')} crossed the network"),
        ("model", f"{summary['model']} network, {summary['profile']} profile"),
        *_corrections(summary),
        ("uneven", _unevenness(run)),
        ("time goes to", _dominant(run)),
        ("kernels", kernel_sentence(summary["per_rank"])),
        ("memory", memory_sentence(summary["per_rank"])),
    )
    return [_fact(name, text) for name, text in facts if text]


def _corrections(summary: dict[str, Any]) -> list[tuple[str, str]]:
    """Nothing in the plain reference profile; what a profile means by itself is not repeated."""
    names = [] if summary["profile"] == "astra-1.0" else summary["corrections"]
    return [("corrected", shortened(", ".join(names), WIDTH - MARGIN - 1))] if names else []


def _unevenness(run: RunDirectory) -> str:
    """Who and what differs in speed from the rest of the machine."""
    uneven, ranks = run.summary["uneven"], run.summary["ranks"]
    stragglers = f"{uneven['ranks']:,} of {plural(ranks, 'rank')} straggling" if uneven["ranks"] else ""
    links = f"{plural(uneven['links'], 'link')} unlike the others" if uneven["links"] else ""
    return ", ".join(_present(stragglers, links))


def _dominant(run: RunDirectory) -> str:
    """The mean rank's time by what it was spent on, the largest first."""
    makespan, entries = run.summary["makespan_ns"], run.summary["per_rank"]
    if not makespan:
        return "nothing: no time passes in this run"
    spent = {"compute": 0, "exposed communication": 0, "other work": 0, "idle": 0}
    for entry in entries:
        ranks = rank_count(entry["ranks"])
        end = makespan if entry["finish_ns"] is None else entry["finish_ns"]
        spent["compute"] += ranks * entry["compute_ns"]
        spent["exposed communication"] += ranks * entry["exposed_comm_true_ns"]
        spent["other work"] += ranks * other_ns(entry, makespan)
        spent["idle"] += ranks * (entry["idle_ns"] + makespan - end)
    whole = makespan * run.summary["ranks"]
    order = sorted(spent, key=lambda name: -spent[name])
    return ", ".join(f"{name} {share(spent[name], whole)}" for name in order if spent[name])


def _ranks(run: RunDirectory) -> list[str]:
    entries = slowest_first(run.summary["per_rank"])
    lines = rank_lines(entries[:RANK_ROWS], run.summary["makespan_ns"])
    hidden = len(entries) - RANK_ROWS
    if hidden > 0:
        lines.insert(-1, f"… and {plural(hidden, 'faster line')}: et-sim inspect {run.path} ranks")
    return lines


def _operations(run: RunDirectory) -> list[str]:
    found = operations(run)
    if not found:
        return []
    lines = operation_lines(found[:OPERATION_ROWS])
    hidden = len(found) - OPERATION_ROWS
    if hidden > 0:
        lines.append(f"… and {plural(hidden, 'more line')}: et-sim inspect {run.path} ops")
    lines.append("totals are over all ranks; bandwidth is payload by time, waiting for others included")
    return lines


def _coverage(run: RunDirectory) -> list[str]:
    coverage = run.summary["coverage"]
    kinds = (
        ("modelled", "modelled"),
        ("replayed", "replayed as recorded"),
        ("defaulted", "defaulted (no duration recorded: 1 ns each)"),
        ("instant", "instant"),
        ("not_executed", "not executed"),
    )
    parts = [f"{coverage[key]:,} {text}" for key, text in kinds if coverage[key]]
    lines = [_fact("coverage", f"{plural(coverage['nodes'], 'node')}: {', '.join(parts) or 'none'}")]
    if coverage["ignored_metadata"]:
        count = plural(coverage["ignored_metadata"], "node")
        lines.append(_fact("", f"metadata without effect: {count} that describe no process groups"))
    ignored = coverage["ignored_attributes"]
    if ignored:
        named = (f"{name} ({count:,})" for name, count in ignored.items())
        lines.append(_fact("", shortened(f"attributes without effect: {', '.join(named)}", WIDTH - MARGIN)))
    return lines


def _notices(run: RunDirectory) -> list[str]:
    warnings, defaults = run.summary["warnings"], run.summary["defaults"]
    lines = [_fact("warning", shortened(_notice(notice), WIDTH - MARGIN - 1)) for notice in warnings[:3]]
    if warnings or defaults:
        counted = f"{plural(len(warnings), 'warning')}, {plural(len(defaults), 'default')} taken"
        lines.append(_fact("notices", f"{counted}: et-sim inspect {run.path} notices"))
    return lines


def _notice(notice: dict[str, Any]) -> str:
    return ": ".join(_present(notice["place"], notice["key"], notice["text"]))


def _present(*parts: str) -> Iterable[str]:
    return (part for part in parts if part)


def _fact(name: str, text: str) -> str:
    return f"{name:<{MARGIN}} {text}"
