"""Autoscaling: replicas that start, serve, and stop when they have ended their requests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from test_batching import PASS_NS, TOKEN_NS, KnownTimes
from test_rollouts import MODEL, figures, sent_ns, served

from et_sim.basics.errors import UsageError
from et_sim.serving.batcher import CHUNKED, Policy
from et_sim.serving.caching import Caching
from et_sim.serving.clients import Client
from et_sim.serving.cluster import ServingCluster
from et_sim.serving.engines.description import FREE_OF_COST, Engine
from et_sim.serving.prefixes import ENDLESS
from et_sim.serving.replicas import BOTH, CachePool
from et_sim.serving.requests import Request
from et_sim.serving.scaling import BUSY, QUEUE, REQUESTS, STORE, Autoscaling, FleetState, Scaler
from et_sim.workloads import Plan
from et_sim.workloads.inference.batch import GroupBatches
from et_sim.workloads.inference.memory import weight_bytes_of_stage
from et_sim.workloads.inference.transfers import Sent

EVERY = 10_000
REQUEST_NS = PASS_NS + 100 * TOKEN_NS  # of a prompt of 100 tokens and one output token


@pytest.fixture(autouse=True)
def interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ET_SIM_COMPILE", "never")


class TimesOfWeights(KnownTimes):
    """Known times of passes, and one of weights."""

    weights_ns = 0

    def ends_ns(self, caches: Sequence[Sent]) -> list[int]:
        return [of.begin_ns + self.weights_ns for of in caches]


class TimesOfGroups(TimesOfWeights):
    """Known times of passes with several groups."""

    def pass_ns(self, pool: CachePool, batch: GroupBatches) -> int:  # noqa: ARG002
        batches = batch if isinstance(batch, tuple) else (batch,)
        return PASS_NS + TOKEN_NS * max(each.tokens for each in batches)


def rule(measure: str = QUEUE, target: float = 1, least: int = 1, most: int = 3, **more: Any) -> Autoscaling:
    return Autoscaling(
        measure, target, least, most, **{"start_ns": 0, "every_ns": EVERY, "down_after_ns": 0, **more}
    )


def cluster_of(
    given: Sequence[tuple[int, int, int]],
    scaled: Autoscaling | None,
    replicas: int = 1,
    data: int = 1,
    weights_ns: int = 0,
    caching: Caching = Caching(),  # noqa: B008
    engine: Engine = FREE_OF_COST,
) -> tuple[ServingCluster, Scaler | None]:
    """Return the cluster after it has served (arrival, prompt, output), each request alone on a replica."""
    count = replicas if scaled is None else scaled.most
    own = CachePool(BOTH, Plan(data=data), count, 0, 1000, 1)
    scaler = None if scaled is None else Scaler(scaled, own)
    times = TimesOfGroups() if data > 1 else TimesOfWeights()
    times.weights_ns = weights_ns
    parts: dict[str, Any] = {"caching": caching, "scaler": scaler, "engine": engine}
    cluster = ServingCluster((own,), Policy(CHUNKED, max_batch=1), times, **parts)
    cluster.serve([Request(number, *fields) for number, fields in enumerate(sorted(given))])
    return cluster, scaler


def times_of(cluster: ServingCluster) -> list[tuple[int, int, int]]:
    return [(of.replica, of.first_token_ns, of.finish_ns) for of in cluster.served]


loads = st.lists(
    st.tuples(st.integers(0, 100_000), st.integers(1, 200), st.integers(1, 12)), min_size=1, max_size=25
)


@given(loads, st.sampled_from([QUEUE, REQUESTS, BUSY]), st.integers(1, 3), st.integers(1, 2))
def test_as_many_at_least_as_at_most_are_a_fleet_of_that_size(
    load: list[tuple[int, int, int]], measure: str, count: int, data: int
) -> None:
    scaled, scaler = cluster_of(load, rule(measure, 1, count, count), data=data)
    fleet, _ = cluster_of(load, None, count, data)
    assert times_of(scaled) == times_of(fleet)
    assert scaled.iterations == fleet.iterations
    assert scaler is not None
    assert scaler.course == [FleetState(0, count, 0, 0)]


@given(loads)
def test_a_load_that_never_exceeds_the_target_starts_no_replica(load: list[tuple[int, int, int]]) -> None:
    scaled, scaler = cluster_of(load, rule(REQUESTS, len(load), 1, 3))
    fleet, _ = cluster_of(load, None)
    assert scaler is not None
    assert scaler.course == [FleetState(0, 1, 0, 0)]
    assert times_of(scaled) == times_of(fleet)


def test_without_a_cold_start_replicas_are_there_when_the_load_is_measured() -> None:
    """Check three requests that wait at the first measurement, and three that come right after it."""
    burst = [(EVERY - 9, 100, 1)] * 4
    after = [(EVERY + 1, 100, 1)] * 2
    cluster, scaler = cluster_of([*burst, *after], rule())
    assert scaler is not None
    assert scaler.course[:2] == [FleetState(0, 1, 0, 0), FleetState(EVERY, 3, 0, 0)]
    assert [of.replica for of in cluster.served[4:]] == [1, 2]
    assert [of.first_token_ns for of in cluster.served[4:]] == [EVERY + 1 + REQUEST_NS] * 2


def test_a_replica_serves_when_it_has_its_weights_and_its_engine_has_started() -> None:
    burst = [(EVERY - 9, 100, 1)] * 4
    ready = EVERY + 700 + 4000
    late = [(ready - 1, 100, 1), (ready + 1, 100, 1)]
    cluster, scaler = cluster_of([*burst, *late], rule(start_ns=4000), weights_ns=700)
    assert scaler is not None
    assert scaler.course[1] == FleetState(EVERY, 1, 2, 0)
    assert FleetState(ready, 3, 0, 0) in scaler.course
    assert [of.replica for of in cluster.served[4:]] == [0, 1]
    assert scaler.weights_ns == [700, 700]


def test_the_replica_with_the_least_left_to_do_ends_its_requests_and_stops() -> None:
    """Check two busy replicas, of which the second has fewer tokens left, and gets no request any more."""
    busy = [(EVERY + 1, 100, 40), (EVERY + 6500, 100, 80)]
    load = [*[(EVERY - 9, 100, 1)] * 3, *busy, (3 * EVERY + 5, 100, 1)]
    cluster, scaler = cluster_of(load, rule(most=2))
    assert scaler is not None
    assert [of.replica for of in cluster.served[3:]] == [1, 0, 0]
    stopped = cluster.served[3]
    assert scaler.course == [
        FleetState(0, 1, 0, 0),
        FleetState(EVERY, 2, 0, 0),
        FleetState(2 * EVERY, 1, 0, 1),
        FleetState(stopped.finish_ns, 1, 0, 0),
    ]
    assert scaler.on_times(10**6) == [(1, EVERY, stopped.finish_ns), (0, 0, 10**6)]


def test_a_replica_does_not_stop_before_a_request_that_came_too_late_for_its_next_pass() -> None:
    """Check a replica that is removed in its last pass, in which another request has come.

    Its engine has chosen the batch after this pass, so the request is in the one after that.
    """
    prepares = replace(FREE_OF_COST, host=replace(FREE_OF_COST.host, prepares=True))
    at = 2 * EVERY - 1000
    load = [*[(EVERY - 9, 100, 1)] * 3, (at, 100, 1), (at + 100, 300, 1), (at + 200, 100, 1)]
    cluster, scaler = cluster_of(load, rule(most=2), engine=prepares)
    assert scaler is not None
    assert [of.replica for of in cluster.served[3:]] == [0, 1, 0]
    late = cluster.served[5]
    assert late.finish_ns == at + 2 * REQUEST_NS
    assert scaler.course[-2:] == [FleetState(2 * EVERY, 1, 0, 1), FleetState(late.finish_ns, 1, 0, 0)]


def test_requests_that_came_too_late_for_the_next_pass_wait_in_the_measured_queue() -> None:
    prepares = replace(FREE_OF_COST, host=replace(FREE_OF_COST.host, prepares=True))
    load = [(EVERY - 500, 100, 1), *[(EVERY - 9, 100, 1)] * 2]
    _, scaler = cluster_of(load, rule(), engine=prepares)
    assert scaler is not None
    assert scaler.course[1] == FleetState(EVERY, 2, 0, 0)


def test_replicas_stop_when_all_counts_of_a_time_wanted_fewer() -> None:
    burst, end = [(EVERY - 9, 100, 1)] * 4, [(9 * EVERY, 100, 1)]
    _, scaler = cluster_of([*burst, *end], rule(down_after_ns=4 * EVERY))
    assert scaler is not None
    assert [state for state in scaler.course if state.time_ns < 9 * EVERY] == [
        FleetState(0, 1, 0, 0),
        FleetState(EVERY, 3, 0, 0),
        FleetState(6 * EVERY, 1, 0, 0),
    ]


def test_busy_replicas_are_counted_by_the_time_of_their_passes() -> None:
    """Check a replica that is busy for 80 % of an interval, and one that is busy for 60 %."""
    for count, replicas in ((4, 2), (3, 1)):
        load = [(number * REQUEST_NS, 100, 1) for number in range(count)]
        _, scaler = cluster_of([*load, (EVERY + 1, 100, 1)], rule(BUSY, 0.6))
        assert scaler is not None
        assert [state.serving for state in scaler.course if state.time_ns == EVERY] == [replicas] * (
            count > 3
        )


def test_within_a_tenth_of_the_target_nothing_changes() -> None:
    scaled = rule(REQUESTS, 10, 1, 9)
    assert [scaled.wanted(measured, 2) for measured in (18, 22, 23, 17, 0, 900)] == [2, 2, 3, 2, 1, 9]


def test_a_replica_that_starts_again_has_no_prefixes() -> None:
    scaled, own = rule(most=2), CachePool(BOTH, Plan(), 2, 0, 1000, 1)
    scaler = Scaler(scaled, own)
    caching = Caching(ENDLESS)
    cluster = ServingCluster((own,), Policy(max_batch=1), TimesOfWeights(), caching=caching, scaler=scaler)
    stays, batcher = (replica.batcher for replica in cluster.replicas)
    before, kept = batcher.prefixes, stays.prefixes
    cluster.serve([Request(number, EVERY - 9, 100, 1) for number in range(4)])
    assert scaler.course[1] == FleetState(EVERY, 2, 0, 0)
    assert batcher.prefixes is not before
    assert stays.prefixes is kept


@given(
    loads,
    st.sampled_from([(QUEUE, 1.0), (QUEUE, 0.5), (REQUESTS, 2.0), (BUSY, 0.5)]),
    st.integers(1, 2),
    st.integers(0, 3),
    st.tuples(st.integers(0, 30_000), st.integers(0, 30_000), st.integers(0, 30_000)),
    st.integers(1, 2),
)
def test_passes_run_on_replicas_that_are_on_and_every_request_ends(
    load: list[tuple[int, int, int]],
    measured: tuple[str, float],
    least: int,
    more: int,
    times: tuple[int, int, int],
    data: int,
) -> None:
    start, down, weights = times
    scaled = rule(*measured, least, least + more, start_ns=start, down_after_ns=down)
    cluster, scaler = cluster_of(load, scaled, data=data, weights_ns=weights)
    assert all(of.is_done for of in cluster.served)
    assert scaler is not None
    assert len(cluster.served) == len(load)
    on = scaler.on_times(10**12)
    for each in cluster.iterations:
        assert any(
            of.replica == each.replica // data and of.begin_ns <= each.start_ns and each.end_ns <= of.end_ns
            for of in on
        )
    for _, serving, starting, draining in scaler.course:
        assert serving >= 1
        assert serving + starting + draining <= scaled.most
    starts = [of for of in on if of.begin_ns]
    assert all(of.end_ns - of.begin_ns >= weights + start for of in starts)


# On a machine.


def test_a_fleet_of_fixed_size_has_the_summary_without_a_rule() -> None:
    load = [Request(number, number * 10**5, 30, 6) for number in range(6)]
    fixed = served(load, 2, autoscaling=rule(least=2, most=2), replicas=2)
    fleet = served(load, 2, replicas=2)
    assert figures(fixed) == figures(fleet)
    found = fixed.summary()
    scaling = found.pop("scaling")
    assert found == fleet.summary()
    assert scaling["mean_npus"] == 2
    assert (scaling["started"], scaling["stopped"], scaling["weights_ns"]) == (0, 0, None)


@pytest.mark.parametrize(("source", "npus", "earlier"), [("peer", 3, 1), (STORE, 4, 1), ("peer", 3, 0)])
def test_weights_of_replicas_that_start_together_share_the_links_of_their_source(
    source: str, npus: int, earlier: int
) -> None:
    """Check requests that come before the load is measured, and at this time, before any pass."""
    every = 10**6
    load = [Request(number, every - earlier, 30, 6) for number in range(5)]
    scaled = rule(REQUESTS, 1, 1, 3, every_ns=every, source=source)
    outcome = served(load, npus, autoscaling=scaled)
    size = weight_bytes_of_stage(MODEL, Plan(), 0)
    took = sent_ns(size, npus, 2)
    scaler = outcome.scaler
    assert scaler is not None
    assert scaler.course[1:3] == [FleetState(every, 1, 2, 0), FleetState(every + took, 3, 0, 0)]
    assert took > sent_ns(size, npus, 1)
    weights = outcome.summary()["scaling"]["weights_ns"]
    assert weights is not None
    assert (weights["mean"], weights["max"]) == (took, took)


def test_replicas_that_start_together_have_their_weights_of_different_peers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Check two replicas that serve, and two, three and one that start at a time."""
    sources = []

    def ends_ns(_: TimesOfWeights, sent: Sequence[Sent]) -> list[int]:
        sources.append([of.source.first for of in sent])
        return [of.begin_ns + 700 for of in sent]

    monkeypatch.setattr(TimesOfWeights, "ends_ns", ends_ns)
    for most in (4, 5, 3):
        cluster_of([(EVERY - 9, 100, 1)] * 9, rule(least=2, most=most))
    assert sources == [[0, 1], [0, 1, 0], [0]]


