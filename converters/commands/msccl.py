"""`et-convert msccl`: an MSCCL algorithm to the programs of a custom collective."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from converters.commands import JsonReport, Output
from et_sim.basics.declared_options import Command, Option
from et_sim.basics.units import format_bytes, parse_bytes, plural

if TYPE_CHECKING:
    from converters.msccl_xml import MscclAlgorithm
    from converters.report import Converted
    from et_sim.trace import Trace

KEYS = {
    "allreduce": "all-reduce",
    "allgather": "all-gather",
    "reducescatter": "reduce-scatter",
    "alltoall": "all-to-all",
}


class Options(Command):
    """Convert a collective algorithm in MSCCL's XML to PREFIX.<rank>.et, which a system file names under
    "all-reduce-implementation-custom" or the like.
    """

    input: Annotated[Path, "the algorithm; may be gzipped", "ALGO.xml"]
    output: Output
    bytes: Annotated[
        int,
        "size of all chunks together: the vector, or what an all-gather ends with (default: 1MiB)",
        Option(parse=parse_bytes, least=1),
    ] = 1 << 20
    reduce_micros: Annotated[
        int,
        "microseconds of one reduction (default: 0, which a simulation takes as 1 ns)",
        "US",
        Option(least=0),
    ] = 0
    json: JsonReport = False


def run(options: Options) -> Iterator[str]:
    """Convert all ranks, write the files, and report."""
    from converters.files import refuse_overwriting, trace_path
    from converters.msccl_programs import MscclCosts, chunk_bytes, programs
    from converters.msccl_xml import parse_algorithm
    from converters.report import report_lines
    from et_sim.trace import write_trace
    from et_sim.trace.disk import read_unpacked

    size = options.bytes
    source = str(options.input)
    algorithm = parse_algorithm(read_unpacked(options.input), source)
    costs = MscclCosts(chunk_bytes(size, algorithm.chunks), options.reduce_micros)
    traces = programs(algorithm, costs, source)
    paths = [trace_path(options.output, rank) for rank in range(len(traces))]
    refuse_overwriting([options.input], paths)
    for trace, path in zip(traces, paths, strict=True):
        write_trace(trace, path)
    notes = list(_notes(algorithm, size, costs.chunk_bytes, options.output))
    converted = _converted(source, traces, [str(path) for path in paths], notes)
    yield from report_lines(converted, as_json=options.json)


def _notes(algorithm: MscclAlgorithm, size: int, chunk: int, prefix: str) -> Iterator[tuple[str, str]]:
    from converters.msccl_programs import connections

    pairs = plural(connections(algorithm), "connection")
    yield "algorithm", f'"{algorithm.name}" for {plural(len(algorithm.gpus), "GPU")}, {pairs}'
    left = size % algorithm.chunks
    rounded = f" (rounded up: {size} bytes do not divide)" if left else ""
    yield "chunks", f"{algorithm.chunks} of {format_bytes(chunk)}{rounded}"
    key = KEYS.get(algorithm.collective.lower().replace("_", "").replace("-", ""))
    if key:
        yield "system file", f'"{key}-implementation-custom": ["{prefix}"]'
    else:
        yield "system file", f'no key is for collective "{algorithm.collective}"; choose one yourself'


def _converted(
    source: str, traces: list[Trace], outputs: list[str], notes: list[tuple[str, str]]
) -> list[Converted]:
    """Return one entry for all outputs with equal reports."""
    from converters.records import Dropped
    from converters.report import ConversionReport, Converted, make_report

    alike: list[tuple[ConversionReport, list[str]]] = []
    for trace, output in zip(traces, outputs, strict=True):
        report = make_report(trace, Dropped(), notes)
        known = next((paths for other, paths in alike if other == report), None)
        if known is None:
            alike.append((report, [output]))
        else:
            known.append(output)
    return [Converted(source, "MSCCL", tuple(paths), report) for report, paths in alike]
