"""`et-convert repair`: drop dependencies on nodes that a trace's writer left out."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

from et_sim.errors import UsageError


def add_parser(commands: Any) -> None:
    """Register the command."""
    parser = commands.add_parser(
        "repair",
        help="drop dependencies on nodes that are not in the trace",
        description="Rewrite traces that depend on nodes they do not hold, as the PyTorch converter of"
        " Chakra writes them. Such dependencies are dropped and counted; nothing else changes.",
    )
    parser.add_argument("prefix", metavar="PREFIX", help="traces to repair: PREFIX.0.et, PREFIX.1.et, …")
    parser.add_argument(
        "-o", "--output", metavar="PREFIX", required=True, help="write PREFIX.0.et, PREFIX.1.et, …"
    )
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> Iterator[str]:
    """Read every rank's trace, then write every one, then report."""
    import json
    from pathlib import Path

    from converters.files import refuse_overwriting, trace_path
    from converters.repairing import repaired
    from converters.report import Converted, Report, as_plain, as_text
    from et_sim.trace import read_workload, write_trace
    from et_sim.trace.manifest import is_manifest

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
    converted = []
    held: dict[int, tuple[bytes, Report]] = {}
    for rank, template in enumerate(workload.template_of_rank.tolist()):
        if template not in held:
            held[template] = repaired(inputs[rank], workload.templates[template])
        content, report = held[template]
        write_trace(content, outputs[rank])
        status = "repaired" if any(label == "dropped" for label, _ in report.notes) else "nothing to repair"
        converted.append(Converted(str(inputs[rank]), status, (str(outputs[rank]),), report))
    if options.json:
        yield json.dumps(as_plain(converted, workload.notices), indent=2, ensure_ascii=False)
        return
    yield from as_text(converted)
    yield from (f"note: {notice}" for notice in workload.notices)
