"""`et-convert steps`: recorded steps of pipeline-parallel training to traces, as recorded or evened out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

from converters.commands import JsonReport, Output, number_ranges
from et_sim.basics.declared_options import Argument, Command


class Options(Command):
    """Convert recorded steps of pipeline-parallel training (Parquet files of ByteDance's StragglerAnalysis)
    into one trace per rank. Operations take their recorded work, and wait for others again. With --even, all
    operations of a kind take the same time.
    """

    input: Annotated[Path, "the table of operations", "FILE.parquet", Argument()]
    output: Output
    steps: Annotated[str, 'only these steps, such as "23-40,259"', "RANGES"] = ""
    even: Annotated[
        bool, "the mean of each kind of computation, the median of each kind of communication"
    ] = False
    uneven: Annotated[
        Sequence[str],
        "like --even, but these keep their recorded times: stage=3, replica=0, rank=5 or "
        "kind=forward-compute (may be repeated)",
        "WHICH",
    ] = ()
    no_gaps: Annotated[bool, "leave out the time between operations that no operation explains"] = False
    json: JsonReport = False


def run(options: Options) -> Iterator[str]:
    """Read, choose, write and report."""
    from converters.recordings.stragglers import chosen_work, only_steps, read, write

    recording = read(options.input)
    work, notes = chosen_work(recording, options.even, options.uneven)
    if options.steps:
        recording, work = only_steps(recording, work, options.steps, number_ranges("--steps", options.steps))
    yield from write(
        recording, work, options.output, with_gaps=not options.no_gaps, notes=notes, as_json=options.json
    )
