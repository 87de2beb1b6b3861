"""Writing: a part of a run, every compression, versions; figures do not depend on blocks of rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from machines import FIFO_RING, ring
from pyarrow import feather

import et_sim
from et_sim.basics.errors import UsageError
from et_sim.cli import main
from et_sim.timeline import OutputFilter, rows, write_run
from et_sim.views import open_run
from et_sim.views.run.selection import EVERYTHING, Selection, recorded_part
from et_sim.views.summary.rank_table import rank_entries
from et_sim.views.view import view_text
from et_sim.workloads.microbenchmarks import make_microbenchmark

MACHINE: dict[str, Any] = {"system": FIFO_RING, "network": ring(5, "50GB/s")}


def _result(**options: Any) -> Any:
    traces = []
    for rank in range(5):
        build = et_sim.TraceBuilder()
        for layer in range(40):
            work = build.compute(f"layer {layer}", micros=2 + rank * (layer % 3))
            build.compute("load", micros=1, cpu=True)
            if layer % 4 == 0:
                build.collective("all_reduce", 4096, after=[work])
        traces.append(build.build())
    return et_sim.simulate(et_sim.Workload.of(traces), **MACHINE, **options)


@pytest.fixture(scope="module")
def result() -> Any:
    return _result(detail="phases")


def _rows(path: Path, name: str = "timeline") -> list[dict[str, Any]]:
    return list(feather.read_table(path / f"{name}.arrow").to_pylist())


@pytest.mark.parametrize("ranks", [(), (range(1, 4, 2),)])
@pytest.mark.parametrize("window", [None, (20_000, 60_000)])
def test_a_part_holds_the_rows_that_touch_it_and_the_whole_summary(
    result: Any, tmp_path: Path, ranks: tuple[range, ...], window: tuple[int, int] | None
) -> None:
    write_run(result, tmp_path / "whole")
    write_run(result, tmp_path / "part", output_filter=OutputFilter(ranks, window))
    first, last = window or (0, 2**62)
    actors = {result.outcome.plan.actor_of_rank[rank] for span in ranks for rank in span} or set(range(5))
    for table, begin in (("timeline", "start_ns"), ("phases", "queued_ns")):
        expected = [
            row
            for row in _rows(tmp_path / "whole", table)
            if row["actor"] in actors and row[begin] < last and max(row["end_ns"], row[begin] + 1) > first
        ]
        assert _rows(tmp_path / "part", table) == expected
    for name in ("summary.json", "actors.arrow"):
        assert (tmp_path / "part" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    kept = open_run(tmp_path / "part").manifest.get("recorded_part", {})
    assert kept == {**({"ranks": "1,3"} if ranks else {}), **({"window_ns": list(window)} if window else {})}
    assert (
        "operations are those of the recorded part" in view_text("summary", tmp_path / "part", width=200)
    ) == bool(kept)


@pytest.mark.parametrize("compression", ["lz4", "zstd", "none"])
def test_every_compression_holds_the_same(result: Any, tmp_path: Path, compression: str) -> None:
    write_run(result, tmp_path / "run", output_filter=OutputFilter(compression=compression))
    assert _rows(tmp_path / "run") == result.timeline.to_pylist()
    assert open_run(tmp_path / "run").summary["status"] == "complete"


@pytest.mark.deep
def test_figures_do_not_depend_on_the_number_of_rows_made_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = _result()
    expected = whole.summary(), whole.timeline.to_pylist(), whole.table("actors").to_pylist()
    for at_once in (1, 7, 64, 100):
        monkeypatch.setattr(rows, "ROWS_AT_ONCE", at_once)
        cut = _result()
        assert (cut.summary(), cut.timeline.to_pylist(), cut.table("actors").to_pylist()) == expected


def test_impossible_filters_are_refused(result: Any, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no rank 7"):
        write_run(result, tmp_path / "run", output_filter=OutputFilter((range(3, 8),)))
    with pytest.raises(UsageError, match="did you mean 'zstd'"):
        OutputFilter(compression="zst")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("version", ["5", "7", ""])
def test_every_table_states_its_version_and_no_other_version_is_read(
    result: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], version: str
) -> None:
    write_run(result, tmp_path / "run")
    for path in (tmp_path / "run").glob("*.arrow"):
        assert feather.read_table(path).schema.metadata[b"et-sim.tables"] == b"6", path
    path = tmp_path / "run" / "timeline.arrow"
    table = feather.read_table(path)
    other = table.replace_schema_metadata({b"et-sim.tables": version.encode()} if version else {})
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, other.schema) as out:
        out.write_table(other)
    assert main(["inspect", str(tmp_path / "run")]) == 2
    printed = capsys.readouterr().err
    assert f"is of table version {version or 0}; this et-sim reads version 6" in printed
    assert "simulate again" in printed


@pytest.mark.parametrize("ranks", [(range(3, 4),), (range(0, 7, 2),)])
def test_written_ranks_have_the_same_operations_folded_and_not(
    ranks: tuple[range, ...], tmp_path: Path
) -> None:
    workload = make_microbenchmark("all_reduce", ranks=8, size=1 << 20, repeat=2)
    texts = []
    for fold in (True, False):
        result = et_sim.simulate(workload, machine="h100-dgx:8", fold=fold)
        path = tmp_path / str(fold)
        write_run(result, path, output_filter=OutputFilter(ranks))
        run = open_run(path)
        view = [view_text(name, path) for name in ("ops", "activity")]
        named = [entry["ranks"] for entry in rank_entries(run, Selection(window=(0, 9000)))]
        texts.append((view, named, EVERYTHING.weights(run).sum(), recorded_part(run)))
    assert texts[0] == texts[1]
    assert texts[0][2] == len(ranks[0])
    assert recorded_part(open_run(tmp_path / "True")) == ("rank 3" if len(ranks[0]) == 1 else "ranks 0,2,4,6")
