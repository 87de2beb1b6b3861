"""Results of the packet model for each golden case, in a file and beside the reference on a page of docs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

DOCS = Path(__file__).parents[2] / "docs"


class Section:
    """A part of a page: a table with a row for each case, between two comments."""

    def __init__(
        self,
        name: str,
        page: str,
        kept: Path,
        heads: str,
        cells: Callable[[dict[str, Any], dict[str, int]], list[str]],
    ) -> None:
        self.page = DOCS / page
        self.begin, self.end = f"<!-- {name} -->\n", f"<!-- end of {name} -->\n"
        self.kept, self.heads, self.cells = kept, heads, cells

    @cached_property
    def measured(self) -> dict[str, dict[str, int]]:
        """Return the results of et-sim by case."""
        document: dict[str, dict[str, int]] = json.loads(self.kept.read_text(encoding="utf-8"))
        return document

    def table(self, cases: Iterable[dict[str, Any]]) -> str:
        """Return a table of all cases, with the results of the other simulator and of et-sim."""
        lines = [self.heads, "|---" * (self.heads.count("|") - 1) + "|"]
        for case in cases:
            name = case["name"].replace("__", " ").replace("_", " ")
            lines.append(f"| {' | '.join([name, *self.cells(case, self.measured[case['name']])])} |")
        return "\n".join(lines)

    def on_the_page(self) -> str:
        """Return the table that the page shows."""
        text = self.page.read_text(encoding="utf-8")
        return text[text.index(self.begin) + len(self.begin) : text.index(self.end)].strip()

    def write(self, cases: list[dict[str, Any]], figures: Callable[[dict[str, Any]], dict[str, int]]) -> None:
        """Write the file and the table of all cases, at any cost in time."""
        self.measured = {case["name"]: figures(case) for case in cases}
        self.kept.write_text(json.dumps(self.measured, indent=0) + "\n", encoding="utf-8")
        before, _, rest = self.page.read_text(encoding="utf-8").partition(self.begin)
        after = rest[rest.index(self.end) :]
        self.page.write_text(f"{before}{self.begin}\n{self.table(cases)}\n\n{after}", encoding="utf-8")


def parameters(
    cases: list[dict[str, Any]],
    size: str,
    interpreted: int,
    days: Mapping[str, int],
    control: Callable[..., str],
) -> list[Any]:
    """Return a parameter for each case; one with a `size` that is not interpreted is deep.

    All deep cases of a control that has one of the two `days` run with its seeds, as each control is a form
    of the engine to compile; of other controls every second case runs each day.
    """
    results = []
    for case in cases:
        day = days.get(control(case))
        marks = [pytest.mark.in_turn(days=2) if day is None else pytest.mark.in_turn(days=2, day=day)]
        if case[size] >= interpreted:
            marks.append(pytest.mark.deep)
        results.append(pytest.param(case, id=case["name"], marks=marks))
    return results


def completions(case: dict[str, Any], ours: dict[str, int]) -> list[str]:
    """Return the other simulator's time, et-sim's time, and the difference."""
    mine, theirs = ours["completion_ns"], case["completion_ns"]
    difference = "0" if mine == theirs else f"{100 * (mine / theirs - 1):+.2f} %"
    return [f"{theirs:,}", f"{mine:,}", difference]


def pair(theirs: int, ours: int) -> str:
    """Return two counts as text, empty if both are 0."""
    return f"{theirs}, {ours}" if theirs or ours else ""
