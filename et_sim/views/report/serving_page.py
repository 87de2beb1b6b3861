"""What serving wrote as one HTML page: the sentence, figures, latencies, and load over time.

Not here: the frame of the page (`report.page`), and the same as text (`text`).
"""

from __future__ import annotations

from collections.abc import Sequence

from et_sim.basics.units import plural
from et_sim.views.drawing.scene import LEFT, PIXELS, TOP, Scene
from et_sim.views.markup import section, tag, text
from et_sim.views.report.page import page_of
from et_sim.views.run.directory import RunDirectory
from et_sim.views.serving import LATENCIES, SLICE_SHEET, SLICES, Slice, facts, in_short, latencies, slices_of
from et_sim.views.summary.sentences import scope_text

HEIGHT, GAP = 70, 26
CAME, DONE, LEFT_OVER = "#56b4e9", "#0072b2", "#e69f00"
FINE = 8  # bars of the picture for a row of the table


def serving_report(run: RunDirectory) -> str:
    """The page as text."""
    summary = run.summary
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


def load_picture(slices: Sequence[Slice]) -> str:
    """Requests that come, that are done, and that are under way, as bars over time."""
    whole = max(slices[-1].end_ns, 1)
    lanes = (
        ("came", CAME, [piece.arrived for piece in slices]),
        ("done", DONE, [piece.done for piece in slices]),
        ("under way", LEFT_OVER, [piece.under_way for piece in slices]),
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
