"""The record of causes explains every nanosecond of every golden case, whatever runs in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cases import Case
from test_reference_2x import CASES

from et_sim.api import run
from et_sim.engine.cause_tables import What
from et_sim.timeline import Result


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_all_times_follow_from_the_record(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case.write_programs(tmp_path)
    monkeypatch.chdir(tmp_path)
    for fold in (True, False):
        result = run(case.workload(), **case.machine, model=case.model, fold=fold, detail="path")
        check(result)
        if not result.outcome.plan.is_folded:
            break  # nothing could be folded


def check(result: Result) -> None:
    """Recompute the run from its record, and walk back from its end."""
    assert result.moments is not None
    moments = np.concatenate(list(result.moments.blocks()))
    by, also, end = moments["by"], moments["also"], moments["end_ns"]
    rows = np.arange(len(moments))
    assert (by < rows).all()
    assert (also < rows).all()
    needed = np.maximum(np.where(by < 0, 0, end[by]), np.where(also < 0, 0, end[also]))
    assert (moments["start_ns"] == needed).all()
    assert (end >= needed).all()
    assert (moments["what"][end > needed] <= What.BUS).all()  # meetings take no time
    _check_nodes(moments, result)
    last = np.flatnonzero((moments["what"] == What.NODE_END) & (end == result.makespan_ns))
    if len(last):
        _check_chain(moments, int(last[0]), result.makespan_ns)


def _check_nodes(moments: Any, result: Result) -> None:
    """Every node starts and ends in exactly one moment each, at the right time."""
    nodes = result.outcome.nodes
    for what, column in ((What.NODE_START, "start_ns"), (What.NODE_END, "end_ns")):
        found = moments[moments["what"] == what]
        happened = np.flatnonzero(nodes[column] >= 0)
        assert sorted(found["node"].tolist()) == happened.tolist()
        assert (nodes[column][found["node"]] == found["end_ns"]).all()


def _check_chain(moments: Any, row: int, makespan_ns: int) -> None:
    """The moment that came last of those needed came just before: nothing in between is unexplained."""
    by, start, end = (moments[name].tolist() for name in ("by", "start_ns", "end_ns"))
    spent = 0
    while by[row] >= 0:
        assert end[by[row]] == start[row]
        spent += end[row] - start[row]
        row = by[row]
    assert row == 0
    assert spent == makespan_ns
