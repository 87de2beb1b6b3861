"""Views show the content of the files, also in unusual cases: stalls, folding, many rows, odd names."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, NotRequired, TypedDict, get_origin
from xml.etree import ElementTree

import pyarrow as pa
import pytest
from machines import FIFO_RING, ring
from pyarrow import feather
from runs_to_show import layered, run_written

import et_sim
from et_sim.basics.alignment import aligned
from et_sim.basics.errors import UsageError
from et_sim.tables.serving_summary import ServingSummary
from et_sim.tables.summary import Manifest, Ranks, Stall, Summary
from et_sim.timeline import write_run
from et_sim.views import open_run
from et_sim.views.drawing.timeline import MOST_ACTORS, PIXELS, picture
from et_sim.views.run.faults import fault_of
from et_sim.views.summary.operations import operations
from et_sim.views.summary.rank_table import rank_count, slowest_first
from et_sim.views.text import bar, share
from et_sim.views.view import view_text

pytestmark = pytest.mark.usefixtures("warm_engine")


def _trace(micros: int, *, layers: int = 3) -> et_sim.Trace:
    return layered(micros, layers, names=("layer {} forward", "layer {} sum"))


def _written(traces: list[et_sim.Trace], folder: Path) -> Path:
    return run_written(folder, et_sim.Workload.of(traces), ring(len(traces), "50GB/s"))


def _folded(path: Path) -> Path:
    """Return the run with a million more ranks in the last actor, as folding would write it."""
    table = feather.read_table(path / "actors.arrow")
    counts = table["rank_count"].to_pylist()
    counts[-1] += 1_000_000
    column = table.schema.get_field_index("rank_count")
    table = table.set_column(column, table.schema.field(column), pa.array(counts))
    with pa.OSFile(str(path / "actors.arrow"), "wb") as sink, pa.ipc.new_file(sink, table.schema) as out:
        out.write_table(table)
    summary = json.loads((path / "summary.json").read_text(encoding="utf-8"))
    summary["ranks"] += 1_000_000
    (path / "summary.json").write_text(json.dumps(summary), encoding="utf-8")
    return path


def test_operations_take_numbered_names_together(tmp_path: Path) -> None:
    run = open_run(_written([_trace(10)] * 4, tmp_path / "run"))
    forward, total = operations(run)[1], operations(run)[0]
    assert (forward.kind, forward.name, forward.count) == ("compute", "layer # forward", 12)
    assert forward.total_ns == 4 * 3 * 10_000
    assert forward.mean_ns == forward.longest_ns == 10_000
    assert (total.kind, total.bytes) == ("all_reduce", 12 << 20)


def test_operations_add_up_to_the_rows_of_the_timeline(tmp_path: Path) -> None:
    run = open_run(_written([_trace(10), _trace(20), _trace(5)], tmp_path / "run"))
    rows = run.table("timeline").to_pylist()
    totals = operations(run)
    assert sum(total.count for total in totals) == len(rows)
    assert sum(total.total_ns for total in totals) == sum(row["end_ns"] - row["start_ns"] for row in rows)


def test_a_receive_that_is_posted_late_has_no_bandwidth_above_that_of_its_link(tmp_path: Path) -> None:
    sender, receiver = et_sim.TraceBuilder(), et_sim.TraceBuilder()
    sender.send(1, 1 << 20, name="message")
    work = receiver.compute("work", micros=20)
    receiver.receive(0, 1 << 20, name="message", after=[work])
    operation_of = {
        operation.kind: operation
        for operation in operations(open_run(_written([sender.build(), receiver.build()], tmp_path / "run")))
    }
    assert 0 < operation_of["receive"].total_ns < operation_of["send"].total_ns / 2
    assert operation_of["receive"].bandwidth.algorithm is None
    assert 0 < (operation_of["send"].bandwidth.algorithm or 0) <= 50 * 2**30


def test_an_actor_counts_once_per_rank(tmp_path: Path) -> None:
    run = open_run(_folded(_written([_trace(10)] * 4, tmp_path / "run")))
    forward = next(operation for operation in operations(run) if operation.kind == "compute")
    assert forward.count == 3 * 1_000_004
    assert forward.total_ns == 3 * 1_000_004 * 10_000


def test_a_stalled_run_begins_with_the_stall_and_counts_unended_nodes(tmp_path: Path) -> None:
    from et_sim.api import run as simulate
    from et_sim.engine.stall import explain_stall

    traces = []
    for rank in range(2):
        build = et_sim.TraceBuilder()
        build.compute("work", micros=5)
        if rank == 1:
            build.receive(0, 64, tag=7)
        traces.append(build.build())
    workload = et_sim.Workload.of(traces)
    result = simulate(workload, system=FIFO_RING, network=ring(2, "50GB/s"))
    write_run(result, tmp_path / "run", explain_stall(result.outcome, workload).as_dict())
    lines = view_text("summary", tmp_path / "run", width=200).splitlines()
    assert lines[0].startswith("STALLED: 1 of 2 ranks never finished")
    assert "rank 1 expects 64 B with tag 7 from rank 0" in lines[1]
    assert "1 (1 never ended)" in view_text("ops", tmp_path / "run")
    assert "rank 1 waits for 64 B" in view_text("stalls", tmp_path / "run")
    assert "never completed" in picture(open_run(tmp_path / "run"))


def test_a_complete_run_has_no_stall(tmp_path: Path) -> None:
    assert view_text("stalls", _written([_trace(1)] * 2, tmp_path / "run")).startswith("no rank is stuck")


def test_many_different_ranks_are_cut_to_the_slowest_with_a_word_about_the_rest(tmp_path: Path) -> None:
    path = _written([_trace(10 + rank) for rank in range(40)], tmp_path / "run")
    summary = json.loads((path / "summary.json").read_text())
    lines = view_text("summary", path).splitlines()
    head = next(
        number for number, line in enumerate(lines) if line.startswith("ranks  ") and "finish" in line
    )
    slowest = slowest_first(summary["per_rank"])
    assert [line.split()[0] for line in lines[head + 1 : head + 13]] == [e["ranks"] for e in slowest[:12]]
    hidden = len(summary["per_rank"]) - 12
    assert lines[head + 13].startswith(f"… and {hidden} faster lines: et-sim inspect")
    assert len(view_text("ranks", path).splitlines()) == len(summary["per_rank"]) + 2


def test_a_run_without_any_time_is_no_division_by_zero(tmp_path: Path) -> None:
    build = et_sim.TraceBuilder()
    build.invalid("nothing")
    path = _written([build.build()] * 2, tmp_path / "run")
    assert "nothing: no time passes" in view_text("summary", path)
    ElementTree.fromstring(picture(open_run(path)))


@pytest.mark.deep
def test_a_picture_is_well_formed_deterministic_and_bounded(tmp_path: Path) -> None:
    many = [_trace(1 + rank, layers=100) for rank in range(MOST_ACTORS + 8)]
    run = open_run(_written(many, tmp_path / "run"))
    drawn = picture(run)
    assert drawn == picture(run)
    assert ElementTree.fromstring(drawn).tag.endswith("svg")
    assert "and 8 faster actors" in drawn
    assert len(drawn) < MOST_ACTORS * 3 * PIXELS * 12


def test_names_cannot_break_a_picture(tmp_path: Path) -> None:
    build = et_sim.TraceBuilder()
    build.compute('<script>&"', micros=3)
    ElementTree.fromstring(picture(open_run(_written([build.build()] * 2, tmp_path / "run"))))


def test_a_picture_shows_time_to_scale(tmp_path: Path) -> None:
    build = et_sim.TraceBuilder()
    first = build.compute("first", micros=30)
    build.compute("second", micros=70, after=[first])
    drawn = picture(open_run(_written([build.build()] * 2, tmp_path / "run")))
    runs = re.search(r'd="M(\d+) \d+h(\d+)v\d+h-\d+zM(\d+) \d+h(\d+)v', drawn)
    assert runs
    start, length, next_start, next_length = (int(number) for number in runs.groups())
    assert (length, next_length) == (0.3 * PIXELS, 0.7 * PIXELS - 1)  # a pixel separates them
    assert next_start - start == 0.3 * PIXELS + 1


@pytest.mark.parametrize(
    ("ranks", "count"), [("0", 1), ("0-7", 8), ("0-3,6", 5), ("1,3,5", 3), ("10-19,21", 11)]
)
def test_ranks_as_ranges_are_counted(ranks: str, count: int) -> None:
    assert rank_count(ranks) == count


def test_shares_never_round_something_to_nothing_or_to_all() -> None:
    assert [share(part, 1000) for part in (0, 1, 5, 994, 999, 1000)] == [
        "0 %",
        "<1 %",
        "<1 %",
        "99 %",
        ">99 %",
        "100 %",
    ]
    assert share(1, 0) == "-"


def test_a_bar_is_as_long_as_its_parts() -> None:
    assert bar((("a", 50), ("b", 25)), 100, 8) == "aaaabb"
    assert bar((("a", 1), ("b", 1), ("c", 1)), 3, 10) == "aaabbbbccc"
    assert bar((), 0, 8) == ""


def test_columns_are_aligned() -> None:
    assert aligned([("name", "n"), ("a", "10")], "<>") == ["name   n", "a     10"]


def _changed(path: Path, name: str, **changes: Any) -> None:
    """Set keys of a JSON file; None takes a key out."""
    content = json.loads((path / name).read_text()) | changes
    gone = {key for key, value in changes.items() if value is None}
    (path / name).write_text(json.dumps({key: content[key] for key in content if key not in gone}))


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"makespan_ns": None}, "makespan_ns is missing"),
        ({"status": 3}, "status is not a text"),
        ({"ranks": True}, "ranks is not a whole number"),
        ({"per_rank": {}}, "per_rank is not a list"),
        ({"per_rank": [{"ranks": "all"}]}, "per_rank[0].ranks is not a list of ranks such as 0-3,6"),
        (
            {"per_rank": [{"ranks": "0", "finish_ns": ""}]},
            "per_rank[0].finish_ns is not a whole number or null",
        ),
        ({"folded": []}, "folded is not an object"),
        ({"warnings": ["text"]}, "warnings[0] is not an object"),
    ],
)
def test_an_invalid_summary_is_refused_with_the_reason(
    tmp_path: Path, changes: dict[str, Any], fault: str
) -> None:
    path = _written([_trace(10)] * 2, tmp_path / "run")
    _changed(path, "summary.json", **changes)
    with pytest.raises(UsageError) as caught:
        view_text("summary", path)
    assert caught.value.cause == f"is not as et-sim run writes it: {fault}"
    assert caught.value.place == str(path / "summary.json")


@pytest.mark.parametrize("kind", [Summary, Stall, Manifest, ServingSummary])
def test_every_missing_required_key_is_reported(kind: Any) -> None:
    for key, wanted in kind.__annotations__.items():
        is_optional = get_origin(wanted) is NotRequired
        answer = "" if is_optional else f"{key} is missing"
        single = TypedDict("single", {key: wanted})
        assert fault_of({}, single) == answer
        assert fault_of({"part": {}}, TypedDict("whole", {"part": single})) == (answer and f"part.{answer}")


@pytest.mark.parametrize(
    ("value", "kind", "fault"),
    [
        (3.5, int | None, "key is not a whole number or null"),
        (3, float, ""),
        (True, float, "key is not a number"),
        (1, bool, "key is not true or false"),
        (None, dict[str, Any], "key is not an object"),
        ({"a": 1}, list[int], "key is not a list"),
        ([1, "2"], list[int], "key[1] is not a whole number"),
        ([1, 2, 3], tuple[int, int], "key is not a list of 2"),
        ([1, 2.5], tuple[int, int], "key[1] is not a whole number"),
        ("0-3,6\n", Ranks, "key is not a list of ranks such as 0-3,6"),
        ("0-3,6", Ranks, ""),
        (2**70, int, ""),
    ],
)
def test_a_fault_names_the_key_and_the_kind_in_plain_words(value: Any, kind: Any, fault: str) -> None:
    assert fault_of({"key": value, "more": 1}, TypedDict("one", {"key": kind})) == fault


@pytest.mark.parametrize("name", ["summary.json", "stall.json"])
def test_an_empty_object_in_place_of_a_file_is_refused(tmp_path: Path, name: str) -> None:
    path = _written([_trace(10)] * 2, tmp_path / "run")
    (path / name).write_text("{}")
    with pytest.raises(UsageError, match=f"{name}: is not as et-sim run writes it: .* is missing"):
        view_text("stalls", path)


@pytest.mark.parametrize(("name", "column"), [("timeline.arrow", "bytes"), ("actors.arrow", "rank_count")])
def test_a_table_without_a_column_or_with_another_type_is_refused(
    tmp_path: Path, name: str, column: str
) -> None:
    path = _written([_trace(10)] * 2, tmp_path / "run")
    table = feather.read_table(path / name)
    at = table.schema.get_field_index(column)
    texts = pa.array([""] * len(table))
    for other, complaint in (
        (table.drop_columns([column]), "is missing"),
        (table.set_column(at, column, texts), "is of type string"),
    ):
        with pa.OSFile(str(path / name), "wb") as sink, pa.ipc.new_file(sink, other.schema) as out:
            out.write_table(other)
        with pytest.raises(UsageError, match=f"{name}: .*: column '{column}' {complaint}"):
            view_text("ops", path)
