"""`et-sim show`: passes of a run by the names of its kernels, and the textbook's bubble beside its own."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from machines import FIFO_RING, ring
from runs_to_show import pipeline, side_by_side
from training_jobs import transformer

import et_sim
from et_sim.cli import main
from et_sim.cli.show import IDEAL_NETWORK, IDEAL_SYSTEM
from et_sim.timeline import OutputFilter
from et_sim.trace import Workload, write_manifest, write_workload
from et_sim.views import open_run
from et_sim.views.drawing.scene import LEFT, PIXELS
from et_sim.views.drawing.schedule import COLLECTIVE, COLOURS, OTHER, SENT
from et_sim.views.report.page import report
from et_sim.views.summary.schedule import (
    DIRECTIONS,
    PipelineSchedule,
    ScheduledPass,
    ScheduleRow,
    Stages,
    WorkBlock,
    named_pass,
)
from et_sim.workloads import Axes, Rank, make_workload
from et_sim.workloads.pipeline import Direction, PipelineShape, pass_label, schedule

pytestmark = pytest.mark.usefixtures("warm_engine")
MICROS = {Direction.FORWARD: 40, Direction.BACKWARD: 80, Direction.INPUTS: 40, Direction.WEIGHTS: 40}


def equal_stages(name: str, shape: PipelineShape, data: int = 2) -> Workload:
    """Return passes of one kernel each, equally long in every stage."""
    of_place, parts = schedule(name, shape), shape.stages * shape.chunks

    def program(rank: Rank) -> None:
        place = rank.place("stage")
        for pass_ in of_place(place):
            piece = pass_.chunk * shape.stages + place
            way = 1 if pass_.direction is Direction.FORWARD else -1
            moves = pass_.direction is not Direction.WEIGHTS
            after: tuple[int, ...] = ()
            tag = pass_.micro_batch * parts * 2 + (way < 0)
            if moves and 0 <= piece - way < parts:
                after = rank.receive(rank.next("stage", -way, wraps=True), 1, tag + 2 * piece)
            micros = MICROS[pass_.direction] // shape.chunks
            done = rank.compute(pass_label(pass_, shape.chunks), micros=micros, after=after)
            if moves and 0 <= piece + way < parts:
                rank.send(rank.next("stage", way, wraps=True), 1, tag + 2 * (piece + way), after=done)

    return make_workload(Axes(data=data, stage=shape.stages), program)


def shown(workload: Workload, folder: Path, capsys: pytest.CaptureFixture[str], *options: str) -> str:
    """Return the output of the command."""
    manifest, *_ = write_manifest(workload, folder / "job.workload.json")
    capsys.readouterr()
    assert main(["show", str(manifest), *options]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("gpipe", PipelineShape(3, 4)),
        ("1f1b", PipelineShape(4, 4)),
        ("interleaved", PipelineShape(2, 4, 2)),
        ("zero-bubble", PipelineShape(4, 6)),
        ("1f1b", PipelineShape(1, 2)),
    ],
)
def test_equal_stages_on_an_ideal_network_have_the_bubble_of_the_textbook(
    name: str, shape: PipelineShape, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = json.loads(shown(equal_stages(name, shape), tmp_path, capsys, "--json"))
    assert data["bubble"] == pytest.approx(data["textbook_bubble"], abs=1e-4)
    whole = sum(MICROS[direction] for direction in (Direction.FORWARD, Direction.BACKWARD))
    idle = (shape.stages - 1) * (40 if name == "zero-bubble" else whole / shape.chunks)
    assert data["textbook_bubble"] == pytest.approx(idle / (idle + shape.micro_batches * whole), abs=1e-9)
    assert (data["stages"], data["micro_batches"]) == (shape.stages, shape.micro_batches)
    assert data["chunks"] == shape.chunks
    assert [row["ranks"] for row in data["rows"]] == [
        f"{2 * place}-{2 * place + 1}" for place in range(shape.stages)
    ]
    for place, row in enumerate(data["rows"]):
        seen = [(block["direction"], block["micro_batch"], block["chunk"]) for block in row["blocks"]]
        passes = schedule(name, shape)(place)
        assert seen == [(each.direction, each.micro_batch, each.chunk) for each in passes]


def test_the_text_is_a_grid_of_ranks_and_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "68")
    lines = shown(equal_stages("1f1b", PipelineShape(2, 3)), tmp_path, capsys).splitlines()
    assert lines[0] == f"{'ranks':62}bubble"
    assert lines[1:3] == [
        "0-1   0>>>1>>>>.........0<<<<<<<<2>>>>1<<<<<<<.....2<<<<<<<<   25.0%",
        "2-3   ....0>>>>0<<<<<<<<1>>>1<<<<<<<<<2>>>2<<<<<<<<.........   25.0%",
    ]
    assert "2 equal stages that never wait for the network would have 25.0%" in lines[-2]


NAMES = st.builds(
    lambda way, number, chunk, rest: (ScheduledPass(way, number, chunk), rest),
    st.sampled_from(DIRECTIONS),
    st.integers(0, 999),
    st.integers(0, 30),
    st.sampled_from(["", " layer 3 mlp", " 4"]),
)


@given(NAMES)
@settings(max_examples=30)
def test_a_name_begins_with_direction_micro_batch_and_chunk(given_name: tuple[ScheduledPass, str]) -> None:
    work, rest = given_name
    chunk = f" chunk {work.chunk}" if work.chunk else ""
    assert named_pass(f"{work.direction} {work.micro_batch}{chunk}{rest}") == work


@pytest.mark.parametrize(
    "name", [None, "", "forward", "forward x", "forward 3x", "Forward 3", "layer forward 3"]
)
def test_other_names_are_other_work(name: str | None) -> None:
    assert named_pass(name) is None


def test_stages_are_counted_along_the_first_messages_and_cycles_have_none() -> None:
    stages = Stages(5)
    stages.computed(np.arange(5), np.array([0, 10, 20, 5, 5]))
    stages.received(np.array([2, 1, 0, 3, 4]), np.array([1, 0, 1, 4, 3]), np.array([20, 10, 30, 5, 5]))
    assert stages.depths() == [0, 1, 2, -1, -1]
    assert Stages(2).depths() == [0, 0]


def test_a_run_is_shown_with_its_times_its_communication_and_no_merged_ranks_that_differ(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = pipeline(tmp_path / "run")
    capsys.readouterr()
    assert main(["show", str(folder), "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["makespan_ns"] == open_run(folder).summary["makespan_ns"]
    assert data["stages"] == 2
    kinds = {exchange["kind"] for row in data["rows"] for exchange in row["communication"]}
    assert "all_reduce" in kinds
    assert data["bubble"] > data["textbook_bubble"]
    assert main(["show", str(folder)]) == 0
    assert "= collectives" in capsys.readouterr().out
    page = report(open_run(folder))
    assert 'id="schedule"' in page
    assert "backward 3: " in page.split('id="schedule"')[1].split("</section>")[0]


def test_the_schedule_is_a_view_of_a_run_in_all_forms(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, target = str(pipeline(tmp_path / "run")), tmp_path / "schedule.svg"
    printed = {}
    for form in ([], ["--json"]):
        for command in (["show", run], ["inspect", run, "schedule"]):
            capsys.readouterr()
            assert main([*command, *form]) == 0
            printed[command[0]] = capsys.readouterr().out
        assert printed["inspect"] == printed["show"]
    assert main(["inspect", run, "schedule", "--svg", str(target)]) == 0
    ElementTree.fromstring(target.read_text())
    other = str(side_by_side(tmp_path / "other"))
    capsys.readouterr()
    assert main(["inspect", other, "schedule"]) == 0
    assert "no kernel belongs to a pass" in capsys.readouterr().out
    assert main(["inspect", other, "schedule", "--svg", str(tmp_path / "none.svg")]) == 2
    assert not (tmp_path / "none.svg").exists()


def test_the_picture_is_svg_with_every_pass_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "a.svg"
    out = shown(transformer(pipeline=2, micro_batches=3), tmp_path, capsys, "--svg", str(target))
    assert out == f"drawn into {target}\n"
    root = ElementTree.fromstring(target.read_text())
    titles = [title.text or "" for title in root.iter("{http://www.w3.org/2000/svg}title")]
    for way in ("forward", "backward"):
        for number in range(3):
            assert sum(title.startswith(f"{way} {number}: ") for title in titles) == 2
    [first, *_] = root.iter("{http://www.w3.org/2000/svg}text")
    assert (first.text, first.get("x")) == ("0 ns", str(LEFT))  # the axis begins with the run
    boxes = [box for box in root.iter("{http://www.w3.org/2000/svg}rect") if len(box)]  # those with titles
    ends = [float(box.get("x", 0)) + float(box.get("width", 0)) for box in boxes]
    assert min(float(box.get("x", 0)) for box in boxes) == LEFT  # the first pass
    assert max(ends) == pytest.approx(LEFT + PIXELS, abs=1)  # the last one ends with the run


def test_the_picture_is_drawn_as_png_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("resvg_py")
    files = tmp_path / "a.svg", tmp_path / "a.png"
    job = transformer(pipeline=2, micro_batches=3)
    out = shown(job, tmp_path, capsys, "--svg", str(files[0]), "--png", str(files[1]))
    assert out == f"drawn into {files[0]} and {files[1]}\n"
    assert files[1].read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("kind", ["workload", "run"])
def test_runs_and_jobs_without_passes_are_refused_in_one_sentence(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if kind == "run":
        given_path = side_by_side(tmp_path / "run")
    else:
        workload = make_workload(Axes(data=2), lambda rank: rank.compute("layer", micros=5))
        given_path = write_manifest(workload, tmp_path / "job.workload.json")[0]
    capsys.readouterr()
    assert main(["show", str(given_path)]) == 2
    printed = capsys.readouterr().err
    assert "has no kernel of a pass (names of kernels in passes begin like" in printed


def test_a_run_has_groups_of_its_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = pipeline(tmp_path / "run")
    capsys.readouterr()
    assert main(["show", str(folder), "--groups", "x.json"]) == 2
    assert "--groups is not for a run" in capsys.readouterr().err


def test_files_with_a_groups_file_are_shown_like_their_manifest(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    workload = transformer(tensor=2, data=2, pipeline=2)
    write_workload(workload, tmp_path / "files")
    grid = shown(workload, tmp_path, capsys)
    groups = str(tmp_path / "files.groups.json")
    assert main(["show", str(tmp_path / "files"), "--groups", groups]) == 0
    assert capsys.readouterr().out == grid
    assert main(["show", str(tmp_path / "files")]) == 2
    assert "pass the groups file with --groups" in capsys.readouterr().err
    assert main(["show", str(tmp_path / "files"), "--groups", str(tmp_path / "none.json")]) == 2
    assert "the groups file does not exist" in capsys.readouterr().err


@pytest.mark.deep
def test_a_million_ranks_are_a_row_for_each_stage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    grid = shown(transformer(tensor=4, data=1 << 16, pipeline=4), tmp_path, capsys)
    assert [line.split()[0] for line in grid.splitlines() if line[:1].isdecimal()] == [
        "0-262143",
        "262144-524287",
        "524288-786431",
        "786432-1048575",
    ]


def test_a_part_of_a_run_has_no_textbook_bubble(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = pipeline(tmp_path / "run", fold=False, output_filter=OutputFilter((range(4, 8),)))
    capsys.readouterr()
    assert main(["show", str(folder), "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert (data["stages"], data["textbook_bubble"]) == (None, None)
    assert data["notes"] == ["the run holds only nodes of ranks 4-7"]
    assert [row["ranks"] for row in data["rows"]] == ["4-7"]


def test_a_pipeline_that_is_fed_from_both_ends_has_no_textbook_bubble(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def program(rank: Rank) -> None:
        own, other = (0, 1) if rank.is_first("stage") else (1, 0)
        way = rank.next("stage", 1 if own == 0 else -1)
        for number in (own, other):
            arrived = rank.receive(way, 1, number) if number == other else ()
            done = rank.compute(f"forward {number}", micros=10, after=arrived)
            if number == own:
                rank.send(way, 1, number, after=done)

    data = json.loads(shown(make_workload(Axes(stage=2), program), tmp_path, capsys, "--json"))
    assert data["textbook_bubble"] is None
    assert [[block["micro_batch"] for block in row["blocks"]] for row in data["rows"]] == [[0, 1], [1, 0]]


def test_ranks_that_are_equally_far_apart_are_named_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    workload = transformer(pipeline=2, data=3, micro_batches=2, order="pipeline-tensor-context-data")
    rows = json.loads(shown(workload, tmp_path, capsys, "--json"))["rows"]
    assert [row["ranks"] for row in rows] == ["0-4/2", "1-5/2"]


def test_exposed_collectives_are_no_bubble_and_have_a_colour_that_nothing_else_has(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = et_sim.simulate(transformer(tensor=2), system=FIFO_RING, network=ring(2, "10GB/s", 0))
    run.save(tmp_path / "run")
    capsys.readouterr()
    assert main(["show", str(tmp_path / "run"), "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    busy = sum(int(ns) for ns in run.statistics.compute_ns[:1])
    assert data["bubble"] == pytest.approx(0, abs=1e-9)  # one stage waits for no other
    assert data["exposed_collectives"] == pytest.approx(1 - busy / run.makespan_ns)
    assert data["exposed_collectives"] > 0
    passes = {colour for shades in COLOURS.values() for colour in shades}
    assert len({COLLECTIVE, SENT, OTHER} | passes) == 3 + len(passes)


def test_a_run_without_passes_has_no_card(tmp_path: Path) -> None:
    assert 'id="schedule"' not in report(open_run(side_by_side(tmp_path / "run")))


def test_the_ideal_machine_is_one_that_the_machine_room_takes_without_a_remark() -> None:
    workload = equal_stages("1f1b", PipelineShape(2, 2))
    result = et_sim.simulate(workload, system=IDEAL_SYSTEM, network={**IDEAL_NETWORK, "npus_count": [4]})
    assert result.manifest["warnings"] == []


def of_passes(*passes: str) -> ScheduleRow:
    """Return a rank with these passes, of 100 ns forward and 200 ns backward."""
    works = [named_pass(name) for name in passes]
    work_ns = dict.fromkeys(DIRECTIONS, 0)
    for work in works:
        assert work is not None
        work_ns[work.direction] += 100 if work.direction == "forward" else 200
    blocks = tuple(WorkBlock(0, 1, work) for work in works)
    return ScheduleRow("0", 1, blocks, (), (), 1000, 0, work_ns)


def test_only_passes_of_one_pipeline_have_the_idle_time_of_the_textbook() -> None:
    whole = of_passes("forward 0", "forward 1", "backward 0", "backward 1")
    other_order = of_passes("forward 0", "backward 0", "forward 1", "backward 1")
    other_first = of_passes("forward 1", "forward 0", "backward 0", "backward 1")
    in_part = of_passes("forward 0", "forward 1", "backward 0")
    twice = of_passes("forward 0", "forward 1", "backward 0", "backward 1", "backward 1")
    for rows, stages, idle in (
        ((whole, whole), 2, 300),
        ((whole, other_order), 2, 300),
        ((whole, whole, whole), 3, 600),
        ((whole, whole), 0, None),
        ((whole, other_first), 2, None),
        ((whole, in_part), 2, None),
        ((whole, twice), 2, None),
    ):
        assert PipelineSchedule(1000, rows, stages, ()).textbook_idle_ns == idle
