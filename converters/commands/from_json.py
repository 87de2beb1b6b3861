"""`et-convert json`: traces as JSON to trace files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

from converters.commands import JsonReport, Output
from et_sim.basics.declared_options import Command, Count
from et_sim.basics.errors import UsageError


class Options(Command):
    """Convert traces as JSON, one file per rank in rank order, to PREFIX.<rank>.et. The flavour is recognised
    by content: protobuf JSON (chakra_jsonizer), workload_graph, or the JSON lines of et-convert show; each
    may be compressed with gzip."""

    inputs: Annotated[Sequence[Path], "a trace as JSON", "INPUT"]
    output: Output
    ranks: Annotated[Count, "how many ranks share a single INPUT (default: one)"] = None
    drop_dangling: Annotated[bool, "leave out dependencies on nodes that are not in the file"] = False
    json: JsonReport = False


def run(options: Options) -> Iterator[str]:
    """Convert every input, write all files, and report."""
    _check_ranks(options)
    from converters.files import refuse_overwriting, trace_path
    from converters.json_traces import convert
    from converters.report import Converted, report_lines
    from et_sim.trace import write_trace

    ranks = len(options.inputs) if options.ranks is None else options.ranks
    paths = [trace_path(options.output, rank) for rank in range(ranks)]
    refuse_overwriting(options.inputs, paths)
    converted = []
    contents = []
    for number, source in enumerate(options.inputs):
        trace = convert(source, drop_dangling=options.drop_dangling)
        outputs = paths if len(options.inputs) == 1 else [paths[number]]
        contents += [trace.content] * len(outputs)
        converted.append(
            Converted(str(source), trace.flavour, tuple(str(path) for path in outputs), trace.report)
        )
    for path, content in zip(paths, contents, strict=True):
        write_trace(content, path)
    yield from report_lines(converted, as_json=options.json)


def _check_ranks(options: Options) -> None:
    if options.ranks is None:
        return
    if len(options.inputs) not in (1, options.ranks):
        raise UsageError(
            f"{len(options.inputs)} inputs for {options.ranks} ranks",
            remedy="give one file per rank, or a single file that all ranks share",
        )
