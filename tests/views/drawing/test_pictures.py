"""Every number of a picture equals the tables; pictures become files of either form."""

from __future__ import annotations

import base64
import re
import struct
import sys
import zlib
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from machines import ring
from pyarrow import feather
from runs_to_show import pipeline, side_by_side, written

import et_sim
from et_sim.api import run as simulate
from et_sim.basics.units import format_ns, parse_ranks
from et_sim.cli import main
from et_sim.engine.stall import explain_stall
from et_sim.timeline import write_run
from et_sim.views import open_run
from et_sim.views.drawing.bars import activity_picture, waits_picture
from et_sim.views.drawing.planes import ACROSS, GAP, PANEL, MeasuredKind, bandwidth_picture, measured_picture
from et_sim.views.drawing.scene import LEFT, PART_COLOURS, PIXELS, NothingToDrawError, Scene
from et_sim.views.drawing.timeline import picture
from et_sim.views.run.selection import EVERYTHING, selection
from et_sim.views.summary.activity import FIGURES, activity_data, activity_of, shown_parts
from et_sim.views.summary.bandwidth import link_ceilings, rates
from et_sim.views.summary.parts import PARTS
from et_sim.views.summary.rank_table import rank_entries
from et_sim.views.summary.waits import UNENDED, waits_of
from et_sim.views.text import share
from et_sim.views.view import VIEWS

pytestmark = pytest.mark.usefixtures("warm_engine")
OF_ANY_RUN = {"picture", "ranks", "activity", "waits", "bandwidth", "schedule", "spread", "idle"}


@pytest.fixture(scope="module")
def folded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return pipeline(tmp_path_factory.mktemp("pictures") / "folded")


@pytest.fixture(scope="module")
def unfolded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return pipeline(tmp_path_factory.mktemp("pictures") / "unfolded", fold=False)


def _by_rank(entries: list[dict[str, Any]]) -> dict[int, dict[str, Any]]:
    return {rank: entry for entry in entries for span in parse_ranks(entry["ranks"]) for rank in span}


@pytest.mark.parametrize("window", [None, "5us:60us"])
def test_shares_of_activity_add_up_to_one_and_to_the_parts_of_ranks(folded: Path, window: str | None) -> None:
    run, part = open_run(folded), selection(window=window)
    activity = activity_of(run, part, 97, 64)
    np.testing.assert_allclose(activity.shares.sum(axis=0), 1, atol=1e-8)
    of_rank = _by_rank(rank_entries(run, part))
    length = activity.window[1] - activity.window[0]
    for row, ranks in enumerate(activity.ranks):
        entry = of_rank[parse_ranks(ranks)[0].start]
        for number, figure in enumerate(FIGURES):
            took = activity.shares[number, row].mean() * length
            assert took == pytest.approx(entry[figure], abs=1e-6 * length)


def test_activity_is_the_same_folded_or_not(folded: Path, unfolded: Path) -> None:
    for rows in (64, 1):
        of_folded, of_unfolded = (
            activity_of(open_run(path), EVERYTHING, 50, rows) for path in (folded, unfolded)
        )
        assert (of_folded.ranks, of_folded.counts, of_folded.notes) == (
            of_unfolded.ranks,
            of_unfolded.counts,
            of_unfolded.notes,
        )
        assert (of_folded.shares == of_unfolded.shares).all()


def test_neighbours_are_averaged_if_there_are_more_kinds_of_rank_than_rows(unfolded: Path) -> None:
    run = open_run(unfolded)
    every, few = (activity_of(run, EVERYTHING, 40, rows) for rows in (64, 1))
    assert (every.ranks, every.notes) == (("0-3", "4-7"), ())
    assert (few.ranks, few.counts) == (("0-7",), (8,))
    np.testing.assert_allclose(few.shares[:, 0], every.shares.mean(axis=1), atol=1e-8)
    assert any("the mean of 2 kinds of rank, of 2 kinds" in note for note in few.notes)


