"""All-to-alls in which every pair of members has its own number of bytes."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from machines import MODELS, network, system

from et_sim.api import run
from et_sim.basics.errors import EtSimError, MachineError, TraceError
from et_sim.plan.expected import expected_messages, expected_packets
from et_sim.run.result import Result
from et_sim.trace import GroupRule, TraceBuilder, Workload, decode, encode_trace
from et_sim.trace.preflight import find_problems

pytestmark = pytest.mark.usefixtures("warm_engine")

Matrix = list[list[int]]
SPLIT_IN_TWO = {"preferred-dataset-splits": 2}
GBPS, LATENCY, ENDPOINT = 50.0, 500.0, 10
GIB_NS = GBPS * 2**30 / 1e9  # bytes in a nanosecond


def exchange(matrix: Matrix | None, ranks: int, bytes: int = 0, group: str = "", times: int = 1) -> Workload:
    """Return a workload in which every rank sends its row of the matrix, or, without one, equal sizes."""
    builders = []
    for rank in range(ranks):
        build, last = TraceBuilder(), []
        for _ in range(times):
            sizes = {"splits": matrix[rank]} if matrix else {"bytes": bytes}
            last = [build.collective("all_to_all", group=group, after=last, **sizes)]
        builders.append(build)
    return Workload.of([build.build() for build in builders])


def finished(workload: Workload, npus: list[int], algorithm: str = "direct", **more: Any) -> Result:
    shapes = more.pop("shapes", ["Switch"] * len(npus))
    keys = more.pop("keys", {})
    result = run(
        workload,
        system=system(algorithm, len(npus), **keys),
        network=network(shapes, npus, GBPS, LATENCY),
        **more,
    )
    assert result.is_complete
    return result


MACHINES = (
    ([4], ["FullyConnected"]),
    ([6], ["Ring"]),
    ([2, 3], ["Ring", "Switch"]),
    ([4, 2, 2], ["Ring", "FullyConnected", "Switch"]),
)


def takes_as_long_as_the_plain(npus: list[int], algorithm: str, splits: int, **options: Any) -> None:
    ranks, each = int(np.prod(npus)), 60_000
    keys = {"preferred-dataset-splits": splits}
    plain = exchange(None, ranks, each * ranks)
    own = exchange([[each] * ranks] * ranks, ranks)
    result = finished(own, npus, algorithm, keys=keys, **options)
    expected = finished(plain, npus, algorithm, keys=keys, **options)
    assert result.finish_ns.tolist() == expected.finish_ns.tolist()
    assert len(result.outcome.plan.actors) == len(expected.outcome.plan.actors)


@pytest.mark.parametrize("algorithm", ["direct", "direct2", "ring"])
@pytest.mark.parametrize("model", MODELS)
def test_equal_bytes_for_all_pairs_take_as_long_as_the_plain_all_to_all(algorithm: str, model: str) -> None:
    profile = "reference" if algorithm == "direct" else "corrected"
    takes_as_long_as_the_plain([2, 3], algorithm, 2, shapes=["Ring", "Switch"], model=model, profile=profile)


@pytest.mark.parametrize(("npus", "shapes"), MACHINES)
@pytest.mark.parametrize("algorithm", ["direct", "direct2", "ring"])
@pytest.mark.parametrize(
    "profile",
    [
        pytest.param("reference", marks=pytest.mark.deep),
        pytest.param("corrected", marks=pytest.mark.exhaustive),
    ],
)
def test_equal_bytes_take_as_long_on_every_machine_and_model(
    npus: list[int], shapes: list[str], algorithm: str, profile: str
) -> None:
    for model in MODELS:
        for splits in (1, 4):
            takes_as_long_as_the_plain(npus, algorithm, splits, shapes=shapes, model=model, profile=profile)


def test_the_hottest_receiver_of_a_switch_takes_all_that_is_sent_to_it() -> None:
    """Check packets in one direction: the receiver's link passes one byte after the other."""
    ranks, each = 8, 4_000_000
    matrix = [
        [each if target == 3 and source != 3 else 0 for target in range(ranks)] for source in range(ranks)
    ]
    result = finished(exchange(matrix, ranks), [ranks], model="flow")
    expected = (ranks - 1) * each / GIB_NS + 2 * LATENCY + 2 * ENDPOINT
    assert abs(result.makespan_ns - expected) <= 2
    without = finished(exchange(matrix, ranks), [ranks], model="analytical")
    assert abs(without.makespan_ns - (each / GIB_NS + 2 * LATENCY + 2 * ENDPOINT)) <= 2


