"""Nodes that leave a graph: those that stay wait for each other exactly as before."""

from __future__ import annotations

import numpy as np
import pytest
from edited_traces import mixed_traces, recorded, waits
from hypothesis import given
from hypothesis import strategies as st

from converters.editing.files import edited
from converters.editing.remove_nodes import remove_nodes
from et_sim.basics.errors import TraceError
from et_sim.trace import Trace, TraceBuilder, decode


def without(trace: Trace, keep: list[bool]) -> Trace:
    """What is left, read from the bytes that are written."""
    given_trace = recorded(trace)
    mask = np.array(keep, np.bool_)
    return decode(edited(given_trace, mask, remove_nodes(given_trace, mask)))


@given(st.data(), mixed_traces())
def test_nodes_that_stay_wait_for_each_other_as_before(data: st.DataObject, trace: Trace) -> None:
    keep = data.draw(st.lists(st.booleans(), min_size=len(trace), max_size=len(trace)))
    stays = set(trace.node_id[np.array(keep)].tolist())
    expected = {(first, second) for first, second in waits(trace) if first in stays and second in stays}
    left = without(trace, keep)
    assert set(left.node_id.tolist()) == stays
    assert waits(left) == expected


@given(st.data(), mixed_traces())
def test_dependencies_among_nodes_that_stay_are_not_touched(data: st.DataObject, trace: Trace) -> None:
    keep = data.draw(st.lists(st.booleans(), min_size=len(trace), max_size=len(trace)))
    left = without(trace, keep)
    stays = set(left.node_id.tolist())
    for row in np.flatnonzero(keep).tolist():
        after = int(np.searchsorted(left.node_id, trace.node_id[row]))
        for start, deps in (("data_start", "data_deps"), ("ctrl_start", "ctrl_deps")):
            old, new = (
                [int(one.node_id[p]) for p in getattr(one, deps)[slice(*getattr(one, start)[at : at + 2])]]
                for one, at in ((trace, row), (left, after))
            )
            assert set(old) & stays <= set(new)
            assert len(new) == len(set(new))


def test_what_is_known_already_is_not_written_again() -> None:
    build = TraceBuilder()
    kernels = [build.compute("kernel", node_id=0)]
    host = build.compute("sync", cpu=True, after=kernels)
    for _ in range(5):
        host = build.compute("launch", cpu=True, after=[host])
        kernels.append(build.compute("kernel", after=[host, kernels[-1]]))
    trace = recorded(build.build())
    bridges = remove_nodes(trace, ~trace.trace.is_cpu)
    assert bridges.added == 0
    assert (bridges.bridged, bridges.dropped) == (5, 0)


def test_a_dependency_that_leads_to_nothing_is_dropped_and_counted() -> None:
    build = TraceBuilder()
    first = build.compute("host", cpu=True)
    build.compute("kernel", after=[first], ctrl_after=[first])
    trace = recorded(build.build())
    bridges = remove_nodes(trace, ~trace.trace.is_cpu)
    assert (bridges.bridged, bridges.dropped, bridges.added) == (0, 2, 0)
    assert (bridges.data, bridges.ctrl) == ({1: []}, {1: []})


@pytest.mark.parametrize("circle", [[(0, 1), (1, 0)], [(0, 0)]])
def test_a_circle_is_refused(circle: list[tuple[int, int]]) -> None:
    build = TraceBuilder(source="round")
    for node in range(2):
        build.compute("a", after=[after for row, after in circle if row == node], node_id=node)
    trace = recorded(build.build())
    with pytest.raises(TraceError, match="wait for each other in a circle"):
        remove_nodes(trace, np.ones(2, np.bool_))
