"""Searches for fleets that serve: the space, what memory rules out, and the front of all that meet limits."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from typing import Any

import pytest

import et_sim
from et_sim.cli import main
from et_sim.sweeps.bounds import bounds_of_points
from et_sim.sweeps.serving_space import ServingSearch, counts
from et_sim.sweeps.state import NoSweepWatcher, plan_sweep
from et_sim.sweeps.sweep import carry_out
from et_sim.workloads.models.configuration import read_model

LOAD = "poisson:200,8,64,4"
EXPERTS = {
    "architectures": ["MixtralForCausalLM"],
    "model_type": "mixtral",
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_hidden_layers": 2,
    "num_local_experts": 4,
    "num_experts_per_tok": 2,
    "vocab_size": 1000,
    "max_position_embeddings": 4096,
}


def described(model: str, machine: str, **more: Any) -> dict[str, Any]:
    given = {"requests": LOAD, "engine": "vllm", **more}
    return ServingSearch(read_model(model), model, machine, **given).description()


def fleets(given: dict[str, Any]) -> list[tuple[Any, ...]]:
    axes = given["axes"]
    return list(zip(*(axes[name]["values"] for name in given["zip"][0]), strict=True))


def test_a_dense_model_has_replicas_together_and_apart() -> None:
    given = described("gpt2", "h100-dgx:4")
    assert given["zip"] == [["tp", "replicas", "prefill", "decode"]]
    apart = [(1, 1), (1, 2), (1, 3), (2, 1), (2, 2), (3, 1)]
    assert fleets(given) == [
        *((1, count, None, None) for count in (1, 2, 3, 4)),
        *((1, None, *pair) for pair in apart),
        *((2, count, None, None) for count in (1, 2)),
        (2, None, 1, 1),
        (4, 1, None, None),
    ]


def test_images_are_those_of_every_fleet() -> None:
    given = described("gemma3-4b", "h100-dgx:2", image_tokens=512)
    assert given["base"]["workload"]["image-tokens"] == 512
    assert "image-tokens" not in described("gemma3-4b", "h100-dgx:2")["base"]["workload"]


def test_a_model_with_experts_shares_them_or_spreads_them_over_all_ranks(tmp_path: Path) -> None:
    path = tmp_path / "moe.json"
    path.write_text(json.dumps(EXPERTS), encoding="utf-8")
    given = described(str(path), "h100-dgx:4")
    plans = {fleet[:3] for fleet in fleets(given)}
    assert plans == {(1, 1, 1), (1, 2, 2), (2, 1, 1), (2, 1, 2), (1, 4, 4), (2, 2, 4), (4, 1, 1), (4, 1, 4)}


@pytest.mark.parametrize(("digits", "found"), [(2, [1, 2, 3, 4, 6, 8, 12, 16]), (1, [1, 2, 4, 8, 16])])
def test_numbers_of_replicas_have_few_binary_digits(digits: int, found: list[int]) -> None:
    assert counts(17, digits) == found


def test_limits_are_conditions_and_engines_are_an_axis_without_one() -> None:
    given = described("gpt2", "h100-dgx:2", engine=None, ttft=1e9, good_share=0.9)
    assert given["search"]["constraints"] == ["keeps_up >= 1", "good_share >= 0.9"]
    assert given["base"]["workload"]["ttft"] == "1000000000ns"
    assert given["axes"]["engine"]["values"] == ["sglang", "trtllm", "vllm"]
    closed = described("gpt2", "h100-dgx:2", requests="closed:64,4", concurrency=(2, 8))
    assert closed["search"]["constraints"] == []
    assert closed["axes"]["under-way"] == {"field": "workload.concurrency", "values": [2, 8]}


def test_an_objective_replaces_the_front() -> None:
    assert described("gpt2", "h100-dgx:2", objective="npus")["search"]["minimise"] == ["ranks"]
    price = described("gpt2", "h100-dgx:2", objective="price")["search"]
    assert price["minimise"] == ["price_per_million_tokens"]
    assert "maximise" not in price


@pytest.mark.deep
def test_the_fewest_npus_are_found_without_serving_with_more(tmp_path: Path) -> None:
    """Serve with limits that two replicas of a rank meet, and one does not."""
    limits = {"ttft": 9e6, "good_share": 0.99, "requests": "constant:1000,24,64,4"}
    given = described("gpt2", "h100-dgx:4", objective="npus", **limits)
    report = carry_out(plan_sweep(given, searches=True), tmp_path / "found", workers=1)
    rows = {row["point"]: row for row in report.table.to_pylist()}
    (best,) = report.search.front
    fewest = rows[best]["ranks"]
    assert fewest > 1
    assert all(row["good_share"] < 0.99 for row in rows.values() if row["ranks"] < fewest)
    assert report.search.ruled_out > 0
    assert max(row["ranks"] for row in rows.values()) <= fewest + 1


@pytest.mark.deep
@pytest.mark.parametrize(
    ("objective", "column", "sign"),
    [("tokens", "output_tokens_per_s_per_rank", -1), ("price", "price_per_million_tokens", 1)],
)
def test_the_load_rules_out_fleets_that_are_too_large_and_none_of_the_best(
    objective: str, column: str, sign: int, tmp_path: Path
) -> None:
    given = described("gpt2", "h100-dgx:4", objective=objective, ttft=12e6, requests="constant:1000,24,64,4")
    report = carry_out(plan_sweep(given, searches=True), tmp_path / "found", workers=1)
    plan = plan_sweep(given, searches=True)
    bounds = bounds_of_points(plan.space, plan.points, NoSweepWatcher()).bounds
    space = {name: value for name, value in given.items() if name != "search"}
    rows = et_sim.sweep(space, workers=1, progress=False).table.to_pylist()
    for row in rows:
        assert sign * bounds[row["point"]][column] <= sign * row[column]
    good = [row for row in rows if row["good_share"] >= 0.99 and row["keeps_up"]]
    best = min(sign * row[column] for row in good)
    assert {sign * row[column] for row in rows if row["point"] in report.search.front} == {best}
    assert report.search.ruled_out > 0


def test_a_load_that_comes_in_a_time_bounds_the_tokens_of_an_npu() -> None:
    """Check 24 requests of 4 tokens within 23 ms, and a closed loop, which may take any time."""
    plan = plan_sweep(described("gpt2", "h100-dgx:2", requests="constant:1000,24,64,4"), searches=True)
    found = bounds_of_points(plan.space, plan.points, NoSweepWatcher()).bounds
    for bound in found.values():
        most = bound["output_tokens_per_s_per_rank"] * bound["ranks"]
        assert most == pytest.approx(24 * 4 / 0.023, rel=1e-6)
        assert bound["price_per_million_tokens"] > 0
    plan = plan_sweep(
        described("gpt2", "h100-dgx:2", requests="closed:64,4", concurrency=(2,)), searches=True
    )
    closed = bounds_of_points(plan.space, plan.points, NoSweepWatcher()).bounds
    assert all(set(bound) == {"ranks"} for bound in closed.values())


def test_memory_rules_out_replicas_before_they_are_simulated() -> None:
    plan = plan_sweep(described("llama3-70b", "h100-dgx:8"), searches=True)
    found = bounds_of_points(plan.space, plan.points, NoSweepWatcher())
    assert {"the weights of llama3-70b take" in str(error) for error in found.refusals.values()} == {True}
    ruled_out = {plan.named(plan.points[number])["tp"] for number in found.refusals}
    left = {plan.named(point)["tp"] for point in plan.points if point.number not in found.refusals}
    assert (ruled_out, left) == ({1}, {2, 4, 8})  # of 141 GB, two NPUs hold half each


@pytest.mark.deep
def test_the_front_is_that_of_all_fleets_that_meet_the_limits(tmp_path: Path) -> None:
    given = described("gpt2", "h100-dgx:4", ttft=12e6, tpot=1e6, good_share=0.75)
    report = carry_out(plan_sweep(given, searches=True), tmp_path / "found", workers=1)
    space = {name: value for name, value in given.items() if name != "search"}
    rows = et_sim.sweep(space, workers=1, progress=False).table.to_pylist()
    names = given["search"]["maximise"]
    good = {
        row["point"]: tuple(row[name] for name in names)
        for row in rows
        if row["status"] == "complete" and row["good_share"] >= 0.75 and row["keeps_up"]
    }
    beaten = {
        one
        for one, other in product(good, good)
        if good[one] != good[other] and all(a <= b for a, b in zip(good[one], good[other], strict=True))
    }
    assert good
    assert {*report.search.front} <= {*good} - beaten
    assert {good[number] for number in report.search.front} == {good[number] for number in {*good} - beaten}


@pytest.mark.deep
def test_a_search_from_the_command_line_prints_the_front(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["--model", "gpt2", "--machine", "h100-dgx:2", "--engine", "vllm", "--workers", "1"]
    assert main(["search", *words, "--serve", LOAD, "--ttft", "1s"]) == 0
    printed = capsys.readouterr()
    assert "gpt2 on h100-dgx:2: requests of poisson:200,8,64,4, 99 % of them within ttft 1 s" in printed.err
    assert "output tokens/s/NPU  tokens/s/user" in printed.out
    assert main(["search", *words, "--serve", LOAD, "--ttft", "1us", "--out", "strict"]) == 1


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--serve", LOAD], "--serve belongs to --model"),
        (["--model", "gpt2", "--serve", LOAD], "--model requires --machine"),
        (["--model", "gpt2", "--machine", "h100-dgx:2", "--ttft", "1s"], "--ttft belongs to --serve"),
        (
            ["--model", "gpt2", "--machine", "h100-dgx:2", "--serve", LOAD, "--global-batch", "8"],
            "--global-batch is about training, and --serve is given",
        ),
        (
            ["--model", "gpt2", "--machine", "h100-dgx:2", "--serve", LOAD, "--good-share", "0.9"],
            "--good-share requires --ttft or --tpot",
        ),
        (
            ["--model", "gpt2", "--machine", "h100-dgx:2", "--image-tokens", "9"],
            "--image-tokens belongs to --serve",
        ),
        (
            ["--model", "gpt2", "--machine", "h100-dgx:2", "--serve", LOAD, "--image-tokens", "9"],
            'gpt2 has no "vision_config"',
        ),
        (["--model", "gpt2", "--machine", "h100-dgx:2", "--serve", "none.csv"], "none.csv: there is no such"),
        (
            ["--model", "llama3-70b", "--machine", "h100-dgx:1", "--serve", LOAD],
            "the weights of llama3-70b take",
        ),
    ],
)
def test_options_of_other_searches_are_refused(
    words: list[str],
    sentence: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["search", *words]) == 2
    assert sentence in capsys.readouterr().err
