"""Growth of every kind of row of the suite with its ranks, and the slope of each.

    python benchmarks/growth.py [--only TEXT]

Each point is the user time of a process `et-sim run` on one of the suite's inputs, the least of two, so that
other work on the machine counts little. A slope is the exponent between the last two sizes: 1 where four
times as many ranks take four times as long. Where all ranks differ, sizes end where the files of traces,
which are made first, would take longer than all the rest. The picture goes to `docs/growth.svg`.
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
IN_PANEL = 2  # names of more would overlap
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
)


def slope(points: Sequence[tuple[float, float]]) -> float:
    """Return the exponent with which seconds grow between the last two sizes."""
    (few, fast), (many, slow) = points[-2:]
    return round(math.log(slow / fast) / math.log(many / few), 2) + 0.0  # no -0


def table(found: dict[str, list[tuple[float, float]]]) -> str:
    """Return seconds by ranks and the slope of each kind as a Markdown table."""
    sizes = sorted({ranks for points in found.values() for ranks, _ in points})
    lines = [
        f"| input | {' | '.join(f'{size:,.0f}' for size in sizes)} | slope |",
        "|---" * (len(sizes) + 2) + "|",
    ]
    for name, points in found.items():
        seconds = dict(points)
        cells = (f"{seconds[size]:.2f} s" if size in seconds else "-" for size in sizes)
        lines.append(f"| {name} | {' | '.join(cells)} | {slope(points):.2f} |")
    return "\n".join(lines)


def picture(found: dict[str, list[tuple[float, float]]]) -> str:
    """Draw all kinds in one panel; each name has its slope."""
    series = [
        Series(f"{name}: {slope(points):.2f}", colour, points)
        for (name, points), colour in zip(found.items(), COLOURS, strict=False)
    ]
    panels = [
        Panel("", "ranks", series[first : first + IN_PANEL]) for first in range(0, len(series), IN_PANEL)
    ]
    return log_log_svg("User seconds of the whole process, and slopes", panels)


def measured(kind: Kind, run: Callable[[Row], float]) -> list[tuple[float, float]]:
    """Return ranks and the least user seconds of two runs, by size."""
    return [(float(prod(row.shape)), min(run(row), run(row))) for row in kind.rows()]


def main() -> None:
    """Measure, print the table, and draw the picture."""
    parser = argparse.ArgumentParser(description="Time of the suite's rows by ranks.")
    parser.add_argument("--only", default="", help="only inputs with this text in their name; no picture")
    options = parser.parse_args()
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for kind in KINDS:
            if options.only in kind.name:
                run_once(kind.rows()[0], Path(folder))  # compiles
                found[kind.name] = measured(kind, lambda row: float(run_once(row, Path(folder))["user_s"]))
                print(kind.name, found[kind.name], flush=True)
    print(table(found))
    if not options.only:
        (HERE.parent / "docs" / "growth.svg").write_text(picture(found))


if __name__ == "__main__":
    main()
