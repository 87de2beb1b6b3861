"""Puts commit and date into wheels, for `et-sim --version`."""

from __future__ import annotations

import runpy
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CommitHook(BuildHookInterface[Any]):
    """Asks what the sources say of themselves."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """An editable install asks git when it is asked."""
        said = runpy.run_path(str(Path(self.root) / "et_sim" / "version.py"))["commit"]()
        if version == "editable" or not said:
            return
        self._folder = tempfile.TemporaryDirectory()
        kept = Path(self._folder.name) / "commit.txt"
        kept.write_text(f"{said}\n", encoding="utf-8")
        build_data["force_include"][str(kept)] = "et_sim/commit.txt"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002
        """The wheel has it."""
        if version != "editable" and hasattr(self, "_folder"):
            self._folder.cleanup()
