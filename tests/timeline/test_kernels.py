"""Utilisation of the machine by kernels: per node, per rank, per operation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from machines import ring

import et_sim
from et_sim.api import run
from et_sim.timeline import write_run
from et_sim.views import open_run
from et_sim.views.summary.operations import operations
from et_sim.views.view import view_text

NETWORK = ring(4, "50GB/s")
# 1 TFLOPS and 100 GB/s: kernels of fewer than 10 operations per byte are memory bound.
SYSTEM = {
    "scheduling-policy": "FIFO",
    "all-reduce-implementation": ["ring"],
    "roofline-enabled": 1,
    "peak-perf": 1,
    "local-mem-bw": 100,
}
COLUMNS = ("compute_utilisation", "memory_utilisation", "operational_intensity", "memory_bound")


def trace() -> et_sim.Trace:
    build = et_sim.TraceBuilder()
    build.compute("arithmetic", num_ops=2 * 10**6, tensor_bytes=10**5)  # 2000 ns
    build.compute("traffic", num_ops=10**6, tensor_bytes=10**6)  # 10000 ns
    build.compute("copy", num_ops=0, tensor_bytes=10**5)  # 1000 ns
    build.compute("nothing", num_ops=5, tensor_bytes=0)
    build.compute("host", cpu=True, micros=7)
    build.collective("all_reduce", 4096)
    return build.build()


def simulated(system: dict[str, Any] = SYSTEM) -> et_sim.Result:
    return run(et_sim.Workload.of([trace()] * 4), system=system, network=NETWORK)


def of_kernels(result: et_sim.Result) -> dict[str, tuple[Any, ...]]:
    rows = [row for row in result.timeline.to_pylist() if row["actor"] == 0]
    return {row["name"]: tuple(row[column] for column in COLUMNS) for row in rows}


def test_each_kernel_has_utilisation_and_other_nodes_have_none() -> None:
    nothing = (None, None, None, None)
    assert of_kernels(simulated()) == {
        "arithmetic": (1.0, pytest.approx(0.5), 20.0, False),
        "traffic": (pytest.approx(0.1), 1.0, 1.0, True),
        "copy": (0.0, 1.0, 0.0, True),
        "nothing": nothing,
        "host": nothing,
        "all_reduce": nothing,
    }


def test_averages_are_over_the_time_of_the_kernels_alone() -> None:
    [figures] = simulated().summary()["per_rank"]
    assert figures["compute_bound_share"] == pytest.approx(2 / 13)
    assert figures["compute_utilisation"] == pytest.approx((2 * 1 + 10 * 0.1) / 13)
    assert figures["memory_utilisation"] == pytest.approx((2 * 0.5 + 10 + 1) / 13)
    assert figures["operational_intensity"] == pytest.approx((2 * 20 + 10) / 13)


@pytest.mark.parametrize("changes", [{"roofline-enabled": 0}, {"replay-only": 1}, {"peak-perf": 0}])
def test_without_a_roofline_there_are_no_figures(changes: dict[str, Any], tmp_path: Path) -> None:
    result = simulated({**SYSTEM, **changes})
    assert set(of_kernels(result).values()) == {(None, None, None, None)}
    [figures] = result.summary()["per_rank"]
    assert {figures[name] for name in ("compute_bound_share", *COLUMNS[:3])} == {None}
    write_run(result, tmp_path / "run")
    assert "\nkernels " not in view_text("summary", tmp_path / "run")
    assert "ops/byte" not in view_text("ranks", tmp_path / "run") + view_text("ops", tmp_path / "run")
    assert {
        operation.averages()["compute_utilisation"] for operation in operations(open_run(tmp_path / "run"))
    } == {None}


def test_the_views_show_the_same_figures(tmp_path: Path) -> None:
    write_run(simulated(), tmp_path / "run")
    [figures] = open_run(tmp_path / "run").summary["per_rank"]
    figures_of = {operation.name: operation.as_dict() for operation in operations(open_run(tmp_path / "run"))}
    assert figures_of["traffic"]["compute_utilisation"] == pytest.approx(0.1)
    assert figures_of["traffic"]["bytes_per_second"] == pytest.approx(100e9)
    assert figures_of["arithmetic"]["compute_bound_share"] == 1.0
    assert figures_of["all_reduce"]["memory_utilisation"] is None
    kernels = [figures for figures in figures_of.values() if figures["compute_utilisation"] is not None]
    whole = sum(kernel["total_ns"] for kernel in kernels)
    average = sum(kernel["total_ns"] * kernel["memory_utilisation"] for kernel in kernels) / whole
    assert average == pytest.approx(figures["memory_utilisation"])
    assert "15 % of their time compute bound; they use 23 % of peak" in view_text("summary", tmp_path / "run")
    assert view_text("ranks", tmp_path / "run").splitlines()[-2].split()[:3] == ["0-3", "15", "%"]
    assert "traffic" in view_text("ops", tmp_path / "run").split("ops/byte")[1]
