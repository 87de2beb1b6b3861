"""Options of `et-sim serve`: each changes the output of a case, and is refused where it has no effect."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from et_sim.basics.declared_options import fields_of
from et_sim.cli import main
from et_sim.cli.needs import OF_PASSES, OF_SERVING
from et_sim.cli.serve import Options

LOAD = "poisson:100,3,40,4"
DENSE = [LOAD, "--model", "gpt2", "--layers", "2", "--machine", "h100-dgx:8"]
EXPERTS = [LOAD, "--model", "moe.json", "--machine", "h100-dgx:8"]
SPREAD = [*EXPERTS, "--dp", "8", "--ep", "8"]
SKEWED = ["constant:9,1,400,2", *EXPERTS[1:], "--dp", "4", "--ep", "4", "--expert-skew", "zipf:1"]
ALL_BUSY = ["closed:400,2,8", *EXPERTS[1:], "--dp", "2", "--ep", "2", "--concurrency", "4"]
BY_NODES = [*SPREAD, "--expert-exchange", "hierarchical", "--node-ranks", "2"]
APART = [*DENSE, "--prefill-replicas", "1", "--decode-replicas", "1"]
EXPERTS_APART = [*EXPERTS, "--dp", "2", "--prefill-replicas", "1", "--decode-replicas", "1"]
OWN = [*DENSE[:5], "--system", "system.json", "--network", "network.yml"]
OF_OWN = [*OWN, "--capacity", "1GB"]
CLOSED = ["closed:40,4,6", *DENSE[1:], "--concurrency", "2"]
WAITS = ["poisson:100,20,40,4", *DENSE[1:], "--max-batch", "1", "--ttft", "6ms"]
GOOD = [*WAITS, "--find-rate"]
TURNS = ["sessions:100,2,3,40,24,0.0001", *DENSE[1:]]
SPECULATES = [*DENSE, "--speculate", "ngram:3", "--acceptance", "2"]
LONG = ["constant:100,2,1100,2", *DENSE[1:]]
SCALED = ["poisson:100,40,40,4", *DENSE[1:], "--max-batch", "1", "--most-replicas", "3"]
SCALED += ["--start-time", "1ms"]
SCALES = [*SCALED, "--autoscale", "queue:1", "--scale-every", "20ms", "--scale-down-after", "0"]
# A case of each option in which it has an effect: words without it, and its own.
EFFECTS: dict[str, tuple[list[str], list[str]]] = {
    "concurrency": (CLOSED, ["--concurrency", "3"]),
    "lengths": (DENSE, ["--lengths", "0.5"]),
    "warm_up": (DENSE, ["--warm-up", "1"]),
    "spread": (CLOSED, ["--spread"]),
    "send_weights": (["rollout:40,4,2,2", *DENSE[1:]], ["--send-weights"]),
    "autoscale": (SCALES, ["--autoscale", "queue:2"]),
    "most_replicas": (SCALES, ["--most-replicas", "2"]),
    "start_time": (SCALES, ["--start-time", "30ms"]),
    "scale_every": (SCALES, ["--scale-every", "30ms"]),
    "scale_down_after": (SCALES, ["--scale-down-after", "60ms"]),
    "weights_from": (SCALES, ["--weights-from", "store"]),
    "second_model": (DENSE, ["--second-model", "gpt2,share=0.5"]),
    "seed": (DENSE, ["--seed", "1"]),
    "rate": (DENSE, ["--rate", "50"]),
    "find_rate": (WAITS, ["--find-rate"]),
    "good_share": (GOOD, ["--good-share", "0.5"]),
    "tolerance": (GOOD, ["--tolerance", "0.5"]),
    "model": (DENSE, ["--model", "llama3-8b"]),
    "layers": (DENSE, ["--layers", "1"]),
    "sequence": (LONG, ["--sequence", "2048"]),
    "vocabulary": (DENSE, ["--vocabulary", "1000"]),
    "tp": (DENSE, ["--tp", "2"]),
    "dp": (EXPERTS, ["--dp", "2"]),
    "pp": (DENSE, ["--pp", "2"]),
    "ep": ([*EXPERTS, "--dp", "8"], ["--ep", "2"]),
    "expert_skew": (SPREAD, ["--expert-skew", "zipf:1"]),
    "expert_seed": (SKEWED, ["--expert-seed", "2"]),
    "expert_exchange": (SPREAD, ["--expert-exchange", "hierarchical"]),
    "overlap_experts": (ALL_BUSY, ["--overlap-experts"]),
    "attention_parts": ([*ALL_BUSY, "--overlap-experts"], ["--attention-parts"]),
    "expert_nodes": (BY_NODES, ["--expert-nodes", "1"]),
    "node_ranks": (BY_NODES, ["--node-ranks", "8"]),
    "dispatch": ([*SPREAD, "--products", "fp8"], ["--dispatch", "fp8"]),
    "stage_layers": ([*DENSE, "--layers", "4", "--pp", "2"], ["--stage-layers", "1,3"]),
    "value_bytes": (DENSE, ["--value-bytes", "4"]),
    "value_type": (
        ["constant:9,1,900,2", *DENSE[1:5], "--machine", "gaudi3-node:8"],
        ["--value-type", "fp16"],
    ),
    "products": (DENSE, ["--products", "fp8"]),
    "expert_products": (EXPERTS, ["--expert-products", "fp8"]),
    "redundant_experts": (EXPERTS, ["--redundant-experts", "8"]),
    "lora_rank": (DENSE, ["--lora-rank", "8"]),
    "adapters": ([*DENSE, "--lora-rank", "8"], ["--adapters", "400"]),
    "experts_apart": ([*EXPERTS, "--dp", "2", "--ep", "2"], ["--experts-apart"]),
    "cache_type": (DENSE, ["--cache-type", "fp8"]),
    "computes": (["constant:9,1,900,2", *DENSE[1:], "--products", "fp8"], ["--computes", "bf16"]),
    "tflops": (OF_OWN, ["--tflops", "1"]),
    "memory_gbps": (OF_OWN, ["--memory-gbps", "9"]),
    "replicas": (DENSE, ["--replicas", "2"]),
    "prefill_replicas": (APART, ["--prefill-replicas", "2"]),
    "decode_replicas": (APART, ["--decode-replicas", "2"]),
    "decode_tp": (APART, ["--decode-tp", "2"]),
    "decode_dp": (EXPERTS_APART, ["--decode-dp", "4"]),
    "decode_ep": (EXPERTS_APART, ["--decode-ep", "2"]),
    "decode_pp": (APART, ["--decode-pp", "2"]),
    "transfer": (APART, ["--transfer", "layers"]),
    "engine": (DENSE, ["--engine", "sglang"]),
    "policy": (DENSE, ["--policy", "static"]),
    "max_batch": (DENSE, ["--max-batch", "1"]),
    "token_budget": (DENSE, ["--token-budget", "9", "--max-batch", "9"]),
    "block": (DENSE, ["--block", "64"]),
    "prompt_every": (DENSE, ["--prompt-every", "9", "--rate", "900"]),
    "cache_tokens": (DENSE, ["--cache-tokens", "64"]),
    "prefix_cache": (TURNS, ["--prefix-cache", "all"]),
    "offload": ([*TURNS, "--prefix-cache", "0"], ["--offload", "all", "--memory", "host.json"]),
    "memory": (
        [*TURNS, "--prefix-cache", "0", "--offload", "all", "--memory", "host.json"],
        ["--memory", "slow.json"],
    ),
    "router": ([*TURNS, "--prefix-cache", "all", "--replicas", "2"], ["--router", "prefix"]),
    "context_step": (DENSE, ["--context-step", "1"]),
    "capacity": (DENSE, ["--capacity", "1GB"]),
    "memory_share": (DENSE, ["--memory-share", "0.5"]),
    "speculate": (SPECULATES, ["--speculate", "ngram:2"]),
    "image_tokens": ([LOAD, "--model", "images.json", *DENSE[5:]], ["--image-tokens", "256"]),
    "acceptance": (SPECULATES, ["--acceptance", "3"]),
    "ttft": (DENSE, ["--ttft", "1ms"]),
    "tpot": (DENSE, ["--tpot", "1us"]),
    "system": (OF_OWN, ["--system", "other.json"]),
    "network": ([*OF_OWN, "--tp", "2"], ["--network", "slow.yml"]),
    "machine": (DENSE, ["--machine", "h200-dgx:8"]),
    "profile": ([*DENSE, "--tp", "2"], ["--profile", "reference"]),
    "network_model": ([*DENSE, "--tp", "2", "--engine", "trtllm"], ["--network-model", "analytical"]),
}
TEXT = {
    "model_type": "gemma3_text",
    "hidden_size": 512,
    "num_hidden_layers": 2,
    "intermediate_size": 1024,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 64,
    "sliding_window": 64,
    "vocab_size": 1000,
    "max_position_embeddings": 4096,
}
VISION = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "intermediate_size": 128,
    "num_attention_heads": 8,
    "image_size": 224,
    "patch_size": 14,
}
OUTPUT = {"out", "json"}  # where results go
EQUAL = {"fold"}  # has the same result
# A case of each option with a need in which it has no effect.
REFUSALS: dict[str, list[str]] = {
    "lora_rank": [*DENSE, "--lora-rank", "0"],
    "adapters": [*DENSE, "--lora-rank", "8", "--adapters", "0"],
    "overlap_experts": [*EXPERTS, "--tp", "2", "--ep", "2", "--overlap-experts"],
    "expert_exchange": [*EXPERTS, "--tp", "2", "--ep", "2", "--expert-exchange", "deepep"],
    "attention_parts": [*EXPERTS, "--tp", "2", "--ep", "2", "--overlap-experts", "--attention-parts"],
    "expert_nodes": [
        *EXPERTS,
        "--tp",
        "2",
        "--ep",
        "2",
        "--expert-exchange",
        "deepep",
        "--expert-nodes",
        "1",
    ],
    "dispatch": [*EXPERTS, "--tp", "2", "--ep", "2", "--dispatch", "fp8"],
    "node_ranks": [*DENSE, "--node-ranks", "4"],
    "expert_seed": [*EXPERTS, "--expert-skew", "zipf:1", "--expert-seed", "3"],
    "expert_products": [*DENSE, "--expert-products", "fp8"],
    "stage_layers": [*DENSE, "--stage-layers", "2"],
    "computes": [*DENSE, "--computes", "bf16"],
    "good_share": [*DENSE, "--good-share", "0.9"],
    "tolerance": [*DENSE, "--tolerance", "0.1"],
    "rate": [*GOOD, "--rate", "9"],
    "seed": ["gamma:9,0,3,40,4", *DENSE[1:], "--seed", "1"],
    "decode_tp": [*DENSE, "--decode-tp", "2"],
    "decode_dp": [*EXPERTS, "--decode-dp", "2"],
    "decode_ep": [*EXPERTS, "--dp", "2", "--decode-ep", "2"],
    "decode_pp": [*DENSE, "--decode-pp", "2"],
    "transfer": [*DENSE, "--transfer", "whole"],
    "router": [*DENSE, "--router", "load"],
    "memory": [*DENSE, "--memory", "host.json"],
    "tflops": [*DENSE, "--tflops", "200"],
    "memory_gbps": [*DENSE, "--memory-gbps", "200"],
    "value_type": [*OF_OWN, "--value-type", "fp16"],
}


@pytest.fixture(autouse=True)
def _files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    model = {
        "architectures": ["MixtralForCausalLM"],
        "model_type": "mixtral",
        "hidden_size": 512,
        "intermediate_size": 1024,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "num_hidden_layers": 2,
        "num_local_experts": 8,
        "num_experts_per_tok": 2,
        "vocab_size": 1000,
        "max_position_embeddings": 4096,
    }
    memory = {"memory-type": "PER_NPU_MEMORY_EXPANSION", "remote-mem-latency": 9, "remote-mem-bw": 50}
    system = {f"{name}-implementation": ["ring"] for name in ("all-reduce", "all-gather")}
    files: dict[str, Any] = {
        "moe.json": model,
        "images.json": {"model_type": "gemma3", "text_config": TEXT, "vision_config": VISION},
        "host.json": memory,
        "slow.json": memory | {"remote-mem-latency": 9000},
        "system.json": system,
        "other.json": system | {"peak-perf": 100, "local-mem-bw": 900, "roofline-enabled": 1},
    }
    for name, content in files.items():
        Path(name).write_text(json.dumps(content), encoding="utf-8")
    for name, rate in (("network.yml", 50), ("slow.yml", 5)):
        text = f"topology: [Ring]\nnpus_count: [8]\nbandwidth: [{rate}]\nlatency: [500]\n"
        Path(name).write_text(text, encoding="utf-8")


def outcome(words: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """Return the status, and the figures of a serving, without its settings; or its refusal."""
    status = main(["serve", *words, "--out", "out"])
    error = capsys.readouterr().err
    if status:
        return status, error
    summary = json.loads(Path("out/summary.json").read_text(encoding="utf-8"))
    figures = {
        name: value
        for name, value in summary.items()
        if name not in ("context_step", "transfer", "network_model", "machine", "engine", "speculation")
    }
    tables = []
    for name in ("requests", "iterations"):
        with pa.OSFile(f"out/{name}.arrow") as source:
            tables.append(pa.ipc.open_file(source).read_all().to_pydict())
    return 0, repr((figures, tables))


def test_every_option_has_a_case_with_an_effect_and_each_need_one_without() -> None:
    assert {*EFFECTS, *OUTPUT, *EQUAL, "requests"} == set(fields_of(Options))
    assert set(REFUSALS) == {name for need in OF_SERVING for name in need.options}


@pytest.mark.in_turn(days=2)
@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.deep) for name in EFFECTS])
def test_an_option_changes_the_output(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    without, words = EFFECTS[name]
    before, after = outcome(without, capsys), outcome([*without, *words], capsys)
    assert after[0] == 0, after[1]
    assert after != before


@pytest.mark.deep
def test_unfolded_replicas_have_the_same_results(capsys: pytest.CaptureFixture[str]) -> None:
    words = [*DENSE, "--tp", "2"]
    assert outcome(words, capsys) == outcome([*words, "--no-fold"], capsys)


@pytest.mark.parametrize("name", REFUSALS)
def test_an_option_without_an_effect_is_refused(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    (need,) = (need for need in OF_SERVING if name in need.options)
    status, error = outcome(REFUSALS[name], capsys)
    flag = f"--{name.replace('_', '-')}"
    assert (status, error) == (2, f"et-sim: error: {flag} {need.cause} ({need.remedy})\n")


def test_rates_have_no_effect_on_experts_whose_width_ranks_could_not_share(
    capsys: pytest.CaptureFixture[str],
) -> None:
    odd = json.loads(Path("moe.json").read_text(encoding="utf-8")) | {"intermediate_size": 1023}
    Path("odd.json").write_text(json.dumps(odd), encoding="utf-8")
    words = [LOAD, "--model", "odd.json", "--machine", "h100-dgx:8", "--dp", "2", "--ep", "2"]
    status, error = outcome([*words, "--tflops", "200"], capsys)
    assert (status, "the machine gives the times of all kernels" in error) == (2, True)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([*DENSE, "--cache-tokens", "99", "--capacity", "1GB"], "--capacity and --cache-tokens each give"),
        ([*DENSE, "--cache-tokens", "1000000000"], "each NPU has room for 13,223,392 beside the weights"),
        (
            ["constant:1,1,1,1", "--model", "llama3-70b", "--machine", "h100-dgx:8", "--cache-tokens", "99"],
            "has room for 0 beside the weights (give more ranks to a replica with --tp or --pp)",
        ),
    ],
)
def test_a_cache_has_one_size_that_memory_holds(
    words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    status, error = outcome(words, capsys)
    assert (status, sentence in error) == (2, True)


def test_given_tokens_of_the_cache_need_no_capacity(capsys: pytest.CaptureFixture[str]) -> None:
    assert outcome([*OWN, "--cache-tokens", "1000"], capsys)[0] == 0


@pytest.mark.parametrize(
    "words",
    [
        ["--model", "gpt2", "--node-ranks", "4"],
        ["--model", "gpt2", "--expert-products", "fp8"],
        ["--model", "gpt2", "--stage-layers", "12"],
        ["--model", "gpt2", "--computes", "bf16"],
        ["--model", "moe.json", "--tp", "2", "--ep", "2", "--dispatch", "fp8"],
        ["--model", "gpt2", "--eager"],
    ],
)
def test_options_of_a_pass_have_the_same_needs(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["make", "decode", "--context", "9", *words, "-o", "pass"]) == 2
    flag = next(word for word in reversed(words) if word.startswith("--"))
    (need,) = (need for need in OF_PASSES if flag[2:].replace("-", "_") in need.options)
    assert f"{flag} {need.cause} ({need.remedy})" in capsys.readouterr().err


@pytest.mark.parametrize("kind", [["decode", "--context", "9"], ["prefill", "--prompt", "1"]])
def test_a_pass_of_one_token_has_no_halves(kind: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    words = ["make", *kind, "--model", "moe.json", "--dp", "2", "--ep", "2", "--overlap-experts", "-o", "one"]
    assert main(words) == 2
    assert "--overlap-experts has no effect: a group has one token" in capsys.readouterr().err
    assert main([*words, "--batch", "2"]) == 0


def test_prompts_have_no_attention_in_parts(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--model", "moe.json", "--dp", "2", "--ep", "2", "--overlap-experts", "--attention-parts"]
    assert main(["make", "prefill", "--prompt", "9", *words, "-o", "one"]) == 2
    assert "--attention-parts has no effect: halves of prompts" in capsys.readouterr().err
    assert main(["make", "decode", "--context", "9", "--batch", "2", *words, "-o", "one"]) == 0


def test_halves_have_an_effect_where_all_groups_share_each_expert() -> None:
    words = ["make", "decode", "--model", "moe.json", "--context", "40", "--batch", "64", "--dp", "2"]
    sizes = []
    for name, more in (("whole", []), ("halves", ["--overlap-experts"])):
        assert main([*words, *more, "-o", name]) == 0
        sizes.append(Path(f"{name}.template0.et").stat().st_size)
    assert sizes[1] > sizes[0]


@pytest.mark.parametrize(
    ("second", "is_choice"),
    [
        ("gpt2,share=0.5", False),
        ("gpt2,tp=2,share=0.5", False),
        ("gpt2,replicas=2,share=0.5", True),
        ("moe.json,dp=2,ep=2,share=0.5", True),
    ],
)
def test_requests_of_a_second_model_may_have_a_choice_of_replicas(
    second: str, is_choice: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    status, error = outcome([*DENSE, "--second-model", second, "--router", "load"], capsys)
    assert (status, "--router has no effect" in str(error)) == ((0, False) if is_choice else (2, True))
