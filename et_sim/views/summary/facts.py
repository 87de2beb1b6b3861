"""A run on one screen: its status, its facts, the slowest ranks, the longest operations, coverage and
notices."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from et_sim.basics.files import in_shell
from et_sim.basics.units import exact_bytes, format_bytes, format_ns, memory_text, plural
from et_sim.tables.declaration import OPAQUE_KINDS
from et_sim.views.run.directory import RunDirectory
from et_sim.views.run.selection import Selection, recorded_part
from et_sim.views.summary.failures import failed_text
from et_sim.views.summary.in_short import in_short, small_path
from et_sim.views.summary.jobs import counts_with_jobs, job_lines, jobs_text
from et_sim.views.summary.operation_table import AVERAGES, operation_lines
from et_sim.views.summary.operations import LEGEND, operations
from et_sim.views.summary.parts import PARTS
from et_sim.views.summary.rank_table import called, rank_count, rank_entries, rank_lines, slowest_first
from et_sim.views.summary.sentences import (
    bottleneck_text,
    energy_text,
    limits_text,
    makespan_text,
    model_text,
    packets_text,
    power_text,
    price_text,
    scope_text,
    slow_link,
    software_text,
    spilled_text,
    throughput_text,
    uncertainty_text,
    utilisation_text,
)
from et_sim.views.summary.stalls import deadlock_text
from et_sim.views.summary.waiting import WaitingParts, waiting_parts, waiting_text
from et_sim.views.summary.ways import routing_text
from et_sim.views.text import FACT_INDENT, fact, not_shown, prose, share, shortened
from et_sim.views.view import Forms

if TYPE_CHECKING:
    from et_sim.tables.summary import Notice, OutOfMemory, Summary


RANK_ROWS, OPERATION_ROWS = 12, 8
Entry = Mapping[str, Any]


def summary_lines(run: RunDirectory, part: Selection, width: int) -> list[str]:
    """Return the one-screen summary; ranks and operations are those of the selected part."""
    sections = (
        prose(status_lines(run), width),
        prose(facts(run), width, FACT_INDENT),
        job_lines(run, width),
        part.heading()[:1],
        prose(_ranks(run, part, width), width),
        prose(_operations(run, part, width), width),
        prose(coverage_lines(run), width, FACT_INDENT),
        prose(notice_lines(run), width, FACT_INDENT),
    )
    return "\n\n".join("\n".join(lines) for lines in sections if lines).split("\n")


def summary_data(run: RunDirectory, _: Selection) -> Any:
    """Return summary.json for `--json`."""
    return run.summary


SUMMARY = Forms(summary_lines, summary_data)


def notices_lines(run: RunDirectory, _: Selection, width: int) -> list[str]:
    """Return every warning and every default taken."""
    lines = [f"warning: {notice(entry)}" for entry in run.summary["warnings"]]
    lines += [f"default: {notice(entry)}" for entry in run.summary["defaults"]]
    return prose(lines, width, 9) or ["no warnings, and no default was taken"]


def notices_data(run: RunDirectory, _: Selection) -> Any:
    """Return warnings and defaults for `--json`."""
    return {name: run.summary[name] for name in ("warnings", "defaults")}


NOTICES = Forms(notices_lines, notices_data)


def _ranks(run: RunDirectory, part: Selection, width: int) -> list[str]:
    entries, makespan = slowest_first(rank_entries(run, part)), run.summary["makespan_ns"]
    shown = part.cut(entries, RANK_ROWS)
    more = not_shown(len(entries) - len(shown), "faster line", f": et-sim inspect {in_shell(run.path)} ranks")
    return rank_lines(shown, makespan, width, part.length_ns(makespan), more)


def _operations(run: RunDirectory, part: Selection, width: int) -> list[str]:
    every = operations(run, part)
    if not every:
        return []
    shown = part.cut(every, OPERATION_ROWS)
    lines = operation_lines(shown, width)
    lines += not_shown(len(every) - len(shown), "more line", f": et-sim inspect {in_shell(run.path)} ops")
    lines.append(f"totals are over all ranks; waiting: for others to begin; {LEGEND}")
    return lines


def factors_text(run: RunDirectory) -> str:
    """Return the factors that the time of some work was multiplied by."""
    factors_of_kinds = []
    for entry in run.summary["time_factors"]:
        named = f' "{shortened(entry["name"], 40)}"' if "name" in entry else ""
        owner = "" if entry["ranks"] == "all" else f" of {called(entry['ranks'], 24)}"
        factors = ((kind, value) for kind, value in entry.items() if kind not in ("ranks", "name"))
        factors_of_kinds += [f"time of {kind}{named}{owner} x {value:g}" for kind, value in factors]
    return ", ".join(factors_of_kinds)


WORDS = {
    "communication": "communication",
    "kernels": "kernels",
    "copies": "copies",
    "operators": "operators",
    "launches": "launches",
    "other": "late starts or remote memory",
}
LANES_SHOWN = 2


def explained_text(run: RunDirectory) -> str:
    """Return what the longest path consists of, and the lanes with the gaps that no machine changes."""
    explained = run.summary["explained"]
    if explained is None or not explained["path_ns"]:
        return ""
    whole, gaps = explained["path_ns"], explained["gaps_ns"]
    spent = sorted(
        ((ns, kind) for kind, ns in explained["spent_ns"].items() if kind != "gaps" and 100 * ns >= whole),
        reverse=True,
    )
    known = ", ".join(f"{WORDS.get(kind, kind)} {share(ns, whole)}" for ns, kind in spent)
    text = f"{share(whole - gaps, whole)} of the longest path{f' ({known})' if known else ''}"
    if not gaps:
        return text
    lanes = [
        f"{format_ns(gap['ns'])} {shortened(gap['name'], 40)} of rank {shortened(gap['ranks'], 16)}"
        for gap in explained["gaps"][:LANES_SHOWN]
    ]
    more = ", …" if len(explained["gaps"]) > LANES_SHOWN else ""
    return f"{text}; fixed gaps {share(gaps, whole)}: {', '.join(lanes)}{more}"


def exposure_text(run: RunDirectory) -> str:
    """Return the exposed communication as HTA and as ASTRA-sim define it, for a recording's mean rank."""
    summary = run.summary
    whole = summary["makespan_ns"] * summary["ranks"]
    if summary["explained"] is None or not whole:
        return ""
    alone_ns, others = (
        sum(rank_count(entry["ranks"]) * _signed(entry[name]) for entry in summary["per_rank"])
        for name in ("comm_without_kernel_ns", "reference_exposed_ns")
    )
    if not alone_ns:
        return ""
    theirs = share(others, whole) if others >= 0 else "below zero"
    return (
        f"{share(alone_ns, whole)} as HTA counts it (transfer or waiting, and no kernel), "
        f"{theirs} as ASTRA-sim does (finish less the time of all kernels)"
    )


