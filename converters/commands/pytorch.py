"""`et-convert pytorch`: recordings of PyTorch (execution traces and Kineto timelines) to trace files."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from et_sim.basics.errors import UsageError, did_you_mean
from et_sim.basics.files import exists, is_folder

if TYPE_CHECKING:
    from converters.pytorch.converting import Job
    from converters.pytorch.graph import Link


def add_parser(commands: Any) -> None:
    """Register the command."""
    parser = commands.add_parser(
        "pytorch",
        help="recordings of PyTorch (execution traces, Kineto timelines) to traces",
        description="Convert what PyTorch recorded of a run: an execution trace (--host), a Kineto timeline"
        " (--device), or both of one rank; or a folder with the recordings of many ranks. Either of the two"
        " recordings is enough; times come from the timeline only.",
    )
    parser.add_argument(
        "input", nargs="?", type=Path, metavar="DIR", help="folder with recordings, or a single one"
    )
    parser.add_argument("--host", type=Path, metavar="ET.json", help="execution trace of one rank")
    parser.add_argument("--device", type=Path, metavar="KINETO.json", help="Kineto timeline of the same rank")
    parser.add_argument(
        "-o",
        "--output",
        required=True,
        metavar="OUTPUT",
        help="with a folder: write OUTPUT.<rank>.et; otherwise the file to write",
    )
    parser.add_argument(
        "--without",
        default="",
        metavar="KIND,…",
        help="leave out kinds of dependencies: thread-order, call-tree, launch, stream-order, event-wait,"
        " sync, cross-thread, data",
    )
    parser.add_argument(
        "--force",
        action="store_true",
        help="convert recordings that seem not to belong together, too: of different ranks, runs or steps",
    )
    parser.add_argument("--report", type=Path, metavar="FILE", help="write the report as JSON")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.add_argument(
        "--jobs", type=int, metavar="N", help="ranks to convert at once (default: processors)"
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> Iterator[str]:
    """Convert all ranks, then say what became of them."""
    import json

    from converters.files import Progress
    from converters.pytorch.folders import convert_all
    from converters.pytorch.report import lines
    from et_sim.basics.command_line import processors
    from et_sim.trace.disk import replace_all

    if options.jobs is not None and options.jobs < 1:
        raise UsageError(f"--jobs is {options.jobs}", remedy="give a number of processes, 1 or more")
    jobs, notes = _jobs(options)
    jobs = [replace(job, force=options.force) for job in jobs]
    total = sum(path.stat().st_size for job in jobs for path in job.inputs)
    progress = Progress("1 rank" if len(jobs) == 1 else f"{len(jobs)} ranks", total)
    try:
        done = convert_all(jobs, options.jobs or processors(), progress, notes)
    finally:
        progress.close()
    reports = [job.report for job in done]
    plain = json.dumps({"ranks": reports, "notes": notes}, indent=2, ensure_ascii=False)
    if options.report is not None:
        replace_all([(options.report, plain.encode() + b"\n")])
    if options.json:
        yield plain
        return
    for report in reports:
        yield from lines(report)
    yield from (f"note: {note}" for note in notes)


def _jobs(options: argparse.Namespace) -> tuple[list[Job], list[str]]:
    from converters.pytorch.converting import Job
    from converters.pytorch.folders import job_of_file, jobs_of_folder

    without = _without(options.without)
    named = [path for path in (options.host, options.device) if path is not None]
    if (options.input is None) == (not named):
        raise UsageError(
            "what to convert is not clear",
            remedy="give a folder, or files with --host and --device, not both",
        )
    for path in (*named, *([options.input] if options.input is not None else [])):
        if not exists(path):
            raise UsageError("does not exist", place=str(path), remedy="name a file or folder that exists")
    if options.input is not None and is_folder(options.input):
        return jobs_of_folder(options.input, options.output, without)
    output = Path(options.output)
    if not output.name.endswith((".et", ".et.gz")):
        raise UsageError(
            f"the output of one rank is a file, and {options.output!r} does not end in .et",
            remedy="name it PREFIX.<rank>.et",
        )
    if named:
        return [Job(output, options.host, options.device, without=without)], []
    return [job_of_file(options.input, output, without)], []


def _without(text: str) -> frozenset[Link]:
    from converters.pytorch.graph import Link

    known = {link.label: link for link in Link}
    chosen = [word.strip() for word in text.split(",") if word.strip()]
    for word in chosen:
        if word not in known:
            hint = did_you_mean(word, list(known))
            raise UsageError(
                f"there is no kind of dependencies {word!r}",
                remedy=f"{hint + ' ' if hint else ''}kinds are {', '.join(known)}",
            )
    return frozenset(known[word] for word in chosen)
