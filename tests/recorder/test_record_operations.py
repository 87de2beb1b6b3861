"""Operations of recorded kernels are those of the formulas of PyTorch's FlopCounterMode."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
from forked import Forked
from recording_here import PROGRAMS, needs_torch

needs_torch()

WORKER = Path(__file__).parent / "flop_worker.py"
PARTS = "ddp,offload,mask,empty,recurrent,packed,batch,ctc,graph,cycles,short,layer"


@pytest.mark.deep
@pytest.mark.parametrize(
    ("program", "arguments", "world"),
    [
        ("common.py", (PARTS,), 8),
        ("compiled.py", ("module",), 2),
        ("careful_loop.py", ("hsdp",), 4),
        ("data_parallel.py", (), 2),
        ("experts.py", ("in-turn", "96"), 2),
        ("llama.py", ("1",), 8),
        ("remembering.py", ("checkpoints", "64", "32"), 8),
        ("sharded.py", ("2",), 4),
        ("trainer.py", ("ddp",), 2),
    ],
)
def test_every_operator_of_a_program_counts_as_in_pytorch(
    program: str, arguments: tuple[str, ...], world: int, tmp_path: Path
) -> None:
    """Compare all but causal attention, of which PyTorch counts positions that are not computed."""
    output = tmp_path / "counted.json"
    folder = (str(tmp_path),) if program == "trainer.py" else ()
    command = [sys.executable, str(WORKER), str(output), str(tmp_path), str(world)]
    process = Forked([*command, str(PROGRAMS / program), *arguments, *folder], os.environ)
    assert process.wait(timeout=600) == 0
    counted = json.loads(output.read_text())
    assert counted.pop("equal") > 0
    assert all(kind.startswith("causal: ") for kind in counted)
