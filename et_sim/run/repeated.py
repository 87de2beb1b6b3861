"""The inputs of a run that is simulated again, from its manifest."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from et_sim.run.options import INSTEAD, RunOptions

FLAGS = ("fold", "ties_alike", "alone", "retime")


def repeated(manifest: Mapping[str, Any], folder: Path, model: str) -> tuple[str, RunOptions]:
    """Return the workload and the options of a run of files; `folder` is its directory."""
    command = manifest["command"]
    files: dict[str, Any] = {name: str(folder / path) for name, path in command["files"].items()}
    workload = files.pop("workload")
    given: dict[str, Any] = {name: command.get(name) for name in ("machine", "profile", *INSTEAD)}
    given |= {name: bool(command.get(name, False)) for name in FLAGS}
    return workload, RunOptions(**files, **given, model=model)