def _signed(figure: int) -> int:
    """Convert an unsigned figure that wrapped below zero."""
    return figure - (1 << 64) if figure >> 63 else figure


def kernel_sentence(entries: Sequence[Entry]) -> str:
    """Return the averages over the kernels of all ranks; empty if the roofline timed none."""
    used = [entry for entry in entries if entry["compute_utilisation"] is not None]
    weights = [rank_count(entry["ranks"]) * entry["compute_ns"] for entry in used]
    if not sum(weights):
        return ""
    bound, compute, memory = (
        sum(entry[name] * weight for entry, weight in zip(used, weights, strict=True)) / sum(weights)
        for name in AVERAGES[:3]
    )
    return (
        f"{share(bound, 1)} of their time compute bound; they use {share(compute, 1)} of peak compute, "
        f"{share(memory, 1)} of bandwidth"
    )


def memory_sentence(entries: Sequence[Entry]) -> str:
    """Return the highest peak, and the range of all peaks; empty if memory was not tracked."""
    tracked = [entry for entry in entries if entry["peak_memory_bytes"] is not None]
    if not tracked:
        return ""
    highest = max(tracked, key=lambda entry: int(entry["peak_memory_bytes"]))
    lowest = min(int(entry["peak_memory_bytes"]) for entry in tracked)
    text = f"peak {format_bytes(highest['peak_memory_bytes'])}"
    if lowest == highest["peak_memory_bytes"]:
        return f"{text} on every rank"
    return f"{text} on {called(highest['ranks'], 24)}; the lowest is {format_bytes(lowest)}"


WIDTH = 100


def status_lines(run: RunDirectory) -> list[str]:
    """Return how a run ended that did not complete."""
    if run.summary["status"] == "complete":
        return []
    failure = run.summary["out_of_memory"]
    if failure is not None and run.summary["status"] == "out of memory":
        return _out_of_memory(run, failure)
    stuck = sum(rank_count(e["ranks"]) for e in run.summary["per_rank"] if e["finish_ns"] is None)
    of = plural(run.summary["ranks"], "rank")
    lines = [f"STALLED: {stuck:,} of {of} never finished; figures are up to the last event"]
    if run.stall:
        lines.append(run.stall["cause"])
    return [*lines, f"more: et-sim inspect {in_shell(run.path)} stalls"]


