"""`et-convert repair`: drop dependencies on nodes that are not in the trace."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from converters.commands import JsonReport, Output
from et_sim.basics.declared_options import Command
from et_sim.basics.errors import UsageError


class Options(Command):
    """Rewrite traces that depend on nodes they do not hold, as the PyTorch converter of Chakra writes them.
    Such dependencies are dropped and counted; nothing else changes without --even-sizes.
    """

    prefix: Annotated[str, "traces to repair: PREFIX.0.et, PREFIX.1.et, …", "PREFIX"]
    output: Output
    even_sizes: Annotated[
        bool, "if members of a group give different sizes to a collective, set all to the largest"
    ] = False
    json: JsonReport = False


def run(options: Options) -> Iterator[str]:
    """Read the traces of all ranks, write the files, and report."""
    from pathlib import Path

    from converters.editing.partners import SizeEqualiser, repaired
    from converters.files import refuse_overwriting, trace_path
    from converters.records import Dropped
    from converters.report import Converted, make_report, report_lines
    from et_sim.basics.units import plural
    from et_sim.trace import decode, read_workload, write_trace
    from et_sim.trace.disk import is_manifest

    if is_manifest(options.prefix):
        raise UsageError(
            "is a workload manifest, and only trace files are repaired",
            place=options.prefix,
            remedy="repair the files that its templates were made from",
        )
    workload = read_workload(options.prefix, drop_dangling=True)
    inputs = [Path(path) for path, _ in workload.inputs]
    outputs = [trace_path(options.output, rank) for rank in range(workload.ranks)]
    refuse_overwriting(inputs, outputs)
    equaliser = SizeEqualiser(workload) if options.even_sizes else None
    converted = []
    held: dict[int, tuple[bytes, Dropped]] = {}
    for rank, template in enumerate(workload.template_of_rank.tolist()):
        trace = workload.templates[template]
        if template not in held:
            held[template] = repaired(inputs[rank], trace)
        content, dropped = held[template]
        content, equalised = equaliser.of_rank(rank, content, trace) if equaliser else (content, 0)
        write_trace(content, outputs[rank])
        notes = [("made even", f"sizes of {plural(equalised, 'collective')}")] if equalised else []
        status = "repaired" if equalised or dropped else "nothing to repair"
        report = make_report(decode(content, str(outputs[rank])) if equalised else trace, dropped, notes)
        converted.append(Converted(str(inputs[rank]), status, (str(outputs[rank]),), report))
    notices = [*workload.notices, *([equaliser.remark()] if equaliser and equaliser.uneven else [])]
    yield from report_lines(converted, notices, as_json=options.json)