def test_npus_are_paid_from_the_begin_of_a_start_to_the_end_of_the_last_request() -> None:
    every = 10**6
    load = [Request(number, every - 1, 30, 6) for number in range(5)]
    outcome = served(load, 3, autoscaling=rule(REQUESTS, 1, 1, 3, every_ns=every, down_after_ns=10**12))
    summary = outcome.summary()
    first, span = every - 1, summary["duration_ns"]
    assert summary["scaling"]["mean_npus"] == pytest.approx((3 * span - 2) / span, abs=1e-3)
    assert outcome.requests()["finish_ns"].max() == first + span
    busy = sum(each.end_ns - each.start_ns for each in outcome.iterations)
    assert summary["busy_share"] == pytest.approx(busy / (3 * span - 2), abs=1e-4)
    costs = summary["costs"]
    fixed = served(load, 3, replicas=3).summary()["costs"]
    assert costs is not None
    assert fixed is not None
    each, fleet = (of["price_per_million_output_tokens"] for of in (costs, fixed))
    assert each is not None
    assert fleet is not None
    assert each > fleet  # its tokens come later


@pytest.mark.parametrize(
    ("setup", "given", "cause"),
    [
        ({}, "rollout:30,6,4,2", "--autoscale is for requests that are served as they arrive"),
        (
            {"prefill_replicas": 1},
            "poisson:2,4,30,6",
            "--autoscale changes the number of replicas for prompts",
        ),
        (
            {"autoscaling": rule(most=2, source=STORE)},
            "poisson:2,4,30,6",
            "--weights-from store requires 1 rank",
        ),
        ({"autoscaling": rule(most=3)}, "poisson:2,4,30,6", "the replicas need 3 NPUs"),
    ],
)
def test_servings_that_cannot_scale_are_refused(setup: dict[str, Any], given: str, cause: str) -> None:
    with pytest.raises(UsageError) as refused:
        served(given, 2, **{"autoscaling": rule(most=2), **setup})
    assert cause in str(refused.value)


