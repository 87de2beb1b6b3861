"""`et-sim inspect` as text: the one-screen summary of a run, and its tables in full.

Plain text that fits the terminal, or 80 columns where there is none. Not here: the same as data
(`inspect_data`), and colours (`terminal`).
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from et_sim.tables.kinds import OPAQUE_KINDS
from et_sim.units import exact_bytes, format_ns, plural
from et_sim.views.run.directory import RunDirectory, open_run
from et_sim.views.run.port_table import NOT_RECORDED as PORTS_NOT_RECORDED
from et_sim.views.run.recorded_part import recorded_part
from et_sim.views.run.selection import EVERYTHING, Selection
from et_sim.views.summary.activity import LABEL, MOST_LINES, activity_lines, activity_of
from et_sim.views.summary.bandwidth import bandwidth_lines
from et_sim.views.summary.bottleneck import bottleneck_text
from et_sim.views.summary.costs import energy_text, price_text
from et_sim.views.summary.explained import explained_text
from et_sim.views.summary.exposure import exposure_lines, exposure_text, without_kernel
from et_sim.views.summary.factors import factors_text
from et_sim.views.summary.flows import FLITS_ONLY, flow_lines, flows_of
from et_sim.views.summary.groups import group_lines, group_totals
from et_sim.views.summary.in_short import in_short, small_path
from et_sim.views.summary.jobs import counts_with_jobs, job_lines, jobs_text
from et_sim.views.summary.links import NOT_RECORDED, link_lines, link_uses
from et_sim.views.summary.machine_use import (
    kernel_lines,
    kernel_sentence,
    memory_sentence,
    spilled_sentence,
    use_lines,
)
from et_sim.views.summary.memory import NOT_TRACKED, memory_lines, memory_peaks
from et_sim.views.summary.operation_table import operation_lines
from et_sim.views.summary.operations import operations
from et_sim.views.summary.packets import packets_text
from et_sim.views.summary.parts import PARTS
from et_sim.views.summary.pauses import pause_lines, pause_roots
from et_sim.views.summary.phase_totals import NOT_WRITTEN, phase_lines, phase_totals
from et_sim.views.summary.profile_facts import makespan_text, profile_text
from et_sim.views.summary.queues import queue_lines
from et_sim.views.summary.rank_table import called, rank_count, rank_lines, slowest_first
from et_sim.views.summary.rank_times import rank_entries
from et_sim.views.summary.stalls import stall_lines
from et_sim.views.summary.waits import UNENDED, waits_lines, waits_of
from et_sim.views.text import share, shortened, terminal_width

RANK_ROWS = 12
OPERATION_ROWS = 8
MARGIN = 12
FACT_INDENT = MARGIN + 1
WIDTH = 100
NO_BREAK = "\N{NO-BREAK SPACE}"
UNIT = re.compile(r"(?<=\d) (?=%|(?:ns|µs|ms|s)\b)")  # the space between a number and its unit


def summary_text(path: str | Path, part: Selection = EVERYTHING, width: int | None = None) -> str:
    """The one-screen summary; of a part of the run, ranks and operations are that part's."""
    run, width = open_run(path), width or terminal_width()
    sections = (
        _wrapped(_status(run), width),
        _wrapped(_facts(run), width, FACT_INDENT),
        job_lines(run, width),
        part.heading()[:1],
        _wrapped(_ranks(run, part, width), width),
        _wrapped(_operations(run, part, width), width),
        _wrapped(_coverage(run), width, FACT_INDENT),
        _wrapped(_notices(run), width, FACT_INDENT),
    )
    return "\n\n".join("\n".join(lines) for lines in sections if lines)


def ranks_text(path: str | Path, part: Selection = EVERYTHING, width: int | None = None) -> str:
    """Every rank, in rank order; in a window, only times in it count."""
    run, width = open_run(path), width or terminal_width()
    every = rank_entries(run, part)
    entries = part.cut(every)
    lines = [*part.heading(), *_rank_lines(run, entries, part, width)]
    if len(entries) < len(every):
        lines.append(f"… and {plural(len(every) - len(entries), 'more line')}: --top")
    use = use_lines(entries, width) if part.window is None else []
    return "\n".join([*lines, *(["", *use] if use else [])])


