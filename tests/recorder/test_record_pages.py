"""The page and the notebook on recording show the output of their commands and cells."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from notebook import outputs_of
from recording_here import needs_torch
from transcripts import REPOSITORY, Place, agrees, commands_of

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