@pytest.mark.parametrize(
    ("given", "cause"),
    [
        ({"measure": "load"}, "has no measure 'load'"),
        ({"target": 0}, "the target of --autoscale is 0"),
        ({"measure": BUSY, "target": 1.5}, "the target of --autoscale is 1.5"),
        ({"least": 4}, "--most-replicas is 3, less than the 4"),
        ({"source": "disk"}, "--weights-from is 'disk'"),
        ({"every_ns": 0}, "--scale-every is less than 1 ns"),
    ],
)
def test_rules_out_of_range_are_refused(given: dict[str, Any], cause: str) -> None:
    with pytest.raises(UsageError) as refused:
        rule(**given)
    assert cause in str(refused.value)


def test_a_closed_loop_scales_too() -> None:
    client = Client(concurrency=6, warm_up=0)
    scaled = rule(REQUESTS, 2, 1, 3, every_ns=10**6)
    outcome = served("closed:30,60,24", 3, autoscaling=scaled, client=client)
    assert outcome.scaler is not None
    assert max(state.serving for state in outcome.scaler.course) == 3


def test_a_target_near_zero_wants_as_many_replicas_as_there_may_be() -> None:
    assert rule(QUEUE, 5e-324, 1, 3).wanted(4, 1) == 3
    assert rule(QUEUE, 5e-324, 1, 3).wanted(0, 1) == 1