def test_nothing_is_sent_between_pairs_without_bytes() -> None:
    ranks = 5
    matrix = [[0, 7, 0, 0, 1], [0, 9, 0, 0, 0], [3, 3, 3, 0, 0], [0, 0, 0, 0, 0], [0, 0, 0, 4, 0]]
    result = finished(exchange(matrix, ranks), [ranks], detail=("messages", "links"), keys=SPLIT_IN_TWO)
    rows = result.table("messages").to_pylist()
    sent: dict[tuple[int, int], int] = {}
    for row in rows:
        pair = row["actor"], row["peer"]
        sent[pair] = sent.get(pair, 0) + row["bytes"]
    wanted = {
        (source, target): size
        for source, row in enumerate(matrix)
        for target, size in enumerate(row)
        if size and source != target
    }
    assert sent == wanted
    assert len(rows) == sum(min(size, 2) for size in wanted.values())
    assert result.finish_ns.tolist()[3] > 0


def test_expected_messages_and_packets_are_those_of_pairs_with_bytes() -> None:
    matrix = [[0, 7, 0, 0, 1], [0, 9, 0, 0, 0], [3, 3, 3, 0, 0], [0, 0, 0, 0, 0], [0, 0, 0, 4, 0]]
    plan = finished(exchange(matrix, 5), [5]).outcome.plan
    assert expected_messages(plan) == 5
    assert [expected_packets(plan, payload) for payload in (1, 2, 100)] == [18, 4 + 1 + 2 + 2 + 2, 5]


def random_matrix(draw: Random, ranks: int, period: int) -> Matrix:
    """Return rows that repeat with this period, each read from its own rank on."""
    base = [[draw.choice((0, 0, 1, 7, 1000, 50_000)) for _ in range(ranks)] for _ in range(period)]
    return [[base[rank % period][(to - rank) % ranks] for to in range(ranks)] for rank in range(ranks)]