def operations_text(path: str | Path, part: Selection = EVERYTHING, width: int | None = None) -> str:
    """All operations."""
    width = width or terminal_width()
    run = open_run(path)
    every = operations(run, part)
    found = part.cut(every)
    kernels, exposed = kernel_lines(found, width), exposure_lines(found, without_kernel(run, part), width)
    lines = [*part.heading(), *operation_lines(found, width)]
    if len(found) < len(every):
        lines.append(f"… and {plural(len(every) - len(found), 'more line')}: --top")
    return "\n".join([*lines, *(["", *kernels] if kernels else []), *(["", *exposed] if exposed else [])])


def activity_text(path: str | Path, part: Selection = EVERYTHING, width: int | None = None) -> str:
    """What every rank does over time."""
    run, width = open_run(path), width or terminal_width()
    found = activity_of(run, part, width - LABEL - 1, part.top or MOST_LINES)
    return "\n".join([*part.heading(), *_wrapped(activity_lines(found), width)])


def waits_text(path: str | Path, part: Selection = EVERYTHING, width: int | None = None) -> str:
    """Waiting against transfer."""
    run, width = open_run(path), width or terminal_width()
    lines = waits_lines(waits_of(run, part), part, width)
    if run.summary["status"] != "complete":
        lines.append(UNENDED)
    return "\n".join([*part.heading(), *_wrapped(lines, width)])


def bandwidth_text(path: str | Path, part: Selection = EVERYTHING, width: int | None = None) -> str:
    """Bandwidth against message size."""
    run, width = open_run(path), width or terminal_width()
    return "\n".join([*part.heading(), *_wrapped(bandwidth_lines(run, part, width), width)])


def groups_text(path: str | Path, part: Selection = EVERYTHING, width: int | None = None) -> str:
    """Collectives by group."""
    found = group_totals(open_run(path), part)
    width = width or terminal_width()
    return "\n".join([*part.heading(), *_wrapped(group_lines(found, part, width), width)])


def links_text(path: str | Path, part: Selection = EVERYTHING, width: int | None = None) -> str:
    """How busy links are."""
    run, width = open_run(path), width or terminal_width()
    found, kept = link_uses(run, part), recorded_part(run)
    if found is None:
        return NOT_RECORDED
    heading = [f"of what was written: {kept}", ""] if kept else []
    lines = [*heading, *part.heading(), *link_lines(run, found, part, width)]
    return "\n".join(_wrapped(lines, width))


def queues_text(path: str | Path, part: Selection = EVERYTHING, width: int | None = None) -> str:
    """What waited at ports, and where messages met."""
    run, width = open_run(path), width or terminal_width()
    if not run.holds("queues"):
        return PORTS_NOT_RECORDED
    return "\n".join(_wrapped([*part.heading(), *queue_lines(run, part, width)], width))


def pauses_text(path: str | Path, part: Selection = EVERYTHING, width: int | None = None) -> str:
    """Who paused whom."""
    found, width = pause_roots(open_run(path), part), width or terminal_width()
    if found is None:
        return PORTS_NOT_RECORDED
    return "\n".join(_wrapped([*part.heading(), *pause_lines(found, part, width)], width))


def flows_text(path: str | Path, part: Selection = EVERYTHING, width: int | None = None) -> str:
    """Messages as packets."""
    run, width = open_run(path), width or terminal_width()
    found = flows_of(run, part)
    if found is None:
        return FLITS_ONLY if run.holds("queues") else PORTS_NOT_RECORDED
    return "\n".join(_wrapped([*part.heading(), *flow_lines(found, part, width)], width))


def phases_text(path: str | Path, part: Selection = EVERYTHING, width: int | None = None) -> str:
    """Phases of chunks by dimension."""
    found = phase_totals(open_run(path), part)
    if found is None:
        return NOT_WRITTEN
    width = width or terminal_width()
    return "\n".join([*part.heading(), *_wrapped(phase_lines(found, width), width)])


def memory_text(path: str | Path, part: Selection = EVERYTHING, width: int | None = None) -> str:
    """Peaks of local memory, and what is alive then."""
    run, width = open_run(path), width or terminal_width()
    found = memory_peaks(run, part)
    if found is None:
        return "\n".join(_wrapped([NOT_TRACKED], width))
    kept = recorded_part(run)
    if "window_ns" in run.manifest.get("recorded_part", {}):
        kept += "; tensors that were alive before then are counted, but not named"
    heading = [f"of what was written: {kept}", ""] if kept else []
    return "\n".join([*_wrapped(heading, width), *memory_lines(found, part, width)])


