"""Node types of newer schemas (storage, batch, checkpoint, and higher numbers) take their recorded time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from machines import RING_2, system
from msgspec.structs import replace

import et_sim
from et_sim.trace import TraceBuilder, Workload, decode, encode_trace
from et_sim.trace.columns import NodeKind, Trace
from et_sim.views.run.directory import open_run
from et_sim.views.view import view_text


def of_types(*types: int) -> Trace:
    """Return a kernel, a node of each type after it (10 ns each, side by side), and a kernel."""
    build = TraceBuilder()
    first = build.compute("forward", nanos=100)
    made = [build.compute(f"type {number}", nanos=10, after=[first]) for number in types]
    build.compute("backward", nanos=1000, after=made)
    trace = build.build()
    kind = trace.kind.copy()
    kind[1:-1] = types
    return decode(encode_trace(replace(trace, kind=kind)), "built")


@pytest.mark.parametrize("extra", [{}, {"replay-only": 1}, {"roofline-enabled": 0, "peak-perf": 1}])
def test_opaque_nodes_run_side_by_side_for_their_recorded_time_folded_or_not(
    extra: dict[str, Any],
) -> None:
    workload = Workload((of_types(8, 9, 10, 77),), np.zeros(2, np.int32), source="built")
    runs = [
        et_sim.simulate(workload, system=system(**extra), network=RING_2, fold=fold) for fold in (True, False)
    ]
    assert [run.finish_ns.tolist() for run in runs] == [[1110, 1110]] * 2


def test_a_run_counts_them_by_type_and_its_summary_has_them_as_not_modelled(tmp_path: Path) -> None:
    workload = Workload((of_types(8, 8, 10, 77, 255),), np.zeros(2, np.int32), source="built")
    run = et_sim.simulate(workload, system=system(), network=RING_2)
    run.save(tmp_path / "out.run")
    coverage = open_run(tmp_path / "out.run").summary["coverage"]
    assert coverage["nodes_by_kind"] == {"compute": 4, "storage": 4, "checkpoint": 2, "unknown": 4}
    assert coverage["replayed"] == 14
    text = view_text("summary", tmp_path / "out.run")
    assert "not modelled, as recorded: 4 storage, 2 checkpoint, 4 unknown" in text


def test_a_trace_keeps_the_numbers_of_unknown_types() -> None:
    trace = of_types(8, 11, 255)
    assert trace.kind_counts == {"COMP": 2, "STORAGE": 1, "TYPE_11": 1, "TYPE_255": 1}
    assert trace.is_opaque.tolist() == [False, True, True, True, False]
    assert int(trace.kind[1]) == NodeKind.STORAGE


def test_a_node_without_a_model_takes_no_turn_on_a_stream_of_the_host() -> None:
    build = TraceBuilder()
    first = build.compute("forward", nanos=100, cpu=True)
    for number in range(2):
        build.compute(f"opaque {number}", nanos=10, cpu=True, after=[first])
    trace = build.build()
    trace = decode(encode_trace(replace(trace, kind=np.array([NodeKind.COMP, 9, 9], trace.kind.dtype))), "b")
    streams = [{"name": "host", "takes": ["host"]}]
    result = et_sim.simulate(
        Workload.of([trace] * 2), system=system(streams=streams), network=RING_2, fold=False
    )
    assert result.finish_ns.tolist() == [110, 110]
