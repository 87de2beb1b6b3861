"""Recordings of programs of this folder, if PyTorch is installed."""

from __future__ import annotations

import json
from contextlib import nullcontext
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from forked import ranks_are_forked

from et_sim.trace import Workload, read_workload
from recorder.cli import main

PROGRAMS = Path(__file__).parent / "programs"


def needs_torch() -> None:
    """Skip the module that calls this where PyTorch is not installed."""
    if find_spec("torch") is None:
        pytest.skip("PyTorch is not installed (extra: record)", allow_module_level=True)


class Recording(NamedTuple):
    """The files that the command wrote."""

    workload: Workload
    report: dict[str, Any]
    manifest: Path

    def counted(self, rank: int = 0) -> list[tuple[str, str, str, int, int]]:
        """Return phase, group, kind, number and bytes of the communication of a recorded rank."""
        of_rank = next(entry for entry in self.report["ranks"] if entry["rank"] == rank)
        return [
            (
                collective["phase"],
                collective["group"],
                collective["kind"],
                collective["count"],
                collective["bytes"],
            )
            for collective in of_rank["collectives"]
        ]

    def remarks(self, kind: str) -> list[dict[str, Any]]:
        """Return the remarks of one kind of the first recorded rank."""
        return [remark for remark in self.report["ranks"][0]["remarks"] if remark["kind"] == kind]


def record(
    folder: Path,
    program: str,
    *arguments: str,
    world: int,
    options: tuple[str, ...] = (),
    is_forked: bool = True,
) -> Recording:
    """Run `et-record` on a program, with forked processes or its own ones."""
    manifest, report = folder / "job.workload.json", folder / "report.json"
    command = ("--world", str(world), "-o", str(manifest), "--report", str(report), *options)
    with ranks_are_forked() if is_forked else nullcontext():
        assert main([*command, str(PROGRAMS / program), *arguments]) == 0
    return Recording(read_workload(manifest), json.loads(report.read_text()), manifest)
