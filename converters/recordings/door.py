"""Recognition of recordings by content, and the refusal of everything else."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

from converters import recordings
from converters.recordings.format import REFUSED, RecordingFormat, RecordingTask, first_bytes
from et_sim.basics.errors import InputError, UsageError
from et_sim.basics.files import exists, is_folder
from et_sim.basics.units import plural

MOST_FILES = 100_000
MOST_NAMED = 3  # files in a message


def formats() -> list[RecordingFormat]:
    """Return all formats, ordered by the names of their modules."""
    names = sorted(module.name for module in iter_modules(recordings.__path__))
    modules = (import_module(f"{recordings.__name__}.{name}") for name in names)
    declared = (getattr(module, "FORMAT", None) for module in modules)
    return [form for form in declared if form is not None]


def format_of_file(path: Path) -> RecordingFormat | None:
    """Return the format of a file, if it is known."""
    begin = first_bytes(path)
    return next((known for known in formats() if begin and known.recognises(path, begin)), None)


def read_recording(path: Path, output: str, *, as_json: bool) -> Iterator[str]:
    """Recognise a file or folder, convert it, and yield the lines to print."""
    if not exists(path):
        raise UsageError("does not exist", place=str(path), remedy="name a file or folder that exists")
    if output.rpartition("/")[2] in ("", ".", "..") and output:
        remedy = f"add the beginning of the names: -o {output.rstrip('/')}/job"
        raise UsageError(f"-o {output} names a folder", remedy=remedy)
    files = _files(path)
    by_format: dict[str, list[Path]] = {}
    known: dict[str, RecordingFormat] = {}
    others = []
    for file in files:
        form = format_of_file(file)
        if form is None:
            others.append(file)
        else:
            known[form.name] = form
            by_format.setdefault(form.name, []).append(file)
    if not known:
        raise _unknown(path, files)
    if len(known) > 1:
        found = ", ".join(f"{plural(len(of), 'file')} of {name}" for name, of in by_format.items())
        remedy = "move each format to a folder of its own, and name one"
        raise InputError(f"holds several formats: {found}", place=str(path), remedy=remedy)
    ((name, form),) = known.items()
    yield from form.convert(RecordingTask(path, by_format[name], output, as_json))
    if others and not as_json:
        named = ", ".join(file.name for file in others[:MOST_NAMED])
        more = f" and {len(others) - MOST_NAMED} more" if len(others) > MOST_NAMED else ""
        yield f"note: not read, as no {name}: {named}{more}"


def _files(path: Path) -> list[Path]:
    if not is_folder(path):
        return [path]
    children = sorted(path.iterdir())
    files = [child for child in children if child.is_file()]
    is_of_ranks = len(files) <= MOST_FILES and all(format_of_file(file) is None for file in files)
    if is_of_ranks:  # a folder for each rank, and files beside these
        files += [
            file for child in children if child.is_dir() for file in sorted(child.iterdir()) if file.is_file()
        ]
    if len(files) > MOST_FILES:
        cause = f"the folder has {len(files):,} files"
        raise InputError(cause, place=str(path), remedy=f"the limit is {MOST_FILES:,}")
    return files


def _unknown(path: Path, files: list[Path]) -> InputError:
    if not files:
        cause = "neither the folder nor those directly in it have a file"
        return InputError(cause, place=str(path), remedy="name the folder that holds the recordings")
    from converters.recordings.refused import refusal_beside_nothing

    for file in files[:MOST_NAMED]:
        if (known := refusal_beside_nothing(file, first_bytes(file))) is not None:
            return known
    what = "the format is not recognised"
    if len(files) == 1 and not files[0].stat().st_size:
        what = "the file is empty"
    if len(files) > 1:
        what = f"none of its {len(files)} files has a known format"
    listed = "; ".join(form.name for form in formats() if form.name != REFUSED)
    return InputError(what, place=str(path), remedy=f"known formats: {listed}")
