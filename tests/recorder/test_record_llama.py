"""Llama 3 8B under FSDP2 and tensor parallelism is recorded to the last byte and operation."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from recording_here import Recording, needs_torch, record

from et_sim.cli import main
from et_sim.trace import NodeKind

needs_torch()
if find_spec("transformers") is None:
    pytest.skip("transformers is not installed", allow_module_level=True)

WIDTH, INNER, VALUES, VOCABULARY = 4096, 14336, 1024, 128256
TENSOR, DATA, TOKENS = 8, 128, 8192
PRODUCTS = 2 * WIDTH * WIDTH + 2 * WIDTH * VALUES + 3 * WIDTH * INNER  # weights of a layer's products


def _expected(layers: int) -> dict[str, int]:
    """Return the expected figures of one step of a rank, by the program."""
    of_layers = layers * (PRODUCTS // TENSOR + 2 * WIDTH) // DATA  # weights of a shard
    rows = -(-VOCABULARY // TENSOR // DATA)  # of an embedding: FSDP2 fills up to equal shards
    shard = of_layers + 2 * rows * WIDTH + WIDTH // DATA
    return {
        "weights": layers * (PRODUCTS + 2 * WIDTH) + 2 * VOCABULARY * WIDTH + WIDTH,
        "products": 3 * 2 * TOKENS * (layers * PRODUCTS + VOCABULARY * WIDTH) // TENSOR,
        "gathered forward": 2 * shard,
        "gathered backward": 2 * of_layers,
        "scattered": 4 * DATA * shard,
        "reduced forward": 2 * layers + 1,
        "reduced backward": 5 * layers + 1,
    }


def test_the_rule_gives_the_figures_of_the_whole_model() -> None:
    assert _expected(32) == {
        "weights": 8_030_261_248,
        "products": 46_108_621_406_208,
        "gathered forward": 15_700_032,
        "gathered backward": 13_635_584,
        "scattered": 4_019_208_192,
        "reduced forward": 65,
        "reduced backward": 161,
    }


LAYERS = 2


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    folder = tmp_path_factory.mktemp("llama")
    return record(folder, "llama.py", str(LAYERS), world=TENSOR * DATA, options=("--step", "1"))


def test_a_model_of_few_layers_follows_the_rule(recording: Recording) -> None:
    trace = recording.workload.templates[0]
    words = np.array(trace.layer_shapes)[trace.layer_shape]
    is_product = (trace.kind == NodeKind.COMP) & np.char.startswith(words, "gemm")
    of_rank = recording.report["ranks"][0]
    second = {
        (collective["phase"], collective["group"], collective["kind"]): collective
        for collective in of_rank["collectives"]
        if collective["step"] == 1
    }
    assert _expected(LAYERS) == {
        "weights": of_rank["weights"],
        "products": int(trace.num_ops[is_product].sum()),
        "gathered forward": second["forward", "mesh_dp", "all_gather"]["bytes"],
        "gathered backward": second["backward", "mesh_dp", "all_gather"]["bytes"],
        "scattered": second["backward", "mesh_dp", "reduce_scatter"]["bytes"],
        "reduced forward": second["forward", "mesh_tp", "all_reduce"]["count"],
        "reduced backward": second["backward", "mesh_tp", "all_reduce"]["count"],
    }


def test_operators_beyond_the_plan_are_named(
    recording: Recording, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = tmp_path / "plan.workload.json"
    parts = ("--layers", str(LAYERS), "--tp", str(TENSOR), "--dp", str(DATA), "--zero", "3")
    tokens = ("--sequence", str(TOKENS), "--micro-batches", "1")
    assert main(["make", "llm", "--model", "llama3-8b", *parts, *tokens, "-o", str(plan)]) == 0
    capsys.readouterr()
    assert main(["compare", str(plan), str(recording.manifest), "--json"]) == 0
    work = {(load["kind"], load["members"]): load for load in json.loads(capsys.readouterr().out)["work"]}
    ranks = TENSOR * DATA
    reductions = work["all_reduce", TENSOR]["count"]
    assert reductions == {"a": ranks * (4 * LAYERS + 3), "b": ranks * (7 * LAYERS + 2)}
    norms = {"a": ranks * 2 * (2 * LAYERS + 1), "b": 0}  # the program does them in element-wise steps
    assert work["rmsnorm", None]["count"] == norms
    products = work["gemm", None]["operations"]
    assert products["a"] == products["b"] == ranks * _expected(LAYERS)["products"]