def _pixels(drawn: str) -> Any:
    match = re.search(r"base64,([^\"]+)", drawn)
    assert match
    content = base64.b64decode(match[1])
    width, height = struct.unpack(">II", content[16:24])
    size = struct.unpack(">I", content[33:37])[0]
    lines = np.frombuffer(zlib.decompress(content[41 : 41 + size]), np.uint8).reshape(height, 1 + 3 * width)
    return lines[:, 1:].reshape(height, width, 3)


def test_pixels_have_the_colours_of_the_parts_and_every_part_its_area(folded: Path) -> None:
    run = open_run(folded)
    drawn = _pixels(activity_picture(run))
    activity = activity_of(run, EVERYTHING, PIXELS, 256)
    height = len(drawn) // len(activity.counts)
    for row, shares in enumerate(activity.shares.transpose(1, 0, 2)):
        pixels = drawn[row * height : (row + 1) * height]
        for taken, colour in zip(shares, PART_COLOURS.values(), strict=True):
            is_its = (pixels == list(bytes.fromhex(colour[1:]))).all(axis=2)
            assert is_its[:, taken > 1 - 1e-9].all()
            assert not is_its[:, taken == 0].any()
            assert is_its.mean() == pytest.approx(taken.mean(), abs=0.01)


@given(st.lists(st.tuples(*[st.integers(0, 3)] * 3).filter(any), min_size=1, max_size=40))
def test_a_row_of_text_shows_each_part_for_its_time_and_only_where_it_is(parts: list[Any]) -> None:
    amounts = np.array(parts, float).T[:, None, :]
    shares = amounts / amounts.sum(axis=0)
    shown = shown_parts(shares)[0]
    assert all(shares[part, 0, column] > 0 for column, part in enumerate(shown.tolist()))
    steady = np.repeat(shares[:, :, :1], 60, axis=2)
    counts = np.bincount(shown_parts(steady)[0], minlength=3)
    assert np.abs(counts - steady.sum(axis=2)[:, 0]).max() <= 2


def test_waiting_and_transfer_are_those_of_the_timeline(folded: Path) -> None:
    run = open_run(folded)
    waits = waits_of(run)
    rows = feather.read_table(folded / "timeline.arrow").to_pylist()
    actors = feather.read_table(folded / "actors.arrow").to_pylist()
    count = {actor_row["actor"]: actor_row["rank_count"] for actor_row in actors}
    moving: Counter[str] = Counter()
    waiting: Counter[str] = Counter()
    for row in rows:
        if row["kind"] in ("send", "receive", "all_reduce", "all_gather", "reduce_scatter"):
            name, lost = (
                row["group"] or "sends and receives",
                (row["queued_ns"] or 0) + (row["waiting_ns"] or 0),
            )
            moving[name] += count[row["actor"]] * (row["end_ns"] - row["start_ns"] - lost)
            waiting[name] += count[row["actor"]] * (row["waiting_ns"] or 0)
    assert sum(line.waiting_ns for line in waits.groups) == waiting.total() > 0
    assert sum(line.transfer_ns for line in waits.groups) == moving.total()
    assert sum(line.waiting_ns for line in waits.operations) == waiting.total()
    of_rank = _by_rank(run.summary["per_rank"])
    for line in waits.ranks:
        entry = of_rank[parse_ranks(line.name)[0].start]
        assert line.waiting_ns == entry["waiting_ns"]
        assert line.transfer_ns == entry["exposed_comm_ns"] + entry["hidden_comm_ns"]
    for actor in actors:
        whom: Counter[int] = Counter()
        for row in rows:
            if row["actor"] == actor["actor"] and row["waits_for"] is not None:
                whom[row["waits_for"]] += row["waiting_ns"]
        if whom.total():
            [line] = [
                line for line in waits.ranks if set(actor["ranks"].split(",")) & set(line.name.split(","))
            ]
            assert line.nodes_waiting_ns == whom.total()
            assert line.waits_for_ns == max(whom.values())


