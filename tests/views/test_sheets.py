"""A sheet with enough space, with little, on a page, and as CSV."""

from __future__ import annotations

from typing import Any

from et_sim.views.sheet import Sheet, SheetColumn, csv_blocks

ROWS: tuple[dict[str, Any], ...] = (
    {"name": "x" * 30, "count": 1_000_000, "mean_ns": 10_500_000, "share": 0.5},
    {"name": "all reduce", "count": 7, "mean_ns": None, "share": 0.125},
)
SHEET = Sheet(
    (
        SheetColumn("name", side="<"),
        SheetColumn("count"),
        SheetColumn("mean", "mean_ns", missing="never"),
        SheetColumn("", "share", form="{:.1%}", key="share of mean"),
    ),
    cut={"name": 20},
    drop=("share of mean", "mean"),
    names=("name",),
)


def test_columns_without_room_are_named() -> None:
    lines = SHEET.lines(ROWS, 34)
    assert max(map(len, lines)) <= 34
    assert " ".join(lines[3:]) == "no room for mean, share of mean: a wider terminal and --json show more"


def test_figures_have_units_a_form_and_a_word_where_they_are_missing() -> None:
    assert SHEET.lines(ROWS, 80)[1:] == [
        f"{'x' * 30}  1,000,000  10.5 ms  50.0%",
        "all reduce                              7    never  12.5%",
    ]


def test_heads_have_several_lines_or_none() -> None:
    columns = (SheetColumn("µs\nlayer", 0, "<"), SheetColumn("input", 1))
    assert Sheet(columns, gap=" ").lines([("conv1", 5)]) == ["µs", "layer input", "conv1     5"]
    assert Sheet((SheetColumn("", 0, "<"), SheetColumn("", 1))).lines([("a", 1), ("b", 20)]) == [
        "a   1",
        "b  20",
    ]


def test_a_sheet_without_heads_and_rows_has_no_lines() -> None:
    columns = (SheetColumn("", 0, "<", key="a"), SheetColumn("", 1, key="b"))
    assert Sheet(columns, drop=("b",)).lines([], 2) == []


def test_a_page_shows_text_as_text() -> None:
    sheet = Sheet((SheetColumn("name", 0, "<"), SheetColumn("n", 1, markup=lambda row: f"<b>{row[1]}</b>")))
    table = sheet.table([("a<b", 5)])
    assert '<tr><th scope="col">name</th><th scope="col" class="number">n</th></tr>' in table
    assert '<tr><td>a&lt;b</td><td class="number"><b>5</b></td></tr>' in table


def test_csv_comes_in_blocks() -> None:
    rows = [("a", None, 'b "c"'), *[("x" * 100, 1, 2)] * 1000]
    blocks = [*csv_blocks(rows)]
    assert len(blocks) == 2
    assert "".join(blocks).startswith('a,,"b ""c"""\nxxx')
    assert "".join(blocks).count("\n") == len(rows)
