"""Puts commit and date into wheels, for `et-sim --version`, and compiled code into those of a release.

A release names the folder that `python -m et_sim.compiled.ship` filled: `ET_SIM_SHIPPED=FOLDER pip wheel .`
It needs LLVM in place of Numba, which is its extra `compile`.
"""

from __future__ import annotations

import os
import runpy
import tempfile
from pathlib import Path
from typing import Any
from zipfile import ZipFile

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

SHIPPED, ARCHIVE, READER = "ET_SIM_SHIPPED", "bitcode.zip", "requires.txt"


class Needs(MetadataHookInterface):
    """What is installed beside et-sim."""

    def update(self, metadata: dict[str, Any]) -> None:
        """A release needs what reads its code; all others need the compiler."""
        compiler, named = self.config["compiler"], os.environ.get(SHIPPED)
        path = Path(named or "") / READER
        reads = path.read_text(encoding="utf-8").strip() if named and path.is_file() else compiler
        metadata["dependencies"] = [*self.config["dependencies"], reads]
        metadata["optional-dependencies"]["compile"] = [compiler]


class Hook(BuildHookInterface[Any]):
    """Asks what the sources say of themselves."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """An editable install asks git when it is asked, and compiles for itself."""
        if version == "editable":
            return
        build_data["force_include"].update(self._archive())
        said = runpy.run_path(str(Path(self.root) / "et_sim" / "version.py"))["commit"]()
        if not said:
            return
        self._folder = tempfile.TemporaryDirectory()
        kept = Path(self._folder.name) / "commit.txt"
        kept.write_text(f"{said}\n", encoding="utf-8")
        build_data["force_include"][str(kept)] = "et_sim/commit.txt"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002
        """The wheel has it."""
        if version != "editable" and hasattr(self, "_folder"):
            self._folder.cleanup()

    def _archive(self) -> dict[str, str]:
        """The archive of a release, and its place in the wheel."""
        named = os.environ.get(SHIPPED)
        if not named:
            return {}
        path = Path(named).absolute() / ARCHIVE
        if not path.is_file():
            raise ValueError(f"{SHIPPED}: there is no archive in {named}")
        sources = runpy.run_path(str(Path(self.root) / "et_sim" / "compiled" / "sources.py"))
        with ZipFile(path) as file:
            if file.comment.decode() != sources["source_digest"]():
                raise ValueError(f"{SHIPPED}: {path} is of other sources")
        return {str(path): f"et_sim/compiled/{path.name}"}
