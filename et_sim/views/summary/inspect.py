"""`et-sim inspect` as text: the one-screen summary of a run, and its tables in full.

Plain text that fits the terminal, or 80 columns where there is none. Not here: the same as data
(`inspect_data`), and colours (`basics.terminal`).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from et_sim.basics.units import plural
from et_sim.views.run.bus_bandwidth import LEGEND
from et_sim.views.run.directory import RunDirectory, open_run
from et_sim.views.run.port_table import NOT_RECORDED as PORTS_NOT_RECORDED
from et_sim.views.run.recorded_part import recorded_part
from et_sim.views.run.selection import EVERYTHING, Selection
from et_sim.views.summary.activity import LABEL, MOST_LINES, activity_lines, activity_of
from et_sim.views.summary.bandwidth import bandwidth_lines
from et_sim.views.summary.exposure import exposure_lines, without_kernel
from et_sim.views.summary.facts import FACT_INDENT, coverage_lines, facts, notice, notice_lines, status_lines
from et_sim.views.summary.flows import FLITS_ONLY, flow_lines, flows_of
from et_sim.views.summary.groups import group_lines, group_totals
from et_sim.views.summary.idle_text import idle_lines
from et_sim.views.summary.jobs import job_lines
from et_sim.views.summary.links import NOT_RECORDED, link_lines, link_uses
from et_sim.views.summary.machine_use import (
    kernel_lines,
    use_lines,
)
from et_sim.views.summary.memory import NOT_TRACKED, memory_lines, memory_peaks
from et_sim.views.summary.operations import operation_lines, operations
from et_sim.views.summary.pauses import pause_lines, pause_roots
from et_sim.views.summary.phase_totals import NOT_WRITTEN, phase_lines, phase_totals
from et_sim.views.summary.queues import queue_lines
from et_sim.views.summary.rank_table import rank_lines, slowest_first
from et_sim.views.summary.rank_times import rank_entries
from et_sim.views.summary.roofline import roofline_lines
from et_sim.views.summary.spread import spread_lines
from et_sim.views.summary.stalls import stall_lines
from et_sim.views.summary.topology import topology_lines
from et_sim.views.summary.waits import UNENDED, waits_lines, waits_of
from et_sim.views.text import terminal_width, wrapped

RANK_ROWS = 12
OPERATION_ROWS = 8


def summary_text(path: str | Path, part: Selection = EVERYTHING, width: int | None = None) -> str:
    """The one-screen summary; of a part of the run, ranks and operations are that part's."""
    run, width = open_run(path), width or terminal_width()
    sections = (
        _wrapped(status_lines(run), width),
        _wrapped(facts(run), width, FACT_INDENT),
        job_lines(run, width),
        part.heading()[:1],
        _wrapped(_ranks(run, part, width), width),
        _wrapped(_operations(run, part, width), width),
        _wrapped(coverage_lines(run), width, FACT_INDENT),
        _wrapped(notice_lines(run), width, FACT_INDENT),
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


def spread_text(path: str | Path, part: Selection = EVERYTHING, width: int | None = None) -> str:
    """How far ranks differ."""
    run, width = open_run(path), width or terminal_width()
    return "\n".join([*part.heading(), *_wrapped(spread_lines(run, part, width), width)])


def idle_text(path: str | Path, part: Selection = EVERYTHING, width: int | None = None) -> str:
    """What devices, streams and threads wait for."""
    run, width = open_run(path), width or terminal_width()
    return "\n".join([*part.heading(), *_wrapped(idle_lines(run, part, width), width)])


def groups_text(path: str | Path, part: Selection = EVERYTHING, width: int | None = None) -> str:
    """Collectives by group."""
    found = group_totals(open_run(path), part)
    width = width or terminal_width()
    return "\n".join([*part.heading(), *_wrapped(group_lines(found, part, width), width)])


def topology_text(path: str | Path, part: Selection = EVERYTHING, width: int | None = None) -> str:
    """How much of the network's bandwidth is used."""
    run, width = open_run(path), width or terminal_width()
    return "\n".join(_wrapped([*part.heading(), *topology_lines(run, part, width)], width))


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


def roofline_text(path: str | Path, part: Selection = EVERYTHING, width: int | None = None) -> str:
    """Kernels below the roofs of their machine."""
    run, width = open_run(path), width or terminal_width()
    return "\n".join(_wrapped([*part.heading(), *roofline_lines(run, part, width)], width))


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


def schedule_of_run(path: str | Path, _: Selection = EVERYTHING, width: int | None = None) -> str:
    """Which micro-batch every stage works on when."""
    from et_sim.views.schedule.schedule import schedule_of
    from et_sim.views.schedule.text import NO_PASSES, schedule_text

    found, width = schedule_of(open_run(path)), width or terminal_width()
    return "\n".join(_wrapped([NO_PASSES], width)) if found is None else schedule_text(found, width)


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
    lines = [f"warning: {notice(one)}" for one in summary["warnings"]]
    lines += [f"default: {notice(one)}" for one in summary["defaults"]]
    text = "\n".join(_wrapped(lines, width or terminal_width(), indent=9))
    return text or "no warnings, and no default was taken"


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
    lines.append(f"totals are over all ranks; waiting: for others to begin; {LEGEND}")
    return lines


def _wrapped(lines: Sequence[str], width: int, indent: int = 0) -> list[str]:
    """Lines of at most `width` characters; what is cut off goes on below. Commands stay whole."""
    cut = []
    for line in lines:
        if len(line) <= width or "et-sim inspect " in line:
            cut.append(line)
        else:
            cut += wrapped(line, width, indent)
    return cut
