"""The summary on narrow terminals: lines fit, and the largest parts of time keep their columns."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from machines import RING_2

import et_sim
from et_sim.timeline import write_run
from et_sim.views.summary.operation_table import operation_lines
from et_sim.views.summary.operations import OperationTotal
from et_sim.views.summary.parts import PARTS
from et_sim.views.summary.rank_table import rank_lines
from et_sim.views.view import view_text

pytestmark = pytest.mark.usefixtures("warm_engine")

SYSTEM = {"profile": "corrected", "all-reduce-implementation": ["ring"], "local-mem-bw": 50}


def _entry(ranks: str, **spent: int) -> dict[str, Any]:
    return {part.figure: 0 for part in PARTS} | {"ranks": ranks, "finish_ns": sum(spent.values())} | spent


@pytest.mark.parametrize("width", [60, 80])
def test_the_parts_that_take_most_of_the_time_keep_their_columns(width: int) -> None:
    figures = {"compute_ns": 1, "exposed_comm_ns": 2, "waiting_ns": 300_000_123, "host_ns": 400_000_123}
    lines = rank_lines([_entry("0-3", idle_ns=123_456_789, **figures)], 823_457_038, width)
    head = lines[0].split()
    assert [word for word in head if word in ("waiting", "host", "idle")] == ["waiting", "host", "idle"]
    columns = " ".join(lines).partition("no room for")[2]
    assert "compute" in columns
    assert "exposed" in columns
    assert max(map(len, lines)) <= width


@pytest.mark.parametrize("group", ["all", "tensor parallel"])
def test_a_table_of_operations_fits_60_columns_and_names_dropped_columns(group: str) -> None:
    operation = OperationTotal("all_reduce", "backward # layer # attention all-reduce", group, 163_840)
    operation.total_ns, operation.waiting_ns, operation.bytes = 16_049_123_456_789, 1, 10**15
    lines = operation_lines([operation], 60)
    assert max(map(len, lines)) <= 60
    assert "bandwidth" in " ".join(lines).partition("no room for")[2]


@pytest.mark.deep
def test_a_number_and_its_unit_stay_on_one_line(tmp_path: Path) -> None:
    build = et_sim.TraceBuilder()
    work = build.compute("work", micros=20)
    build.collective("all_reduce", 1 << 20, after=[work])
    late = et_sim.TraceBuilder()
    work = late.compute("work", micros=70)
    late.collective("all_reduce", 1 << 20, after=[work])
    workload = et_sim.Workload.of([build.build(), late.build()])
    write_run(et_sim.simulate(workload, system=SYSTEM, network=RING_2), tmp_path / "run")
    for width in range(40, 100):
        text = view_text("summary", tmp_path / "run", width=width)
        assert not re.search(r"\d\n *(%|ns|µs|ms|s)\b|\d\n *%", text), text
