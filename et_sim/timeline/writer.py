"""Writer of a run's directory: all of it, or nothing.

Files are written into a directory beside the target, which replaces the target only when it is complete. A
killed run leaves no directory that looks like a result.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from et_sim.basics.errors import UsageError
from et_sim.basics.files import draft_folder, exists, is_folder
from et_sim.basics.json_text import indented
from et_sim.tables.registry import MANIFEST, STALL, SUMMARY, all_files, all_tables
from et_sim.timeline.output_filter import EVERYTHING, OutputFilter
from et_sim.timeline.recorded import RecordedRun

_LONGEST_NAME = 200  # bytes; leaves space for the name of a draft beside it
MANY_ROWS = 1 << 15  # of a batch; threads that compress a shorter one cost more than the compression


def check_target(target: Path) -> None:
    """Refuse a target that holds something other than an earlier run, or that cannot be written."""
    _check_place(target)
    if not exists(target):
        return
    if not is_folder(target):
        raise UsageError(f"{target} is a file", remedy="name a directory with --out")
    if target.samefile(Path.cwd()):
        raise _cannot_write(target, "it is the current directory")
    names = sorted(path.name for path in target.iterdir())
    if names and not _is_run(target):
        raise UsageError(
            f"{target} is not empty and does not hold an earlier run",
            remedy="choose another directory with --out; nothing was overwritten",
        )
    foreign = [name for name in names if name not in all_files()]
    if foreign:
        raise UsageError(
            f"{target} holds an earlier run and also {foreign[0]!r}, which et-sim did not write",
            remedy="move it away, or choose another directory with --out; nothing was overwritten",
        )


def _is_run(folder: Path) -> bool:
    """Return whether et-sim wrote the folder, by its manifest."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(manifest, dict) and "et_sim" in manifest


def _check_place(target: Path) -> None:
    """Check before the simulation that the result can be written."""
    if len(os.fsencode(target.name)) > _LONGEST_NAME:
        raise _cannot_write(target, f"its name has {len(target.name)} characters")
    above = next(folder for folder in target.absolute().parents if exists(folder))
    if not is_folder(above):
        raise _cannot_write(target, f"{above} is a file")
    if not os.access(above, os.W_OK | os.X_OK):
        raise _cannot_write(target, f"{above} is not writable")


def _cannot_write(target: Path, reason: str) -> UsageError:
    return UsageError(
        f"cannot be written: {reason}", place=str(target), remedy="choose another directory with --out"
    )


def write_run(
    result: RecordedRun,
    target: Path,
    stall: dict[str, Any] | None = None,
    output_filter: OutputFilter = EVERYTHING,
) -> None:
    """Write a run's directory in place of `target`, with the rows of its tables that the filter keeps."""
    output_filter.check_ranks(result.workload.ranks)
    with new_folder(target) as (draft, target):
        _write_files(result, draft, target, stall, output_filter)


@contextmanager
def new_folder(target: Path) -> Iterator[tuple[Path, Path]]:
    """Yield a draft that replaces `target` when it is complete, and the real path of `target`."""
    check_target(target)
    target = target.resolve()  # behind a link, the directory that it points to is replaced
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with draft_folder(target) as folder:
            draft = folder / "new"
            draft.mkdir()
            yield draft, target
            _take_place(draft, target, folder / "old")
    except OSError as error:
        raise _cannot_write(target, error.strerror or str(error)) from None


def _take_place(draft: Path, target: Path, old: Path) -> None:
    if exists(target):
        target.rename(old)
    try:
        draft.rename(target)
    except BaseException:
        if exists(old):
            old.rename(target)
        raise


def _write_files(
    result: RecordedRun, folder: Path, target: Path, stall: dict[str, Any] | None, output_filter: OutputFilter
) -> None:
    from et_sim.timeline.arrow_tables import filled

    for table in all_tables():
        content = filled(table, result, output_filter)
        if content is not None:
            write_table(folder / table.file, content.schema, content.batches(), output_filter)
    write_json(result.summary(), folder / SUMMARY)
    if stall is not None:
        write_json(stall, folder / STALL)
    more = {"recorded_part": output_filter.as_dict()} if output_filter.as_dict() else {}
    if result.command is not None:
        files = {name: os.path.relpath(path, target) for name, path in result.command["files"].items()}
        more["command"] = {**result.command, "files": files}
    write_json({**result.manifest, **more}, folder / MANIFEST)


def write_table(
    path: Path, schema: Any, batches: Iterable[Any], output_filter: OutputFilter = EVERYTHING
) -> None:
    """Write a file of these batches, which must share their dictionaries."""
    import pyarrow as pa

    later = iter(batches)
    first = next(later, None)
    are_many = first is not None and first.num_rows >= MANY_ROWS
    options = pa.ipc.IpcWriteOptions(compression=output_filter.codec, use_threads=are_many)
    with path.open("wb") as sink, pa.ipc.new_file(sink, schema, options=options) as out:
        if first is not None:
            out.write_batch(first)
            _write_batches(out, later)


def _write_batches(out: Any, batches: Iterator[Any]) -> None:
    """Write batches, and compress one while the next one is made; there are never more than two."""
    batch = next(batches, None)
    if batch is None:
        return
    from concurrent.futures import ThreadPoolExecutor  # importing it takes longer than a small run writes

    with ThreadPoolExecutor(max_workers=1) as writer:
        while batch is not None:
            under_way = writer.submit(out.write_batch, batch)
            batch = next(batches, None)
            under_way.result()


def write_json(content: Mapping[str, Any], path: Path) -> None:
    """Write an indented JSON file."""
    path.write_text(indented(content) + "\n", encoding="utf-8")
