"""Microbenchmark workloads are sound, and have the requested content."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from expanded_workloads import expanded

from et_sim.basics.errors import UsageError
from et_sim.trace import CollectiveKind, NodeKind, Workload, read_workload, write_workload
from et_sim.trace.preflight import find_problems
from et_sim.workloads.microbenchmarks import COLLECTIVES, KINDS, make_microbenchmark


def make(kind: str, **given: Any) -> Workload:
    options = {
        "ranks": 4,
        "size": 0 if kind == "compute" else 1_000_003,
        "compute_us": 5 * (kind == "compute"),
    }
    return make_microbenchmark(kind, **{**options, **given})


def test_every_collective_type_can_be_made() -> None:
    assert set(COLLECTIVES) == {kind.name.lower() for kind in CollectiveKind}
    for kind in COLLECTIVES:
        assert make(kind).trace(0).comm_type.tolist() == [CollectiveKind[kind.upper()]]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("repeat", [1, 3])
@pytest.mark.parametrize("compute_us", [0, 7])
def test_every_microbenchmark_passes_the_checks(kind: str, repeat: int, compute_us: int) -> None:
    given = {"compute_us": compute_us} if compute_us else {}
    assert find_problems(make(kind, repeat=repeat, **given)) == []


@pytest.mark.parametrize("kind", sorted(set(KINDS) - {"compute"}))
@pytest.mark.parametrize("size", [1, 1_000_003, (1 << 62) + 1])
def test_sizes_are_exact_on_disk_too(kind: str, size: int, tmp_path: Any) -> None:
    write_workload(make(kind, size=size), tmp_path / "w")
    again = read_workload(tmp_path / "w")
    assert again.ranks == 4
    for rank in range(4):
        assert set(again.trace(rank).comm_bytes.tolist()) == {size}


def test_ranks_share_one_template_or_two() -> None:
    assert len(make("all_reduce", ranks=4096).templates) == 1
    assert len(make("ring_send_receive", ranks=4096).templates) == 1
    assert len(make("send_receive", ranks=4096).templates) == 2


def test_send_receive_pairs_neighbours() -> None:
    workload = expanded(make("send_receive")).workload
    kinds = [int(workload.trace(rank).kind[0]) for rank in range(4)]
    assert kinds == [NodeKind.SEND, NodeKind.RECV] * 2
    assert workload.trace(2).comm_dst[0] == 3
    assert workload.trace(3).comm_src[0] == 2


def test_every_rank_of_a_ring_sends_on_and_receives() -> None:
    trace = expanded(make("ring_send_receive")).workload.trace(3)
    assert trace.kind.tolist() == [NodeKind.SEND, NodeKind.RECV]
    assert trace.comm_dst[0] == 0
    assert trace.comm_src[1] == 2


@pytest.mark.parametrize("kind", sorted(set(KINDS) - {"compute"}))
def test_repetitions_follow_each_other(kind: str) -> None:
    trace = make(kind, repeat=3).trace(1)
    per_turn = len(trace) // 3
    for row in range(len(trace)):
        turn = row // per_turn
        before = list(range((turn - 1) * per_turn, turn * per_turn)) if turn else []
        assert trace.parents(row).tolist() == before


def test_computation_may_overlap_with_the_operation_before() -> None:
    trace = make("all_reduce", repeat=2, compute_us=7).trace(0)
    assert trace.kind.tolist() == [NodeKind.COMP, NodeKind.COLL] * 2
    assert [trace.parents(row).tolist() for row in range(4)] == [[], [0], [0], [1, 2]]
    assert trace.duration_us.tolist() == [7, 0, 7, 0]


def test_compute_is_a_chain_of_computations() -> None:
    trace = make("compute", repeat=3, compute_us=9).trace(0)
    assert np.all(trace.kind == NodeKind.COMP)
    assert trace.duration_us.tolist() == [9, 9, 9]
    assert [trace.parents(row).tolist() for row in range(3)] == [[], [0], [1]]


@pytest.mark.parametrize(
    ("kind", "given", "message"),
    [
        ("all_reduc", {}, "did you mean 'all_reduce'?"),
        ("nonsense", {}, "known: all_reduce, "),
        ("all_reduce", {"ranks": 0}, "ranks is 0"),
        ("all_reduce", {"repeat": 0}, "repeat is 0"),
        ("all_reduce", {"size": -1}, "size is -1"),
        ("all_reduce", {"compute_us": -1}, "compute_us is -1"),
        ("compute", {"compute_us": 0}, "needs a duration"),
        ("compute", {"size": 8}, "moves no bytes"),
        ("send_receive", {"ranks": 3}, "3 is odd"),
        ("ring_send_receive", {"ranks": 1}, "a ring needs at least 2 ranks"),
    ],
)
def test_invalid_microbenchmarks_are_refused(kind: str, given: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as refused:
        make(kind, **given)
    assert message in str(refused.value)
