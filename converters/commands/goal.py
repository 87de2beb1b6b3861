"""`et-convert goal`: a GOAL text (LogGOPSim, ATLAHS) to traces."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from converters.commands import JsonReport, Output
from et_sim.basics.declared_options import Command
from et_sim.basics.files import in_shell

if TYPE_CHECKING:
    from et_sim.trace import Trace
    from et_sim.trace.goal.schedule import Totals


class Options(Command):
    """Convert the schedules of a GOAL text into PREFIX.<rank>.et, for `et-sim run --network-model loggops` or
    any other model."""

    input: Annotated[Path, "the schedules; may be gzipped", "FILE.goal"]
    output: Output
    json: JsonReport = False


def run(options: Options) -> Iterator[str]:
    """Read and write rank by rank, then report."""
    from converters.files import progress, refuse_overwriting, trace_path
    from converters.report import Converted, report_lines
    from et_sim.trace.disk import replace_all
    from et_sim.trace.encode import encode_several
    from et_sim.trace.goal.file import schedules
    from et_sim.trace.goal.schedule import Totals

    totals, outputs = Totals(), list[Path]()

    def files() -> Iterator[tuple[Path, bytes]]:
        for several in _in_portions(schedules(options.input, totals, progress)):
            encoded = encode_several([trace for _, trace in several])
            for (rank, _), content in zip(several, encoded, strict=True):
                outputs.append(trace_path(options.output, rank))
                refuse_overwriting([options.input], outputs[-1:])
                yield outputs[-1], content

    replace_all(files(), options.output)
    paths = tuple(str(trace_path(options.output, rank)) for rank in range(totals.ranks))
    converted = Converted(str(options.input), "GOAL", paths, _report(totals, options.output))
    yield from report_lines([converted], as_json=options.json)


_AT_ONCE = 10_000  # operations of ranks that are written together


def _in_portions(given: Iterable[tuple[int, Trace]]) -> Iterator[list[tuple[int, Trace]]]:
    """Yield portions of ranks and their traces; small traces are grouped."""
    several: list[tuple[int, Trace]] = []
    operations = 0
    for rank, trace in given:
        several.append((rank, trace))
        operations += len(trace)
        if operations >= _AT_ONCE:
            yield several
            several, operations = [], 0
    if several:
        yield several


def _report(totals: Totals, prefix: str) -> Any:
    from converters.report import ConversionReport
    from et_sim.basics.units import format_ns
    from et_sim.trace.goal.schedule import KINDS

    nodes = {KINDS[kind].name: count for kind, count in totals.count.items() if count}
    operations = {
        name: (totals.count[kind], totals.size[kind])
        for name, kind in (("send", "send"), ("receive", "recv"))
        if totals.count[kind]
    }
    notes = []
    if totals.count["calc"]:
        notes.append(("computing", f"{format_ns(totals.size['calc'])} in all"))
    if totals.irequires:
        begun = f"{totals.irequires:,} times, of a receive: comes after whatever the receive comes after"
        notes.append(("irequires", begun))
    notes.append(
        ("run with", f"et-sim run {in_shell(prefix)} --network-model loggops --network FILE --system FILE")
    )
    return ConversionReport(nodes, operations, tuple(notes), is_total=True)
