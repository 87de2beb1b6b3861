"""`et-convert recording`: what a real job left behind, in any known format, to traces or a report."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from converters.commands import JsonReport
from et_sim.basics.declared_options import Argument, Command, Option


class Options(Command):
    """Read a file or a folder of files that a job left behind. The format follows from the content; a format
    that describes no work gives a report instead of traces. Anything unknown is refused with the list of
    formats."""

    input: Annotated[Path, "a recording, or a folder with those of many ranks", "FILE|DIR", Argument()]
    output: Annotated[str | None, "write PREFIX.<rank>.et", "PREFIX", Option("-o --output")] = None
    json: JsonReport = False


def run(options: Options) -> Iterator[str]:
    """Recognise, convert and report."""
    from converters.recordings.door import read_recording

    yield from read_recording(options.input, options.output or "", as_json=options.json)
