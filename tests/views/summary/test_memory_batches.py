"""Views of local memory do not depend on how memory.arrow is cut into batches."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from runs_to_show import written

import et_sim
from et_sim.views.report.pictures import memory_section
from et_sim.views.run.directory import RunDirectory, open_run
from et_sim.views.summary.memory import memory_peaks


def _trace(rank: int) -> et_sim.Trace:
    """Return tensors that come and go, different ones on every rank."""
    build = et_sim.TraceBuilder()
    sizes = [64 * (1 + (number * (rank + 3)) % 5) for number in range(6)]
    for number, size in enumerate(sizes):
        inputs = {f"t{number - 1}": sizes[number - 1]} if number else {"weights": 4096}
        build.compute(f"step {number}", nanos=100 + rank, inputs=inputs, outputs={f"t{number}": size})
    build.collective("all_reduce", 4096, inputs={"weights": 4096})
    return build.build()


@pytest.mark.parametrize("rows_per_batch", [1, 3, 8])
def test_peaks_and_curves_are_the_same_for_any_batches_of_the_table(
    tmp_path: Path, rows_per_batch: int
) -> None:
    workload = et_sim.Workload.of([_trace(rank) for rank in range(4)])
    whole = written(workload, tmp_path / "whole", system={"track-local-mem": 1})
    shutil.copytree(whole, cut := tmp_path / "cut")
    table = open_run(whole).table("memory")
    name = str(cut / "memory.arrow")
    with pa.OSFile(name, "wb") as sink, pa.ipc.new_file(sink, table.schema) as out:
        out.write_table(table, max_chunksize=rows_per_batch)

    def shown(run: RunDirectory) -> tuple[object, str]:
        return memory_peaks(run), memory_section(run)

    peaks, section = shown(open_run(whole))
    assert isinstance(peaks, list)
    assert len(peaks) > 2
    assert len(table) > 4 * rows_per_batch
    assert shown(open_run(cut)) == (peaks, section)
