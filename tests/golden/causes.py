"""Checks of a record of causes, for the tests of golden cases and of random workloads."""

from __future__ import annotations

from typing import Any

import numpy as np

from et_sim.engine.state.cause_tables import CauseKind
from et_sim.run.result import Result
from et_sim.views.critical.path import CriticalPath


def check(result: Result) -> None:
    """Recompute the run from its record, and walk back from its end."""
    assert result.causal_events is not None
    causal_events = np.concatenate(list(result.causal_events.blocks()))
    by, also, end = causal_events["critical_parent"], causal_events["other_parent"], causal_events["end_ns"]
    rows = np.arange(len(causal_events))
    assert (by < rows).all()
    assert (also < rows).all()
    needed = np.maximum(np.where(by < 0, 0, end[by]), np.where(also < 0, 0, end[also]))
    assert (causal_events["start_ns"] == needed).all()
    assert (end >= needed).all()
    assert (causal_events["kind"][end > needed] <= CauseKind.SWITCH_RATE).all()  # meetings take no time
    _check_nodes(causal_events, result)
    last = np.flatnonzero((causal_events["kind"] == CauseKind.NODE_END) & (end == result.makespan_ns))
    if len(last):
        _check_chain(causal_events, int(last[0]), result.makespan_ns)


def check_causes(path: CriticalPath, result: Result) -> None:
    """Check that causes, operations and hops each add up to the makespan, to the nanosecond."""
    makespan = result.makespan_ns
    assert sum(path.by_cause().values()) == makespan
    assert sum(ns for *_, ns in path.by_operation()) == makespan
    hops = path.hops()
    assert sum(hop.end_ns - hop.start_ns for hop in hops) == makespan
    assert [hop.start_ns for hop in hops[1:]] == [hop.end_ns for hop in hops[:-1]]
    assert all(sum(hop.causes.values()) == hop.end_ns - hop.start_ns for hop in hops)
    assert not path.by_cause().get("other")


def _check_nodes(causal_events: Any, result: Result) -> None:
    """Check that every node starts and ends in exactly one causal event each, at the right time."""
    nodes = result.outcome.nodes
    for what, column in ((CauseKind.NODE_START, "start_ns"), (CauseKind.NODE_END, "end_ns")):
        outcome = causal_events[causal_events["kind"] == what]
        happened = np.flatnonzero(nodes[column] >= 0)
        assert sorted(outcome["node"].tolist()) == happened.tolist()
        assert (nodes[column][outcome["node"]] == outcome["end_ns"]).all()


def _check_chain(causal_events: Any, row: int, makespan_ns: int) -> None:
    """Check that each critical parent ends when its event starts, so that every nanosecond is explained."""
    by, start, end = (causal_events[name].tolist() for name in ("critical_parent", "start_ns", "end_ns"))
    spent = 0
    while by[row] >= 0:
        assert end[by[row]] == start[row]
        spent += end[row] - start[row]
        row = by[row]
    assert row == 0
    assert spent == makespan_ns
