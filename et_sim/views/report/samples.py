"""The section of a page about samples: histogram, percentiles, the step without causes, and blame."""

from __future__ import annotations

from et_sim.basics.units import format_ns, plural
from et_sim.views.drawing.samples import samples_drawing
from et_sim.views.markup import section, tag, text
from et_sim.views.run.directory import RunDirectory
from et_sim.views.sheet import Sheet, SheetColumn
from et_sim.views.summary.samples import (
    STEP,
    VIEWS_OF_BLAME,
    WITHOUT,
    samples_of,
    step_rows,
    without_row,
)
from et_sim.views.text import signed

_BLAME = Sheet((SheetColumn("name", side="<"), SheetColumn("time", lambda part: signed(part["ns"]))))


def samples_section(run: RunDirectory) -> str:
    """Return the samples of a run; empty if it has none."""
    if not run.holds("samples"):
        return ""
    samples = samples_of(run)
    blame = samples["blame"]
    longer = format_ns(round(blame["difference_ns"]))
    slowest, rest = plural(blame["slowest"], "sample"), blame["rest"]
    parts = [
        tag("div", samples_drawing(run), class_="picture"),
        STEP.table(step_rows(samples)),
    ]
    if len(samples["without"]) > 1:
        parts.append(WITHOUT.table([*map(without_row, samples["without"])]))
    if not blame["difference_ns"]:
        parts.append(tag("p", text("No sample is slower: all samples took equally long.")))
        return section("samples", "Samples of the step", *parts)
    parts.append(
        tag("p", text(f"The slowest {slowest} took {longer} longer than the other {rest}, because of:"))
    )
    parts += [_BLAME.table(blame[key], f"by {name}") for key, name in VIEWS_OF_BLAME]  # type: ignore[literal-required]
    return section("samples", "Samples of the step", *parts)
