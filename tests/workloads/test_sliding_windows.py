"""Attention over a sliding window: the layers that have one, and the number of scores."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from training_jobs import decoder

from et_sim.basics.errors import UsageError
from et_sim.cli import main
from et_sim.trace import Trace
from et_sim.workloads import Model, Plan, make_training, read_model
from et_sim.workloads.models.configuration import PRESETS
from et_sim.workloads.training.blocks import QuerySight

MISTRAL = json.loads((PRESETS / "llama3-8b.json").read_text()) | {"model_type": "mistral"}
SLIDING, FULL = "sliding_attention", "full_attention"


def configured(folder: Path, **keys: Any) -> Model:
    path = folder / "config.json"
    path.write_text(json.dumps(MISTRAL | {"num_hidden_layers": 4} | keys))
    return read_model(str(path))


def scores(trace: Trace) -> int:
    """Return the operations of attention's core."""
    is_core = np.array([name.endswith(" attention") for name in trace.names])[trace.name]
    return int(trace.num_ops[is_core].sum())


@given(st.integers(1, 40), st.integers(0, 50))
def test_a_query_sees_itself_and_those_before_it_in_the_window(sequence: int, window: int) -> None:
    seen = [
        (query, key)
        for query in range(sequence)
        for key in range(query + 1)
        if not window or key > query - window
    ]
    assert QuerySight(sequence, is_causal=True, window=window).pairs(sequence) == len(seen)


@given(
    st.integers(1, 31),
    st.sampled_from([{}, {"tensor": 2}, {"context": 2, "context_attention": "all-to-all"}]),
)
def test_operations_of_attention_are_those_of_the_scores_in_the_window(
    window: int, how: dict[str, Any]
) -> None:
    model = replace(decoder(), windows=(window, 0))
    plan = Plan(**how, micro_batches=3)
    workload = make_training(model, plan)
    seen = sum(QuerySight(32, is_causal=True, window=width).pairs(32) for width in (window, 0, window, 0))
    attention = model.attention
    sizes = 4 * attention.query_size + 3 * attention.value_size
    exact = 2 * 3 * seen * attention.heads * sizes
    result = scores(workload.templates[0]) * workload.ranks
    assert exact - 3 * 8 * 7 * 2 * 2 * sizes <= result <= exact  # a rank's share is cut to whole scores


@pytest.mark.parametrize(
    ("keys", "windows"),
    [
        ({}, [0, 0, 0, 0]),
        ({"sliding_window": None}, [0, 0, 0, 0]),
        ({"sliding_window": 4096}, [4096] * 4),
        ({"sliding_window": 8192}, [0, 0, 0, 0]),  # as long as the sequence
        ({"sliding_window": 64, "layer_types": [SLIDING, FULL, SLIDING, FULL]}, [64, 0, 64, 0]),
        ({"sliding_window": 64, "sliding_window_pattern": 3}, [64, 64, 0, 64]),
        ({"sliding_window": 64, "use_sliding_window": False, "max_window_layers": 2}, [0, 0, 0, 0]),
        ({"sliding_window": 64, "use_sliding_window": True, "max_window_layers": 3}, [0, 0, 0, 64]),
        ({"model_type": "qwen2", "sliding_window": 64}, [0, 0, 0, 0]),  # Qwen needs the key below
        ({"model_type": "qwen2", "sliding_window": 64, "use_sliding_window": True}, [64] * 4),
    ],
)
def test_files_set_the_layers_with_a_window(keys: dict[str, Any], windows: list[int], tmp_path: Path) -> None:
    model = configured(tmp_path, **keys)
    assert [model.window(layer) for layer in range(4)] == windows


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"sliding_window": 0}, 'key "sliding_window" is 0 (give a whole number from 1 up)'),
        ({"sliding_window": "4k"}, "key \"sliding_window\" is '4k'"),
        ({"sliding_window": 64, "layer_types": [SLIDING]}, 'key "layer_types" is not a list of 4 words'),
        ({"layer_types": [SLIDING] * 4}, 'missing key "sliding_window" (add it, a number of tokens)'),
        ({"layer_types": ["chunked_attention"] * 4}, "has 'chunked_attention' (known: sliding_attention"),
        ({"sliding_window": 64, "use_sliding_window": "no"}, "key \"use_sliding_window\" is 'no'"),
    ],
)
def test_windows_that_make_no_sense_are_refused(keys: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        configured(tmp_path, **keys)
    assert message in str(caught.value)


def test_windows_without_support_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "config.json"
    content = json.loads((PRESETS / "gpt2.json").read_text())
    path.write_text(json.dumps(content | {"sliding_window": 64}))
    assert main(["plan", "--model", str(path)]) == 2
    assert 'key "sliding_window" is not supported by gpt2' in capsys.readouterr().err
    path.write_text(json.dumps(MISTRAL | {"sliding_window": 64}))
    assert main(["plan", "--model", str(path), "--cp", "2"]) == 2
    assert "see 64 tokens only, which --context-attention ring does not support" in capsys.readouterr().err
    path.write_text(json.dumps(MISTRAL | {"sliding_window": 64, "sliding_window_pattern": 2}))
    assert main(["plan", "--model", str(path), "--layers", "2"]) == 2
    assert "see windows of different sizes" in capsys.readouterr().err
