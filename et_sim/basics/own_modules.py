"""Python files of users: models that the command line or a program names."""

from __future__ import annotations

import importlib
import sys
import traceback
from pathlib import Path
from typing import Any

from et_sim.basics.errors import UsageError


def module_in_file(path: Path, contents: str) -> Any:
    """Return the module in a file; its folder is added to Python's search path.

    `contents` names the expected contents for messages, such as "a network model".
    """
    if not path.is_file():
        raise UsageError(f"there is no file {path}", remedy=f"name a Python file with {contents}")
    name, folder = path.stem, str(path.parent.absolute())
    if folder not in sys.path:
        sys.path.append(folder)
    try:
        module = importlib.import_module(name)
    except (Exception, SystemExit) as error:
        place = mistake_in(path, error) or str(path)
        raise UsageError(f"{place} cannot be imported: {error}", remedy="correct it") from error
    where = getattr(module, "__file__", None)
    if where is None or Path(where).resolve() != path.resolve():
        raise UsageError(f"there is another Python module called {name}", remedy=f"rename {path}")
    return module


def mistake_in(path: Path, error: BaseException) -> str:
    """Return the file and line of a user's module that raised an exception; empty if another module did."""
    lines = [
        frame.lineno
        for frame in traceback.extract_tb(error.__traceback__)
        if Path(frame.filename).resolve() == path.resolve()
    ]
    return f"{path}, line {lines[-1]}" if lines else ""
