"""`et-convert json`: traces as JSON to trace files."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from converters.commands import add_output, add_report
from et_sim.basics.errors import UsageError


def add_parser(commands: Any) -> None:
    """Register the command."""
    parser = commands.add_parser(
        "json",
        help="traces as JSON to trace files",
        description="Convert traces as JSON, one file per rank in rank order, to PREFIX.<rank>.et."
        " The flavour is recognised by content: protobuf JSON (chakra_jsonizer), workload_graph, or the"
        " JSON lines of et-convert show; each may be compressed with gzip.",
    )
    parser.add_argument("inputs", metavar="INPUT", nargs="+", type=Path, help="a trace as JSON")
    add_output(parser)
    parser.add_argument("--ranks", type=int, help="how many ranks share a single INPUT (default: one)")
    parser.add_argument(
        "--drop-dangling",
        action="store_true",
        help="leave out dependencies on nodes that are not in the file",
    )
    add_report(parser, run)


def run(options: argparse.Namespace) -> Iterator[str]:
    """Convert everything, then write, then report."""
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


def _check_ranks(options: argparse.Namespace) -> None:
    if options.ranks is None:
        return
    if options.ranks < 1:
        raise UsageError(f"--ranks is {options.ranks}", remedy="ask for at least one rank")
    if len(options.inputs) not in (1, options.ranks):
        raise UsageError(
            f"{len(options.inputs)} inputs for {options.ranks} ranks",
            remedy="give one file per rank, or a single file that all ranks share",
        )
