"""Sweeps and searches over points that serve requests."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import et_sim
from et_sim.basics.errors import EtSimError, InputError
from et_sim.run.options import RunOptions
from et_sim.serving.described import ServingChoices, setup_of
from et_sim.serving.images import images_of
from et_sim.serving.serve import serve
from et_sim.sweeps.state import plan_sweep
from et_sim.sweeps.sweep import carry_out
from et_sim.workloads import Plan, read_model

LOAD = "poisson:50,12,64,4"
MODEL = read_model("gpt2")
RECIPE = {"make": "serving", "model": "gpt2", "requests": LOAD}


def spec(*, axes: dict[str, Any] | None = None, search: Any = None, **recipe: Any) -> dict[str, Any]:
    axes = axes or {
        "tp": {"field": "workload.plan.tp", "values": [1, 2]},
        "replicas": {"field": "workload.replicas", "values": [1, 2]},
    }
    given = {"base": {"workload": {**RECIPE, **recipe}, "machine": "h100-dgx:4"}, "axes": axes}
    return given if search is None else {**given, "search": search}


def rows_of(given: dict[str, Any]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = et_sim.sweep(given, workers=1, progress=False).table.to_pylist()
    return rows


def searched(given: dict[str, Any], folder: Path) -> Any:
    return carry_out(plan_sweep(given, searches=True), folder / "found", workers=1)


def test_a_row_has_the_figures_of_serving_by_itself() -> None:
    axes = {
        "tp": {"field": "workload.plan.tp", "values": [1, 2]},
        "replicas": {"field": "workload.replicas", "values": [2, 1]},
    }
    for row in rows_of({**spec(axes=axes), "zip": [["tp", "replicas"]]}):
        setup = setup_of(ServingChoices(replicas=row["replicas"]), Plan(tensor=row["tp"]), MODEL)
        of = serve(LOAD, MODEL, setup, RunOptions(machine="h100-dgx:4")).summary()
        npus = row["tp"] * row["replicas"]
        assert (row["status"], row["ranks"]) == ("complete", npus)
        assert row["makespan_ns"] == of["duration_ns"]
        assert row["output_tokens_per_s_per_rank"] == of["output_tokens_per_s"] / npus
        assert row["tokens_per_s_per_user"] == 1e9 / of["tpot_ns"]["mean"]
        assert (row["ttft_p99_ns"], row["tpot_p50_ns"]) == (of["ttft_ns"]["p99"], of["tpot_ns"]["p50"])
        assert row["price_per_million_tokens"] == of["costs"]["price_per_million_output_tokens"]


def test_a_row_with_images_has_the_figures_of_serving_them(tmp_path: Path) -> None:
    text = {
        "model_type": "gemma3_text",
        "hidden_size": 64,
        "num_hidden_layers": 1,
        "intermediate_size": 128,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 32,
        "vocab_size": 100,
        "max_position_embeddings": 512,
    }
    vision = {"hidden_size": 64, "num_hidden_layers": 1, "intermediate_size": 128, "num_attention_heads": 2}
    vision |= {"image_size": 224, "patch_size": 14}
    model = {"model_type": "gemma3", "text_config": text, "vision_config": vision}
    path = tmp_path / "images.json"
    path.write_text(json.dumps(model), encoding="utf-8")
    given = {"image_tokens": {"field": "workload.image-tokens", "values": [256, 512]}}
    rows = rows_of(spec(axes=given, model=str(path)))
    assert rows[0]["ttft_p50_ns"] > 0
    setup = replace(setup_of(ServingChoices(), Plan(), MODEL), images=images_of(256, str(path)))
    of = serve(LOAD, read_model(str(path)), setup, RunOptions(machine="h100-dgx:4")).summary()
    assert rows[0]["ttft_p99_ns"] == of["ttft_ns"]["p99"]
    assert rows[1]["status"] != "complete"  # with 512 tokens and its text, a prompt is longer than a sequence


def test_a_search_has_the_front_of_all_points_that_meet_the_objectives(tmp_path: Path) -> None:
    goal = {"maximise": ["output_tokens_per_s_per_rank", "tokens_per_s_per_user"]}
    report = searched(spec(search={**goal, "constraints": ["ttft_p99_ns <= 1s"]}), tmp_path)
    rows = {row["point"]: tuple(row[name] for name in goal["maximise"]) for row in report.table.to_pylist()}
    assert len(rows) == report.search.evaluated == 4
    beaten = {
        one
        for one, other in product(rows, rows)
        if rows[one] != rows[other] and all(a <= b for a, b in zip(rows[one], rows[other], strict=True))
    }
    assert {*report.search.front} == {*rows} - beaten
    assert report.search.method == "all"


def test_points_that_break_an_objective_are_not_on_the_front(tmp_path: Path) -> None:
    goal = {"minimise": ["ranks"], "constraints": ["tpot_p99_ns <= 1ns"]}
    assert searched(spec(search=goal), tmp_path).search.front == []


@pytest.mark.deep
def test_a_share_of_good_requests_may_be_a_condition(tmp_path: Path) -> None:
    goal = {"minimise": ["ranks"], "constraints": ["good_share >= 0.99"]}
    report = searched(spec(search=goal, ttft="1s", tpot="1s"), tmp_path)
    assert report.table["good_share"].to_pylist() == [1.0] * 4
    assert report.search.front == [0]


def test_caches_of_prefixes_and_transfers_are_axes() -> None:
    load = "sessions:20,3,2,40,4,0.01"
    axes = {
        "cached": {"field": "workload.prefix-cache", "values": [None, "all", 32]},
        "router": {"field": "workload.router", "values": [None, "prefix", None]},
    }
    rows = rows_of({**spec(axes=axes, requests=load, replicas=2), "zip": [["cached", "router"]]})
    for row, cached in zip(rows, (None, "all", "32"), strict=True):
        choices = ServingChoices(prefix_cache=cached, router=row["router"], replicas=2)
        of = serve(load, MODEL, setup_of(choices, Plan(), MODEL), RunOptions(machine="h100-dgx:4")).summary()
        assert (row["status"], row["makespan_ns"]) == ("complete", of["duration_ns"])
        assert row["ttft_p99_ns"] == of["ttft_ns"]["p99"]
    (refused,) = rows_of(spec(axes={"by": {"field": "workload.transfer", "values": ["layers"]}}))
    assert "--transfer layers requires" in refused["error"]


def test_engines_and_separate_replicas_are_axes() -> None:
    axes = {
        "engine": {"field": "workload.engine", "values": ["vllm", "sglang"]},
        "prefill": {"field": "workload.prefill-replicas", "values": [None, 1]},
        "decode": {"field": "workload.decode-replicas", "values": [None, 1]},
        "tp": {"field": "workload.decode-plan.tp", "values": [2]},
    }
    given = {**spec(axes=axes), "zip": [["prefill", "decode"]]}
    rows = rows_of(given)
    assert [row["ranks"] for row in rows] == [1, 3, 1, 3]
    together, apart = rows[::2], rows[1::2]
    assert len({row["ttft_p99_ns"] for row in together}) == len({row["ttft_p99_ns"] for row in apart}) == 2
    assert [row["tpot_p50_ns"] for row in together] != [row["tpot_p50_ns"] for row in apart]


@pytest.mark.deep
def test_the_largest_rate_may_be_sought_at_each_point(tmp_path: Path) -> None:
    goal = {"maximise": ["requests_per_s"]}
    given = spec(search=goal, ttft="8ms", **{"find-rate": True, "tolerance": 0.5, "good-share": 0.6})
    report = searched(given, tmp_path)
    rates = report.table["requests_per_s"].to_pylist()
    assert max(rates) == rates[report.search.front[0]] > rates[0]


def test_a_plan_without_room_is_refused_with_the_reason() -> None:
    (row,) = rows_of(spec(axes={"tp": {"field": "workload.plan.tp", "values": [1]}}, capacity="100MB"))
    assert row["status"] == "refused"
    assert "weights" in row["error"]


@pytest.mark.parametrize(
    ("recipe", "refused"),
    [
        ({"concurency": 4}, "concurency"),
        ({"engine": "vlm"}, "vlm"),
        ({"plan": {"tq": 2}}, "tq"),
        ({"prefix-cache": True}, "prefix-cache"),
        ({"decode-plan": {"tp": 2, "x": 1}}, "'x'|\"x\""),
    ],
)
def test_unknown_keys_and_engines_are_refused(recipe: dict[str, Any], refused: str) -> None:
    try:
        rows = rows_of(spec(**recipe))
    except InputError as error:
        text = json.dumps(str(error))
    else:
        assert {row["status"] for row in rows} == {"refused"}
        text = rows[0]["error"]
    assert any(word.strip("'\"") in text for word in refused.split("|"))


def test_serving_makes_no_workload() -> None:
    from et_sim.recipes.recipe import make

    with pytest.raises(EtSimError, match="no workload"):
        make(RECIPE, Path())
