"""Communication while no kernel runs, of ranks, operations and groups: as analysers of recordings count."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from machines import ring

from et_sim.api import run
from et_sim.run.result import Result
from et_sim.trace import TraceBuilder, Workload
from et_sim.views.report.times import exposed_by_group
from et_sim.views.run.directory import open_run
from et_sim.views.run.selection import EVERYTHING, selection
from et_sim.views.summary.groups import group_totals
from et_sim.views.summary.operations import without_kernel
from et_sim.views.summary.rank_table import rank_entries
from et_sim.views.view import VIEWS, view_text

SYSTEM = {
    "profile": "corrected",
    "replay-only": 1,
    "all-reduce-implementation": ["ring"],
    "scheduling-policy": "FIFO",
    "collective-optimization": "baseline",
}


def ran(*programs: TraceBuilder, **keys: Any) -> Result:
    traces = tuple(program.build() for program in programs)
    network = ring(2, 1)
    template = np.arange(2, dtype=np.int32) % len(traces)
    return run(Workload(traces, template), system=SYSTEM | keys, network=network)


def overlapping() -> TraceBuilder:
    """Return a kernel from 0 to 10 µs, communication from 4 to 14 and from 20 to 25, and a host."""
    build = TraceBuilder()
    build.compute("kernel", nanos=10_000, concurrent=True)
    begin = build.compute("launch", nanos=4_000, cpu=True, concurrent=True)
    build.collective("all_reduce", 1 << 10, name="sum", nanos=10_000, concurrent=True, after=[begin])
    later = build.compute("wait", nanos=16_000, cpu=True, concurrent=True, after=[begin])
    unknown = {"comm_size_unknown": 1}
    build.collective(
        "barrier", 0, name="unnamed", nanos=5_000, concurrent=True, after=[later], attributes=unknown
    )
    build.compute("host", nanos=30_000, cpu=True, concurrent=True)
    return build


def test_exposure_is_communication_without_overlapping_kernels() -> None:
    assert ran(overlapping()).comm_without_kernel_ns.tolist() == [4_000 + 5_000] * 2


def test_copies_hide_communication_and_are_no_kernels(tmp_path: Path) -> None:
    build = overlapping()
    begin = build.compute("late", nanos=12_000, cpu=True, concurrent=True)
    build.compute("move", nanos=10_000, concurrent=True, after=[begin], attributes={"copy": 1})
    result = ran(build)
    assert result.compute_ns.tolist() == [20_000] * 2  # with the copy, from 12 to 22 µs
    assert result.exposed_comm_ns.tolist() == [2_000 + 3_000] * 2
    assert result.comm_without_kernel_ns.tolist() == [4_000 + 5_000] * 2
    saved = open_run(result.save(tmp_path / "run"))
    ns_of_operations = without_kernel(saved, EVERYTHING)
    assert {name: ns for (_, name, _), ns in ns_of_operations.items()} == {
        "sum": 2 * 4_000,
        "unnamed": 2 * 5_000,
    }
    [whole] = saved.summary["per_rank"]
    [again] = rank_entries(saved, selection(window=f"0:{saved.summary['makespan_ns']}ns"))
    assert (again["compute_ns"], again["exposed_comm_ns"]) == (20_000, 5_000)
    assert again == {name: whole[name] for name in again}
    assert sum(group.exposed_ns for group in exposed_by_group(saved)) == 2 * 5_000


def test_waiting_for_another_rank_counts_as_long_as_no_kernel_runs() -> None:
    late, early = TraceBuilder(), TraceBuilder()
    busy = late.compute("kernel", nanos=50_000, concurrent=True)
    late.collective("all_reduce", 1 << 10, name="sum", after=[busy], concurrent=True)
    early.collective("all_reduce", 1 << 10, name="sum", concurrent=True)
    early.compute("kernel", nanos=20_000, concurrent=True)
    result = ran(late, early, **{"replay-only": 0})
    first, second = result.finish_ns.tolist()
    assert result.comm_without_kernel_ns.tolist() == [first - 50_000, second - 20_000]
    assert (result.exposed_comm_ns + result.waiting_ns == result.comm_without_kernel_ns).all()


@pytest.mark.parametrize("replay", [0, 1])
def test_operations_and_groups_have_their_own_figures(tmp_path: Path, replay: int) -> None:
    result = ran(overlapping(), **{"replay-only": replay})
    folder = result.save(tmp_path / "run")
    saved = open_run(folder)
    ns_of_operations = without_kernel(saved, EVERYTHING)
    by_name = {name: ns for (_, name, _), ns in ns_of_operations.items()}
    sum_ns = 2 * 4_000 if replay else 0  # simulated, it ends while the kernel runs
    assert by_name == {"sum": sum_ns, "unnamed": 10_000}
    assert [(total.group, total.without_kernel_ns) for total in group_totals(saved)] == (
        [] if replay else [("all", sum_ns)]
    )
    listed = {entry["name"]: entry["without_kernel_ns"] for entry in VIEWS["ops"].data(saved, EVERYTHING)}
    assert listed == {**dict.fromkeys(("kernel", "launch", "wait", "host"), 0), **by_name}
    assert "without kernel: transfer or waiting" in view_text("ops", folder)


def test_a_part_of_a_run_has_its_part(tmp_path: Path) -> None:
    saved = open_run(ran(overlapping()).save(tmp_path / "run"))
    ns_of_operations = without_kernel(saved, selection(ranks="1", window="12us:21us"))
    assert {name: ns for (_, name, _), ns in ns_of_operations.items()} == {"sum": 2_000, "unnamed": 1_000}


def test_the_summary_of_a_recording_separates_the_figures(tmp_path: Path) -> None:
    build = overlapping()
    build.compute("gap of thread 1", nanos=100, cpu=True, concurrent=True, attributes={"gap": 1})
    text = " ".join(view_text("summary", ran(build).save(tmp_path / "run"), width=300).split())
    assert (
        "exposed 30 % as HTA counts it (transfer or waiting, and no kernel), 17 % as ASTRA-sim does "
        "(finish less the time of all kernels)" in text
    )
