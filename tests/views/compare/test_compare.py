"""`et-sim compare`: differences are those of the files, folded or not, with a status for CI."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from machines import FIFO_RING, ring
from pyarrow import feather
from runs_to_show import layered, run_written

import et_sim
from et_sim.cli import main
from et_sim.timeline import write_run
from et_sim.trace import write_workload
from et_sim.views import open_run
from et_sim.views.compare.changes import compare
from et_sim.views.compare.text import comparison_lines
from et_sim.views.summary.operations import operations

pytestmark = pytest.mark.usefixtures("warm_engine")


def _trace(micros: int, *, name: str = "work") -> et_sim.Trace:
    return layered(micros, 2, names=(f"{name} {{}}", "sum {}"))


def _run(folder: Path, traces: list[et_sim.Trace], *, bandwidth: int = 50, **options: Any) -> Path:
    network = ring(len(traces), f"{bandwidth}GB/s")
    return run_written(folder, et_sim.Workload.of(traces), network, **options)


def test_a_run_is_identical_to_itself_and_to_its_unfolded_form(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folded = _run(tmp_path / "folded", [_trace(10)] * 4)
    alone = _run(tmp_path / "alone", [_trace(10)] * 4, fold=False)
    assert feather.read_table(alone / "actors.arrow").num_rows == 4
    for other in (folded, alone):
        assert main(["compare", str(folded), str(other), "--threshold", "0"]) == 0
        assert "identical: every operation, group and rank took as long as before" in capsys.readouterr().out
        assert compare(open_run(folded), open_run(other)).is_identical


def test_differences_of_operations_are_those_of_their_totals(tmp_path: Path) -> None:
    a, b = (open_run(_run(tmp_path / name, [_trace(m)] * 4)) for name, m in (("a", 10), ("b", 13)))
    differences = {change.name[:2]: change.difference_ns for change in compare(a, b).operations}
    totals = [{(o.kind, o.name): o.total_ns for o in operations(run)} for run in (a, b)]
    assert differences == {name: totals[1][name] - totals[0][name] for name in totals[0]}
    assert differences["compute", "work #"] == 4 * 2 * 3_000
    assert sum(change.difference_ns for change in compare(a, b).groups) == differences["all_reduce", "sum #"]


def test_collectives_with_recorded_times_are_compared_with_simulated_ones(tmp_path: Path) -> None:
    build = et_sim.TraceBuilder()
    build.collective("all_reduce", 1 << 20, name="sum", micros=70)
    write_workload(et_sim.Workload.of([build.build()] * 4), tmp_path / "job")
    machine: dict[str, Any] = {"system": FIFO_RING, "network": ring(4)}
    recorded, simulated = (
        et_sim.simulate(tmp_path / "job", alone=alone, **machine) for alone in (True, False)
    )
    for name, result in (("recorded", recorded), ("simulated", simulated)):
        write_run(result, tmp_path / name)
    found = compare(open_run(tmp_path / "recorded"), open_run(tmp_path / "simulated"))
    [change] = found.operations
    assert change.name[:2] == ("all_reduce", "sum")
    assert change.difference_ns == 4 * (simulated.makespan_ns - recorded.makespan_ns)
    assert recorded.makespan_ns == 70_000
    assert not found.groups


def test_every_rank_is_compared_with_itself_for_any_actors(tmp_path: Path) -> None:
    a = open_run(_run(tmp_path / "a", [_trace(10)] * 6))
    b = open_run(_run(tmp_path / "b", [_trace(20 if rank == 4 else 10) for rank in range(6)]))
    finish = [
        np.repeat(np.nan, 6),
        np.repeat(np.nan, 6),
    ]
    for column, run in zip(finish, (a, b), strict=True):
        for entry in run.summary["per_rank"]:
            for span in entry["ranks"].split(","):
                first, _, last = span.partition("-")
                column[int(first) : int(last or first) + 1] = entry["finish_ns"]
    changes = compare(a, b).ranks
    assert changes is not None
    seen = []
    for change in changes:
        for span in change.ranks.split(","):
            first, _, last = span.partition("-")
            for rank in range(int(first), int(last or first) + 1):
                assert change.figures["finish_ns"] == (finish[0][rank], finish[1][rank])
                seen.append(rank)
    assert sorted(seen) == list(range(6))


@pytest.mark.parametrize(("threshold", "status"), [("0", 1), ("5%", 1), ("0.05", 1), ("1000%", 0), (None, 0)])
def test_the_exit_status_marks_a_run_slower_by_more_than_the_threshold(
    tmp_path: Path, threshold: str | None, status: int
) -> None:
    a, b = (_run(tmp_path / name, [_trace(m)] * 2) for name, m in (("a", 10), ("b", 20)))
    options = [] if threshold is None else ["--threshold", threshold]
    assert main(["compare", str(a), str(b), *options]) == status
    assert main(["compare", str(b), str(a), *options]) == 0


@pytest.mark.deep
def test_the_exit_status_does_not_depend_on_the_reader(tmp_path: Path) -> None:
    a, b = (_run(tmp_path / name, [_trace(m)] * 2) for name, m in (("a", 10), ("b", 20)))
    for pair, status in (((a, b), 1), ((b, a), 0)):
        command = [
            sys.executable,
            "-c",
            "import sys; from et_sim.cli import main; sys.exit(main(sys.argv[1:]))",
        ]
        read, write = os.pipe()
        os.close(read)
        done = subprocess.run([*command, "compare", *map(str, pair), "--threshold", "5%"], stdout=write)
        os.close(write)
        assert done.returncode == status


def test_exactly_the_threshold_is_still_within_it(tmp_path: Path) -> None:
    build_a, build_b = et_sim.TraceBuilder(), et_sim.TraceBuilder()
    build_a.compute("work", micros=100)
    build_b.compute("work", micros=102)
    a, b = (_run(tmp_path / n, [build.build()] * 2) for n, build in (("a", build_a), ("b", build_b)))
    assert main(["compare", str(a), str(b), "--threshold", "2%"]) == 0
    assert main(["compare", str(a), str(b), "--threshold", "1.99%"]) == 1


def test_rows_of_only_one_run_are_shown_with_a_dash(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a, b = (_run(tmp_path / name, [_trace(10, name=name)] * 2) for name in ("old", "new"))
    assert main(["compare", str(a), str(b)]) == 0
    lines = {
        line.split()[1]: line for line in capsys.readouterr().out.splitlines() if line.startswith("compute")
    }
    assert lines["old"].split()[3:] == ["4→0", "40", "µs", "-", "-40", "µs"]
    assert lines["new"].split()[3:] == ["0→4", "-", "40", "µs", "+40", "µs"]


def test_runs_of_different_size_are_compared_as_far_as_that_goes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a, b = _run(tmp_path / "a", [_trace(10)] * 2), _run(tmp_path / "b", [_trace(10)] * 3)
    assert main(["compare", str(a), str(b)]) == 0
    assert "ranks cannot be compared: the runs have different numbers of them" in capsys.readouterr().out
    assert main(["compare", str(a), str(b), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["ranks"] is None


def test_json_holds_everything_and_top_cuts_text_only(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a, b = (_run(tmp_path / n, [_trace(m)] * 2, bandwidth=w) for n, m, w in (("a", 10, 50), ("b", 9, 25)))
    assert main(["compare", str(a), str(b), "--top", "1"]) == 0
    assert "… and 1 smaller change: --top, or --json" in capsys.readouterr().out
    assert main(["compare", str(a), str(b), "--top", "1", "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert not content["identical"]
    assert [operation["name"] for operation in content["operations"]] == ["sum #", "work #"]
    assert content["makespan_ns"] == {n: open_run(r).summary["makespan_ns"] for n, r in (("a", a), ("b", b))}
    assert content["ranks"][0]["ranks"] == "0-1"


def test_names_in_a_narrow_table_keep_some_letters(tmp_path: Path) -> None:
    a, b = (
        open_run(_run(tmp_path / n, [_trace(m, name="w" * 30)] * 2, bandwidth=w))
        for n, m, w in (("a", 10, 50), ("b", 9, 25))
    )
    lines = comparison_lines(compare(a, b), 24, 10)
    kinds = [line.split()[0] for line in lines if "#" in line and line.endswith("µs")]
    assert kinds == ["all_red…", "compute"]  # eight letters, and twelve of an operation
    assert any("  wwwwww…www #  " in line for line in lines)


@pytest.mark.parametrize("width", [60, 80])
def test_every_line_of_a_table_fits(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    long = "a_name_that_is_much_too_long_for_any_terminal_of_eighty_columns"
    a, b = (
        _run(tmp_path / n, [_trace(m, name=long)] * 5, bandwidth=w)
        for n, m, w in (("a", 10, 50), ("b", 900, 2))
    )
    assert main(["compare", str(a), str(b)]) == 0
    tables = capsys.readouterr().out.partition("\n\n")[2].rpartition("\n\n")[0]
    assert tables.count("no room for") == (2 if width == 60 else 0)
    assert max(map(len, tables.splitlines())) <= width


@pytest.mark.parametrize("threshold", ["x", "-1%", "nan", "", "2 percent"])
def test_a_threshold_that_is_none_is_refused(
    tmp_path: Path, threshold: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", str(tmp_path), str(tmp_path), f"--threshold={threshold}"]) == 2
    assert "cannot be understood (give a share from 0 on, such as 2% or 0.02)" in capsys.readouterr().err


@pytest.mark.parametrize("changed", [{"profile": "corrected"}, {"model": "link"}])
def test_runs_in_another_profile_or_model_are_compared_and_the_header_names_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], changed: dict[str, Any]
) -> None:
    def traces() -> list[et_sim.Trace]:
        built = []
        for rank in range(4):
            build = et_sim.TraceBuilder()
            build.send((rank + 2) % 4, 1 << 20, name="there")
            build.receive((rank - 2) % 4, 1 << 20, name="here")
            build.collective("all_reduce", 1 << 20, name="sum")
            built.append(build.build())
        return built

    a, b = (_run(tmp_path / n, traces(), fold=False, **m) for n, m in (("a", {}), ("b", changed)))
    assert main(["compare", str(a), str(b)]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    (key, value), before = *changed.items(), {"profile": "reference", "model": "analytical"}
    assert f"input {key}: {before[key]}, then {value} they part " in printed
    assert main(["compare", str(a), str(b), "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert content["inputs"] == [f"{key}: {before[key]}, then {value}"]
    first = content["first_difference"]
    ends = [open_run(run).table("timeline").to_pylist() for run in (a, b)]
    differing = [
        min(x["end_ns"], y["end_ns"]) for x, y in zip(*ends, strict=True) if x["end_ns"] != y["end_ns"]
    ]
    assert min(first["a_end_ns"], first["b_end_ns"]) == min(differing)


def test_corrections_that_are_switched_are_part_of_the_header(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    traces = [_trace(10)] * 4
    system = {**FIFO_RING, "corrections": {"exact-chunks": True}}
    a, b = _run(tmp_path / "a", traces), _run(tmp_path / "b", traces, system=system)
    assert main(["compare", str(a), str(b)]) == 0
    printed = capsys.readouterr().out
    assert "switched: none, then exact-chunks on" in printed
    assert "corrections:" not in printed


def test_the_place_where_runs_part_does_not_depend_on_folding(tmp_path: Path) -> None:
    a = _run(tmp_path / "a", [_trace(10)] * 6)
    late = [_trace(20 if rank == 4 else 10) for rank in range(6)]
    for fold in (True, False):
        b = _run(tmp_path / f"b{fold}", late, fold=fold)
        parting = compare(open_run(a), open_run(b)).parting
        assert parting is not None
        assert (parting.rank, parting.node, parting.kind, parting.name) == (4, 0, "compute", "work 0")
        assert (parting.a_end_ns, parting.b_end_ns) == (10_000, 20_000)
    assert compare(open_run(a), open_run(a)).parting is None


def test_the_change_of_an_empty_run_is_relative_to_nothing(tmp_path: Path) -> None:
    nothing, work = et_sim.TraceBuilder(), et_sim.TraceBuilder()
    nothing.compute("none", nanos=0)
    work.compute("some", nanos=1)
    runs = {
        name: open_run(_run(tmp_path / name, [build.build()] * 2))
        for name, build in (("empty", nothing), ("full", work))
    }
    assert compare(runs["empty"], runs["empty"]).relative == 0.0
    assert compare(runs["empty"], runs["full"]).relative == 1.0
    assert compare(runs["full"], runs["empty"]).relative == -1.0
