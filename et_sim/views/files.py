"""Files that views write: complete, or not there.

Not here: the directory of a run (`et_sim.timeline.writer`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from et_sim.drafts import draft_folder
from et_sim.errors import UsageError


@contextmanager
def new_file(target: Path) -> Iterator[Any]:
    """A file to write bytes into, which takes its name when everything is written."""
    if not target.name:
        raise UsageError(f"{str(target)!r} is a directory", remedy="name a file in it")
    try:
        with draft_folder(target) as folder:
            draft = folder / target.name
            with draft.open("wb") as sink:
                yield sink
            draft.replace(target)
    except OSError as error:
        reason = error.strerror or str(error)
        raise UsageError(
            f"cannot be written: {reason}", place=str(target), remedy="name a writable file"
        ) from None


def write_json(content: Any, target: Path) -> None:
    """As text that people read."""
    with new_file(target) as sink:
        sink.write((json.dumps(content, indent=2, ensure_ascii=False) + "\n").encode())
