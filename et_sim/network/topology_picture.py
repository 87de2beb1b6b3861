"""A network as an SVG picture: tiers as rows, NPUs at the bottom; without switches, as a grid or a circle."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import numpy as np

from et_sim.errors import UsageError
from et_sim.machine.graph import NIC, NPU, SWITCH, Graph
from et_sim.machine.model import GraphFabric, Network
from et_sim.network.graph_of_grid import as_graph
from et_sim.units import format_bandwidth

WIDTH, MARGIN, TOP, ROW = 900.0, 40.0, 30.0, 110.0
MOST_IN_A_ROW = 96
SPACE = 60.0  # between NPUs of a grid
COLOURS = {NPU: "#4c78a8", NIC: "#b279a2", SWITCH: "#f58518"}
WIDEST, THINNEST = 3.0, 0.6
STYLE = "text{font:11px sans-serif;fill:#555}line,path{stroke:#999;fill:none}"


def write_topology(network: Network, target: Path) -> None:
    """Draw a network into an SVG file."""
    try:
        target.write_text(topology_picture(network), encoding="utf-8")
    except OSError as error:
        reason = error.strerror or str(error)
        raise UsageError(
            f"cannot be written: {reason}", place=str(target), remedy="name a writable file"
        ) from None


def topology_picture(network: Network) -> str:
    """The SVG text."""
    fabric = as_graph(network).fabric
    assert isinstance(fabric, GraphFabric)
    graph = fabric.graph
    if (graph.kinds == NPU).all():
        sizes = [npus for npus, _ in fabric.grid]
        places, height = _in_a_grid(graph, sizes) if len(sizes) > 1 else _in_a_circle(graph)
        hidden: list[str] = []
    else:
        places, height, hidden = _in_rows(graph)
    width = max([WIDTH, *(x + MARGIN for x, _ in places.values())])
    body = [*_links(graph, places), *_devices(graph, places)]
    body += [f'<text x="4" y="{14 + 14 * row}">{escape(text)}</text>' for row, text in enumerate(hidden)]
    size = f'width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size}>'
    return "\n".join([head, f"<style>{STYLE}</style>", *body, "</svg>", ""])


def _in_a_circle(graph: Graph) -> tuple[dict[int, tuple[float, float]], float]:
    count = min(len(graph.npus), 2 * MOST_IN_A_ROW)
    radius = max(100.0, count * 4.0)
    places = {}
    for rank, npu in enumerate(graph.npus[:count].tolist()):
        angle = 2 * math.pi * rank / count - math.pi / 2
        places[npu] = (WIDTH / 2 + radius * math.cos(angle), TOP + radius * (1 + math.sin(angle)))
    return places, 2 * radius + 2 * TOP


def _in_a_grid(graph: Graph, sizes: list[int]) -> tuple[dict[int, tuple[float, float]], float]:
    """Further dimensions side by side."""
    columns, rows = min(sizes[0], MOST_IN_A_ROW), sizes[1]
    places = {}
    for rank, npu in enumerate(graph.npus.tolist()):
        x, y, block = rank % sizes[0], rank // sizes[0] % sizes[1], rank // (sizes[0] * sizes[1])
        if x < columns and block * (columns + 1) < MOST_IN_A_ROW and y < MOST_IN_A_ROW:
            across = (x + block * (columns + 1)) * SPACE
            places[npu] = (MARGIN + across + y % 2 * 6, TOP + y * SPACE + x % 2 * 6)
    return places, 2 * TOP + min(rows, MOST_IN_A_ROW) * SPACE


def _in_rows(graph: Graph) -> tuple[dict[int, tuple[float, float]], float, list[str]]:
    """Each row in the order of what hangs below it; of long rows the beginning."""
    top = int(graph.tiers.max())
    places: dict[int, tuple[float, float]] = {}
    hidden = []
    neighbours = _neighbours(graph)
    for tier in range(top + 1):
        row = np.flatnonzero(graph.tiers == tier).tolist() if tier else graph.npus.tolist()
        row.sort(key=lambda device: _middle(neighbours[device], places)) if tier else None
        if len(row) > MOST_IN_A_ROW:
            hidden.append(f"the first {MOST_IN_A_ROW} of {len(row):,} devices of row {tier} from below")
        row = row[:MOST_IN_A_ROW]
        y = TOP + (top - tier) * ROW
        for at, device in enumerate(row):
            places[device] = (MARGIN + (at + 0.5) * (WIDTH - 2 * MARGIN) / len(row), y)
    return places, 2 * TOP + top * ROW + 30, hidden


def _neighbours(graph: Graph) -> list[list[int]]:
    found: list[list[int]] = [[] for _ in graph.names]
    for one, other in zip(graph.sources.tolist(), graph.targets.tolist(), strict=True):
        found[other].append(one)
    return found


def _middle(neighbours: list[int], places: dict[int, tuple[float, float]]) -> float:
    below = [places[one][0] for one in neighbours if one in places]
    return sum(below) / len(below) if below else WIDTH


def _links(graph: Graph, places: dict[int, tuple[float, float]]) -> Iterator[str]:
    """A line for the links between two devices, wider with more bandwidth."""
    most = float(graph.bytes_per_ns.max())
    drawn: dict[tuple[int, int], float] = {}
    for row, (one, other) in enumerate(zip(graph.sources.tolist(), graph.targets.tolist(), strict=True)):
        if one in places and other in places:
            pair = (min(one, other), max(one, other))
            drawn[pair] = max(drawn.get(pair, 0.0), float(graph.bytes_per_ns[row]))
    for (one, other), bandwidth in drawn.items():
        wide = max(THINNEST, WIDEST * bandwidth / most)
        (x, y), (to_x, to_y) = places[one], places[other]
        title = f"{graph.names[one]} to {graph.names[other]}: {format_bandwidth(bandwidth)}"
        same_row = graph.tiers[one] == graph.tiers[other] and y == to_y and abs(x - to_x) > SPACE
        bend = f"M{x:.1f} {y:.1f}Q{(x + to_x) / 2:.1f} {y + 12 + abs(x - to_x) / 8:.1f} {to_x:.1f} {to_y:.1f}"
        line = (
            f'<path d="{bend}"'
            if same_row
            else f'<line x1="{x:.1f}" y1="{y:.1f}" x2="{to_x:.1f}" y2="{to_y:.1f}"'
        )
        end = "path" if same_row else "line"
        yield f'{line} stroke-width="{wide:.1f}"><title>{escape(title)}</title></{end}>'


def _devices(graph: Graph, places: dict[int, tuple[float, float]]) -> Iterator[str]:
    per_row: dict[Any, int] = {}
    for _, y in places.values():
        per_row[y] = per_row.get(y, 0) + 1
    for device, (x, y) in places.items():
        kind, name = int(graph.kinds[device]), escape(graph.names[device])
        colour, title = COLOURS[kind], f"<title>{name}</title>"
        if kind == NPU:
            yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="6" fill="{colour}">{title}</circle>'
        else:
            box = f'x="{x - 8:.1f}" y="{y - 6:.1f}" width="16" height="12"'
            yield f'<rect {box} fill="{colour}">{title}</rect>'
        if per_row[y] * len(name) * 7 < WIDTH:
            below = y + 22 if kind == NPU else y - 10
            yield f'<text x="{x:.1f}" y="{below:.1f}" text-anchor="middle">{name}</text>'
