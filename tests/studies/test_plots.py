"""Pictures of studies show their figures, and texts are written between markers of pages."""

from __future__ import annotations

import xml.etree.ElementTree as Tree
from pathlib import Path

import pytest
from plots import Axis, Bar, Group, Line, lines, stacked_bars
from study_page import table, with_texts, write_study

SVG = "{http://www.w3.org/2000/svg}"


def numbers(element: Tree.Element, *names: str) -> list[float]:
    return [float(element.attrib[name]) for name in names]


def test_parts_of_bars_are_as_high_as_their_values_and_stand_on_each_other() -> None:
    groups = [Group("one", [Bar("a", [1, 3], "4 <s>")]), Group("two", [Bar("b", [2, 0])])]
    root = Tree.fromstring(stacked_bars("a & b", "seconds", ["busy", "idle"], groups))
    boxes = [numbers(box, "y", "height") for box in root.iter(f"{SVG}rect") if "class" not in box.attrib]
    low, high, other = boxes[2:]  # after those of the legend
    assert high[1] / low[1] == pytest.approx(3, rel=0.01)
    assert other[1] / low[1] == pytest.approx(2, rel=0.01)
    assert high[0] + high[1] == pytest.approx(low[0], abs=0.11)
    assert low[0] + low[1] == pytest.approx(other[0] + other[1], abs=0.11)
    texts = {text.text for text in root.iter(f"{SVG}text")}
    assert {"a & b", "seconds", "busy", "idle", "one", "two", "a", "b", "4 <s>"} <= texts


def test_a_logarithmic_axis_has_equal_steps_for_equal_ratios() -> None:
    line = Line("all", [(1, 10), (10, 20), (100, 40)])
    root = Tree.fromstring(lines("t", Axis("x", is_log=True), Axis("y", is_log=True), [line]))
    first, second, third = ([*numbers(dot, "cx", "cy")] for dot in root.iter(f"{SVG}circle"))
    for axis in (0, 1):
        assert second[axis] - first[axis] == pytest.approx(third[axis] - second[axis], abs=0.11)
    with pytest.raises(ValueError, match="no place on a logarithmic axis"):
        lines("t", Axis("x", is_log=True), Axis("y"), [Line("all", [(0, 1)])])


def test_more_lines_than_colours_differ_by_their_dashes() -> None:
    many = [Line(str(at), [(0, at), (1, at)]) for at in range(12)]
    root = Tree.fromstring(lines("t", Axis("x"), Axis("y"), many))
    looks = {(line.attrib["stroke"], line.get("stroke-dasharray")) for line in root.iter(f"{SVG}polyline")}
    assert len(looks) == 12


def test_texts_are_written_between_their_markers_and_nowhere_else(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# A\n<!-- t: begin -->\nold\n<!-- t: end -->\nrest\n")
    rows = table(["name", "n"], [["a", "1"]])
    for _ in range(2):
        write_study(page, {"t": rows}, {"p.svg": "<svg/>"})
    assert page.read_text() == (
        "# A\n<!-- t: begin -->\n| name | n |\n| --- | ---: |\n| a | 1 |\n<!-- t: end -->\nrest\n"
    )
    assert (tmp_path / "p.svg").read_text() == "<svg/>"
    with pytest.raises(ValueError, match="has no markers <!-- u: begin -->"):
        with_texts(page.read_text(), {"u": "x"})
