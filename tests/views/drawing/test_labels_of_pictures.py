"""Labels of every picture are inside of it, and none lies on another."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree
from xml.sax.saxutils import escape

import numpy as np
import pytest
from machines import FIFO_RING, ring
from runs_to_show import congested, pipeline, written
from training_jobs import transformer

import et_sim
from et_sim.basics.units import format_ns
from et_sim.execution import execute
from et_sim.run.options import RunOptions
from et_sim.timeline import write_run
from et_sim.views import open_run
from et_sim.views.critical.path import CAUSES, NO_OPERATION, CriticalPath
from et_sim.views.critical.record import PathRecord
from et_sim.views.drawing.bars import RANK_WIDTH, ranks_picture
from et_sim.views.drawing.critical import (
    BAR_HEIGHT,
    BEGIN,
    COLOURS,
    COLUMNS,
    MOST_ROWS,
    path_picture,
    shares_of,
)
from et_sim.views.drawing.network import links
from et_sim.views.drawing.scene import CUT, MOST_LETTERS, label_of_ranks
from et_sim.views.run.selection import EVERYTHING, Selection
from et_sim.views.text import share
from et_sim.views.view import DRAWN, VIEWS

pytestmark = pytest.mark.usefixtures("warm_engine")
ENDING = re.compile(r'<text [^>]* text-anchor="end"[^>]*>(?:<title>[^<]*</title>)?([^<]*)</text>')
NARROW, WIDE = "iljtfrI.,:;'|!()[]- ", "mwMW%"
Box = tuple[float, float, float, float]
NEEDS = {
    "links": "links",
    "topology": "links",
    "phases": "phases",
    "critical-path": "path",
    "queues": "ports",
    "roofline": "roofs",
    "samples": "samples",
}
VARIED = {"kind": "kernel", "level": "event", "family": "log-normal", "spread": 0.1}


def _width(text: str, size: float) -> float:
    """Return the approximate width in Helvetica, in em, rather low than high."""
    ems = (0.27 if letter in NARROW else 0.85 if letter in WIDE else 0.54 for letter in text)
    return size * sum(ems)


def _boxes(drawn: str) -> list[tuple[Box, str]]:
    """Return the boxes of all upright texts."""
    boxes = []
    root, svg = ElementTree.fromstring(drawn), "{http://www.w3.org/2000/svg}"
    for element in root.iter(f"{svg}text"):
        if element.get("transform"):
            continue
        text = (element.text or "") + "".join(child.tail or "" for child in element)
        x, y, size = (
            float(element.get("x", 0)),
            float(element.get("y", 0)),
            float(element.get("font-size", 11)),
        )
        wide = _width(text, size)
        begin = x - {"start": 0, "middle": wide / 2, "end": wide}[element.get("text-anchor", "start")]
        boxes.append(((begin, y - 0.72 * size, begin + wide, y), text))
    return boxes


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return a run for each detail, and a plain one with memory and kernels timed by a model."""
    folder = tmp_path_factory.mktemp("labels")
    folders = {
        detail: pipeline(folder / detail, detail=detail, model=model, fold=False)
        for detail, model in (("links", "link"), ("phases", "analytical"), ("path", "link"))
    }
    plain = written(
        transformer(tensor=2, pipeline=2, data=2), folder / "plain", system={"track-local-mem": 1}
    )
    build = et_sim.TraceBuilder()
    for power in range(3):
        build.compute(f"kernel {power}", num_ops=10**8, tensor_bytes=10 ** (5 + power))
    on_roofline = {"roofline-enabled": 1, "peak-perf": 100}
    folders["roofs"] = written(et_sim.Workload.of([build.build()]), folder / "roofs", system=on_roofline)
    return {
        **folders,
        "ports": congested(folder / "ports"),
        "plain": plain,
        "samples": _sampled(folder / "samples"),
    }


def _sampled(folder: Path) -> Path:
    """Write a run of two stages with twenty samples."""
    workload = transformer(tensor=2, pipeline=2, data=2)
    options = RunOptions(system=FIFO_RING | {"variation": [VARIED]}, network=ring(workload.ranks), samples=20)
    write_run(execute(workload, options), folder)
    return folder


@pytest.mark.deep
@pytest.mark.parametrize("view", sorted(DRAWN))
def test_labels_are_inside_of_the_picture_and_apart(runs: dict[str, Path], view: str) -> None:
    _assert_inside_and_apart(VIEWS[view].drawn(open_run(runs[NEEDS.get(view, "plain")]), EVERYTHING))


def _assert_inside_and_apart(drawn: str) -> None:
    begin, width, height = map(float, re.findall(r'viewBox="(\S+) 0 (\S+) (\S+)"', drawn)[0])
    boxes = _boxes(drawn)
    assert boxes
    for (left, top, right, bottom), text in boxes:
        assert begin <= left <= right <= begin + width, text
        assert 0 <= top <= bottom <= height, text
    for at, (box, text) in enumerate(boxes):
        for other, beside in boxes[:at]:
            is_apart = box[2] <= other[0] or other[2] <= box[0] or box[3] <= other[1] or other[3] <= box[1]
            assert is_apart, (text, beside)


NAME = "Backward of LAYER 17, gemm_WMMA_%s"
RANKS = {0, 3, 5, 8, 10, 13, 15}  # do more than the others


@pytest.fixture(scope="module")
def lengthy(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Path]:
    """Return a function that makes sixteen ranks with names of this length."""
    folder = tmp_path_factory.mktemp("lengthy")

    def made(letters: int) -> Path:
        if not (folder / str(letters)).exists():
            builders = [et_sim.TraceBuilder() for _ in range(16)]
            for rank, builder in enumerate(builders):
                first = builder.compute(f"{NAME} {'x' * letters}", micros=3 + rank % 2 + 2 * (rank in RANKS))
                builder.collective("all_reduce", 1 << 16, name=f"sum {NAME} {'x' * letters}", after=[first])
            workload = et_sim.Workload.of([builder.build() for builder in builders])
            written(workload, folder / str(letters), model="link", detail="path")
        return folder / str(letters)

    return made


