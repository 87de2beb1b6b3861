"""Growth of every kind of row of the suite with its ranks, and the slope of each.

    python benchmarks/growth.py [--only TEXT]

Each point is the processor time of a process `et-sim run`, the least of two, so that other work on the
machine counts little. Inputs are those of the suite, and those whose cost grows in other ways: graphs, groups
that straddle racks, a slow rank, paths, packets, and texts of LogGOPSim. A slope is the exponent between the
last two sizes: 1 where four times as many ranks take four times as long. Sizes end where a run, or making the
files of traces before it, would take longer than all the rest. The table goes to `benchmarks/README.md`,
where rows that are not measured stay as they are, and the picture of all rows to `docs/growth.svg`.
"""

from __future__ import annotations

import argparse
import math
import tempfile
from collections.abc import Callable, Sequence
from math import prod
from pathlib import Path
from typing import Any

from msgspec import Struct, field
from plot import Panel, Series, log_log_svg
from suite import HERE, Row, run_once

Shape = tuple[int, ...]
COLOURS = ("#4c78a8", "#f58518", "#54a24b", "#e45756", "#72b7b2", "#b279a2", "#9d755d", "#eeca3b")
BEGIN, END = "<!-- growth: begin -->", "<!-- growth: end -->"
IN_PANEL = 2  # names of more would overlap
JOBS: tuple[Shape, ...] = ((64,), (256,), (1024,))  # each rank is simulated
RACKS: tuple[Shape, ...] = ((288,), (1152,), (4608,), (18_432,))  # whole patterns of 32 in racks of 72
PATHS: tuple[Shape, ...] = ((4, 32), (8, 128), (16, 512), (32, 2048))  # below a switch, and between switches
TREES: tuple[Shape, ...] = ((16,), (128,), (1024,), (8192,))
CUBES: tuple[Shape, ...] = ((4, 4, 4), (16, 8, 8), (16, 16, 16), (32, 32, 16), (64, 32, 32))
RINGS: tuple[Shape, ...] = tuple((prod(cube),) for cube in CUBES)
CLUSTERS: tuple[Shape, ...] = tuple((8, ranks // 128, 16) for ranks in (256, 1024, 4096, 16_384, 65_536))


class Kind(Struct, frozen=True):
    """Inputs that differ in their ranks only."""

    name: str
    workload: str
    shapes: tuple[Shape, ...]
    more: dict[str, Any] = field(default_factory=dict)

    def rows(self) -> list[Row]:
        """Return the rows of the suite, by ranks."""
        return [
            Row(f"{self.name}, {prod(shape):,}", shape, self.workload, **self.more) for shape in self.shapes
        ]


KINDS = (
    Kind("torus", "all_reduce", CUBES),
    Kind("unfolded", "all_reduce", CUBES, {"fold": False}),
    Kind("computations", "chain", RINGS),
    Kind("ring", "all_reduce", RINGS, {"chunks": 64}),
    Kind("layers", "layers", CUBES, {"chunks": 1}),
    Kind("ring, links", "all_reduce", RINGS, {"chunks": 64, "model": "link"}),
    Kind("job", "job", CLUSTERS),
    Kind("all different", "unlike", CUBES[:3], {"chunks": 1}),
    Kind("leaves, analytical", "all_reduce", RINGS, {"machine": "leaves", "chunks": 4}),
    Kind("leaves, flow", "all_reduce", RINGS, {"machine": "leaves", "model": "flow", "chunks": 4}),
    Kind("paths, flow", "all_reduce", PATHS, {"machine": "tree", "model": "flow", "chunks": 1}),
    Kind("torus as a graph", "all_reduce", CUBES, {"machine": "torus_graph", "model": "flow", "chunks": 4}),
    Kind("straddling", "experts", RACKS, {"model": "flow"}),
    Kind("slow rank", "slow", JOBS, {"model": "flow"}),
    Kind("packets", "permutation", TREES, {"model": "packet", "chunks": 1}),
    Kind("GOAL", "goal", RINGS, {"model": "loggops"}),
)


def slope(points: Sequence[tuple[float, float]]) -> float:
    """Return the exponent with which seconds grow between the last two sizes."""
    (few, fast), (many, slow) = points[-2:]
    return round(math.log(slow / fast) / math.log(many / few), 2) + 0.0  # no -0


def table(found: dict[str, list[tuple[float, float]]]) -> str:
    """Return processor seconds by ranks and the slope of each kind as a Markdown table."""
    lines = ["| input | ranks: processor time | slope |", "|---|---|---|"]
    for name, points in found.items():
        cells = ", ".join(f"{ranks:,.0f}: {seconds:.2f} s" for ranks, seconds in points)
        lines.append(f"| {name} | {cells} | {slope(points):.2f} |")
    return "\n".join(lines)


def rows_of(text: str) -> dict[str, list[tuple[float, float]]]:
    """Return the ranks and processor seconds of each kind in a table."""
    found = {}
    for line in text.splitlines():
        name, points, _ = line.strip("| ").split(" | ") if line.count(" | ") == 2 else ("", "", "")
        pairs = [point.removesuffix(" s").split(": ") for point in points.split(", ")]
        if all(len(pair) == 2 and pair[1][:1].isdigit() for pair in pairs):
            found[name] = [(float(ranks.replace(",", "")), float(seconds)) for ranks, seconds in pairs]
    return found


def write(measured: dict[str, list[tuple[float, float]]], root: Path) -> None:
    """Write the table, of which some rows have been measured anew, and the picture of all below the root."""
    page = root / "benchmarks" / "README.md"
    before, rest = page.read_text().split(BEGIN)
    old, after = rest.split(END)
    rows = rows_of(old) | measured
    found = {kind.name: rows[kind.name] for kind in KINDS if kind.name in rows}
    page.write_text(f"{before}{BEGIN}\n{table(found)}\n{END}{after}")
    (root / "docs" / "growth.svg").write_text(picture(found))


def picture(found: dict[str, list[tuple[float, float]]]) -> str:
    """Draw all kinds in one panel; each name has its slope."""
    series = [
        Series(f"{name}: {slope(points):.2f}", COLOURS[number % len(COLOURS)], points)
        for number, (name, points) in enumerate(found.items())
    ]
    panels = [
        Panel("", "ranks", series[first : first + IN_PANEL]) for first in range(0, len(series), IN_PANEL)
    ]
    return log_log_svg("Processor seconds of the whole process, and slopes", panels)


def measured(kind: Kind, run: Callable[[Row], float]) -> list[tuple[float, float]]:
    """Return ranks and the least processor seconds of two runs, by size."""
    return [(float(prod(row.shape)), min(run(row), run(row))) for row in kind.rows()]


def main() -> None:
    """Measure, print the table, and draw the picture."""
    parser = argparse.ArgumentParser(description="Time of the suite's rows by ranks.")
    parser.add_argument(
        "--only", default="", help="only inputs with this text in their name; the others stay"
    )
    options = parser.parse_args()
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for kind in KINDS:
            if options.only in kind.name:
                run_once(kind.rows()[0], Path(folder))  # compiles
                found[kind.name] = measured(
                    kind, lambda row: float(run_once(row, Path(folder))["processor_s"])
                )
                print(kind.name, found[kind.name], flush=True)
    print(table(found))
    write(found, HERE.parent)


if __name__ == "__main__":
    main()
