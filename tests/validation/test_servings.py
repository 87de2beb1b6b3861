"""Measured servings: rows become plans and loads; predictions, errors by group, and reasons."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from et_sim.cli import main
from et_sim.run.options import RunOptions
from et_sim.serving.batcher import Policy
from et_sim.serving.clients import Client
from et_sim.serving.engines.reading import read_engine
from et_sim.serving.replicas import BOTH, CachePool
from et_sim.serving.requests import Request
from et_sim.serving.serve import serve
from et_sim.validation.serving_rows import ServedRow, is_serving, read_servings
from et_sim.validation.servings import is_full, model_of, setup_of
from et_sim.workloads import Plan

TINY = {
    "model_type": "llama",
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "num_key_value_heads": 8,
    "vocab_size": 1024,
    "max_position_embeddings": 64,
}
ROW = {
    "concurrency": "2",
    "backend": "vllm",
    "backend_version": "0.12.0",
    "model_path": "meta-llama/Llama-3.1-8B-Instruct",
    "system": "h100_sxm",
    "precision": "",
    "mode": "agg",
    "isl": "1024",
    "osl": "1024",
    "gemm_quant_mode": "",
    "moe_quant_mode": "",
    "batch_size": "2",
    "tp_size": "2",
    "pp_size": "1",
    "attention_dp_size": "",
    "moe_tp_size": "1",
    "moe_ep_size": "1",
    "ttft_ms": "10",
    "tpot_ms": "5",
}
FP8 = {"gemm_quant_mode": "fp8_block", "moe_quant_mode": "fp8_block"}


def written(folder: Path, *rows: dict[str, str]) -> Path:
    path = folder / "serving.csv"
    columns = list(dict.fromkeys(key for row in rows for key in {**ROW, **row}))
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns)
        writer.writeheader()
        writer.writerows({**ROW, **row} for row in rows)
    return path


def read(folder: Path, **changes: str) -> ServedRow:
    (row,) = read_servings(written(folder, changes))
    return row


@pytest.mark.parametrize(
    ("changes", "plan", "machine"),
    [
        ({}, Plan(tensor=2, products="values", expert_products="values"), "h100-dgx:2"),
        (
            {"gemm_quant_mode": "fp8", "moe_quant_mode": "fp8", "system": "b200_sxm"},
            Plan(tensor=2, products="fp8", expert_products="fp8", cache_type="fp8"),
            "b200-dgx:2",
        ),
        (
            {"model_path": "Qwen/Qwen3-235B-A22B-FP8", "moe_tp_size": "4", **FP8},
            Plan(tensor=2, data=2, products="fp8-block", expert_products="fp8-block"),
            "h100-dgx:4",
        ),
        (
            {"model_path": "Qwen/Qwen3-235B-A22B-FP8", "tp_size": "4", "moe_ep_size": "4", **FP8},
            Plan(tensor=4, expert=4, products="fp8-block", expert_products="fp8-block"),
            "h100-dgx:4",
        ),
        (
            {"model_path": "Qwen/Qwen3-32B-FP8", "gemm_quant_mode": "fp8", "moe_quant_mode": "fp8"},
            Plan(tensor=2, products="fp8-block", expert_products="fp8-block"),
            "h100-dgx:2",
        ),
        (
            {"model_path": "deepseek-ai/DeepSeek-V3", "gemm_quant_mode": "fp8", "moe_quant_mode": "fp8"},
            Plan(tensor=2, products="fp8-block", expert_products="fp8-block", cache_type="fp8"),
            "h100-dgx:2",
        ),
        (
            {"model_path": "openai/gpt-oss-120b", "tp_size": "16", "moe_tp_size": "4", "moe_ep_size": "4"},
            Plan(tensor=4, expert=4, expert_products="mxfp4"),
            "h100-dgx:4",
        ),
        (
            {"attention_dp_size": "8", "tp_size": "1", "moe_ep_size": "8", "system": "gb200"},
            Plan(data=8, expert=8, products="values", expert_products="values"),
            "gb200-nvl72:8",
        ),
        (
            {"system": "rtx_pro_6000"},
            Plan(tensor=2, products="values", expert_products="values"),
            "rtx-pro-6000-node:2",
        ),
    ],
)
def test_a_row_becomes_a_plan_and_a_machine(
    changes: dict[str, str], plan: Plan, machine: str, tmp_path: Path
) -> None:
    case = read(tmp_path, **changes).case
    assert case is not None
    assert (case.plan, case.machine) == (plan, machine)


@pytest.mark.parametrize(
    ("path", "preset"),
    [
        ("Qwen/Qwen3-235B-A22B-FP8", "qwen3-235b-a22b"),
        ("nvidia/Llama-3.1-8B-Instruct-FP8", "llama3-8b"),
        ("meta-llama/Llama-3.3-70B-Instruct", "llama3-70b"),
        ("deepseek-ai/DeepSeek-R1-0528", "deepseek-v3"),
        ("nvidia/DeepSeek-R1-0528-NVFP4-v2", "deepseek-v3"),
        ("MiniMaxAI/MiniMax-M2.5", "minimax-m2"),
        ("moonshotai/Kimi-K2.5", "kimi-k2"),
        ("openai/gpt-oss-20b", "gpt-oss-20b"),
    ],
)
def test_a_path_on_a_hub_names_a_preset(path: str, preset: str, tmp_path: Path) -> None:
    case = read(tmp_path, model_path=path).case
    assert case is not None
    assert case.model == preset


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"model_path": "someone/New-1B-Instruct"}, "give models/new-1b.json beside the file"),
        ({"system": "x100_sxm"}, "no preset for the system 'x100_sxm'"),
        ({"gemm_quant_mode": "fp2"}, "products in fp2 cannot be expressed"),
        ({"tp_size": "two"}, "tp_size is 'two' (allowed: an integer"),
        ({"concurrency": "", "batch_size": ""}, "neither concurrency nor batch_size is stated"),
        ({"mode": "disagg"}, "need the columns prefill_tp_size, prefill_workers, decode_tp_size"),
        ({"mode": "both"}, "mode is 'both' (known: agg, disagg)"),
    ],
)
def test_a_row_that_is_not_expressed_has_a_reason(changes: dict[str, str], why: str, tmp_path: Path) -> None:
    row = read(tmp_path, **changes)
    assert row.case is None
    assert why in row.why


def test_separate_replicas_have_plans_of_their_own(tmp_path: Path) -> None:
    sides = {"prefill_tp_size": "1", "prefill_workers": "3", "decode_tp_size": "2", "decode_workers": "1"}
    case = read(tmp_path, mode="disagg", **sides).case
    assert case is not None
    assert (case.plan.tensor, case.decode_plan and case.decode_plan.tensor) == (1, 2)
    assert (case.replicas, case.machine) == ((3, 1), "h100-dgx:6")


def test_campaigns_follow_from_a_column_a_file_or_the_lengths(tmp_path: Path) -> None:
    path = written(tmp_path, {}, {"osl": "100"}, {"isl": "8192"})
    assert [row.campaign for row in read_servings(path)] == ["B", "A", "B"]
    assert [row.case.load.lengths for row in read_servings(path) if row.case] == [0.8, 1.0, 0.8]
    (tmp_path / "serving_rows.csv").write_text("row,campaign\n2,A\n3,B\n", encoding="utf-8")
    assert [row.campaign for row in read_servings(path)] == ["A", "B", "B"]


def tiny(folder: Path, *rows: dict[str, str]) -> Path:
    (folder / "models").mkdir()
    (folder / "models" / "tiny.json").write_text(json.dumps(TINY), encoding="utf-8")
    usual = {"model_path": "us/Tiny", "isl": "96", "osl": "8", "backend_version": ""}
    return written(folder, *({**usual, **row} for row in rows))


@pytest.mark.deep
def test_rows_are_predicted_as_serve_predicts_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tiny(tmp_path, {}, {"backend": "sglang", "ttft_ms": "x"}, {"system": "x100"}, {})
    assert is_serving(path.read_text(encoding="utf-8").splitlines()[0].split(","))
    assert main(["validate", str(path), "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    first, second, third, fourth = found["rows"]
    assert [row["row"] for row in found["rows"]] == [1, 2, 3, 4]
    assert (third["predicted_tpot_ms"], third["why"]) == (None, "no preset for the system 'x100'")
    assert (second["ttft_ms"], second["tpot_ms"]) == (None, 5.0)
    assert first["predicted_tpot_ms"] == fourth["predicted_tpot_ms"]
    case = read_servings(path)[0].case
    assert case is not None
    setup = setup_of(case, read_engine("vllm"))
    assert setup.client == Client(2, warm_up=2, is_spread=True)
    together = setup_of(case, read_engine("sglang"))  # no pass mixes prompts and tokens
    assert together.client == Client(2, warm_up=0)
    outcome = serve("closed:96,8", model_of(case), setup, RunOptions(machine="h100-dgx:2")).summary()
    assert first["predicted_ttft_ms"] == outcome["ttft_ns"]["mean"] / 1e6
    assert first["ttft_band_ms"] == [end / 1e6 for end in (outcome["bands"] or {})["ttft_ns"]]
    groups = {(line["by"], line["name"]): line for line in found["errors"]}
    assert (groups["all", "all"]["rows"], groups["all", "all"]["expressed"]) == (4, 3)
    ratio = first["predicted_tpot_ms"] / 5
    assert groups["engine", "vllm"]["tpot_mape"] == pytest.approx(100 * abs(ratio - 1))


@pytest.mark.deep
def test_errors_are_printed_by_group_with_the_reasons(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tiny(tmp_path, {}, {"system": "x100"})
    assert main(["validate", str(path)]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    for text in ("TPOT MAPE %", "campaign A", "engine vllm", "GPU h100_sxm", "model us/Tiny"):
        assert text in printed
    assert "not predicted: 1 row, row 2: no preset for the system 'x100'" in printed


@pytest.mark.parametrize(
    ("passes", "used", "preemptions", "is_too_full"),
    [
        ([(0, 1)] * 5 + [(1, 4)] * 5, 9, 0, False),  # small batches with none that waits, and full ones
        ([(1, 3)] + [(0, 4)] * 9, 9, 0, False),
        ([(1, 3)] * 2 + [(0, 4)] * 8, 9, 0, True),
        ([(1, 3)] * 2 + [(0, 4)] * 8, 8, 0, False),  # there is room for the shortest prompt
        ([(0, 4)] * 10, 0, 1, True),
    ],
)
def test_caches_are_full_where_requests_wait_for_room_beside_a_batch_with_places(
    passes: list[tuple[int, int]], used: int, preemptions: int, is_too_full: bool
) -> None:
    iterations = [
        SimpleNamespace(waiting=waiting, sequences=sequences, used_blocks=used)
        for waiting, sequences in passes
    ]
    served = [SimpleNamespace(preemptions=preemptions, request=Request(0, 0, 20, 1))]
    pool, policy = CachePool(BOTH, Plan(), 1, 0, 10, 1), Policy(block=16)
    outcome: Any = SimpleNamespace(iterations=iterations, served=served, pools=(pool,), policy=policy)
    assert is_full(outcome, 4) is is_too_full


@pytest.mark.parametrize(
    ("model", "more", "expected"),
    [
        ("meta-llama/Llama-3.1-70B", {}, (16_384, 20)),
        ("meta-llama/Llama-3.1-70B", {"osl": "8192"}, (16_384, 0)),
        ("meta-llama/Llama-3.1-70B", {"tp_size": "8"}, (16_384, 0)),
        ("openai/gpt-oss-120b", {}, (20_000, 0)),
        ("deepseek-ai/DeepSeek-V3", {"tp_size": "8"}, (1152, 0)),
        ("deepseek-ai/DeepSeek-V3", {"tp_size": "8", "backend_version": "1.3.0rc14"}, (8192, 0)),
    ],
)
def test_campaign_b_has_settings_of_its_scripts(
    tmp_path: Path, model: str, more: dict[str, str], expected: tuple[int, int]
) -> None:
    usual = {"backend": "trtllm", "backend_version": "", "model_path": model, "osl": "1024"}
    for campaign, lengths in (("B", expected), ("A", (64 + 1024 + 1500, 0))):
        row = read(tmp_path, **{**usual, "concurrency": "64", "campaign": campaign, **more})
        assert row.case is not None
        policy = setup_of(row.case, read_engine("trtllm")).policy
        assert (policy.token_budget, policy.wait_passes) == lengths


@pytest.mark.parametrize(
    ("more", "policy", "budget", "is_spread"),
    [
        ({}, "chunked", 2500, True),
        ({"isl": "8000"}, "chunked", 8192, True),
        ({"isl": "1024"}, "prefill-first-chunked", 8192, False),
        ({"isl": "8000", "campaign": "B"}, "prefill-first-chunked", 8192, False),
        ({"backend": "vllm"}, "chunked", 8192, True),
        ({"backend": "trtllm"}, "whole-prompts", 64 + 1000 + 1500, False),
    ],
)
def test_servings_of_campaign_a_have_the_settings_that_aiconfigurator_generates(
    tmp_path: Path, more: dict[str, str], policy: str, budget: int, is_spread: bool
) -> None:
    usual = {"backend": "sglang", "isl": "1000", "osl": "100", "campaign": "A", "concurrency": "64"}
    row = read(tmp_path, **{**usual, **more})
    assert row.case is not None
    found = setup_of(row.case, read_engine(row.backend))
    assert (found.policy.name, found.policy.token_budget) == (policy, budget)
    assert found.client.is_spread is is_spread


@pytest.mark.parametrize(
    ("more", "prepares", "share"),
    [
        ({}, False, 0.8),
        ({"backend_version": "1.2.0rc6.post1"}, True, None),
        ({"backend_version": ""}, True, None),
        ({"campaign": "B", "osl": "1024"}, True, None),
    ],
)
def test_early_templates_of_campaign_a_prepare_no_pass_while_another_runs(
    tmp_path: Path, more: dict[str, str], prepares: bool, share: float | None
) -> None:
    usual = {"backend": "trtllm", "backend_version": "1.0.0rc3", "campaign": "A", "concurrency": "64"}
    row = read(tmp_path, **{**usual, **more})
    assert row.case is not None
    found = setup_of(row.case, read_engine(row.engine))
    assert (found.engine.host.prepares, found.memory_share) == (prepares, share)


def test_prompts_wait_as_a_description_of_the_engine_states_unless_scripts_do(tmp_path: Path) -> None:
    engine = replace(read_engine("trtllm"), wait_passes=7, wait_share=0.5, balance_passes=9)
    usual = {"backend": "trtllm", "backend_version": "", "osl": "1024", "concurrency": "64", "campaign": "B"}
    for model, waits in (("openai/gpt-oss-120b", (7, 0.5, 9)), ("meta-llama/Llama-3.1-70B", (20, 0.9, 9))):
        row = read(tmp_path, **{**usual, "model_path": model})
        assert row.case is not None
        policy = setup_of(row.case, engine).policy
        assert (policy.wait_passes, policy.wait_share, policy.balance_passes) == waits


def test_rows_of_deepseek_without_a_version_share_experts_and_have_parallel_attention_for_long_prompts(
    tmp_path: Path,
) -> None:
    usual = {"backend": "trtllm", "backend_version": "", "model_path": "deepseek-ai/DeepSeek-V3"}
    for concurrency, plan in (("32", (8, 1, 8)), ("64", (1, 8, 8))):
        more = {"isl": "8192", "osl": "1024", "tp_size": "8", "concurrency": concurrency}
        case = read(tmp_path, **usual, **more).case
        assert case is not None
        found = setup_of(case, read_engine("trtllm"))
        assert (found.plan.tensor, found.plan.data, found.plan.expert) == plan
        assert found.policy.balance_passes == (60 if concurrency == "64" else 0)