def random_case(seed: int) -> tuple[Workload, dict[str, Any]]:
    draw = Random(seed)
    npus = draw.choice(([2], [4], [6], [8], [2, 3], [4, 2], [2, 2, 2]))
    ranks = int(np.prod(npus))
    members = list(range(ranks))
    group = draw.choice(("", "1"))
    if group and draw.random() < 0.5:
        members = members[: draw.choice((2, ranks // 2, ranks - 1))] if ranks > 2 else members
        draw.shuffle(members)
    size = len(members)
    matrix = random_matrix(draw, size, draw.choice([p for p in (1, 2, size) if size % p == 0]))
    builders = [TraceBuilder() for _ in range(ranks)]
    for rank, build in enumerate(builders):
        last = [build.compute("work", micros=draw.choice([0] * 30 + [5]))]
        if rank in members:
            place = members.index(rank)
            back = [row[place] for row in matrix]
            for row in (matrix[place], back):
                last = [build.collective("all_to_all", splits=row, group=group, after=last)]
        build.collective("all_reduce", 1000, after=last)
    keys = {
        "preferred-dataset-splits": draw.choice((1, 1, 2, 3)),
        "active-chunks-per-dimension": draw.choice((1, 2, 4)),
        "num-queues-per-dim": draw.choice((1, 1, 2)),
        "rendezvous-protocol": draw.choice((0, 0, 1)),
    }
    return Workload.of([build.build() for build in builders]), {
        "system": system(draw.choice(("direct", "direct2", "ring")), len(npus), **keys),
        "network": network([draw.choice(("Ring", "FullyConnected", "Switch")) for _ in npus], npus),
        "groups": {"1": members} if group else None,
        "profile": "corrected",
        "model": draw.choice(MODELS),
    }


def folds_exactly(seed: int) -> bool:
    workload, machine = random_case(seed)
    folded, whole = run(workload, **machine), run(workload, fold=False, **machine)
    assert whole.is_complete
    assert folded.finish_ns.tolist() == whole.finish_ns.tolist()
    return len(folded.outcome.plan.actors) < workload.ranks


def test_folding_changes_no_time_of_random_exchanges() -> None:
    assert sum(folds_exactly(seed) for seed in (0, 1, 17, 30)) == 3


@pytest.mark.deep
@given(st.integers(100, 10**9))
def test_folding_changes_no_time_of_many_random_exchanges(seed: int) -> None:
    folds_exactly(seed)


@pytest.mark.deep
def test_compiled_and_interpreted_runs_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    workload, machine = random_case(5)
    results = []
    for compile_when in ("never", "now"):
        monkeypatch.setenv("ET_SIM_COMPILE", compile_when)
        results.append(run(workload, fold=False, **machine).finish_ns.tolist())
    assert results[0] == results[1]


def test_ranks_with_other_rows_are_not_folded_and_rotations_are() -> None:
    turned = [[1000 * ((to - rank) % 4) for to in range(4)] for rank in range(4)]
    result = finished(exchange(turned, 4), [4], shapes=["FullyConnected"])
    assert len(result.outcome.plan.actors) == 1
    turned[0][2], turned[2][0] = turned[0][2] + 2000, turned[2][0] - 2000
    turned[0][1] -= 2000 - 1001
    result = finished(exchange(turned, 4), [4], shapes=["FullyConnected"])
    assert len(result.outcome.plan.actors) == 4


def test_groups_by_rule_equal_the_same_groups_listed() -> None:
    """Run eight ranks, grouped by parity, with a template for each place in the group."""
    matrix = [[10_000 * (source + 2 * to) for to in range(4)] for source in range(4)]
    traces = []
    for row in matrix:
        build = TraceBuilder()
        build.collective("all_to_all", splits=row, group="experts")
        traces.append(build.build())
    rule = GroupRule(4, 2)
    ruled = Workload(tuple(traces), np.arange(8, dtype=np.int32) // 2, group_rules={"experts": rule})
    listed = []
    for rank in range(8):
        build = TraceBuilder()
        build.collective("all_to_all", splits=matrix[rank // 2], group=str(1 + rank % 2))
        listed.append(build.build())
    groups = {"1": [0, 2, 4, 6], "2": [1, 3, 5, 7]}
    result = finished(ruled, [8], profile="corrected")
    expected = finished(Workload.of(listed), [8], groups=groups, profile="corrected", fold=False)
    assert result.finish_ns.tolist() == expected.finish_ns.tolist()
    assert find_problems(ruled) == []
    assert len(result.outcome.plan.actors) == 4


def test_groups_by_rule_with_other_templates_exchange_alike() -> None:
    """Run two groups with equal rows, as in two stages of a pipeline, whose ranks compute differently."""
    matrix = [[0, 70_000], [1_000, 0]]
    traces = []
    for micros in (0, 3):
        for row in matrix:
            build = TraceBuilder()
            work = build.compute("work", micros=micros)
            build.collective("all_to_all", splits=row, group="experts", after=[work])
            traces.append(build.build())
    every = np.arange(4, dtype=np.int32)
    workload = Workload(tuple(traces), every, group_rules={"experts": GroupRule(2)}, profile="corrected")
    finish = finished(workload, [4], profile="corrected").finish_ns.tolist()
    assert all(abs(late - early - 3000) <= 1 for early, late in zip(finish[:2], finish[2:], strict=True))


def test_a_group_of_all_ranks_lists_its_members_in_its_own_order() -> None:
    matrix = [[0, 5_000, 0], [0, 0, 9_000_000], [0, 0, 0]]
    members = [2, 0, 1]
    rows = {rank: matrix[place] for place, rank in enumerate(members)}
    workload = exchange([rows[rank] for rank in range(3)], 3, group="1")
    result = finished(workload, [3], shapes=["FullyConnected"], groups={"1": members})
    first, second, third = (int(result.finish_ns[rank]) for rank in members)
    # the first receives no bytes
    assert third > 9_000_000 / GIB_NS > second > 5_000 / GIB_NS + LATENCY > first


def test_splits_are_an_attribute_of_files() -> None:
    build = TraceBuilder()
    build.collective("all_to_all", splits=[3, 0, 4])
    build.collective("all_to_all", 12)
    trace = build.build()
    assert trace.comm_bytes.tolist() == [7, 12]
    again = decode(encode_trace(trace))
    assert again.split_texts == ("", "3 0 4")
    assert again.splits.tolist() == [1, 0]
    assert encode_trace(again) == encode_trace(trace)


def changed(workload: Workload, **columns: Any) -> Workload:
    from msgspec.structs import replace

    return Workload.of([replace(workload.trace(rank), **columns) for rank in range(workload.ranks)])


def refusal(workload: Workload, ranks: int, algorithm: str = "direct", **more: Any) -> EtSimError:
    with pytest.raises(EtSimError) as caught:
        finished(workload, [ranks], algorithm, **more)
    return caught.value


@pytest.mark.parametrize("text", ["1 x", "1,2", "-1 2", "", "1  2", " 1 2"])
def test_a_text_without_a_list_of_sizes_is_refused(text: str) -> None:
    workload = changed(exchange([[1, 2], [3, 4]], 2), split_texts=("", text))
    assert "no list of sizes" in str(refusal(workload, 2))
    assert any("no list of sizes" in problem.text for problem in find_problems(workload))


def test_lists_that_do_not_fit_are_refused() -> None:
    short = exchange([[1, 2], [3, 4]], 3 - 1)
    longer = Workload.of([*(short.trace(rank) for rank in range(2)), short.trace(0)])
    assert "lists 2 sizes" in str(refusal(longer, 3))
    assert [problem.kind for problem in find_problems(longer)] == ["split-count"]  # alike
    other_total = changed(short, comm_bytes=np.array([9]))
    assert "comm_size of 9" in str(refusal(other_total, 2))
    mixed = Workload.of([short.trace(0), exchange(None, 1, 3).trace(0)])
    assert (
        "rank 0 has 1 all-to-all with comm_split_sizes in communicator group all, but rank 1 has none"
        in str(refusal(mixed, 2))
    )
    assert [problem.kind for problem in find_problems(mixed)] == ["collective-splits"]
    huge = changed(short, split_texts=("", f"{2**60} 1"))
    assert "moves more than" in str(refusal(huge, 2))


def test_algorithms_without_sizes_of_pairs_are_refused() -> None:
    for algorithm in ("halvingDoubling", "doubleBinaryTree"):
        message = refusal(exchange([[1, 2], [3, 4]], 2), 2, algorithm)
        assert isinstance(message, MachineError)
        assert "bytes for each pair" in str(message)


def test_the_builder_refuses_splits_that_mean_nothing() -> None:
    for given_ in ({"kind": "all_reduce", "splits": [1]}, {"kind": "all_to_all", "splits": [-1]}):
        with pytest.raises(TraceError):
            TraceBuilder().collective(**given_)
    for given_ in ({"kind": "all_to_all"}, {"kind": "all_to_all", "bytes": 3, "splits": [1]}):
        with pytest.raises(TraceError):
            TraceBuilder().collective(**given_)


def test_a_dimension_that_takes_no_part_keeps_bytes_from_getting_there() -> None:
    build = TraceBuilder()
    build.collective("all_to_all", splits=[1, 2, 3, 4], involved_dims=[True, False])
    with pytest.raises(TraceError, match="involved_dim"):
        finished(Workload.of([build.build()] * 4), [2, 2])
