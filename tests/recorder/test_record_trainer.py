"""Hugging Face's Trainer is recorded with accumulation, autocast, logging, DDP and FSDP2."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest
from recording_here import needs_torch, record

needs_torch()
if find_spec("transformers") is None or find_spec("accelerate") is None:
    pytest.skip("transformers and accelerate are not both installed", allow_module_level=True)

WORLD, WIDTH, INNER, LAYERS, VOCABULARY = 8, 256, 512, 2, 1000
LAYER = 4 * WIDTH * WIDTH + 3 * WIDTH * INNER + 2 * WIDTH
WEIGHTS = LAYERS * LAYER + 2 * VOCABULARY * WIDTH + WIDTH
TENSORS = LAYERS * 9 + 3
ADAMW = 15  # operations for each weight
UPDATE = "step 1 optimizer _fused_adamw_"
BATCHES = 2  # accumulated in a step


def _updated(folder: Path, kind: str) -> tuple[int, dict[tuple[str, str], int]]:
    """Return the weights that a rank updates in the second step, and the bytes that it communicates in it."""
    recording = record(folder, "trainer.py", kind, str(folder / "out"), world=WORLD)
    assert recording.report["ranks"][0]["weights"] == WEIGHTS
    trace = recording.workload.templates[0]
    updates = [
        row for row in range(len(trace.kind)) if trace.node_name(row) == "step 1 optimizer _fused_adamw_"
    ]
    of_step = [
        collective for collective in recording.report["ranks"][0]["collectives"] if collective["step"] == 1
    ]
    return sum(int(trace.num_ops[row]) for row in updates) // ADAMW, {
        (entry["phase"], entry["kind"]): entry["bytes"] for entry in of_step
    }


def test_a_trainer_with_ddp_reduces_all_gradients_and_marks_of_use_once_a_step(tmp_path: Path) -> None:
    weights, communicated = _updated(tmp_path, "ddp")
    assert weights == WEIGHTS
    assert communicated["backward", "all_reduce"] == 4 * WEIGHTS + 4 * TENSORS


def test_a_trainer_with_fsdp_updates_the_weights_that_the_rank_owns(tmp_path: Path) -> None:
    weights, communicated = _updated(tmp_path, "fsdp")
    assert weights == WEIGHTS // WORLD
    assert communicated["backward", "reduce_scatter"] == 2 * WEIGHTS
    counts_of_tokens = 16
    assert communicated["forward", "all_gather"] == BATCHES * 2 * WEIGHTS // WORLD + counts_of_tokens
