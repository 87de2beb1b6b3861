"""`et-sim export`: write a run's timeline for viewers, or its collectives as NCCL's Inspector does."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

from et_sim.basics.declared_options import Command, Count
from et_sim.basics.errors import UsageError
from et_sim.basics.files import in_shell, new_file
from et_sim.basics.units import format_bytes, plural
from et_sim.cli.progress import Progress


class Options(Command):
    """Write a run's timeline for Perfetto (ui.perfetto.dev) or as Chrome trace events, or its collectives as
    records of NCCL's Inspector."""

    directory: Annotated[str, "directory that et-sim run wrote", "RUN"]
    perfetto: Annotated[Path | None, "Perfetto's own format (.pftrace)", "FILE"] = None
    chrome: Annotated[Path | None, "Chrome trace events (.json, .json.gz)", "FILE"] = None
    inspector: Annotated[Path | None, "records of NCCL's Inspector, a file for each rank", "DIR"] = None
    node: Annotated[Count, "ranks of a node, for records (default: those of the machine by name)", "N"] = None
    ranks: Annotated[str | None, 'which ranks, such as "0-3,6" (default: one of each actor)'] = None
    window: Annotated[str | None, "which time, such as 10ms:20ms (default: all)", "FROM:TO"] = None
    limit: Annotated[Count, "at most N nodes, in proportion of all (default: 200000)", "N"] = None


def run(options: Options) -> int:
    """Write the requested files, and print their contents."""
    if options.inspector is not None:
        _write_records(options, options.inspector)
        return 0
    if options.node is not None:
        raise UsageError("--node belongs to --inspector DIR", remedy="leave it out")
    if options.perfetto is None and options.chrome is None:
        raise UsageError(
            "no file to write is named",
            remedy=f"name one, as in et-sim export {in_shell(options.directory)} --perfetto timeline.pftrace",
        )
    from et_sim.views import open_run
    from et_sim.views.drawing.nodes import ALWAYS
    from et_sim.views.export import chrome, perfetto
    from et_sim.views.export.contents import MOST_SLICES, contents_of
    from et_sim.views.run.selection import selection

    opened, part = open_run(options.directory), selection(window=options.window)
    part.check_window(opened)
    window = part.window or ALWAYS
    with Progress() as progress:
        progress.stage("reading the timeline")
        contents = contents_of(opened, options.ranks, window, options.limit or MOST_SLICES)
    parts = (
        f"{plural(len(contents.slices), 'node')} of {plural(len(contents.shown.ranks), 'rank')}",
        plural(len(contents.messages), "message"),
        plural(len(contents.collectives), "collective across ranks", "collectives across ranks"),
        plural(len(contents.counters), "counter"),
    )
    print(f"the timeline shows {', '.join(parts)}")
    for sentence in contents.left_out:
        print(f"it {sentence}")
    if options.perfetto is not None:
        _write(options.perfetto, perfetto.packets(contents), perfetto.count(contents))
    if options.chrome is not None:
        about = {"et_sim": opened.manifest.get("et_sim"), "left_out": list(contents.left_out)}
        _write(options.chrome, chrome.pieces(contents, about), chrome.count(contents))
    return 0


def _write_records(options: Options, folder: Path) -> None:
    """Write the records of NCCL's Inspector, and print their number."""
    others = ("perfetto", "chrome", "ranks", "window", "limit")
    given = next((name for name in others if getattr(options, name) is not None), None)
    if given is not None:
        remedy = f"leave --{given} out: records are of all ranks and the whole run"
        raise UsageError(f"--{given} does not go with --inspector", remedy=remedy)
    from et_sim.machine.presets import preset
    from et_sim.views import open_run
    from et_sim.views.export.inspector import write_inspector

    run = open_run(options.directory)
    command = run.manifest.get("command")
    machine = command.get("machine") if command is not None else None
    node = options.node or (preset(machine).node if machine else 0)
    records = write_inspector(run, folder, node)
    print(f"{folder}: {plural(records.written, 'record')} of {plural(run.summary['ranks'], 'rank')}")
    if not node:
        print("note: all ranks are taken as one node: --node N states another number of ranks")
    for reason, count in records.left_out.items():
        if count:
            print(f"note: left out: {count:,} {reason}")
    print(f"next: et-sim calibrate nccl {in_shell(str(folder))} --machine NAME -o machine.json")


def _write(target: Path, pieces: Iterable[bytes], events: int) -> None:
    import gzip

    from et_sim.views.export.contents import AT_ONCE

    with new_file(target) as sink, Progress() as progress:
        progress.stage(f"writing {target}")
        counted = progress.counted(pieces, events, "events", AT_ONCE)
        if target.suffix == ".gz":
            with gzip.GzipFile("", "wb", fileobj=sink, mtime=0) as packed:
                packed.writelines(counted)
        else:
            sink.writelines(counted)
    print(f"{target}: {format_bytes(target.stat().st_size)}; open it at https://ui.perfetto.dev")
