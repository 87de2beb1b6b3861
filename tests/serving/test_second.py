"""Two models on one machine: replicas of their own, one client, and links that both use."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_autoscaling import rule
from test_batching import TRANSFER_NS, KnownTimes, pool
from test_rollouts import MODEL, figures, served
from test_transfers import place, times

from et_sim.basics.errors import EtSimError, UsageError
from et_sim.serving.batcher import PREFILL_FIRST, Policy
from et_sim.serving.clients import Client, read_traffic
from et_sim.serving.cluster import ServingCluster
from et_sim.serving.course import Course
from et_sim.serving.replicas import BOTH, DECODE, PREFILL, CachePool
from et_sim.serving.requests import Request
from et_sim.serving.results import Serving
from et_sim.serving.second import SecondModel, second_of, words_of
from et_sim.workloads import Plan
from et_sim.workloads.inference.transfers import Sent, SentCache, SentWeights

OTHER = msgspec.structs.replace(MODEL, name="other", layers=2 * MODEL.layers)
NAMES = ("first", "second")


@pytest.fixture(autouse=True)
def interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ET_SIM_COMPILE", "never")


def load(count: int = 12) -> list[Request]:
    return [
        Request(number, number * 40_000, 20 + 7 * number, 3 + number % 5, model=int(number % 3 == 0))
        for number in range(count)
    ]


def of_model(requests: Sequence[Request], model: int) -> list[Request]:
    return [request for request in requests if request.model == model]


def figures_of(serving: Serving) -> dict[str, Any]:
    return {name: column for name, column in figures(serving).items() if name != "replica"}


def test_equal_models_on_apart_halves_are_two_servings() -> None:
    requests = load()
    both = served(requests, 2, second=SecondModel(MODEL))
    for model, each in enumerate(both.models):
        alone = served([msgspec.structs.replace(of, model=-1) for of in of_model(requests, model)], 2)
        assert figures_of(each) == figures_of(alone)
        assert [row._replace(replica=0) for row in each.iterations] == alone.iterations
        of_both, own = each.of_model(), alone.summary()
        for name in ("ttft_ns", "tpot_ns", "e2e_ns", "output_tokens", "busy_share"):
            assert of_both[name] == own[name], name  # type: ignore[literal-required]


def test_replicas_apart_on_a_switch_are_two_servings_too() -> None:
    """Check caches of two models between pairs of NPUs, which share no link."""
    requests = load()
    both = served(requests, 4, second=SecondModel(MODEL, prefill_replicas=1), prefill_replicas=1)
    for model, each in enumerate(both.models):
        own = [msgspec.structs.replace(of, model=-1) for of in of_model(requests, model)]
        alone = served(own, 4, prefill_replicas=1)
        assert figures_of(each) == figures_of(alone)
        assert each.summary()["transfer_ns"] == alone.summary()["transfer_ns"]


def test_without_requests_for_the_second_model_the_first_one_is_served_as_alone() -> None:
    rules = "poisson:5000,12,40,6"
    alone, both = served(rules, 2), served(rules, 2, second=SecondModel(OTHER, 0.0))
    assert figures(both) == figures(alone)
    assert both.iterations == alone.iterations
    summary, own = both.summary(), alone.summary()
    assert (summary["ttft_ns"], summary["e2e_ns"]) == (own["ttft_ns"], own["e2e_ns"])
    assert summary["models"][1] == {"model": "other", "requests": 0}


def test_all_requests_for_the_second_model_leave_the_first_one_idle() -> None:
    rules = "poisson:5000,6,40,6"
    both = served(rules, 2, second=SecondModel(MODEL, 1.0))
    assert figures_of(both) == figures_of(served(rules, 2))
    assert set(both.requests()["replica"].tolist()) == {1}
    assert both.summary()["models"][0] == {"model": MODEL.name, "requests": 0}


def test_answers_are_by_model_and_together(tmp_path: Path) -> None:
    both = served(load(), 2, second=SecondModel(OTHER))
    summary = both.summary()
    assert [of["requests"] for of in summary["models"]] == [8, 4]
    assert summary["requests"] == 12
    means = [of["e2e_ns"]["mean"] * of["requests"] for of in summary["models"]]
    assert summary["e2e_ns"]["mean"] == pytest.approx(sum(means) / 12, abs=1)
    assert [of.get("model") for of in summary["pools"]] == [MODEL.name, "other"]
    assert (
        summary["models"][1]["e2e_ns"]["p50"] > summary["models"][0]["e2e_ns"]["p50"]
    )  # twice as many layers
    both.write(tmp_path / "both")
    import pyarrow as pa

    with pa.ipc.open_file(tmp_path / "both" / "requests.arrow") as file:
        names = file.read_all()["model"].to_pylist()
    assert names == ["other" if number % 3 == 0 else MODEL.name for number in range(12)]
    with pa.ipc.open_file(tmp_path / "both" / "iterations.arrow") as file:
        passes = file.read_all().to_pylist()
    assert {(of["replica"], of["model"]) for of in passes} == {(0, MODEL.name), (1, "other")}
    assert len(passes) == sum(len(each.iterations) for each in both.models)


def test_passes_of_one_model_have_its_name_too() -> None:
    of = served("poisson:5000,6,40,6", 2).passes()["model"]
    assert [of.texts[at] for at in of.codes.tolist()] == [MODEL.name] * len(of.codes)


def test_the_results_of_each_model_state_the_load_of_the_run_and_its_own_sessions() -> None:
    client = Client(concurrency=3, warm_up=0)
    both = served("closed:30,6,24", 2, second=SecondModel(OTHER, 0.5), client=client)
    assert [each.facts["concurrency"] for each in both.models] == [3, 3]
    together = served("sessions:5,12,3,10,4,1", 2, second=SecondModel(OTHER, 0.5))
    own = [each.facts["sessions"] for each in together.models]
    assert sum(own) == together.facts["sessions"] == 12
    assert all(own)
    arriving = served("poisson:5000,60,40,6", 2, second=SecondModel(OTHER, 0.5))
    assert all(each.summary()["load"]["offered_requests_per_s"] for each in arriving.models)


def test_the_manifest_has_both_models_and_the_share_and_the_replicas_of_the_second_one() -> None:
    both = served("poisson:5000,6,40,6", 3, second=SecondModel(OTHER, 0.5, replicas=2))
    kept = both.manifest["setup"]["second"]
    assert both.manifest["model"]["name"] == MODEL.name
    assert (kept["model"]["name"], kept["share"], kept["replicas"]) == ("other", 0.5, 2)
    assert served("poisson:5000,6,40,6", 3).manifest["setup"]["second"] is None


def test_the_second_one_of_equal_names_is_marked() -> None:
    both = served(load(), 2, second=SecondModel(MODEL))
    names = [MODEL.name, f"{MODEL.name} (second)"]
    summary = both.summary()
    assert [of["model"] for of in summary["models"]] == names
    assert [of.get("model") for of in summary["pools"]] == names
    assert summary["model"] == " and ".join(names)


def test_a_closed_loop_waits_for_answers_of_either_model() -> None:
    client = Client(concurrency=3, warm_up=0)
    both = served("closed:30,6,24", 2, second=SecondModel(OTHER, 0.5), client=client)
    of = both.requests()
    events = [(at, 1) for at in of["arrival_ns"].tolist()] + [(at, -1) for at in of["finish_ns"].tolist()]
    count = 0
    for _, change in sorted(events):
        count += change
        assert count <= 3
    assert {each.of_model()["requests"] for each in both.models} != {0, 24}


# Links.


def test_caches_and_weights_of_two_models_share_a_link() -> None:
    """Check that twice the layers take twice the bytes, and that both lose what the other one sends."""
    made, tokens = times(), 2000
    sent = SentCache(place(0), place(1), tokens)
    other = SentCache(place(0), place(2), tokens)
    (first,) = made.ends_of_models([(MODEL, sent)])
    (second,) = made.ends_of_models([(OTHER, other)])
    together = made.ends_of_models([(MODEL, sent), (OTHER, other)])
    assert abs(together[0] - 2 * first) < first / 10  # the links are shared until the smaller one has ended
    assert abs(together[1] - (first + second)) < first / 10
    weights = SentWeights(place(0), place(3))
    (alone,) = made.ends_of_models([(MODEL, weights)])
    assert made.ends_of_models([(MODEL, weights), (OTHER, other)])[0] > alone
    apart = SentWeights(place(3), place(2))
    assert made.ends_of_models([(MODEL, sent), (MODEL, apart)]) == (first, alone)


def test_transfers_of_two_models_that_are_under_way_together_are_simulated_together() -> None:
    asked: list[list[int]] = []

    def ends_of_all(sent: Sequence[tuple[int, Sent]]) -> Sequence[int]:
        asked.append([owner for owner, _ in sent])
        return [each.begin_ns + 5 * TRANSFER_NS for _, each in sent]

    course, clusters = Course(ends_of_all), list[ServingCluster]()
    for number in range(2):
        pools = pool(PREFILL, first=2 * number), pool(DECODE, first=2 * number + 1)
        clusters.append(
            ServingCluster(
                pools, Policy(PREFILL_FIRST), KnownTimes(), course=course, first_replica=2 * number
            )
        )
    clusters[0].serve([Request(0, 0, 1, 3, model=0), Request(1, 0, 1, 3, model=1)])
    clusters[1].sort()
    assert asked == [[0, 1]]
    for number, cluster in enumerate(clusters):
        assert [(of.request.number, of.transfer_ns) for of in cluster.served] == [(number, 5 * TRANSFER_NS)]
        assert cluster.served[0].decode_replica == 2 * number + 1


def test_requests_need_the_cache_of_their_own_model() -> None:
    """Check caches of 10 and 1000 blocks of 16 tokens, and a prompt of 500."""
    for model in (0, 1):
        course = Course()
        small, _ = (
            ServingCluster(
                (CachePool(BOTH, Plan(), 1, first, blocks, 1),),
                Policy(),
                KnownTimes(),
                course=course,
                first_replica=first,
            )
            for first, blocks in enumerate((10, 1000))
        )
        asked = [Request(0, 0, 20, 3, model=1 - model), Request(1, 0, 500, 3, model=model)]
        if model:
            small.serve(asked)
        else:
            with pytest.raises(EtSimError, match="request 1 needs a cache of 502 tokens"):
                small.serve(asked)


# Requests.


@given(st.floats(0, 1), st.integers(0, 99), st.integers(1, 60))
def test_a_share_of_requests_and_whole_sessions_are_for_the_second_model(
    share: float, seed: int, count: int
) -> None:
    client = Client(models=NAMES, share=share, seed=seed)
    plain = read_traffic(f"poisson:5,{count},10,4", Client(seed=seed)).requests
    drawn = read_traffic(f"poisson:5,{count},10,4", client).requests
    assert tuple(msgspec.structs.replace(of, model=-1) for of in drawn) == plain
    assert {of.model for of in drawn} <= {0, 1}
    if share in (0, 1):
        assert {of.model for of in drawn} == {int(share)}
    sessions = read_traffic(f"sessions:5,{count},3,10,4,1", client).requests
    by_session: dict[int, set[int]] = {}
    for of in sessions:
        by_session.setdefault(of.session, set()).add(of.model)
    assert all(len(models) == 1 for models in by_session.values())


def test_a_larger_share_has_the_requests_of_a_smaller_one() -> None:
    shares = (0.0, 0.2, 0.5, 0.9, 1.0)
    found = [
        {
            of.number
            for of in read_traffic("poisson:5,400,10,4", Client(models=NAMES, share=each)).requests
            if of.model
        }
        for each in shares
    ]
    assert all(fewer <= more for fewer, more in pairwise(found))
    assert [round(len(each) / 400, 1) for each in found] == list(shares)


HEADER = "arrival_s,prompt_tokens,output_tokens,model"


def read(tmp_path: Path, text: str, models: tuple[str, ...] = NAMES, share: float | None = None) -> list[int]:
    path = tmp_path / "requests.csv"
    path.write_text(text)
    return [of.model for of in read_traffic(str(path), Client(models=models, share=share)).requests]


def test_a_file_names_the_model_of_each_request(tmp_path: Path) -> None:
    assert read(tmp_path, f"{HEADER}\n0,5,6,second\n1,5,6,first\n2,5,6,second\n") == [1, 0, 1]
    assert read(tmp_path, f"{HEADER}\n0,5,6,first\n", NAMES[:1]) == [0]


def test_a_seed_draws_the_share_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "requests.csv"
    path.write_text(HEADER.removesuffix(",model") + "\n" + "0,5,6\n" * 40)
    drawn = {
        tuple(of.model for of in read_traffic(str(path), Client(models=NAMES, share=0.5, seed=seed)).requests)
        for seed in range(5)
    }
    assert len(drawn) == 5
    with pytest.raises(UsageError, match="--seed is only for requests"):
        read_traffic(str(path), Client(seed=1))


@pytest.mark.parametrize(
    ("text", "more", "cause"),
    [
        (f"{HEADER}\n0,5,6,first\n1,5,6,third\n", {}, "line 3: model is 'third', which is not served"),
        (f"{HEADER}\n0,5,6,secnd\n", {}, "second"),
        (f"{HEADER}\n0,5,6,\n", {}, "line 2: model is empty"),
        (f"{HEADER}\n0,5,6,second\n", {"models": NAMES[:1]}, "which is not served"),
        (f"{HEADER}\n0,5,6,first\n", {"models": ("first", "first")}, "which both models are named"),
        (f"{HEADER}\n0,5,6,first\n", {"share": 0.5}, "requests name their models"),
        ("arrival_s,prompt_tokens,output_tokens\n0,5,6\n", {}, "requests do not name theirs"),
        (
            "arrival_s,prompt_tokens,output_tokens,session,think_s,model\n0,5,6,a,,first\n,15,6,a,1,second\n",
            {},
            "line 3: model differs from that of the turn before",
        ),
    ],
)
def test_files_whose_models_are_not_clear_are_refused(
    tmp_path: Path, text: str, more: dict[str, Any], cause: str
) -> None:
    with pytest.raises(EtSimError) as refused:
        read(tmp_path, text, **more)
    assert cause in str(refused.value)


# Options.


def test_an_option_names_the_model_its_share_and_its_replicas() -> None:
    name, values = words_of("llama3-8b,share=0.3,tp=2,replicas=3")
    assert name == "llama3-8b"
    assert second_of(MODEL, values) == SecondModel(MODEL, 0.3, 3, tensor=2)
    _, values = words_of("x,prefill-replicas=1,decode-replicas=2,dp=2,ep=4,pp=3")
    apart = SecondModel(MODEL, None, 2, 1, data=2, expert=4, pipeline=3)
    assert second_of(MODEL, values) == apart


@pytest.mark.parametrize(
    ("given", "cause"),
    [
        ("x,shar=0.3", "has no 'shar=0.3'"),
        ("x,share", "has no 'share' (give share=VALUE"),
        ("x,share=0.3,tp=2,share=0.9", "--second-model has share twice"),
        ("x,share=2", "share of --second-model is '2'"),
        ("x,share=nan", "share of --second-model is 'nan'"),
        ("x,tp=0", "tp of --second-model is '0'"),
        ("x,tp=two", "tp of --second-model is 'two'"),
        ("x,prefill-replicas=1", "needs replicas, or both"),
        ("x,replicas=1,prefill-replicas=1,decode-replicas=1", "needs replicas, or both"),
    ],
)
def test_options_that_are_not_clear_are_refused(given: str, cause: str) -> None:
    with pytest.raises(UsageError) as refused:
        second_of(MODEL, words_of(given)[1])
    assert cause in str(refused.value)


@pytest.mark.parametrize(
    ("setup", "cause"),
    [
        ({"autoscaling": rule(most=2)}, "--autoscale is for replicas of one model"),
        ({"cache_tokens": 4000}, "--cache-tokens is for replicas of one model"),
        ({"replicas": 2}, "the replicas need 3 NPUs"),
        ({"prefill_replicas": 1, "transfer": "layers"}, "--transfer layers requires separate prefill"),
    ],
)
def test_servings_that_do_not_suit_two_models_are_refused(setup: dict[str, Any], cause: str) -> None:
    with pytest.raises(UsageError) as refused:
        served("poisson:5,4,10,4", 2, second=SecondModel(MODEL, 0.5), **setup)
    assert cause in str(refused.value)