def test_the_picture_of_waits_writes_the_figures_beside_its_bars(folded: Path) -> None:
    run = open_run(folded)
    drawn = waits_picture(run)
    for table in (waits_of(run).ranks, waits_of(run).groups, waits_of(run).operations):
        for line in table:
            assert f"{format_ns(line.transfer_ns)} + {format_ns(line.waiting_ns)} waiting" in drawn
            if line.waits_for:
                assert f"{share(line.waits_for_ns, line.nodes_waiting_ns)} for rank" in drawn


def test_a_waiting_node_is_a_thin_line_as_long_as_its_wait(tmp_path: Path) -> None:
    late, early = et_sim.TraceBuilder(), et_sim.TraceBuilder()
    first = late.compute("busy", micros=500)
    late.send(1, 1 << 20, after=[first])
    early.receive(0, 1 << 20)
    run = open_run(written(et_sim.Workload.of([late.build(), early.build()]), tmp_path / "run"))
    [receive] = [
        r for r in feather.read_table(run.path / "timeline.arrow").to_pylist() if r["kind"] == "receive"
    ]
    thin = re.findall(r"M\d+ \d+h(\d+)v3h", picture(run))
    assert [int(width) for width in thin] == [
        pytest.approx(receive["waiting_ns"] * PIXELS / run.summary["makespan_ns"], abs=1)
    ]


def test_a_lane_that_is_seldom_busy_is_pale(tmp_path: Path) -> None:
    build = et_sim.TraceBuilder()
    node = build.compute("first", nanos=10)
    for _ in range(2000):
        node = build.compute("operator", nanos=990, after=[node], cpu=True)
        node = build.compute("kernel", nanos=10, after=[node])
    run = open_run(written(et_sim.Workload.of([build.build()] * 2), tmp_path / "run"))
    [kernels] = re.findall(r'<path fill="#0072b2"( fill-opacity="[^"]+")?', picture(run))
    assert kernels == ' fill-opacity="0.25"'


