"""A schedule as an SVG picture: a lane of passes for ranks that do the same, one of communication below it.

The colour shows the direction, its lightness separates neighbouring micro-batches, and a number names each
one if it fits. Exposed collectives also have their colour in the upper lane: empty space there is the bubble.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from et_sim.basics.units import format_ns
from et_sim.views.drawing.scene import (
    LEFT,
    PIXELS,
    TOP,
    Entry,
    Scene,
    label_of_ranks,
    left_out,
    nothing_to_draw,
)
from et_sim.views.run.directory import RunDirectory
from et_sim.views.run.selection import Selection
from et_sim.views.summary.schedule import (
    BACKWARD,
    FORWARD,
    INPUTS,
    WEIGHTS,
    Exchange,
    PipelineSchedule,
    ScheduleRow,
    WorkBlock,
    schedule_of,
)
from et_sim.views.summary.schedule_text import MEANING, NO_PASSES, closing

MOST_ROWS = 128
WORK, EXCHANGE, GAP = 18, 6, 3
SHADES = 4  # of each colour
LETTER = 6.5  # pixels
LEAST_SEEN = 0.02
COLOURS = {
    FORWARD: ("#9ecae8", "#7fb8df", "#b9d9ef", "#69abd8"),
    BACKWARD: ("#7fcfb0", "#5dc09a", "#a3ddc7", "#45b189"),
    INPUTS: ("#f3cf86", "#edbd5c", "#f8dfab", "#e6ac37"),
    WEIGHTS: ("#e0b3cc", "#d496b8", "#ebcbdc", "#c97fa8"),
}
OTHER = "#8d99a6"
COLLECTIVE, SENT = "#d55e00", "#8f6bc2"


def schedule_of_run_picture(run: RunDirectory, part: Selection) -> str:
    """Return the picture of a run's schedule; raise a refusal if it has none."""
    schedule = schedule_of(run)
    if schedule is None:
        raise nothing_to_draw(NO_PASSES, run, part)
    rows, scene = schedule.rows[:MOST_ROWS], Scene()
    heights = [WORK + GAP + EXCHANGE * bool(row.exchanges) for row in rows]
    scene.axis((0, max(schedule.makespan_ns, 1)), TOP + sum(heights))
    y, scale = TOP, PIXELS / max(schedule.makespan_ns, 1)
    for row, height in zip(rows, heights, strict=True):
        scene.label(label_of_ranks(row.ranks), y + 13)
        _work(scene, row, schedule, y, scale)
        spans = ((exchange.start_ns, exchange.end_ns, _colour_of(exchange)) for exchange in row.exchanges)
        _spans(scene, spans, scale, y + WORK, EXCHANGE - 1)
        y += height
    scene.legend(_entries(schedule), y + 16)
    rest = left_out(rows, schedule.rows, "row", " more are not drawn")
    return scene.finish([*closing(schedule), *rest], y + 34)


def _work(scene: Scene, row: ScheduleRow, schedule: PipelineSchedule, y: int, scale: float) -> None:
    numbers = []
    for block in _merged(row.blocks, scale):
        x, width = LEFT + block.start_ns * scale, (block.end_ns - block.start_ns) * scale
        meaning, colour = "other work", OTHER
        if block.work:
            part = f", part {block.work.chunk + 1}" if schedule.chunks > 1 else ""
            meaning = f"{MEANING[block.work.direction]} {block.work.micro_batch}{part}"
            colour = COLOURS[block.work.direction][block.work.micro_batch % SHADES]
            if len(block.work.label) * LETTER + 2 <= width:
                numbers.append((x + width / 2, y + 13, block.work.label, "middle"))
        title = f"{meaning}: {format_ns(block.end_ns - block.start_ns)} from {format_ns(block.start_ns)}"
        scene.rect(x, y, width, WORK - 1, colour, title, stroke="#fff", stroke_width=".4")
    exposed = ((start, end, COLLECTIVE) for start, end in row.exposed)
    _spans(scene, exposed, scale, y, WORK - 1, opacity=0.6)  # passes stay visible below
    for place in numbers:
        scene.text(*place, pointer_events="none")


def _merged(blocks: tuple[WorkBlock, ...], scale: float) -> Iterator[WorkBlock]:
    """Join neighbouring blocks of one direction that are too narrow to distinguish."""
    last: WorkBlock | None = None
    for block in blocks:
        if last is not None:
            is_narrow = (block.end_ns - last.start_ns) * scale < 1
            if is_narrow and _direction(last) == _direction(block):
                last = last._replace(end_ns=block.end_ns)
                continue
            yield last
        last = block
    if last is not None:
        yield last


def _direction(block: WorkBlock) -> str:
    return block.work.direction if block.work else ""


def _spans(
    scene: Scene,
    spans: Iterable[tuple[int, int, str]],
    scale: float,
    y: int,
    height: int,
    opacity: float = 1,
) -> None:
    """Draw a shape for each colour; visible spans are at least half a pixel wide."""
    reached: dict[str, float] = {}
    shapes: dict[str, str] = {}
    for start, end, colour in spans:
        if (end - start) * scale < LEAST_SEEN:
            continue
        x, until = start * scale, max(end * scale, start * scale + 0.5)
        x = max(x, reached.get(colour, 0.0))
        if until - x >= 0.25:
            reached[colour] = until
            shape = f"M{LEFT + x:.1f} {y}h{until - x:.1f}v{height}h{x - until:.1f}z"
            shapes[colour] = shapes.get(colour, "") + shape
    for colour, shape in shapes.items():
        scene.path(shape, fill=colour, fill_opacity=f"{opacity:g}", pointer_events="none")


def _colour_of(exchange: Exchange) -> str:
    return COLLECTIVE if exchange.is_collective else SENT


def _entries(schedule: PipelineSchedule) -> list[Entry]:
    entries = [(COLOURS[way][0], MEANING[way]) for way in schedule.directions]
    if any(block.work is None for row in schedule.rows for block in row.blocks):
        entries.append((OTHER, "other work"))
    least_ns = LEAST_SEEN * schedule.makespan_ns / PIXELS
    seen = {
        _colour_of(exchange)
        for row in schedule.rows
        for exchange in row.exchanges
        if exchange.end_ns - exchange.start_ns >= least_ns
    }
    exchanges = ((COLLECTIVE, "collectives"), (SENT, "sends and receives"))
    return [*entries, *(entry for entry in exchanges if entry[0] in seen)]
