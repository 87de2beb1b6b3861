"""Whole pages of runs and of serving: their sections in order, with style and script inside.

A policy in the page forbids it to load anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from pathlib import Path

from et_sim.basics.files import write_file
from et_sim.basics.units import format_ns, plural
from et_sim.views.critical.path import CriticalPath
from et_sim.views.critical.record import PathRecord
from et_sim.views.drawing.nodes import ALWAYS
from et_sim.views.drawing.scene import COLOURS, LEFT, LIGHTER, PIXELS, TOP, Scene
from et_sim.views.markup import section, tag, text
from et_sim.views.report.critical import critical_section
from et_sim.views.report.origins import configuration_section, coverage_section, machine_section
from et_sim.views.report.pictures import (
    activity_section,
    idle_section,
    memory_section,
    network_section,
    ports_section,
    roofline_section,
    samples_section,
    schedule_section,
    spread_section,
    topology_section,
    waits_section,
)
from et_sim.views.report.timeline import MOST_SLICES, timeline_section
from et_sim.views.report.times import (
    groups_section,
    headline,
    jobs_section,
    operations_section,
    ranks_section,
)
from et_sim.views.run.directory import RunDirectory
from et_sim.views.run.selection import Window, recorded_part
from et_sim.views.serving import LATENCIES, SLICE_SHEET, SLICES, Slice, facts, in_short, latencies, slices_of
from et_sim.views.summary.sentences import scope_text
from et_sim.views.summary.stalls import stall_remarks, stall_sections

MOST_ENTRIES = 200  # entries of each list


def stall_section(run: RunDirectory) -> str:
    """Return the text of `et-sim inspect RUN stalls`; empty if the run did not stall."""
    if run.stall is None:
        return ""
    parts = [tag("p", text(" ".join(stall_remarks(run.stall))))]
    for title, entries in stall_sections(run.stall):
        shown = "".join(tag("li", text(entry)) for entry in entries[:MOST_ENTRIES])
        parts += [tag("h3", text(title)), tag("ul", shown)]
        if len(entries) > MOST_ENTRIES:
            rest = f"… and {plural(len(entries) - MOST_ENTRIES, 'more line')}: et-sim inspect RUN stalls"
            parts.append(tag("p", text(rest), class_="note"))
    return section("stall", "Why it stalled", *parts)


POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"
PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<link rel="icon" href="data:,">
<title>{title}</title>
<style>
{style}</style>
</head>
<body>
<a class="skip" href="#{first}">to the {first}</a>
<header><h1>{heading}</h1><p>{subtitle}</p></header>
<main>
{main}
</main>
<footer>written by et-sim {version}</footer>
<script>
{script}</script>
</body>
</html>
"""


def report(
    run: RunDirectory, ranks: str | None = None, window: Window = ALWAYS, limit: int = MOST_SLICES
) -> str:
    """Return the page as text."""
    path = run.path.resolve()
    name = path.name if path.name != "run" else "/".join(path.parts[-2:]).lstrip("/")
    summary = run.summary
    critical = CriticalPath(PathRecord(run)) if run.holds("path") and not recorded_part(run) else None
    sections = (
        headline(run, critical),
        stall_section(run),
        timeline_section(run, ranks, window, limit, critical),
        activity_section(run),
        schedule_section(run),
        samples_section(run),
        critical_section(run, critical),
        jobs_section(run),
        ranks_section(run),
        waits_section(run),
        idle_section(run),
        groups_section(run),
        operations_section(run),
        spread_section(run),
        roofline_section(run),
        topology_section(run),
        network_section(run),
        ports_section(run),
        memory_section(run),
        machine_section(run),
        coverage_section(run),
        configuration_section(run),
    )
    return page_of(
        sections,
        heading=name,
        subtitle=run_in_brief(run),
        version=run.manifest["et_sim"],
        title=f"{name}: {format_ns(summary['makespan_ns'])}",
        first="timeline",
        style=_kind_colours(),
        script="timeline.js",
    )


def page_of(
    sections: Iterable[str],
    *,
    heading: str,
    subtitle: str,
    version: str,
    title: str = "",
    first: str = "headline",
    style: str = "",
    script: str = "",
) -> str:
    """Return the whole page with its parts; `script` is the name of a file beside this one."""
    return PAGE.format(
        policy=POLICY,
        title=text(f"{title or heading}, et-sim"),
        first=first,
        heading=text(heading),
        subtitle=text(subtitle),
        style=asset("report.css") + style,
        main="\n".join(filter(None, sections)),
        version=text(version),
        script=asset(script) if script else "",
    )