def layers_of(path: str | Path, _: Selection = EVERYTHING) -> str:
    """The layers of a layer file."""
    from et_sim.views.summary.layers import Layers, layers_text

    return layers_text(Layers(open_run(path)))


def critical_path_of(path: str | Path, part: Selection = EVERYTHING) -> str:
    """What decided how long the run took."""
    from et_sim.views.critical.text import critical_path_text

    return critical_path_text(path, part.top)


def stalls_text(path: str | Path, _: Selection = EVERYTHING, width: int | None = None) -> str:
    """Who waits for whom, if anybody does."""
    run = open_run(path)
    stall = run.stall
    if stall is None:
        if run.summary["status"] == "out of memory":
            return "no rank is stuck: the run ends where memory was full"
        return "no rank is stuck: every node of every rank completed"
    return "\n".join(_wrapped(stall_lines(stall), width or terminal_width()))


def notices_text(path: str | Path, _: Selection = EVERYTHING, width: int | None = None) -> str:
    """Every warning and every default taken."""
    summary = open_run(path).summary
    lines = [f"warning: {_notice(notice)}" for notice in summary["warnings"]]
    lines += [f"default: {_notice(notice)}" for notice in summary["defaults"]]
    text = "\n".join(_wrapped(lines, width or terminal_width(), indent=9))
    return text or "no warnings, and no default was taken"


def _status(run: RunDirectory) -> list[str]:
    if run.summary["status"] == "complete":
        return []
    if run.summary["status"] == "out of memory":
        return _out_of_memory(run)
    stuck = sum(rank_count(e["ranks"]) for e in run.summary["per_rank"] if e["finish_ns"] is None)
    of = plural(run.summary["ranks"], "rank")
    lines = [f"STALLED: {stuck:,} of {of} never finished; figures are up to the last thing that happened"]
    if run.stall:
        lines.append(run.stall["cause"])
    return [*lines, f"more: et-sim inspect {run.path} stalls"]


def _out_of_memory(run: RunDirectory) -> list[str]:
    found = run.summary["out_of_memory"]
    at, size = format_ns(found["time_ns"]), exact_bytes(found["alive_bytes"])
    there = exact_bytes(found["capacity_bytes"])
    return [
        f"OUT OF MEMORY at {at}: {size} on {called(found['ranks'], 40)}, of {there}; figures are up to then",
        f"more: et-sim inspect {run.path} memory",
    ]


def _facts(run: RunDirectory) -> list[str]:
    summary = run.summary
    actors, ranks = summary["folded"]["actors"], summary["ranks"]
    how = "each simulated" if actors == ranks else f"simulated as {plural(actors, 'actor')}"
    facts = (
        ("makespan", makespan_text(summary)),
        ("in short", _in_short(run)),
        ("ranks", f"{ranks:,}, {how}; {plural(summary['messages'], 'message')} crossed the network"),
        ("jobs", jobs_text(run)),
        ("model", f"{summary['model']} network, {profile_text(summary)}"),
        *_corrections(summary),
        ("uneven", _unevenness(run)),
        ("what if", factors_text(run)),
        ("written", _kept(run)),
        ("time goes to", _dominant(run)),
        ("hidden", _hidden(run)),
        ("exposed", exposure_text(run)),
        ("bottleneck", bottleneck_text(summary)),
        ("packets", packets_text(summary)),
        ("replayed", _replayed(run)),
        ("waited for", _slowest(run)),
        ("explained", explained_text(run)),
        ("kernels", kernel_sentence(summary["per_rank"])),
        ("memory", memory_sentence(summary["per_rank"])),
        ("spilled", spilled_sentence(summary)),
        ("energy", energy_text(summary)),
        ("price", price_text(summary)),
    )
    return [_fact(name, text) for name, text in facts if text]


def _in_short(run: RunDirectory) -> str:
    """What the critical path says, if it is known; else, the lines below are as short."""
    path = small_path(run)
    return in_short(run, path) if path else ""


def _corrections(summary: dict[str, Any]) -> list[tuple[str, str]]:
    """What is switched by itself: a profile's own corrections are not repeated."""
    switched = [(name in summary["corrections"], name) for name in summary["switched"]]
    on, off = ([name for is_on, name in switched if is_on is wanted] for wanted in (True, False))
    lists = (("corrected", on), ("uncorrected", off))
    return [(word, shortened(", ".join(names), WIDTH - MARGIN - 1)) for word, names in lists if names]


