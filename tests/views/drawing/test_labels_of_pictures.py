"""Every picture, of a run that has what it needs: its labels are inside of it, and none lies on another."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree
from xml.sax.saxutils import escape

import numpy as np
import pytest
from runs_to_show import congested, pipeline, written
from training_jobs import transformer

from et_sim.cli.inspect import DRAWN
from et_sim.units import format_ns
from et_sim.views import open_run
from et_sim.views.critical.path import CAUSES, CriticalPath
from et_sim.views.critical.record import PathRecord
from et_sim.views.drawing.critical import COLOURS, path_picture, shares_of
from et_sim.views.drawing.pictures import PICTURES
from et_sim.views.drawing.ranks import WIDTH, ranks_picture
from et_sim.views.run.selection import EVERYTHING, Selection
from et_sim.views.text import share

pytestmark = pytest.mark.usefixtures("warm_engine")
NARROW, WIDE = "iljtfrI.,:;'|!()[]- ", "mwMW%"
Box = tuple[float, float, float, float]
NEEDS = {
    "links": "links",
    "topology": "links",
    "phases": "phases",
    "critical-path": "path",
    "queues": "ports",
}


def _width(text: str, size: float) -> float:
    """About what it is in Helvetica, and rather less than more: in em."""
    ems = (0.27 if letter in NARROW else 0.85 if letter in WIDE else 0.54 for letter in text)
    return size * sum(ems)


def _boxes(drawn: str) -> list[tuple[Box, str]]:
    """Of all texts that stand upright where they say."""
    found = []
    root, svg = ElementTree.fromstring(drawn), "{http://www.w3.org/2000/svg}"
    moved: dict[ElementTree.Element, float] = {}
    for group in root.iter(f"{svg}g"):
        down = re.fullmatch(r"translate\(0 ([\d.]+)\)", group.get("transform", ""))
        moved |= dict.fromkeys(group.iter(f"{svg}text"), float(down[1])) if down else {}
    for one in root.iter(f"{svg}text"):
        if one.get("transform"):
            continue
        text = (one.text or "") + "".join(child.tail or "" for child in one)
        x, y, size = float(one.get("x", 0)), float(one.get("y", 0)), float(one.get("font-size", 11))
        y += moved.get(one, 0)
        wide = _width(text, size)
        begin = x - {"start": 0, "middle": wide / 2, "end": wide}[one.get("text-anchor", "start")]
        found.append(((begin, y - 0.72 * size, begin + wide, y), text))
    return found


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A run for each detail, and the plain one with memory and kernels timed by a model."""
    folder = tmp_path_factory.mktemp("labels")
    found = {
        detail: pipeline(folder / detail, detail=detail, model=model, fold=False)
        for detail, model in (("links", "link"), ("phases", "analytical"), ("path", "link"))
    }
    plain = written(
        transformer(tensor=2, pipeline=2, data=2), folder / "plain", system={"track-local-mem": 1}
    )
    return {**found, "ports": congested(folder / "ports"), "plain": plain}


def test_every_picture_has_a_view() -> None:
    assert set(PICTURES) == set(DRAWN)


@pytest.mark.parametrize("view", sorted(PICTURES))
def test_labels_are_inside_of_the_picture_and_apart(runs: dict[str, Path], view: str) -> None:
    drawn = PICTURES[view](open_run(runs[NEEDS.get(view, "plain")]), EVERYTHING)
    width, height = map(float, re.findall(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', drawn)[0])
    boxes = _boxes(drawn)
    assert boxes
    for (left, top, right, bottom), text in boxes:
        assert 0 <= left <= right <= width, text
        assert 0 <= top <= bottom <= height, text
    for at, (one, text) in enumerate(boxes):
        for other, beside in boxes[:at]:
            is_apart = one[2] <= other[0] or other[2] <= one[0] or one[3] <= other[1] or other[3] <= one[1]
            assert is_apart, (text, beside)


@pytest.mark.parametrize("view", sorted(NEEDS))
def test_what_needs_a_record_is_drawn_and_not_a_sentence_alone(runs: dict[str, Path], view: str) -> None:
    drawn = PICTURES[view](open_run(runs[NEEDS[view]]), EVERYTHING)
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
    assert all(total == pytest.approx(WIDTH, abs=0.05) for total in sums.values())


def test_the_picture_of_the_critical_path_has_its_causes_and_operations(runs: dict[str, Path]) -> None:
    found = CriticalPath(PathRecord(open_run(runs["path"])))
    operations = found.by_operation()
    shares = shares_of(found, [one[:3] for one in operations], len(operations))
    np.testing.assert_allclose(shares.sum(axis=(0, 1)), 1, atol=1e-9)  # the path is somewhere at any time
    of_time = shares.mean(axis=2) * found.makespan_ns
    np.testing.assert_allclose(of_time.sum(axis=1), [ns for *_, ns in operations], atol=0.01)
    causes = dict(zip(CAUSES, of_time.sum(axis=0).tolist(), strict=True))
    assert {name: ns for name, ns in causes.items() if ns > 0.01} == pytest.approx(found.by_cause(), abs=0.01)
    assert set(COLOURS) == set(CAUSES)
    drawn = path_picture(found)
    for name, spent in found.by_cause().items():
        assert f">{name} {escape(share(spent, found.makespan_ns))} {format_ns(spent)}<" in drawn
