"""`et-convert graph`: some nodes of a trace for GraphViz, or as GraphML."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from converters.commands import WorkloadInput, number_ranges
from et_sim.basics.declared_options import Command, Option
from et_sim.basics.errors import TraceError, UsageError

if TYPE_CHECKING:
    from converters.editing.files import RecordedTrace

MOST_NODES = 2000


class Options(Command):
    """Write some nodes of one rank's trace, and the dependencies among them, as a graph."""

    input: WorkloadInput
    output: Annotated[Path, "FILE.dot or FILE.graphml", "FILE", Option("-o --output")]
    rank: Annotated[int, "whose trace"] = 0
    nodes: Annotated[str | None, 'the nodes with these ids: "0-49,70"', "LIST"] = None
    window: Annotated[
        str | None, 'nodes recorded to start in this time of the trace: "10ms:20ms"', "BEGIN:END"
    ] = None
    around: Annotated[int | None, "the nodes near this one", "ID"] = None
    steps: Annotated[int, "how many dependencies away --around goes"] = 2
    most: Annotated[int, "most nodes"] = MOST_NODES


def run(options: Options) -> Iterator[str]:
    """Choose nodes, draw them, and write the file."""
    from converters.editing.drawing import as_dot, as_graphml, draw
    from converters.editing.files import read_input
    from et_sim.basics.units import plural
    from et_sim.trace.disk import replace_all

    forms = {".dot": as_dot, ".gv": as_dot, ".graphml": as_graphml}
    form = forms.get(options.output.suffix)
    if form is None:
        raise UsageError(
            f"-o {options.output} is neither .dot nor .graphml", remedy="end the name with .dot or .graphml"
        )
    given = read_input(options.input, drop_dangling=True)
    if not 0 <= options.rank < given.workload.ranks:
        raise UsageError(
            f"--rank is {options.rank}", remedy=f"there are ranks 0 to {given.workload.ranks - 1}"
        )
    recorded = given.traces[int(given.workload.template_of_rank[options.rank])]
    rows = _rows(options, recorded)
    if len(rows) > options.most:
        raise UsageError(
            f"the choice has {len(rows):,} nodes, and at most {options.most:,} are drawn",
            place=recorded.source,
            remedy="choose fewer with --nodes, --window or --around, or allow more with --most",
        )
    drawing = draw(recorded.trace, rows)
    replace_all([(options.output, form(drawing).encode())])
    shown = f"{plural(len(rows), 'node')} of {len(recorded.trace):,}"
    made = plural(len(drawing.edges), "dependency", "dependencies")
    outside = sum(drawing.outside.values())
    left = f", {outside:,} more on nodes that are not drawn" if outside else ""
    yield f"{recorded.source} -> {options.output}: {shown}, {made}{left}"


def _rows(options: Options, recorded: RecordedTrace) -> Any:
    """Return the chosen rows, ascending; without a choice, all."""
    import numpy as np

    ids = recorded.trace.node_id
    chosen = np.ones(len(ids), np.bool_)
    if options.nodes is not None:
        chosen &= _listed(options.nodes, ids)
    if options.window is not None:
        from converters.editing.files import start_micros
        from converters.editing.slicing import in_window, parse_window

        starts = start_micros(recorded)
        earliest = int(starts.min()) if len(starts) else 0
        begin, end = parse_window(options.window)
        chosen &= in_window(recorded, starts, earliest + begin, earliest + end)
    if options.around is not None:
        from converters.editing.drawing import near

        at = int(np.searchsorted(ids, np.uint64(min(max(options.around, 0), 2**64 - 1))))
        if options.around < 0 or at == len(ids) or int(ids[at]) != options.around:
            raise TraceError(
                f"there is no node {options.around}",
                place=recorded.source,
                remedy="et-convert show lists them",
            )
        chosen &= np.isin(np.arange(len(ids)), near(recorded.trace, at, max(0, options.steps)))
    return np.flatnonzero(chosen)


def _listed(text: str, ids: Any) -> Any:
    """Return a mask of the ids in a list such as "0-49,70"; every number or range must match a node."""
    import numpy as np

    chosen = np.zeros(len(ids), np.bool_)
    for piece in number_ranges("--nodes", text):
        first, last = (np.uint64(min(end, 2**64 - 1)) for end in (piece.start, piece.stop - 1))
        which = (ids >= first) & (ids <= last)
        if not bool(which.any()):
            problem = (
                f"no node has an id from {first} to {last}" if first < last else f"there is no node {first}"
            )
            raise UsageError(problem, remedy="et-convert show lists the nodes")
        chosen |= which
    return chosen
