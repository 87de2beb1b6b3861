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

# A mode with a lock that notes whether it is held, and the answer of one operator.
LOCKED = """
from recorder.process.operators import RecordingMode

class Lock:
    is_held = False

    def __enter__(self):
        self.is_held = True

    def __exit__(self, *_):
        self.is_held = False

mode = object.__new__(RecordingMode)
mode._fake, mode._is_paused, mode._lock = None, False, Lock()
mode._dispatch = lambda *_: mode._lock.is_held
assert RecordingMode.__torch_dispatch__(mode, None, ())
"""
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


def test_an_operator_is_recorded_while_those_of_other_threads_wait(tmp_path: Path) -> None:
    program = tmp_path / "locked.py"
    program.write_text(LOCKED)
    assert Forked([sys.executable, str(program)], os.environ).wait(timeout=600) == 0
