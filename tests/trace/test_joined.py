"""Small traces joined: the same files, and the same findings, as one by one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from goal_texts import direct, dissemination, rank_texts, traces_of

from et_sim.basics.errors import TraceError
from et_sim.trace import Trace, TraceBuilder, Workload, encode_trace
from et_sim.trace.encode import encode_several
from et_sim.trace.joined import can_be_joined, join
from et_sim.trace.preflight.check import find_problems
from et_sim.trace.preflight.pairs import are_all_met
from et_sim.trace.preflight.problem import TemplateIndex

UNEVEN = rank_texts(
    3,
    [
        ["a: calc 5", "b: send 8b to 2 tag 1", "c: calc 7", "b requires a", "c requires a", "c requires b"],
        ["calc 3"],
        ["r: recv 8b from 0 tag 1", "d: calc 2", "d requires r"],
    ],
)


def of_group() -> Trace:
    builder = TraceBuilder()
    builder.collective("all_reduce", 1024, group="few")
    return builder.build()


@pytest.mark.parametrize("text", [UNEVEN, dissemination(8, 8), direct(4, 64, 2)])
def test_files_of_several_traces_are_those_of_each(text: str) -> None:
    traces = [*traces_of(text)]
    traces[1] = replace(traces[1], start_ns=5, version="0.0.4")
    assert can_be_joined(traces)
    assert encode_several(traces) == [encode_trace(trace) for trace in traces]
    traces.append(of_group())
    assert not can_be_joined(traces)
    assert encode_several(traces) == [encode_trace(trace) for trace in traces]


def test_rows_and_names_of_joined_traces_are_those_of_the_whole() -> None:
    traces = traces_of(UNEVEN)
    joined = join(traces)
    assert joined.first.tolist() == [0, 3, 4, 6]
    for trace, first in zip(traces, joined.first.tolist(), strict=False):
        for row in range(len(trace)):
            assert joined.trace.node_name(first + row) == trace.node_name(row)
            assert joined.trace.parents(first + row).tolist() == (first + trace.parents(row)).tolist()


def test_the_trace_whose_figure_is_negative_is_named() -> None:
    traces = traces_of(UNEVEN)
    traces[2] = replace(traces[2], source="c.et", duration_us=np.array([0, -1]))
    with pytest.raises(TraceError, match=r'^c\.et: column duration_us of node 1 "calc" is -1'):
        encode_several(traces)


def test_messages_of_joined_traces_that_all_meet_are_found_sound() -> None:
    for text, ranks in ((UNEVEN, 3), (dissemination(8, 8), 8), (direct(4, 64, 2), 4)):
        assert are_all_met(TemplateIndex(Workload.of(traces_of(text))), ranks)


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ({"comm_bytes": 9}, "unmatched-message"),
        ({"comm_tag": 2}, "unmatched-message"),
        ({"comm_dst": 1}, "unmatched-message"),
        ({"comm_dst": 7}, "unknown-peer"),
        ({"comm_dst": 0}, "message-to-oneself"),
        ({"comm_bytes": 0}, "empty-message"),
    ],
)
def test_what_is_wrong_with_one_message_is_told(change: dict[str, int], kind: str) -> None:
    traces = traces_of(UNEVEN)
    changed = {column: np.array([0, value, 0]) for column, value in change.items()}
    traces[0] = replace(traces[0], **changed)
    workload = Workload.of(traces)
    assert not are_all_met(TemplateIndex(workload), 3)
    assert kind in {problem.kind for problem in find_problems(workload)}
