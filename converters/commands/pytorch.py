"""`et-convert pytorch`: recordings of PyTorch (execution traces, Kineto timelines) to traces."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from msgspec.structs import replace

from converters.commands import JsonReport
from et_sim.basics.declared_options import Argument, Command, Count, Option
from et_sim.basics.errors import UsageError, did_you_mean
from et_sim.basics.files import exists, is_folder

if TYPE_CHECKING:
    from converters.pytorch.converting import ConversionJob
    from converters.pytorch.graph import Link


class Options(Command):
    """Convert PyTorch's recordings of a run: an execution trace (--host), a Kineto timeline (--device), or
    both of one rank; or a folder with the recordings of many ranks. Either of the two recordings is enough;
    times come from the timeline only."""

    input: Annotated[Path | None, "folder with recordings, or a single one", "DIR", Argument()] = None
    host: Annotated[Path | None, "execution trace of one rank", "ET.json"] = None
    device: Annotated[Path | None, "Kineto timeline of the same rank", "KINETO.json"] = None
    output: Annotated[
        str,
        "with a folder: write OUTPUT.<rank>.et; otherwise the file to write",
        "OUTPUT",
        Option("-o --output"),
    ]
    without: Annotated[
        str,
        "leave out kinds of dependencies: thread-order, call-tree, launch, stream-order, event-wait,"
        " sync, cross-thread, data",
        "KIND,…",
    ] = ""
    force: Annotated[
        bool, "convert recordings that seem not to belong together, too: of different ranks, runs or steps"
    ] = False
    report: Annotated[Path | None, "write the report as JSON", "FILE"] = None
    json: JsonReport = False
    jobs: Annotated[Count, "ranks to convert at once (default: processors)", "N"] = None


def run(options: Options) -> Iterator[str]:
    """Convert all ranks and report the results."""

    from converters.files import ShareProgress
    from converters.pytorch.folders import convert_all
    from converters.pytorch.report import lines_of_ranks
    from et_sim.basics.command_line import processors
    from et_sim.trace.disk import replace_all

    jobs, notes = _jobs(options)
    jobs = [replace(job, force=options.force) for job in jobs]
    total = sum(path.stat().st_size for job in jobs for path in job.inputs)
    progress = ShareProgress("1 rank" if len(jobs) == 1 else f"{len(jobs)} ranks", total)
    try:
        done = convert_all(jobs, options.jobs or processors(), progress, notes)
    finally:
        progress.close()
    reports = [job.report for job in done]
    if options.report is not None:
        (plain,) = lines_of_ranks(reports, notes, as_json=True)
        replace_all([(options.report, plain.encode() + b"\n")])
    yield from lines_of_ranks(reports, notes, as_json=options.json)


def _jobs(options: Options) -> tuple[list[ConversionJob], list[str]]:
    from converters.pytorch.converting import ConversionJob
    from converters.pytorch.folders import job_of_file, jobs_of_folder

    without = _without(options.without)
    named = [path for path in (options.host, options.device) if path is not None]
    if (options.input is None) == (not named):
        raise UsageError(
            "the input is missing or ambiguous",
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
    if options.input is not None:
        return [job_of_file(options.input, output, without)], []
    return [ConversionJob(output, options.host, options.device, without=without)], []


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
