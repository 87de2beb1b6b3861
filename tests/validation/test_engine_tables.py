"""The tables of engines' errors in the documentation are those of the kept folds."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.deep
def test_pages_have_the_errors_of_the_kept_folds() -> None:
    program, kept = ROOT / "benchmarks" / "fit_serving.py", ROOT / "benchmarks" / "serving_folds.json"
    command = [sys.executable, str(program), str(kept), "--table"]
    table = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert {line.split(" | ")[0] for line in table.splitlines()[2:]} == {
        "| `sglang`",
        "| `trtllm`",
        "| `vllm`",
    }
    for page in ("docs/engines.md", "benchmarks/README.md"):
        assert table in (ROOT / page).read_text(encoding="utf-8")
