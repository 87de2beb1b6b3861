"""Clients: closed loops, lengths that vary, and requests that are not counted."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

import pytest
from test_batching import PASS_NS, TOKEN_NS, KnownTimes, pool

from et_sim.basics.errors import EtSimError
from et_sim.serving.batcher import CHUNKED, POLICIES, Policy
from et_sim.serving.clients import Client, read_traffic
from et_sim.serving.cluster import ServingCluster
from et_sim.serving.engines.description import FREE_OF_COST, Engine, EngineHost
from et_sim.serving.requests import Request
from et_sim.serving.sequences import ServedSequence


def looped(
    client: Client, rule: str | list[Request], policy: str = CHUNKED, engine: Engine = FREE_OF_COST
) -> ServingCluster:
    cluster = ServingCluster((pool(blocks=100_000),), Policy(policy), KnownTimes(), engine=engine)
    traffic = read_traffic(rule, client)
    cluster.serve(traffic.requests, traffic.concurrency, traffic.ends_first)
    return cluster


@pytest.mark.parametrize("policy", POLICIES)
def test_a_closed_loop_of_one_has_requests_one_after_another(policy: str) -> None:
    cluster = looped(Client(1, lengths=0.5, warm_up=0), "closed:100,20,30", policy)
    for before, after in pairwise(cluster.served):
        assert after.request.arrival_ns == before.finish_ns
    for of in cluster.served:
        further = of.request.output - 1
        first = PASS_NS + TOKEN_NS * of.request.prompt
        assert of.first_token_ns - of.request.arrival_ns == first
        assert of.finish_ns - of.first_token_ns == further * (PASS_NS + TOKEN_NS)


def test_so_many_requests_are_under_way_until_the_last_is_sent() -> None:
    cluster = looped(Client(8, lengths=0.8, warm_up=0), "closed:64,32")
    ends = sorted(of.finish_ns for of in cluster.served)
    arrivals = sorted(of.request.arrival_ns for of in cluster.served)
    assert len(arrivals) == 8 * 10
    assert arrivals[:8] == [0] * 8
    assert arrivals[8:] == ends[:-8]  # each is sent when another one ends


def test_requests_that_warm_up_end_before_the_counted_ones_begin() -> None:
    cluster = looped(Client(4, warm_up=6), "closed:64,32,20")
    first, counted = cluster.served[:6], cluster.served[6:]
    begin = max(of.finish_ns for of in first)
    assert [of.request.arrival_ns for of in counted[:4]] == [begin] * 4
    alone = looped(Client(4, warm_up=0), "closed:64,32,20").served
    assert [of.finish_ns - begin for of in counted] == [of.finish_ns for of in alone]


def test_given_requests_that_warm_up_end_before_others_are_sent() -> None:
    given = [Request(number, 0, 64, 32) for number in range(10)]
    served = looped(Client(2, warm_up=3), given).served
    begin = max(of.finish_ns for of in served[:3])
    assert [of.request.arrival_ns for of in served[3:5]] == [begin] * 2


def test_host_times_of_a_request_stand_before_and_after_its_passes() -> None:
    host = EngineHost(before_ns=700, after_ns=300, pass_ns=50, prompt_pass_ns=20, eager_layer_ns=10)
    cluster = looped(Client(1, warm_up=0), "closed:10,2,3", engine=Engine("an engine", host=host))
    prompt, token = PASS_NS + 10 * TOKEN_NS + 70, PASS_NS + TOKEN_NS + 50  # kernels take longer than launches
    each = [
        (of.first_token_ns - of.request.arrival_ns, of.finish_ns - of.first_token_ns) for of in cluster.served
    ]
    assert each == [(700 + prompt + 300, token)] * 3
    assert [of.request.arrival_ns for of in cluster.served] == [
        0,
        each[0][0] + token,
        2 * (each[0][0] + token),
    ]


def test_lengths_are_between_the_share_and_all_and_follow_from_the_seed() -> None:
    first = read_traffic("closed:1000,100,3000", Client(4, 0.8, seed=7))
    prompts, outputs = ({getattr(of, name) for of in first.requests} for name in ("prompt", "output"))
    assert (min(prompts), max(prompts), min(outputs), max(outputs)) == (800, 1000, 80, 100)
    assert first == read_traffic("closed:1000,100,3000", Client(4, 0.8, seed=7))
    assert first != read_traffic("closed:1000,100,3000", Client(4, 0.8, seed=8))
    varied = read_traffic("poisson:10,200,1000,100", Client(lengths=0.8))
    equal = read_traffic("poisson:10,200,1000,100", Client())
    assert [of.arrival_ns for of in varied.requests] == [of.arrival_ns for of in equal.requests]
    assert len({of.prompt for of in varied.requests}) > 100


def test_ten_requests_count_and_two_warm_up_for_each_under_way() -> None:
    traffic = read_traffic("closed:10,10", Client(16))
    assert (len(traffic.requests), traffic.concurrency, traffic.warm_up) == (192, 16, 32)
    assert read_traffic("closed:10,10,50", Client(16, warm_up=0)).warm_up == 0


def test_a_loop_larger_than_its_requests_is_a_batch() -> None:
    cluster = looped(Client(100, warm_up=0), "closed:10,3,5")
    assert [of.request.arrival_ns for of in cluster.served] == [0] * 5


@pytest.mark.parametrize(
    ("rule", "client", "sentence"),
    [
        ("closed:10,10", {}, "closed:10,10 needs the number of requests under way (give --concurrency"),
        ("closed:10", {"concurrency": 2}, "'closed:10' is not closed:PROMPT,OUTPUT[,COUNT]"),
        ("closed:0,10", {"concurrency": 2}, "closed:0,10: PROMPT is 0 (give a whole number from 1"),
        ("closed:9,9,0", {"concurrency": 2}, "COUNT is 0"),
        ("closed:9,9", {"concurrency": 2, "warm_up": -1}, "--warm-up is -1"),
        ("closed:9,9", {"concurrency": 2, "seed": -1}, "--seed is -1"),
        ("closed:9,9", {"concurrency": 2, "lengths": 0}, "--lengths is 0 (give a share above 0"),
        ("closed:9,9", {"concurrency": -2}, "--concurrency is -2"),
        ("closed:9,9", {"concurrency": 4, "warm_up": 3, "is_spread": True}, "less than the 4 requests that"),
        ("poisson:1,5,9,9", {"is_spread": True}, "--spread is only for closed loops"),
        ("poisson:1,5,9,9", {"warm_up": 5}, "--warm-up is 5, of 5 requests"),
        ("poisson:1,5,9,9", {"concurrency": 2}, "arrive at times of their own"),
    ],
)
def test_a_faulty_client_is_refused(rule: str, client: dict[str, float], sentence: str) -> None:
    with pytest.raises(EtSimError, match=re.escape(sentence)):
        read_traffic(rule, Client(**client))  # type: ignore[arg-type]


def test_given_requests_have_their_lengths() -> None:
    with pytest.raises(EtSimError, match="only for requests that are made by a rule"):
        read_traffic([Request(0, 0, 1, 1)], Client(lengths=0.5))
    given = [Request(0, 5, 1, 1), Request(1, 9, 1, 1)]
    assert [of.arrival_ns for of in read_traffic(given, Client(concurrency=1)).requests] == [0, 0]


def test_a_spread_loop_is_out_of_step_from_the_first_counted_request_on() -> None:
    cluster = looped(Client(4, is_spread=True), "closed:10,40")
    warm, counted = cluster.served[:8], cluster.served[8:]
    assert [of.request.output for of in warm] == [10, 20, 30, 40, 40, 40, 40, 40]
    assert len(counted) == 40
    sent = sorted(of.request.arrival_ns for of in counted)
    assert sent[0] < max(of.finish_ns for of in warm)  # none waits until all of the first ones have ended
    assert len(set(sent)) == len(sent)
    together = looped(Client(4), "closed:10,40").served[8:]
    assert len({of.request.arrival_ns for of in together}) == 10


def test_a_spread_loop_has_shorter_waits_and_longer_tokens_than_one_in_step() -> None:
    spread, together = (
        looped(Client(8, is_spread=is_spread), "closed:1000,50").served[16:] for is_spread in (True, False)
    )

    def mean(served: Sequence[ServedSequence], part: str) -> float:
        total: int = sum(getattr(of, f"{part}_ns") - of.request.arrival_ns for of in served)
        return total / len(served)

    assert mean(spread, "first_token") < mean(together, "first_token") / 2
    tokens = [mean(each, "finish") - mean(each, "first_token") for each in (spread, together)]
    assert tokens[0] > tokens[1]


def test_time_of_a_request_before_its_passes_grows_with_the_layers() -> None:
    times = []
    for layers, experts in ((1, 0), (80, 0), (80, 77)):
        host = EngineHost(before_ns=700, before_layer_ns=20, before_expert_layer_ns=3)
        engine, number = Engine("an engine", host=host), {"layers": layers, "expert_layers": experts}
        cluster = ServingCluster((pool(blocks=99),), Policy(), KnownTimes(), engine=engine, **number)
        cluster.serve(read_traffic("closed:10,2,1", Client(1, warm_up=0)).requests, 1)
        (of,) = cluster.served
        times.append(of.scheduled_ns - of.request.arrival_ns)
    assert times == [720, 700 + 80 * 20, 700 + 80 * 20 + 77 * 3]
