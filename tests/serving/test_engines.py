"""Engines: descriptions of them, their batches, graphs, memory and host times."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from test_batching import KnownTimes, pool, served

from et_sim.basics.errors import EtSimError
from et_sim.serving.batcher import PREFILL_FIRST_CHUNKED, WHOLE_PROMPTS, Policy
from et_sim.serving.clients import Client, read_traffic
from et_sim.serving.cluster import ServingCluster
from et_sim.serving.engines.description import (
    FREE,
    Activations,
    Engine,
    EngineErrors,
    EngineHost,
    EngineMemory,
)
from et_sim.serving.engines.reading import engine_names, numbers_of, read_engine
from et_sim.workloads import Batch, Plan, Segment, read_model

TOKEN = Segment(1, 5)


def tokens_of(cluster: ServingCluster) -> list[tuple[int, int]]:
    return [(iteration.prefill_tokens, iteration.decode_tokens) for iteration in cluster.iterations]


def test_whole_prompts_stand_beside_tokens_and_are_never_cut() -> None:
    requests = [(0, 10, 50), (1500, 60, 2), (1500, 60, 2), (1500, 70, 2)]
    cluster = served(requests, Policy(WHOLE_PROMPTS, max_batch=4, token_budget=128))
    assert tokens_of(cluster)[:4] == [(10, 0), (0, 1), (120, 1), (70, 3)]


def test_prompts_first_in_parts_go_before_all_further_tokens() -> None:
    requests = [(0, 10, 50), (1500, 100, 2), (1500, 60, 2)]
    cluster = served(requests, Policy(PREFILL_FIRST_CHUNKED, max_batch=4, token_budget=64))
    assert tokens_of(cluster)[:6] == [(10, 0), (0, 1), (64, 0), (64, 0), (32, 0), (0, 3)]


@pytest.mark.parametrize("name", [PREFILL_FIRST_CHUNKED, WHOLE_PROMPTS, "chunked"])
def test_a_budget_above_all_prompts_cuts_none(name: str) -> None:
    requests = [(0, 10, 50), (1500, 100, 2), (9000, 60, 7)]
    large = served(requests, Policy(name, max_batch=4, token_budget=1000))
    assert tokens_of(large) == tokens_of(served(requests, Policy(name, max_batch=4, token_budget=10**6)))
    assert {10, 100, 60} == {prompt for prompt, _ in tokens_of(large)} - {0}


def test_mixed_passes_spread_prompts_that_prompts_first_keep_together() -> None:
    """Check the effect of the order with equal kernels, as measured: about 4.6 times to the first token."""
    first = {}
    for name in ("chunked", PREFILL_FIRST_CHUNKED):
        cluster = ServingCluster((pool(blocks=10**6),), Policy(name, 512, 8192), KnownTimes(60))
        traffic = read_traffic("closed:1024,1024", Client(128, warm_up=0))
        cluster.serve(traffic.requests, traffic.concurrency)
        first[name] = sum(of.first_token_ns - of.request.arrival_ns for of in cluster.served)
    assert 4.3 < first[PREFILL_FIRST_CHUNKED] / first["chunked"] < 5.0


@pytest.mark.parametrize("segments", [[TOKEN], [Segment(9), TOKEN]])
def test_the_host_takes_further_time_between_passes_unless_it_prepares_one_while_another_runs(
    segments: list[Segment],
) -> None:
    batch = Batch.of(segments)
    host = EngineHost(pass_ns=7, unprepared_ns=30)
    took = {
        prepares: Engine("an engine", host=replace(host, prepares=prepares)).pass_ns(100, batch, 2)
        for prepares in (True, False)
    }
    assert took == {True: 107, False: 137}
    assert read_engine("trtllm").host.between_ns == 0


def test_a_pass_of_tokens_uses_the_smallest_graph_that_holds_it() -> None:
    engine = Engine("an engine", graphs=(1, 4, 8))
    for count, places in ((1, 1), (2, 4), (4, 4), (5, 8), (9, 9)):
        batch = Batch.of(engine.padded([TOKEN] * count))
        assert (batch.decode.segments, batch.sampled) == (places, count)
        assert batch.decode.keys == 6 * count + 2 * (places - count)
    with_prompt = [Segment(100), TOKEN, TOKEN]
    assert engine.padded(with_prompt) == with_prompt


def test_unused_places_of_a_graph_have_as_many_drafts_as_those_of_sequences() -> None:
    engine, sequence = Engine("an engine", graphs=(4, 9, 12)), Segment(3, 50, drafts=2)
    for count, unused in ((1, 1), (2, 1), (3, 0), (4, 0), (5, 0)):
        padded = engine.padded([sequence] * count)
        assert [(of.tokens, of.drafts) for of in padded] == [(3, 2)] * (count + unused)
        assert sum(of.is_sampled for of in padded) == count
    assert [of.tokens for of in engine.padded([])] == [1] * 4


def test_a_request_waits_before_its_first_pass_for_each_layer_and_more_for_those_with_experts() -> None:
    host = EngineHost(before_ns=10.25, before_layer_ns=2, before_expert_layer_ns=3.5)
    assert Engine("an engine", host=host).before_ns(7, 5) == round(10.25 + 7 * 2 + 5 * 3.5)


def test_prompts_of_a_model_that_unpacks_weights_take_both_factors_once() -> None:
    engine = Engine("an engine", prompt_factor=1.5, unpacking_factor=3.0).unpacking()
    assert (engine.prompt_factor, engine.unpacking().prompt_factor) == (4.5, 4.5)


def test_the_host_launches_prompts_layer_by_layer() -> None:
    prompt, token = Batch.of([Segment(100), TOKEN]), Batch.of([TOKEN])
    host = EngineHost(eager_layer_ns=100, pass_ns=7, prompt_pass_ns=3)
    engine = Engine("an engine", host=host, prompt_factor=2.0, token_factor=3.0)
    assert engine.pass_ns(1000, prompt, layers=10) == 2010
    assert engine.pass_ns(400, prompt, layers=10) == 1010  # kernels wait for their launches
    assert engine.pass_ns(400, token, layers=10) == 1207
    apart = replace(engine, host=replace(host, overlaps=False))
    assert apart.pass_ns(400, prompt, layers=10) == 1810
    longer = replace(engine, host=replace(host, eager_expert_layer_ns=30))
    assert longer.pass_ns(400, prompt, layers=10, expert_layers=8) == 1010 + 8 * 30
    assert longer.pass_ns(400, token, layers=10, expert_layers=8) == 1207


def test_layers_take_time_beside_their_kernels_and_those_with_experts_more() -> None:
    prompt, token = Batch.of([Segment(100), TOKEN]), Batch.of([TOKEN])
    host = EngineHost(layer_ns=10, expert_layer_ns=20)
    engine = Engine("an engine", host=host, prompt_factor=2.0, token_factor=3.0)
    assert engine.pass_ns(1000, prompt, layers=5, expert_layers=4) == 2000 + 5 * 10 + 4 * 20
    assert engine.pass_ns(1000, token, layers=5, expert_layers=4) == 3000 + 5 * 10 + 4 * 20


def test_the_cache_gets_a_share_of_all_memory_or_of_the_rest() -> None:
    assert EngineMemory(0.9).cache_bytes(1000, 300, 50) == 550
    assert EngineMemory(0.9, FREE).cache_bytes(1000, 300, 50) == 585
    assert EngineMemory(0.5, FREE, kept_bytes=100).cache_bytes(1000, 300, 50) == 275
    assert EngineMemory(1.0, kept_bytes=100).cache_bytes(1000, 300, 0) == 600
    activations = (Activations(1, 10, 20), Activations(4, 5, 8))
    rule, model = EngineMemory(activations=activations), read_model("llama3-8b")
    assert rule.activation_bytes(model, Plan(tensor=2), 100) == 10 * 100 * 4096 * 2
    assert rule.activation_bytes(model, Plan(tensor=8), 100) == 5 * 100 * 4096 * 2
    assert rule.activation_bytes(read_model("mixtral-8x7b"), Plan(tensor=4), 100) == 8 * 100 * 4096 * 2


def test_every_engine_that_ships_states_its_figures() -> None:
    for name in engine_names():
        engine = read_engine(name)
        assert engine.name == name
        assert len(engine.fitted) <= Engine.MOST_FITTED
        assert list(engine.graphs) == sorted(set(engine.graphs))
        noted = " ".join([*engine.fitted, *engine.sources, *engine.estimates])
        for key in ("policy", "token-budget", "graphs", "memory", "host"):
            assert key in noted, (name, key)


def described(folder: Path, content: Any) -> Engine:
    path = folder / "mine.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    return read_engine(str(path))


def test_a_file_differs_from_the_engine_that_it_is_like(tmp_path: Path) -> None:
    engine = described(tmp_path, {"like": "sglang", "host": {"pass": "1ms"}})
    base = read_engine("sglang")
    assert engine.host == replace(base.host, pass_ns=1e6)
    assert (engine.policy, engine.name) == (base.policy, "mine")
    assert engine.separate == base.separate != ()
    assert described(tmp_path, {"like": "sglang", "separate": []}).separate == ()


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ([], "is not an object"),
        ({"like": "vlm"}, "key \"like\" is 'vlm'"),
        ({"like": "vllm", "host": {"pas": 1}}, "pas"),
        ({"like": "vllm", "errors": {"ttft": [1]}}, "two numbers > 0"),
        ({"like": "vllm", "errors": {"ttft": [0, 1]}}, "two numbers > 0"),
        ({"like": "vllm", "errors": {"tpot": [1, 100.5]}}, "two numbers > 0"),
        ({"like": "vllm", "errors": {"tpot": [2, 1]}}, "two numbers > 0, the lower one first"),
        ({"like": "vllm", "errors": {"tpot": ["1", "2"]}}, "two numbers > 0"),
        ({"like": "vllm", "memory": {"share": 2}}, "share"),
        ({"like": "vllm", "separate": ["cast"]}, "a list with some of"),
        ({"like": "vllm", "wait-passes": 20}, 'key "wait-passes" has no effect without "wait-share"'),
        ({"like": "vllm", "wait-share": 0.9}, 'key "wait-share" has no effect without "wait-passes"'),
        ({"like": "vllm", "fitted": {str(number): "rows" for number in range(9)}}, "at most 8"),
    ],
)
def test_a_faulty_description_is_refused(content: Any, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(EtSimError) as refusal:
        described(tmp_path, content)
    assert sentence in str(refusal.value)


def test_ratios_of_errors_are_up_to_100(tmp_path: Path) -> None:
    engine = described(tmp_path, {"like": "vllm", "errors": {"ttft": [0.01, 100], "tpot": [2, 2]}})
    assert engine.errors == EngineErrors(ttft=(0.01, 100.0), tpot=(2.0, 2.0))


def test_versions_are_ordered_by_their_numbers_and_text_is_newer_than_all() -> None:
    assert numbers_of("0.10") > numbers_of("0.9.12") > numbers_of("0.9")
    assert numbers_of("main") > numbers_of("999999999.1")


def test_a_file_that_has_changed_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "own.json"
    for block in (16, 32):
        path.write_text(json.dumps({"like": "vllm", "block": block}))
        assert read_engine(str(path)).block == block


def test_an_unknown_engine_is_refused_with_the_known_ones() -> None:
    with pytest.raises(EtSimError, match=r"no engine called 'vlm' \(did you mean 'vllm'"):
        read_engine("vlm")


def test_a_colon_without_a_version_is_refused() -> None:
    with pytest.raises(EtSimError, match="without a version"):
        read_engine("vllm:")