def _out_of_memory(run: RunDirectory, failure: OutOfMemory) -> list[str]:
    at, size = format_ns(failure["time_ns"]), exact_bytes(failure["alive_bytes"])
    capacity = memory_text(failure["capacity_bytes"], failure.get("reserved_bytes", 0))
    ranks = called(failure["ranks"], 40)
    return [
        f"OUT OF MEMORY at {at}: {size} on {ranks}, of {capacity}; figures are up to then",
        f"more: et-sim inspect {in_shell(run.path)} memory",
    ]


def facts(run: RunDirectory) -> list[str]:
    """Return one line for each fact of the run."""
    summary = run.summary
    actors, ranks = summary["folded"]["actors"], summary["ranks"]
    parts = waiting_parts(run)
    how = "each simulated" if actors == ranks else f"simulated as {plural(actors, 'actor')}"
    facts = (
        ("makespan", makespan_text(summary)),
        ("uncertainty", uncertainty_text(summary)),
        ("in short", in_short(run, small_path(run), parts)),
        ("assumes", software_text(summary)),
        ("includes", scope_text(summary.get("scope"))),
        ("ranks", f"{ranks:,}, {how}; {plural(summary['messages'], 'message')} crossed the network"),
        ("actors", limits_text(summary)),
        ("jobs", jobs_text(run)),
        ("model", model_text(summary)),
        ("ways", routing_text(summary)),
        *_corrections(summary),
        ("uneven", _unevenness(run)),
        ("failed", failed_text(summary)),
        ("deadlock", deadlock_text(summary)),
        ("what if", factors_text(run)),
        ("written", _kept(run)),
        ("time goes to", _dominant(run)),
        ("hidden", _hidden(run)),
        ("exposed", exposure_text(run)),
        ("bottleneck", bottleneck_text(summary)),
        ("packets", packets_text(summary)),
        ("replayed", _replayed(run)),
        _waits(run, parts),
        ("explained", explained_text(run)),
        ("kernels", kernel_sentence(summary["per_rank"])),
        ("memory", memory_sentence(summary["per_rank"])),
        ("spilled", spilled_text(summary)),
        ("throughput", throughput_text(summary["throughput"])),
        ("utilisation", utilisation_text(summary["throughput"])),
        ("power", power_text(summary)),
        ("energy", energy_text(summary)),
        ("price", price_text(summary)),
    )
    return [fact(name, text) for name, text in facts if text]


def _corrections(summary: Summary) -> list[tuple[str, str]]:
    """Return corrections switched by options; a profile's own corrections are not repeated."""
    switched = [(name in summary["corrections"], name) for name in summary["switched"]]
    on, off = ([name for is_on, name in switched if is_on is wanted] for wanted in (True, False))
    lists = (("corrected", on), ("uncorrected", off))
    return [(word, shortened(", ".join(names), WIDTH - FACT_INDENT)) for word, names in lists if names]


def _kept(run: RunDirectory) -> str:
    """Return which rows were recorded, if not all."""
    kept = recorded_part(run)
    return f"operations are those of the recorded part: {kept}" if kept else ""


def _unevenness(run: RunDirectory) -> str:
    """Return the ranks and links that differ in speed from the rest of the machine."""
    uneven, ranks = run.summary["uneven"], run.summary["ranks"]
    stragglers = f"{uneven['ranks']:,} of {plural(ranks, 'rank')} straggling" if uneven["ranks"] else ""
    links = f"{plural(uneven['links'], 'link')} unlike the others" if uneven["links"] else ""
    late = f"ranks begin up to {format_ns(uneven['late_ns'])} apart" if uneven["late_ns"] else ""
    return ", ".join(_present(stragglers, links, late))


def _dominant(run: RunDirectory) -> str:
    """Return the mean rank's time by activity, the largest first."""
    makespan, entries = run.summary["makespan_ns"], run.summary["per_rank"]
    if not makespan:
        return "nothing: no time passes in this run"
    counts = counts_with_jobs(run, entries)
    spent = {
        part.text: sum(count * entry[part.figure] for count, entry in zip(counts, entries, strict=True))
        for part in PARTS
    }
    whole = makespan * sum(counts)
    order = sorted(spent, key=lambda name: -spent[name])
    return ", ".join(f"{name} {share(spent[name], whole)}" for name in order if spent[name])


