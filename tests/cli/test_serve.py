"""`et-sim serve`: output, files, and refusals in one sentence."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pytest
from msgspec import convert

from et_sim.basics.units import format_ns
from et_sim.cli import main
from et_sim.tables.serving_summary import ServingSummary
from et_sim.views.report.page import load_picture
from et_sim.views.run.directory import open_serving
from et_sim.views.serving import COLUMNS, slices_of

USUAL = ["--model", "gpt2", "--layers", "2", "--tp", "2", "--machine", "h100-dgx:2"]
FILES = ["iterations.arrow", "requests.arrow", "run.json", "summary.json"]


@pytest.fixture(autouse=True)
def _requests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = "arrival_s,prompt_tokens,output_tokens\n0,100,4\n0.001,50,3\n"
    Path("r.csv").write_text(text, encoding="utf-8")


def rows(name: str) -> list[dict[str, object]]:
    with pa.OSFile(name) as source:
        result: list[dict[str, object]] = pa.ipc.open_file(source).read_all().to_pylist()
    return result


def test_a_serving_writes_all_results_and_prints_the_summary(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "r.csv", *USUAL, "--ttft", "1s", "--json"]) == 0
    printed = capsys.readouterr().out
    assert sorted(path.name for path in Path("r.serve").iterdir()) == FILES
    assert printed == Path("r.serve/summary.json").read_text(encoding="utf-8")
    summary, requests = json.loads(printed), rows("r.serve/requests.arrow")
    assert convert(summary, ServingSummary) == summary  # keys that are not declared would be left out
    assert summary["goodput"]["share"] == 1.0
    assert [row["output_tokens"] for row in requests] == [4, 3]
    assert [row["decode_replica"] for row in requests] == [None, None]
    passes = rows("r.serve/iterations.arrow")
    assert len(passes) == summary["passes"]
    assert sum(int(str(row["prefill_tokens"])) for row in passes) == 150


def test_remarks_on_the_file_of_a_second_model_are_printed_too(capsys: pytest.CaptureFixture[str]) -> None:
    sizes = {"model_type": "qwen3", "hidden_size": 64, "num_hidden_layers": 1, "intermediate_size": 64}
    more = {"num_attention_heads": 2, "vocab_size": 99, "max_position_embeddings": 999}
    Path("audio.json").write_text(json.dumps({**sizes, **more, "audio_config": {}}), encoding="utf-8")
    given = ["--model", "gpt2", "--layers", "2", "--machine", "h100-dgx:2", "--second-model"]
    assert main(["serve", "r.csv", *given, "audio.json,share=0.5"]) == 0
    assert "et-sim: warning: audio.json: " in (printed := capsys.readouterr().err)
    assert "audio_config" in printed


def test_the_same_requests_give_the_same_files() -> None:
    for name, path in (("a", "r.csv"), ("b", str(Path("r.csv").absolute()))):
        assert main(["serve", path, *USUAL, "--out", name]) == 0
    assert [Path("a", name).read_bytes() for name in FILES] == [
        Path("b", name).read_bytes() for name in FILES
    ]
    assert main(["serve", "r.csv", *USUAL, "--out", "a"]) == 0  # in place of the earlier one


@pytest.mark.deep
def test_the_summary_states_simulated_and_rounded_passes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "poisson:100,5,20,8", *USUAL]) == 0
    printed = capsys.readouterr().out
    assert "contexts rounded up to 64 tokens" in printed
    assert "5 requests in" in printed
    assert main(["serve", "poisson:100,5,20,8", *USUAL, "--context-step", "1"]) == 0
    assert "exact contexts" in capsys.readouterr().out


@pytest.mark.deep
def test_its_tables_are_queried_in_sql(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "r.csv", *USUAL]) == 0
    capsys.readouterr()
    assert main(["sql", "r.serve", "SELECT count(*) AS n FROM requests", "--csv"]) == 0
    assert capsys.readouterr().out.split() == ["n", "2"]
    Path("r.serve/requests.arrow").unlink()
    assert main(["sql", "r.serve", "SELECT 1"]) == 2
    assert "is incomplete: requests.arrow missing (serve again)" in capsys.readouterr().err


@pytest.mark.deep
def test_replicas_for_prompts_and_for_tokens(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--model", "gpt2", "--layers", "2", "--tp", "2", "--machine", "h100-dgx:8"]
    apart = ["--prefill-replicas", "2", "--decode-replicas", "1", "--decode-tp", "4"]
    assert main(["serve", "r.csv", *words, *apart, "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert [(pool["work"], pool["replicas"], pool["first_rank"]) for pool in summary["pools"]] == [
        ("prefill", 2, 0),
        ("decode", 1, 4),
    ]
    assert summary["transfer_ns"]["max"] > 0


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["none.csv", *USUAL], "none.csv: there is no such file of requests"),
        (["r.csv", *USUAL, "--model", "lama3-8b"], "there is no model 'lama3-8b' (did you mean"),
        (
            ["r.csv", *USUAL, "--tp", "5"],
            "heads: 12 is not a multiple of 5, the number of tensor-parallel ranks",
        ),
        (["r.csv", *USUAL, "--pp", "2"], "the replicas need 4 NPUs, but the machine has 2"),
        (["r.csv", *USUAL, "--capacity", "1MB"], "the weights of gpt2 take"),
        (["r.csv", *USUAL, "--capacity", "0"], "--capacity is 0"),
        (["r.csv", *USUAL, "--sequence", "60"], "a sequence of 104 tokens is longer than the 60"),
        (["r.csv", *USUAL, "--seed", "1"], "--seed has no effect: neither times of arrival nor lengths"),
        (["poisson:1,2,3,4", *USUAL, "--seed", "-1"], "--seed is -1 (give a number from 0 up)"),
        (["r.csv", *USUAL[2:], "--model", "bert-base"], "bert-base is an encoder"),
        (["r.csv", *USUAL, "--policy", "prefil"], "there is no policy 'prefil'"),
        (["r.csv", *USUAL, "--replicas", "0"], "--replicas is 0"),
        (["r.csv", *USUAL, "--prefill-replicas", "1"], "give both --prefill-replicas and --decode-replicas"),
        (["r.csv", *USUAL, "--decode-tp", "1"], "--decode-tp requires separate decode replicas"),
        (["r.csv", *USUAL, "--ttft", "soon"], "soon"),
        (["r.csv", *USUAL, "--cache-tokens", "15"], "--cache-tokens is 15, less than a block of 16 tokens"),
        (["r.csv", *USUAL, "--out", "."], "it is the current directory"),
        (["r.csv", *USUAL, "--network-model", "analytica"], "analytica"),
        (["r.csv", "--model", "gpt2"], "the machine is incomplete"),
        (["poisson:1,2", *USUAL], "poisson:RATE,COUNT,PROMPT,OUTPUT"),
    ],
)
def test_contradictory_options_are_refused(
    words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", *words]) == 2
    error = capsys.readouterr().err
    assert sentence in error
    assert error.count("\n") == 1
    assert [path.name for path in Path().iterdir()] == ["r.csv"]


@pytest.mark.deep
def test_a_serving_is_inspected_and_reported(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "r.csv", *USUAL]) == 0
    printed = capsys.readouterr().out
    assert "2 requests served; half of the first tokens are there within " in " ".join(printed.split())
    assert "kernels" in " ".join(printed.split()).partition("left out")[0]
    assert main(["inspect", "r.serve"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith(printed.partition("\n\nwritten to")[0])
    slices = slices_of(open_serving("r.serve"), 5)
    assert (sum(slice_.arrived for slice_ in slices), sum(slice_.done for slice_ in slices)) == (2, 2)
    assert (slices[0].start_ns, slices[-1].under_way) == (0, 0)
    assert main(["inspect", "r.serve", "--json"]) == 0
    assert capsys.readouterr().out == Path("r.serve/summary.json").read_text(encoding="utf-8")
    assert main(["report", "r.serve", "--html", "r.html"]) == 0
    page = Path("r.html").read_text(encoding="utf-8")
    assert "machine: h100-dgx:2 (2 NPUs)" in page
    summary = json.loads(Path("r.serve/summary.json").read_text(encoding="utf-8"))
    assert format_ns(summary["ttft_ns"]["p99"]) in page


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        (["inspect", "r.serve", "ranks"], "what et-sim serve wrote, and ranks is about a run"),
        (["inspect", "r.serve", "--svg", "x.svg"], "what et-sim serve wrote, and --svg is about a run"),
        (["report", "r.serve", "--html", "x.html", "--ranks", "0"], "--ranks is about a run"),
        (["compare", "r.serve", "r.serve"], "look at it with et-sim inspect, report or sql"),
    ],
)
def test_options_of_runs_are_refused_for_a_serving(
    command: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", "r.csv", *USUAL]) == 0
    assert main(command) == 2
    assert sentence in capsys.readouterr().err


@pytest.mark.deep
def test_a_damaged_summary_of_a_serving_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "r.csv", *USUAL]) == 0
    path = Path("r.serve/summary.json")
    path.write_text(json.dumps(json.loads(path.read_text()) | {"load": 5}), encoding="utf-8")
    assert main(["inspect", "r.serve"]) == 2
    assert "is not as et-sim serve writes it: load is not an object" in capsys.readouterr().err


def test_the_median_of_a_slice_is_a_known_value_that_half_do_not_exceed() -> None:
    """Check four requests with a time between tokens, and one of a single token without."""
    columns = {
        "arrival_ns": np.arange(5),
        "finish_ns": np.arange(5) + 10,
        "ttft_ns": np.array([50, 10, 40, 20, 30]),
        "tpot_ns": np.array([4, 3, -1, 2, 1]),
    }
    assert tuple(columns) == COLUMNS
    run = cast(Any, SimpleNamespace(arrays=lambda *_: columns, serving_summary={}))
    [whole] = slices_of(run, 1)
    assert (whole.arrived, whole.ttft_ns, whole.tpot_ns) == (5, 30, 2)
    first, *_, last = slices_of(run, 3)
    assert (first.arrived, first.ttft_ns, first.tpot_ns) == (5, 30, 2)
    assert (last.arrived, last.ttft_ns, last.tpot_ns) == (0, None, None)
    assert ">0 ns</text>" in load_picture([whole])  # the axis begins with the first arrival


def test_cached_prefixes_are_reported_as_text_and_json_and_by_inspect(
    capsys: pytest.CaptureFixture[str],
) -> None:
    line = '{"timestamp": %d, "input_length": 600, "output_length": 2, "hash_ids": [1, 2]}\n'
    Path("trace.jsonl").write_text(line % 0 + line % 900, encoding="utf-8")
    kept = [*USUAL, "--tp", "1", "--replicas", "2", "--prefix-cache", "all", "--router", "prefix"]
    assert main(["serve", "trace.jsonl", *kept]) == 0
    text = "prefixes     49.3% of the tokens of prompts were cached (592, of 1 request)"
    assert text in capsys.readouterr().out
    assert main(["inspect", "trace.serve"]) == 0
    assert text in capsys.readouterr().out
    assert main(["serve", "trace.jsonl", *kept, "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert convert(summary, ServingSummary) == summary
    assert summary["prefixes"] == {
        "kept_tokens": None,
        "remote_tokens": 0,
        "loaded_tokens": 0,
        "router": "prefix",
        "hit_tokens": 592,
        "hit_share": round(592 / 1200, 6),
        "requests_with_hits": 1,
    }
    assert [row["hit_tokens"] for row in rows("trace.serve/requests.arrow")] == [0, 592]
    assert main(["serve", "trace.jsonl", *USUAL, "--prefix-cache", "1"]) == 0
    assert "; at most 1 idle token stays; router by load" in capsys.readouterr().out


def test_what_remote_memory_keeps_is_loaded_and_reported(capsys: pytest.CaptureFixture[str]) -> None:
    memory = {"memory-type": "PER_NPU_MEMORY_EXPANSION", "remote-mem-latency": 9, "remote-mem-bw": 50}
    Path("host.json").write_text(json.dumps(memory), encoding="utf-8")
    sent = ["serve", "sessions:1,1,2,100,28,0", *USUAL, "--prefix-cache", "0", "--offload", "500"]
    assert main([*sent, "--memory", "host.json"]) == 0
    printed = capsys.readouterr().out
    assert "no idle tokens stay; router" in printed
    assert "offload      112 tokens loaded from remote memory; at most 500 tokens stay there" in printed
    assert "client       1 session, whose turns follow the answers" in printed
    assert main(sent) == 2
    assert "--offload requires a remote memory" in capsys.readouterr().err
    Path("memory.json").write_text(json.dumps({**memory, "remote-mem-bw": 0}), encoding="utf-8")
    assert main([*sent, "--memory", "memory.json"]) == 0
    assert "memory.json: key 'remote-mem-bw': 0, so a transfer" in capsys.readouterr().err


def test_a_faulty_line_of_a_trace_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    Path("t.csv").write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n2024,1,1\n1 May,1,1\n", "utf-8")
    assert main(["serve", "t.csv", *USUAL]) == 2
    assert "t.csv, line 2: TIMESTAMP is '2024' (give a date and a time" in capsys.readouterr().err


def test_a_vision_tower_is_warned_of_unless_it_is_simulated(capsys: pytest.CaptureFixture[str]) -> None:
    text = {"model_type": "gemma3_text", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2}
    text |= {"num_attention_heads": 4, "num_key_value_heads": 4, "head_dim": 16, "vocab_size": 512}
    text |= {"sliding_window": 64, "sliding_window_pattern": 6, "max_position_embeddings": 4096}
    vision = {"hidden_size": 64, "image_size": 32, "intermediate_size": 128, "num_attention_heads": 4}
    vision |= {"num_hidden_layers": 2, "patch_size": 4}
    model = {"model_type": "gemma3", "mm_tokens_per_image": 16, "text_config": text, "vision_config": vision}
    Path("images.json").write_text(json.dumps(model), encoding="utf-8")
    warned = []
    for images in ([], ["--image-tokens", "16"]):
        serving = ["serve", "r.csv", "--model", "images.json", "--machine", "h100-dgx:1", "--out", "s"]
        assert main([*serving, *images]) == 0
        warned.append("vision_config" in capsys.readouterr().err)
    assert warned == [True, False]
