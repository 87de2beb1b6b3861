"""A schedule as an SVG picture: a lane of passes for ranks that do the same, one of communication below it.

The colour says the direction, its lightness tells neighbouring micro-batches apart, and a number names each
one where there is room. Exposed collectives have their colour in the upper lane, too: what is empty there is
the bubble.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from et_sim.basics.units import format_ns, plural
from et_sim.views.drawing.svg import (
    LEFT,
    PIXELS,
    TOP,
    axis,
    document,
    label,
    label_of_ranks,
    legend,
    nothing_to_draw,
    sentences,
)
from et_sim.views.run.directory import RunDirectory
from et_sim.views.run.selection import Selection
from et_sim.views.schedule.passes import BACKWARD, FORWARD, INPUTS, WEIGHTS
from et_sim.views.schedule.schedule import Block, Exchange, Row, Schedule, schedule_of
from et_sim.views.schedule.text import MEANING, NO_PASSES, closing

MOST_ROWS = 128
WORK, EXCHANGE, GAP = 18, 6, 3
SHADES = 4  # of a colour
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
    """The schedule of a run, or a refusal."""
    found = schedule_of(run)
    if found is None:
        raise nothing_to_draw(NO_PASSES, run, part)
    return schedule_picture(found)


def schedule_picture(schedule: Schedule) -> str:
    """The SVG text."""
    rows = schedule.rows[:MOST_ROWS]
    parts, y = [], TOP
    for row in rows:
        parts.append(label(label_of_ranks(row.ranks), y + 13))
        parts += _work(row, schedule, y)
        y += WORK
        if row.exchanges:
            parts += _exchanges(row, schedule.makespan_ns, y)
            y += EXCHANGE
        y += GAP
    texts = closing(schedule)
    if len(schedule.rows) > MOST_ROWS:
        texts.append(f"{plural(len(schedule.rows) - MOST_ROWS, 'row')} more are not drawn")
    parts += _legend(schedule, y + 16)
    parts += sentences(texts, y + 34)
    return document([*axis((0, max(schedule.makespan_ns, 1)), y), *parts], y + 30 + 15 * len(texts))


def _work(row: Row, schedule: Schedule, y: int) -> Iterator[str]:
    scale = PIXELS / max(schedule.makespan_ns, 1)
    numbers = []
    for block in _merged(row.blocks, scale):
        x, width = block.start_ns * scale, (block.end_ns - block.start_ns) * scale
        said = "other work"
        if block.work:
            part = f", part {block.work.chunk + 1}" if schedule.chunks > 1 else ""
            said = f"{MEANING[block.work.direction]} {block.work.micro_batch}{part}"
        said += f": {format_ns(block.end_ns - block.start_ns)} from {format_ns(block.start_ns)}"
        shape = f'x="{LEFT + x:.2f}" y="{y}" width="{width:.2f}" height="{WORK - 1}"'
        style = f'fill="{_colour(block)}" stroke="#fff" stroke-width=".4"'
        yield f"<rect {shape} {style}><title>{said}</title></rect>"
        if block.work and len(block.work.label) * LETTER + 2 <= width:
            middle = LEFT + x + width / 2
            text = f'x="{middle:.2f}" y="{y + 13}" text-anchor="middle" pointer-events="none"'
            numbers.append(f"<text {text}>{block.work.label}</text>")
    exposed = ((start, end, COLLECTIVE) for start, end in row.exposed)
    yield from _paths(exposed, scale, y, WORK - 1, opacity=0.6)  # passes are seen below
    yield from numbers


def _merged(blocks: tuple[Block, ...], scale: float) -> Iterator[Block]:
    """Blocks of one direction that are too narrow to be told apart become one."""
    last: Block | None = None
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


def _direction(block: Block) -> str:
    return block.work.direction if block.work else ""


def _colour(block: Block) -> str:
    if block.work is None:
        return OTHER
    return COLOURS[block.work.direction][block.work.micro_batch % SHADES]


def _exchanges(row: Row, makespan: int, y: int) -> list[str]:
    found = ((start, end, _colour_of(one)) for one in row.exchanges for start, end in [one[:2]])
    return _paths(found, PIXELS / max(makespan, 1), y, EXCHANGE - 1)


def _paths(
    spans: Iterable[tuple[int, int, str]], scale: float, y: int, height: int, opacity: float = 1
) -> list[str]:
    """One for each colour; what would be seen at all is half a pixel wide at least."""
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
    style = f'fill-opacity="{opacity:g}" pointer-events="none"'
    return [f'<path fill="{colour}" {style} d="{shape}"/>' for colour, shape in shapes.items()]


def _colour_of(one: Exchange) -> str:
    return COLLECTIVE if one.is_collective else SENT


def _legend(schedule: Schedule, y: int) -> list[str]:
    entries = [(COLOURS[way][0], MEANING[way]) for way in schedule.directions]
    if any(block.work is None for row in schedule.rows for block in row.blocks):
        entries.append((OTHER, "other work"))
    least_ns = LEAST_SEEN * schedule.makespan_ns / PIXELS
    seen = {
        _colour_of(one)
        for row in schedule.rows
        for one in row.exchanges
        if one.end_ns - one.start_ns >= least_ns
    }
    said = ((COLLECTIVE, "collectives"), (SENT, "sends and receives"))
    entries += [one for one in said if one[0] in seen]
    return legend(entries, y)