@pytest.mark.parametrize(
    ("view", "cuts"),
    [
        (view, cut)
        for view in sorted(OF_ANY_RUN)
        for cut in ((), ("--ranks", "0-4"), ("--window", "10us:40us"))
        if not cut or cut[0][2:] in VIEWS[view].cuts
    ],
)
def test_every_picture_is_well_formed_and_cut_as_requested(
    folded: Path, tmp_path: Path, view: str, cuts: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "x.svg"
    assert main(["inspect", str(folded), view, "--svg", str(target), *cuts]) == 0
    assert capsys.readouterr().out == ""
    drawn = target.read_text(encoding="utf-8")
    assert ElementTree.fromstring(drawn).tag.endswith("svg")
    assert "var(" not in drawn  # readers of SVG need not support style sheets
    if "--ranks" in cuts:
        assert "0-7" not in drawn


@pytest.mark.parametrize("view", sorted(OF_ANY_RUN))
def test_every_picture_becomes_a_png_with_its_texts(folded: Path, tmp_path: Path, view: str) -> None:
    resvg = pytest.importorskip("resvg_py")
    target = tmp_path / "x.png"
    assert main(["inspect", str(folded), view, "--png", str(target)]) == 0
    content = target.read_bytes()
    assert content.startswith(b"\x89PNG")
    drawn = VIEWS[view].drawn(open_run(folded), EVERYTHING)
    without = re.sub(r"<text.*?</text>", "", drawn)
    assert bytes(resvg.svg_to_bytes(svg_string=without, zoom=2)) != content


def test_without_resvg_a_png_is_refused_in_a_sentence(
    folded: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "resvg_py", None)
    assert main(["inspect", str(folded), "picture", "--png", str(tmp_path / "x.png")]) == 2
    assert "pip install 'et-sim[png]'" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "arguments",
    [
        ["ops", "--svg", "x.svg"],
        ["waits", "--png", "x.png", "--json"],
        ["picture"],
        ["picture", "--svg", "."],
        ["picture", "--svg", ""],
        ["picture", "--svg", "x", "--png", "x"],
    ],
)
def test_pictures_that_cannot_be_drawn_are_refused(
    folded: Path,
    arguments: list[str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["inspect", str(folded), *arguments]) == 2
    assert capsys.readouterr().err.startswith("et-sim")
    assert not list(tmp_path.iterdir())


@pytest.fixture(scope="module")
def on_links(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return pipeline(tmp_path_factory.mktemp("pictures") / "links", model="link", detail="links")


def test_bandwidths_are_payload_by_the_time_in_which_bytes_move(on_links: Path) -> None:
    rows = feather.read_table(on_links / "timeline.arrow").to_pylist()
    actors = feather.read_table(on_links / "actors.arrow").to_pylist()
    count = {actor_row["actor"]: actor_row["rank_count"] for actor_row in actors}
    nodes: Counter[tuple[str, int]] = Counter()
    moving: Counter[tuple[str, int]] = Counter()
    for row in rows:
        if row["kind"] in ("send", "all_reduce", "all_gather", "reduce_scatter", "all_to_all"):
            lost = (row["queued_ns"] or 0) + (row["waiting_ns"] or 0)
            nodes[row["kind"], row["bytes"]] += count[row["actor"]]
            own = row["end_ns"] - row["start_ns"] - lost
            assert row["moving_ns"] == own if row["kind"] == "send" else row["moving_ns"] >= own
            moving[row["kind"], row["bytes"]] += count[row["actor"]] * row["moving_ns"]
    every = rates(open_run(on_links))
    assert sum(rate.count for rate in every) == nodes.total()
    for kind, size in nodes:
        same = [rate for rate in every if (rate.kind, rate.bytes) == (kind, size)]
        assert sum(rate.moving_ns for rate in same) == moving[kind, size]
        for rate in same:
            assert rate.least_bytes_per_second <= rate.bytes_per_second * (1 + 1e-9)
            assert rate.bytes_per_second <= rate.most_bytes_per_second * (1 + 1e-9)


def test_the_ceiling_is_the_bandwidth_of_links(on_links: Path, folded: Path) -> None:
    assert link_ceilings(open_run(on_links)) == {"dimension 0": pytest.approx(50e9)}
    assert link_ceilings(open_run(folded)) == {}
    assert "one link of dimension 0: 50 GB/s" in bandwidth_picture(open_run(on_links))


def test_circles_stand_at_their_size_and_bandwidth(on_links: Path) -> None:
    drawn = bandwidth_picture(open_run(on_links))
    every = rates(open_run(on_links))
    places = [(float(x), float(y)) for x, y in re.findall(r'cx="([\d.]+)" cy="([\d.]+)"', drawn)]
    assert len(places) == len(every)
    by_size, by_speed = (
        sorted(every, key=lambda rate: rate.bytes),
        sorted(every, key=lambda rate: rate.bytes_per_second),
    )
    spans = [np.log2([rate.bytes for rate in by_size]), np.log2([rate.bytes_per_second for rate in by_speed])]
    for span, place in zip(spans, (sorted(x for x, _ in places), sorted(-y for _, y in places)), strict=True):
        if np.ptp(span):
            np.testing.assert_allclose(
                (span - span[0]) / np.ptp(span), (np.array(place) - place[0]) / np.ptp(place), atol=1e-3
            )


def test_no_circle_stands_at_an_edge(tmp_path: Path) -> None:
    build = et_sim.TraceBuilder()
    build.collective("all_reduce", 1 << 26)
    run = written(et_sim.Workload.of([build.build()] * 4), tmp_path / "run")
    drawn = bandwidth_picture(open_run(run))
    [at] = [float(x) for x in re.findall(r'cx="([\d.]+)"', drawn)]
    assert at == LEFT + PIXELS / 2


def test_times_of_a_short_window_differ_in_their_texts() -> None:
    scene = Scene()
    scene.axis((40_000_100, 40_000_400), 100)
    texts = re.findall(r">([^<]+)</text>", scene.markup)
    assert texts[:2] == ["40.0001 ms", "40.00015 ms"]
    assert len(set(texts)) == len(texts)


def test_waits_of_a_stalled_run_note_unended_nodes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    build, idle = et_sim.TraceBuilder(), et_sim.TraceBuilder()
    build.receive(1, 64, tag=7)
    idle.compute("work", micros=1)
    workload = et_sim.Workload.of([build.build(), idle.build()])
    network = ring(2, "50GB/s")
    result = simulate(workload, system={"scheduling-policy": "FIFO"}, network=network)
    write_run(result, tmp_path / "run", explain_stall(result.outcome, workload).as_dict())
    assert UNENDED in waits_picture(open_run(tmp_path / "run"))
    assert main(["inspect", str(tmp_path / "run"), "waits"]) == 0
    assert UNENDED in capsys.readouterr().out


def test_a_run_without_communication_has_no_waits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    build = et_sim.TraceBuilder()
    build.compute("alone", micros=3)
    run = written(et_sim.Workload.of([build.build()] * 2), tmp_path / "run")
    assert main(["inspect", str(run), "waits"]) == 0
    assert "no communication" in capsys.readouterr().out
    with pytest.raises(NothingToDrawError, match="no communication"):
        waits_picture(open_run(run))


def test_data_of_activity_is_that_of_the_picture(folded: Path) -> None:
    data = activity_data(open_run(folded))
    for row in data["rows"]:
        total = np.sum([row["shares"][part.short] for part in PARTS], axis=0)
        np.testing.assert_allclose(total, 1, atol=1e-5)


def test_text_shows_the_longest_part_of_a_column(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = side_by_side(tmp_path / "run")
    assert main(["inspect", str(run), "activity"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("ranks")
    assert "█ compute" in out


def dots(ratios: list[float]) -> list[float]:
    """Return how far below the upper edge of its panel each dot is, for predicted by measured times."""
    kind = MeasuredKind("kind", 5.0, [(10.0, 10.0 * ratio) for ratio in ratios])
    root = ElementTree.fromstring(measured_picture([kind]))
    [panel] = [one for one in root.findall(".//{*}rect") if one.get("fill") == "none"]
    return [float(one.get("cy", "")) - float(panel.get("y", "")) for one in root.findall(".//{*}circle")]


def test_factors_are_drawn_by_their_logarithm_and_at_the_edge_from_two_and_a_half_on() -> None:
    places = dots([2.5, 3.0, 1.0, 0.4, 0.3, 2.5**0.5])
    assert places == pytest.approx([0, 0, PANEL / 2, PANEL, PANEL, PANEL / 4], abs=0.1)


@pytest.mark.parametrize(("rows", "drawn"), [(400, 400), (401, 201), (801, 267)])
def test_of_more_than_400_rows_of_a_kind_every_second_or_third_is_drawn(rows: int, drawn: int) -> None:
    assert len(dots([1.0] * rows)) == drawn


def test_panels_of_measured_kinds_stand_in_rows_side_by_side_within_the_picture() -> None:
    for count in (1, ACROSS, ACROSS + 1, 2 * ACROSS + 1):
        kinds = [MeasuredKind(f"kind {number}", 5.0, [(10.0, 11.0)]) for number in range(count)]
        root = ElementTree.fromstring(measured_picture(kinds))
        panels = [one for one in root.findall(".//{*}rect") if one.get("fill") == "none"]
        places = [(float(one.get("x", "")), float(one.get("y", ""))) for one in panels]
        assert len(places) == count
        steps = {(x - places[0][0], y - places[0][1]) for x, y in places}
        across = {x for x, _ in steps}
        down = sorted({y for _, y in steps})
        assert across == {number * (PANEL + GAP) for number in range(min(count, ACROSS))}
        assert len(down) == -(-count // ACROSS)
        assert all(below - above > PANEL + GAP for above, below in pairwise(down))
        assert places[-1][1] + PANEL < float(root.get("height", "")) < places[-1][1] + PANEL + 3 * GAP