def _hidden(run: RunDirectory) -> str:
    """Return how much of the time of transfers kernels hide, over all ranks."""
    hidden, exposed = (
        sum(rank_count(entry["ranks"]) * entry[name] for entry in run.summary["per_rank"])
        for name in ("hidden_comm_ns", "exposed_comm_ns")
    )
    return f"kernels hide {share(hidden, hidden + exposed)} of the time of transfers" if hidden else ""


def _replayed(run: RunDirectory) -> str:
    """Return the count of recorded communication, which includes waiting; empty if there is none."""
    count = run.summary["coverage"]["replayed_communication"]
    if not count:
        return ""
    return f"{count:,} sends, receives and collectives as recorded: waiting is not separated from transfer"


def _waits(run: RunDirectory, parts: WaitingParts | None) -> tuple[str, str]:
    """Return why ranks wait: the parts of a pipeline's waiting, or the ranks that others wait for."""
    if parts is not None:
        return "waiting", waiting_text(parts, run.summary["makespan_ns"])
    return "waited for", _slowest(run)


def _slowest(run: RunDirectory) -> str:
    """Return the ranks that others wait for most, and the cost of that."""
    slowest = run.summary["slowest"]
    if slowest is None:
        return ""
    if (link := slow_link(run.summary)) is not None and link.takes_longer_ns >= slowest["cost_ns"]:
        longer, owner = format_ns(link.takes_longer_ns), called(slowest["ranks"], 24)
        return f"{link.text}: its bytes take {longer} longer, and others wait for {owner}"
    cost, makespan = slowest["cost_ns"], run.summary["makespan_ns"]
    pronoun = "it" if slowest["ranks"].isdecimal() else "them"
    waits = (
        f"the others wait {format_ns(cost)} for {pronoun} on average, {share(cost, makespan)} of the makespan"
    )
    return f"{called(slowest['ranks'], 24)}: {waits}"


def coverage_lines(run: RunDirectory) -> list[str]:
    """Return how the nodes of the traces were simulated."""
    coverage: Mapping[str, Any] = run.summary["coverage"]
    kinds = (
        ("modelled", "modelled"),
        ("replayed", "replayed as recorded"),
        ("defaulted", "defaulted (no duration recorded: 1 ns each)"),
        ("instant", "instant"),
        ("not_executed", "not executed"),
    )
    parts = [f"{coverage[key]:,} {text}" for key, text in kinds if coverage[key]]
    lines = [fact("coverage", f"{plural(coverage['nodes'], 'node')}: {', '.join(parts) or 'none'}")]
    timed_by = coverage["timed_by"]
    if set(timed_by) - {"roofline"}:
        counts = ", ".join(f"{count:,} by {model}" for model, count in timed_by.items())
        lines.append(fact("", f"kernels timed: {counts}"))
    opaque = {kind: coverage["nodes_by_kind"].get(kind, 0) for kind in OPAQUE_KINDS}
    if any(opaque.values()):
        counts = ", ".join(f"{count:,} {kind}" for kind, count in opaque.items() if count)
        lines.append(fact("", f"not modelled, as recorded: {counts}"))
    if coverage["ignored_metadata"]:
        count = plural(coverage["ignored_metadata"], "node")
        lines.append(fact("", f"metadata without effect: {count} that describe no process groups"))
    ignored = coverage["ignored_attributes"]
    if ignored:
        named = (f"{name} ({count:,})" for name, count in ignored.items())
        lines.append(
            fact("", shortened(f"attributes without effect: {', '.join(named)}", WIDTH - FACT_INDENT))
        )
    return lines


def notice_lines(run: RunDirectory) -> list[str]:
    """Return the first warnings, and the number of notices."""
    warnings, defaults = run.summary["warnings"], run.summary["defaults"]
    lines = [fact("warning", shortened(notice(warning), WIDTH - FACT_INDENT)) for warning in warnings[:3]]
    if warnings or defaults:
        counted = f"{plural(len(warnings), 'warning')}, {plural(len(defaults), 'default')} taken"
        lines.append(fact("notices", f"{counted}: et-sim inspect {in_shell(run.path)} notices"))
    return lines


def notice(entry: Notice) -> str:
    """Return a warning or a default as a line."""
    return ": ".join(_present(entry["place"], entry["key"], entry["text"]))


def _present(*parts: str) -> Iterable[str]:
    return (part for part in parts if part)
