"""Files of several traces, encoded at once."""

from __future__ import annotations

import numpy as np
import pytest
from goal_texts import direct, dissemination, rank_texts, traces_of
from msgspec.structs import replace

from et_sim.basics.errors import TraceError
from et_sim.trace import Trace, TraceBuilder, encode_trace
from et_sim.trace.encode import encode_several

UNEVEN = rank_texts(
    3,
    [
        ["a: calc 5", "b: send 8b to 2 tag 1", "c: calc 7", "b requires a", "c requires a", "c requires b"],
        ["calc 3"],
        ["r: recv 8b from 0 tag 1", "d: calc 2", "d requires r"],
    ],
)


def of_group(name: str) -> Trace:
    builder = TraceBuilder()
    builder.collective("all_reduce", 1024, group=name)
    return builder.build()


@pytest.mark.parametrize("text", [UNEVEN, dissemination(8, 8), direct(4, 64, 2)])
def test_files_of_several_traces_are_those_of_each(text: str) -> None:
    traces = [*traces_of(text), of_group("few"), of_group("many")]
    traces[1] = replace(traces[1], start_ns=5, version="0.0.4")
    assert encode_several(traces) == [encode_trace(trace) for trace in traces]


def test_the_trace_with_a_negative_figure_is_named() -> None:
    traces = traces_of(UNEVEN)
    traces[2] = replace(traces[2], source="c.et", duration_us=np.array([0, -1]))
    with pytest.raises(TraceError, match=r'^c\.et: column duration_us of node 1 "calc" is -1'):
        encode_several(traces)
