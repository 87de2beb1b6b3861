"""The training job: its shape, its schedule, and that no timing of its ranks makes it hang."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from machines import network, system

from et_sim.api import run
from et_sim.errors import UsageError
from et_sim.generate.transformer import Transformer, attention, feed_forward, make_transformer, schedule
from et_sim.trace import CollectiveKind, GroupRule, NodeKind, Trace, Workload
from et_sim.trace.expansion import expanded
from et_sim.trace.preflight import find_problems


def small(**given: Any) -> Transformer:
    usual = {"layers": 4, "hidden": 64, "sequence": 32, "vocabulary": 128, "micro_batches": 4}
    return Transformer(**{**usual, **given})


def rows(trace: Trace, kind: NodeKind) -> list[int]:
    return np.flatnonzero(trace.kind == kind).tolist()


def test_ranks_are_counted_tensor_first_then_data_then_pipeline() -> None:
    workload = make_transformer(small(tensor=2, data=3, pipeline=4))
    assert workload.template_of_rank.tolist() == [0] * 6 + [1] * 6 + [2] * 6 + [3] * 6
    assert workload.group_rules == {"tensor": GroupRule(2, 1), "data": GroupRule(3, 2)}
    middle = workload.templates[1]
    assert set(middle.comm_dst[rows(middle, NodeKind.SEND)].tolist()) == {6, -6}
    assert set(middle.comm_src[rows(middle, NodeKind.RECV)].tolist()) == {6, -6}


def test_stages_that_nothing_tells_apart_share_a_template() -> None:
    workload = make_transformer(small(pipeline=4, micro_batches=1))
    assert workload.template_of_rank.tolist() == [0, 1, 1, 2]


def test_a_stage_has_the_nodes_that_the_model_asks_for() -> None:
    model = small(tensor=2, data=2, pipeline=2, micro_batches=8)
    for stage, trace in enumerate(make_transformer(model).templates):
        per_layer = 8 * model.layers_per_stage
        assert len(rows(trace, NodeKind.SEND)) == len(rows(trace, NodeKind.RECV)) == 8
        # Four kernels per layer, one more forward and backward for embedding or head, and the optimizer.
        assert len(rows(trace, NodeKind.COMP)) == per_layer * 4 + 16 + 1
        gradients = [
            row for row in rows(trace, NodeKind.COLL) if trace.group_names[trace.group[row]] == "data"
        ]
        assert len(rows(trace, NodeKind.COLL)) == per_layer * 4 + len(gradients)
        assert len(gradients) == model.layers_per_stage + 1, stage
        assert set(trace.comm_type[rows(trace, NodeKind.COLL)].tolist()) == {CollectiveKind.ALL_REDUCE}
    one_rank = make_transformer(small()).templates[0]
    assert set(one_rank.kind.tolist()) == {NodeKind.COMP}


def test_tags_tell_micro_batches_and_directions_apart() -> None:
    trace = make_transformer(small(pipeline=3, layers=3, micro_batches=5)).templates[1]
    for kind in (NodeKind.SEND, NodeKind.RECV):
        tags = trace.comm_tag[rows(trace, kind)].tolist()
        assert sorted(tags) == list(range(10))


@pytest.mark.parametrize(
    ("warm_up", "count", "order"),
    [
        (0, 2, "F0 B0 F1 B1"),
        (1, 3, "F0 F1 B0 F2 B1 B2"),
        (2, 2, "F0 F1 B0 B1"),
        (3, 4, "F0 F1 F2 F3 B0 B1 B2 B3"),
    ],
)
def test_one_forward_one_backward(warm_up: int, count: int, order: str) -> None:
    passes = schedule(warm_up, count)
    assert " ".join(f"{direction[0].upper()}{number}" for direction, number in passes) == order


def test_computation_follows_the_schedule_without_a_gap_in_the_dependencies() -> None:
    for trace in make_transformer(small(tensor=2, pipeline=2, data=2)).templates:
        computations = rows(trace, NodeKind.COMP)
        for before, after in pairwise(computations):
            assert before in ancestors(trace, after)


def ancestors(trace: Trace, row: int) -> set[int]:
    seen: set[int] = set()
    left = [row]
    while left:
        for parent in trace.parents(left.pop()).tolist():
            if parent not in seen:
                seen.add(parent)
                left.append(parent)
    return seen


def test_times_are_operations_at_the_given_rate() -> None:
    model = Transformer(hidden=1024, sequence=512, tensor=4, tflops=100.0, vocabulary=4096)
    tokens, hidden = 512, 1024
    assert feed_forward(model).operations == 16 * tokens * hidden**2 // 4
    assert attention(model).operations == (8 * tokens * hidden**2 + 4 * tokens * 512 * hidden) // 4
    trace = make_transformer(model).templates[0]
    row = trace.names.index("forward 0 layer 0 feed-forward")
    assert trace.num_ops[row] == feed_forward(model).operations
    assert trace.duration_us[row] == round(feed_forward(model).operations / 100e6)
    backward = trace.names.index("backward 0 layer 0 feed-forward")
    assert trace.num_ops[backward] == 2 * trace.num_ops[row]
    assert trace.tensor_bytes[row] == feed_forward(model).bytes > 0


SHAPES = st.sampled_from([(1, 1, 1), (2, 1, 1), (1, 1, 3), (1, 4, 1), (2, 2, 2), (2, 4, 2), (1, 2, 3)])


@given(
    shape=SHAPES,
    micro_batches=st.integers(1, 9),
    seed=st.integers(0, 1000),
    extra=st.sampled_from(
        [{}, {"rendezvous-protocol": 1}, {"profile": "corrected", "scheduling-policy": "FIFO"}]
    ),
)
def test_no_timing_makes_a_job_hang(
    shape: tuple[int, int, int], micro_batches: int, seed: int, extra: dict[str, Any]
) -> None:
    tensor, pipeline, data = shape
    model = small(tensor=tensor, pipeline=pipeline, data=data, micro_batches=micro_batches)
    whole, groups = expanded(make_transformer(model))
    random = np.random.default_rng(seed)
    traces = [
        replace(trace, duration_us=random.integers(1, 200, len(trace)))
        for trace in map(whole.trace, range(whole.ranks))
    ]
    listed = {str(number): list(members) for number, members in groups.items()}
    shaken = Workload.of(traces)
    assert find_problems(shaken, groups=groups) == []
    outcome = run(shaken, system=system(**extra), network=network(["Ring"], [whole.ranks]), groups=listed)
    assert outcome.is_complete


@pytest.mark.parametrize("extra", [{}, {"roofline-enabled": 1, "peak-perf": 100}])
def test_more_micro_batches_fill_the_pipeline(extra: dict[str, Any]) -> None:
    """The bubble is a share of (stages - 1) / (micro-batches + stages - 1)."""

    def span(micro_batches: int) -> int:
        model = small(pipeline=4, micro_batches=micro_batches, hidden=512, sequence=256)
        whole = expanded(make_transformer(model)).workload
        return run(whole, system=system(**extra), network=network(["Ring"], [4])).makespan_ns

    assert span(16) < 16 * span(1) * 0.55


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"tensor": 0}, "tensor is 0"),
        ({"tflops": -1.0}, "tflops is -1.0"),
        ({"layers": 10**9}, "layers is 1000000000"),
        (
            {"pipeline": 3},
            "layers is 4, which 3 pipeline stages do not divide (give a multiple of 3, such as 3)",
        ),
        ({"tensor": 7}, "hidden is 64, which 7 tensor-parallel ranks do not divide"),
        ({"tensor": 64, "vocabulary": 100}, "vocabulary is 100, which 64"),
        ({"micro_batches": 10**7}, "10,000,000 micro-batches in 4 layers are about 320,000,000 nodes"),
    ],
)
def test_impossible_jobs_are_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError) as caught:
        small(**given)
    assert said in str(caught.value)