@pytest.mark.parametrize("view", ["picture", "ranks", "activity", "waits", "spread", "idle", "critical-path"])
@pytest.mark.parametrize("letters", [10, 200])
def test_a_picture_is_as_wide_as_its_labels_and_has_whole_ones_as_titles(
    lengthy: Callable[[int], Path], view: str, letters: int
) -> None:
    drawn = VIEWS[view].drawn(open_run(lengthy(letters)), EVERYTHING)
    _assert_inside_and_apart(drawn)
    begin, width = map(float, re.findall(r'viewBox="(\S+) 0 (\S+) ', drawn)[0])
    assert -begin < width / 2
    cut = [text for text in ENDING.findall(drawn) if "…" in text]
    assert (CUT in drawn) == bool(cut) == (letters > MOST_LETTERS and view in CALL_OPERATIONS)
    titles = ElementTree.fromstring(drawn).iter("{http://www.w3.org/2000/svg}title")
    if cut:
        assert sum("x" * letters in (title.text or "") for title in titles) >= len(cut)


CALL_OPERATIONS = {"waits", "spread", "critical-path"}


@pytest.mark.parametrize(
    ("ranks", "label"),
    [("3", "rank 3"), ("0-3", "ranks 0-3"), ("0,2,4,6", "ranks 0-6/2"), ("0-3,6", "ranks 0-3,6")],
)
def test_ranks_have_their_shortest_form(ranks: str, label: str) -> None:
    assert label_of_ranks(ranks) == label


@pytest.mark.deep
@pytest.mark.parametrize("view", sorted(NEEDS))
def test_pictures_of_a_record_are_drawn_and_not_a_sentence_alone(runs: dict[str, Path], view: str) -> None:
    drawn = VIEWS[view].drawn(open_run(runs[NEEDS[view]]), EVERYTHING)
    assert "not recorded" not in drawn
    assert "<path" in drawn


@pytest.mark.parametrize("window", [None, (10_000, 40_000)])
def test_bars_of_ranks_are_as_wide_as_the_scale(
    runs: dict[str, Path], window: tuple[int, int] | None
) -> None:
    drawn = ranks_picture(open_run(runs["plain"]), Selection(window=window))
    sums: dict[str, float] = {}
    for y, width in re.findall(r'y="(\d+)" width="([\d.]+)" height="12"', drawn):
        sums[y] = sums.get(y, 0) + float(width)
    assert sums
    assert all(total == pytest.approx(RANK_WIDTH, abs=0.05) for total in sums.values())


def test_the_picture_of_the_critical_path_has_its_causes_and_operations(runs: dict[str, Path]) -> None:
    path = CriticalPath(PathRecord(open_run(runs["path"])))
    operations = path.by_operation()
    shares = shares_of(path, [operation[:3] for operation in operations], len(operations))
    np.testing.assert_allclose(shares.sum(axis=(0, 1)), 1, atol=1e-9)  # the path is somewhere at any time
    of_time = shares.mean(axis=2) * path.makespan_ns
    np.testing.assert_allclose(of_time.sum(axis=1), [ns for *_, ns in operations], atol=0.01)
    causes = dict(zip(CAUSES, of_time.sum(axis=0).tolist(), strict=True))
    assert {name: ns for name, ns in causes.items() if ns > 0.01} == pytest.approx(path.by_cause(), abs=0.01)
    assert set(COLOURS) == set(CAUSES)
    drawn = path_picture(path)
    for name, spent in path.by_cause().items():
        assert f">{name} {escape(share(spent, path.makespan_ns))} {format_ns(spent)}<" in drawn
    places = re.findall(r'<text[^>]* x="([0-9.]+)"[^>]*>([^<]*)<', drawn)
    beside = {text for x, text in places if float(x) > BEGIN + COLUMNS}
    assert {format_ns(ns) for *_, ns in operations[:MOST_ROWS]} <= beside  # times are right of all bars


def test_a_cause_that_fills_the_path_is_drawn_at_full_height(tmp_path: Path) -> None:
    build = et_sim.TraceBuilder()
    build.compute("work", micros=10)
    run = written(et_sim.Workload.of([build.build()] * 2), tmp_path, detail="path")
    drawn = path_picture(CriticalPath(PathRecord(open_run(run))))
    assert re.search(rf' d="M{BEGIN} [0-9.]+h{COLUMNS}v{BAR_HEIGHT}h-{COLUMNS}z"', drawn)


def test_a_path_of_a_run_without_nodes_is_outside_of_them() -> None:
    none = SimpleNamespace(codes=np.zeros(0, np.int32), texts=[])
    ends = SimpleNamespace(start_ns=np.array([0]), end_ns=np.array([8]))
    path: Any = SimpleNamespace(
        spent_ns=np.array([8]),
        record=SimpleNamespace(nodes=SimpleNamespace(kind=none, stem=none, group=none)),
        node=np.array([-1]),
        chain=ends,
        queued_ns=np.array([0]),
        cause=np.array([1]),
        makespan_ns=8,
    )
    shares = shares_of(path, [NO_OPERATION], 1)
    assert shares[0, 1].tolist() == [1.0] * shares.shape[2]


def test_links_that_nothing_used_are_no_picture(tmp_path: Path) -> None:
    build = et_sim.TraceBuilder()
    build.compute("work", micros=10)
    run = written(et_sim.Workload.of([build.build()] * 2), tmp_path, detail="links")
    assert links(open_run(run)) is None