def _kept(run: RunDirectory) -> str:
    """Which rows were written, if not all."""
    kept = recorded_part(run)
    return f"operations are of what was written: {kept}" if kept else ""


def _unevenness(run: RunDirectory) -> str:
    """Who and what differs in speed from the rest of the machine."""
    uneven, ranks = run.summary["uneven"], run.summary["ranks"]
    stragglers = f"{uneven['ranks']:,} of {plural(ranks, 'rank')} straggling" if uneven["ranks"] else ""
    links = f"{plural(uneven['links'], 'link')} unlike the others" if uneven["links"] else ""
    late = f"ranks begin up to {format_ns(uneven['late_ns'])} apart" if uneven["late_ns"] else ""
    return ", ".join(_present(stragglers, links, late))


def _dominant(run: RunDirectory) -> str:
    """The mean rank's time by what it was spent on, the largest first."""
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
    """How much of the time of transfers kernels hide, over all ranks."""
    hidden, exposed = (
        sum(rank_count(entry["ranks"]) * entry[name] for entry in run.summary["per_rank"])
        for name in ("hidden_comm_ns", "exposed_comm_ns")
    )
    return f"kernels hide {share(hidden, hidden + exposed)} of the time of transfers" if hidden else ""


def _replayed(run: RunDirectory) -> str:
    """That recorded communication holds waiting, if there is any."""
    count = run.summary["coverage"]["replayed_communication"]
    if not count:
        return ""
    return f"{count:,} sends, receives and collectives as recorded: waiting in them is not told from transfer"


def _slowest(run: RunDirectory) -> str:
    """Who is waited for most, and what that costs."""
    slowest = run.summary["slowest"]
    if slowest is None:
        return ""
    cost, makespan = slowest["cost_ns"], run.summary["makespan_ns"]
    whom = "it" if slowest["ranks"].isdecimal() else "them"
    waits = (
        f"the others wait {format_ns(cost)} for {whom} on average, {share(cost, makespan)} of the makespan"
    )
    return f"{called(slowest['ranks'], 24)}: {waits}"


def _ranks(run: RunDirectory, part: Selection, width: int) -> list[str]:
    entries = slowest_first(rank_entries(run, part))
    shown = part.cut(entries, RANK_ROWS)
    hidden = len(entries) - len(shown)
    more = [f"… and {plural(hidden, 'faster line')}: et-sim inspect {run.path} ranks"] if hidden else []
    return _rank_lines(run, shown, part, width, more)


def _rank_lines(
    run: RunDirectory, entries: Sequence[Any], part: Selection, width: int, more: Sequence[str] = ()
) -> list[str]:
    makespan = run.summary["makespan_ns"]
    return rank_lines(entries, makespan, width, part.length_ns(makespan), more)


def _operations(run: RunDirectory, part: Selection, width: int) -> list[str]:
    found = operations(run, part)
    if not found:
        return []
    shown = part.cut(found, OPERATION_ROWS)
    lines = operation_lines(shown, width)
    hidden = len(found) - len(shown)
    if hidden > 0:
        lines.append(f"… and {plural(hidden, 'more line')}: et-sim inspect {run.path} ops")
    lines.append(
        "totals are over all ranks; waiting: for others to begin; bandwidth: payload by transfer time"
    )
    return lines


def _wrapped(lines: Sequence[str], width: int, indent: int = 0) -> list[str]:
    """Lines of at most `width` characters; what is cut off goes on below. Commands stay whole."""
    cut = []
    for line in lines:
        if len(line) <= width or "et-sim inspect " in line:
            cut.append(line)
        else:
            several = textwrap.wrap(
                UNIT.sub(NO_BREAK, line),
                width,
                subsequent_indent=" " * indent,
                break_on_hyphens=False,
                break_long_words=False,
            )
            cut += [one.replace(NO_BREAK, " ") for one in several]
    return cut


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
    timed_by = coverage["timed_by"]
    if set(timed_by) - {"roofline"}:
        counts = ", ".join(f"{count:,} by {model}" for model, count in timed_by.items())
        lines.append(_fact("", f"kernels timed: {counts}"))
    opaque = {kind: coverage["nodes_by_kind"].get(kind, 0) for kind in OPAQUE_KINDS}
    if any(opaque.values()):
        counts = ", ".join(f"{count:,} {kind}" for kind, count in opaque.items() if count)
        lines.append(_fact("", f"not modelled, as recorded: {counts}"))
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
