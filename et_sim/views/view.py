"""Every view of a run as one value: its name, description, restrictions and forms.

A new view is one entry here, and a module with its `Forms`; the command line, text, data and pictures follow.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from et_sim.basics.lazy_names import loaded
from et_sim.tables.registry import table_named

if TYPE_CHECKING:
    from et_sim.views.run.directory import RunDirectory
    from et_sim.views.run.selection import Selection

RANKS, WINDOW, TOP = "ranks", "window", "top"
ALL = (RANKS, WINDOW, TOP)


class Forms(Struct, frozen=True):
    """Lines of a view of at most a width, and its data for `--json`."""

    lines: Callable[[RunDirectory, Selection, int], list[str]]
    data: Callable[[RunDirectory, Selection], Any]


class View(Struct, frozen=True):
    """A view; `forms` and `picture` are `module:name` below `et_sim.views`, loaded on demand."""

    name: str
    about: str
    forms: str
    cuts: tuple[str, ...] = ()  # the restrictions of ALL that apply
    picture: str = ""  # a function that draws a selection of a run; empty: there is no picture
    needs: str = ""  # a table that a run may lack, and without which the view is empty
    has_heading: bool = True  # before everything else; other views describe the selection themselves

    def text(self, run: RunDirectory, part: Selection, width: int) -> str:
        """Return the view as lines."""
        part.check_ranks(run)
        if self.needs and not run.holds(self.needs):
            return table_named(self.needs).not_recorded
        forms: Forms = loaded(f"et_sim.views.{self.forms}")
        heading = part.heading() if self.has_heading else []
        return "\n".join([*heading, *forms.lines(run, part, width)])

    def data(self, run: RunDirectory, part: Selection) -> Any:
        """Return the view for `--json`; None if there is nothing to show."""
        part.check_ranks(run)
        forms: Forms = loaded(f"et_sim.views.{self.forms}")
        return None if self.needs and not run.holds(self.needs) else forms.data(run, part)

    def drawn(self, run: RunDirectory, part: Selection) -> str:
        """Return the view as an SVG document."""
        picture: str = loaded(f"et_sim.views.{self.picture}")(run, part)
        return picture


_EVERY = (
    View(
        "summary",
        "one screen: times, ranks, top operations, coverage (the default)",
        "summary.facts:SUMMARY",
        ALL,
        has_heading=False,
    ),
    View(
        "ranks",
        "time of every rank by activity",
        "summary.rank_table:RANKS",
        ALL,
        "drawing.bars:ranks_picture",
    ),
    View("groups", "collectives by communicator group", "summary.groups:GROUPS", ALL),
    View("ops", "all operations, by total time", "summary.operation_table:OPERATIONS", ALL),
    View(
        "activity",
        "activity of every rank over time",
        "summary.activity:ACTIVITY",
        ALL,
        "drawing.bars:activity_picture",
    ),
    View(
        "waits",
        "waiting against transfer by rank, group and operation, and the ranks that are waited for",
        "summary.waits:WAITS",
        ALL,
        "drawing.bars:waits_picture",
    ),
    View(
        "bandwidth",
        "bandwidth against message size of collectives and sends, beside that of links",
        "summary.bandwidth:BANDWIDTH",
        ALL,
        "drawing.planes:bandwidth_picture",
    ),
    View(
        "schedule",
        "pipelines: micro-batches of each stage over time, and the bubble beside the ideal one",
        "summary.schedule_text:SCHEDULE",
        picture="drawing.schedule:schedule_of_run_picture",
    ),
    View(
        "spread",
        "differences between ranks by operation: durations and begins",
        "summary.spread:SPREAD",
        ALL,
        "drawing.bars:spread_picture",
    ),
    View(
        "idle",
        "time of devices, streams and threads, and the causes of their idle time",
        "summary.idle_table:IDLE",
        ALL,
        "drawing.bars:idle_picture",
    ),
    View(
        "layers",
        "a layer file's layers: computation and communication of each (also --csv)",
        "summary.layers:LAYERS",
    ),
    View(
        "phases",
        "phases of chunks by dimension, of runs with --detail phases",
        "summary.phase_totals:PHASES",
        (RANKS, WINDOW),
        "drawing.network:phases_picture",
        needs="phases",
    ),
    View(
        "critical-path",
        "causes of the makespan, and parameters that change it",
        "critical.text:CRITICAL_PATH",
        (TOP,),
        "drawing.critical:critical_path_picture",
    ),
    View(
        "topology",
        "the network with the use of its links, of runs with --detail links",
        "summary.topology:TOPOLOGY",
        (WINDOW, TOP),
        "drawing.network:topology_picture",
        needs="links",
    ),
    View(
        "links",
        "use of links over time, of runs with --detail links",
        "summary.links:LINKS",
        ALL,
        "drawing.network:links_picture",
        needs="links",
    ),
    View(
        "queues",
        "queues at ports over time, of runs with --detail ports",
        "summary.queues:QUEUES",
        (WINDOW, TOP),
        "drawing.network:queues_picture",
        needs="queues",
    ),
    View(
        "pauses",
        "paused ports, and the queues that paused them, of runs with --detail ports",
        "summary.queues:PAUSES",
        (WINDOW, TOP),
        needs="pauses",
    ),
    View(
        "flows",
        "messages as packets, and their delays, of runs with --detail ports",
        "summary.flows:FLOWS",
        ALL,
        needs="queues",
    ),
    View(
        "roofline",
        "kernels below the roofs of their machine: operations per byte and per second",
        "summary.roofline:ROOFLINE",
        ALL,
        "drawing.planes:roofline_picture",
    ),
    View(
        "memory",
        "peaks of local memory, and the largest tensors alive then",
        "summary.memory:MEMORY",
        (RANKS, TOP),
        "drawing.memory:memory_picture",
    ),
    View(
        "samples",
        "samples of the step, of runs with --samples: percentiles, causes, and blame of the slowest",
        "summary.samples:SAMPLES",
        (TOP,),
        "drawing.samples:samples_picture",
        needs="samples",
    ),
    View("stalls", "waits of ranks in a run that could not finish", "summary.stalls:STALLS"),
    View("notices", "every warning and every default taken", "summary.facts:NOTICES"),
    View(
        "picture",
        "the timeline as a picture, into the file given with --svg or --png",
        "",
        (RANKS, WINDOW),
        "drawing.timeline:picture",
    ),
)
VIEWS: Mapping[str, View] = MappingProxyType({view.name: view for view in _EVERY})


DRAWN = tuple(view.name for view in _EVERY if view.picture)


def view_text(name: str, run: Any, part: Selection | None = None, width: int | None = None) -> str:
    """Return a view of a run or of its directory, as wide as the terminal unless a width is given."""
    from et_sim.views.run.directory import RunDirectory, open_run
    from et_sim.views.run.selection import EVERYTHING
    from et_sim.views.text import terminal_width

    opened = run if isinstance(run, RunDirectory) else open_run(run)
    return VIEWS[name].text(opened, part or EVERYTHING, width or terminal_width())
