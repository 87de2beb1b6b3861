"""The page and the notebook on recording show the output of their commands and cells."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from notebook import outputs_of
from recording_here import needs_torch, record
from transcripts import REPOSITORY, Place, agrees, commands_of

import et_sim

needs_torch()

PAGE, NOTEBOOK = REPOSITORY / "docs" / "recording.md", REPOSITORY / "docs" / "recording.ipynb"


def test_every_command_prints_the_output_on_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ET_SIM_COMPILE", "now")
    place = Place(tmp_path)
    commands = [shown for shown in commands_of(PAGE.read_text(encoding="utf-8")) if not shown.is_installing]
    assert sum(command.text.startswith("et-record") for command in commands) == 2
    for command in commands:
        _, printed = place.run(command)
        if not agrees(command.shown, printed):
            assert printed == command.shown, "python tests/docs/transcripts.py docs/recording.md"


def test_every_cell_gives_the_outputs_that_are_shown(tmp_path: Path) -> None:
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    shutil.copy(NOTEBOOK.with_name("train.py"), tmp_path)
    shown = [cell["outputs"] for cell in cells if cell["cell_type"] == "code"]
    assert outputs_of(cells, tmp_path) == shown, "python tests/docs/notebook.py docs/recording.ipynb"


MEASURED_MS = 2457.5  # torchtitan, llama3_h100_202412: eight H100 at 500 W, compiled, bf16


@pytest.mark.deep
def test_the_measured_step_of_torchtitan_is_simulated_as_on_the_page(tmp_path: Path) -> None:
    options = ("--step", "1", "--software", "torchtitan")
    program = str(REPOSITORY / "docs" / "titan.py")
    workload = record(tmp_path, program, world=8, options=options).workload
    shown = PAGE.read_text(encoding="utf-8")
    for machine in ("h100-500w", "h100-dgx"):
        makespan_ms = et_sim.simulate(workload, machine=f"{machine}:8").makespan_ns / 1e6
        assert f"{makespan_ms / 1e3:.3f} s" in shown
        assert makespan_ms == pytest.approx(MEASURED_MS, rel=0.02 if machine == "h100-500w" else 0.16)