def run_in_brief(run: RunDirectory) -> str:
    """Return status, size and machine of a run."""
    summary, known = run.summary, run.manifest
    description = f"{summary['status']} run, {plural(summary['ranks'], 'rank')}, {summary['model']} network"
    if "machine" not in known:
        return description
    npus = f" ({plural(known['npus'], 'NPU')})" if "npus" in known else ""
    return f"{description}; machine: {known['machine']}{npus}"


def asset(name: str) -> str:
    """Return a file of style or script."""
    return (files("et_sim.views.report") / name).read_text(encoding="utf-8")


def _kind_colours() -> str:
    def rules(colours: Mapping[str, str]) -> str:
        kinds = [kind for kind in colours if " " not in kind]
        return "".join(f'.kind-{k}, [data-kind="{k}"] {{ background: {colours[k]}; }}\n' for k in kinds)

    return f"{rules(COLOURS)}@media screen and (prefers-color-scheme: dark) {{\n{rules(LIGHTER)}}}\n"


def write_report(run: RunDirectory, target: Path, ranks: str | None, window: Window, limit: int) -> int:
    """Write the page; return its size in bytes."""
    return write_page(report(run, ranks, window, limit), target)


def write_page(page: str, target: Path) -> int:
    """Write a page of any kind; return its size in bytes."""
    return write_file(target, page.encode("utf-8", "replace"))


HEIGHT, GAP = 70, 26
CAME, DONE, LEFT_OVER, REPLICAS = "#56b4e9", "#0072b2", "#e69f00", "#009e73"
FINE = 8  # bars of the picture for a row of the table


def serving_report(run: RunDirectory) -> str:
    """Return the page of a serving."""
    summary = run.serving_summary
    short, limits = in_short(summary), scope_text(summary.get("scope"))
    listed = "".join(
        tag("div", tag("dt", text(name)) + tag("dd", text(fact))) for name, fact in facts(summary)
    )
    headline = section(
        "headline",
        "Overview",
        tag("p", f"{text(short[0].upper() + short[1:])}.", class_="short"),
        tag("p", f"includes {text(limits)}", class_="note") if limits else "",
        tag("dl", listed, class_="facts"),
    )
    picture = tag("div", load_picture(slices_of(run, SLICES * FINE)), class_="picture")
    sections = (
        headline,
        section("latencies", "Latencies", LATENCIES.table(latencies(summary))),
        section("load", "Load over time", picture, SLICE_SHEET.table(slices_of(run))),
    )
    npus, name = plural(summary["npus"], "NPU"), run.path.resolve().name
    machine = summary["machine"] or "files"
    return page_of(
        sections,
        heading=name,
        subtitle=f"{summary['model']}, {summary['network_model']} network; machine: {machine} ({npus})",
        version=run.manifest.get("et_sim", ""),
    )


def _replicas(slices: Sequence[Slice]) -> list[int]:
    """Return the replicas of slices, if a rule changes their number."""
    return [piece.replicas for piece in slices if piece.replicas is not None]


def load_picture(slices: Sequence[Slice]) -> str:
    """Return arrived, completed and active requests as bars over time."""
    whole = slices[-1].end_ns
    lanes = (
        ("came", CAME, [piece.arrived for piece in slices]),
        ("done", DONE, [piece.done for piece in slices]),
        ("under way", LEFT_OVER, [piece.under_way for piece in slices]),
        *([("replicas", REPLICAS, replicas)] if (replicas := _replicas(slices)) else []),
    )
    scene, bottom = Scene(), TOP + (HEIGHT + GAP) * len(lanes)
    scene.axis((0, whole), bottom - GAP)
    for at, (name, colour, counts) in enumerate(lanes):
        most, y = max(*counts, 1), TOP + (HEIGHT + GAP) * at + HEIGHT
        scene.label(f"{name}, up to {most:,}", y)
        shape = ""
        for piece, count in zip(slices, counts, strict=True):
            x, width = (PIXELS * of / whole for of in (piece.start_ns, piece.end_ns - piece.start_ns))
            high = HEIGHT * count / most
            shape += f"M{LEFT + x:.1f} {y - high:.1f}h{width:.1f}v{high:.1f}h{-width:.1f}z"
        scene.path(shape, fill=colour)
    scene.legend([(colour, name) for name, colour, _ in lanes], bottom + 4)
    return scene.svg(bottom + 20)
