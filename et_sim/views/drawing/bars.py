"""Pictures with rows of bars: time of ranks, devices and operations by activity or cause.

Ranks: the parts of each rank's time, which add up to all of it. Waits: waiting against transfer of each rank,
group and operation, with the ranks that are waited for; transfer is solid, and waiting pale. Idle: activities
and waits of devices, streams and threads. Spread: differences between ranks by operation, with a strip of
durations and one of begins, relative to the average rank: a line from the least to the most, a box of the
middle half of ranks, and a mark at the median.
"""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from et_sim.basics.units import format_ns, plural
from et_sim.views.drawing.scene import (
    EARLY,
    GRID,
    IDLE,
    LEFT,
    MOST_LETTERS,
    PART_COLOURS,
    PIXELS,
    TOP,
    Scene,
    colour_of,
    label_of_ranks,
    left_out,
    nothing_to_draw,
    round_step,
)
from et_sim.views.run.directory import RunDirectory
from et_sim.views.run.selection import EVERYTHING, Selection
from et_sim.views.summary.activity import activity_of
from et_sim.views.summary.idle import DEVICE, FIGURES, MEANINGS, ORDER, SHORT, Idle, idle_of
from et_sim.views.summary.parts import NAMES, OVERLAP, PARTS, parts_of
from et_sim.views.summary.rank_table import called, rank_count, rank_entries, slowest_first
from et_sim.views.summary.spread import NOTHING, Distribution, OperationSpread, notes_of, spreads
from et_sim.views.summary.waits import UNENDED, WaitTable, waits_of
from et_sim.views.text import distinct, share, shortened

ROW = 17
RANK_BEGIN, RANK_WIDTH, MOST_RANKS = LEFT + 84, 700, 40
OVERLAP_COLOUR = "#56b4e9"
OF_RANKS = "a bar is all of a rank's time; the slowest ranks first, and right of each when it finishes"


def ranks_picture(run: RunDirectory, part: Selection = EVERYTHING) -> str:
    """Return the SVG text: a bar for each rank."""
    scene, entries = Scene(), slowest_first(rank_entries(run, part))
    shown, y = part.cut(entries, MOST_RANKS), TOP + 8
    bottom = y + ROW * len(shown)
    for tenths in range(0, 11, 2):
        x = RANK_BEGIN + RANK_WIDTH * tenths // 10
        scene.upright(x, TOP - 6, bottom, f"{10 * tenths} %", TOP - 12)
    colours = {OVERLAP: OVERLAP_COLOUR, **{kind.short: PART_COLOURS[kind.figure] for kind in PARTS}}
    names = [label_of_ranks(entry["ranks"]) for entry in shown]
    for entry, name, whole in zip(shown, distinct(names, MOST_LETTERS), names, strict=True):
        amounts = parts_of(entry)
        scale = RANK_WIDTH / max(sum(amounts.values()), 1)
        scene.label(name, y + 10, whole, RANK_BEGIN - 8)
        scene.stack(RANK_BEGIN, y, 12, ((amounts[key] * scale, colours[key]) for key, _ in NAMES))
        finish = "never" if entry["finish_ns"] is None else format_ns(entry["finish_ns"])
        scene.text(RANK_BEGIN + RANK_WIDTH + 8, y + 10, finish)
        y += ROW
    sums = sums_of_parts(entries)
    whole_ns = sum(sums.values())
    there = [(colours[key], f"{name} {share(sums[key], whole_ns)}") for key, name in NAMES if sums[key]]
    scene.legend(there, bottom + 18, each=4)
    texts = [*part.heading()[:1], OF_RANKS, "shares are of all ranks' time together"]
    return scene.finish([*texts, *left_out(shown, entries, "line", " more, of faster ranks")], bottom + 54)


def sums_of_parts(entries: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Return the parts of the time of all these ranks together."""
    parts = [(parts_of(entry), rank_count(entry["ranks"])) for entry in entries]
    return {key: sum(amounts[key] * ranks for amounts, ranks in parts) for key, _ in NAMES}


WAIT_BEGIN, WAIT_BARS, MOST_WAITS = LEFT + 180, 310, 24  # where bars begin, and the longest
TITLES = (
    "Ranks: of their own time",
    "Groups: summed over nodes and ranks",
    "Operations: summed over nodes and ranks",
)


def waits_picture(run: RunDirectory, part: Selection = EVERYTHING) -> str:
    """Return the SVG text: waiting and transfer."""
    waits, scene, y, texts = waits_of(run, part), Scene(), TOP, list[str]()
    for title, table in zip(TITLES, (waits.ranks, waits.groups, waits.operations), strict=True):
        shown = part.cut(table, MOST_WAITS)
        if shown:
            scene.text(8, y, title, font_weight="bold")
            _waits(scene, shown, y + 8)
            y += 8 + ROW * len(shown) + 26
            texts += [
                f"{title.partition(':')[0]}: {text}"
                for text in left_out(shown, table, "line", " more, that wait less")
            ]
    if y == TOP:
        raise nothing_to_draw("there is no communication", run, part)
    transfer, waiting = PART_COLOURS["exposed_comm_ns"], PART_COLOURS["waiting_ns"]
    scene.legend([(transfer, "transfer"), (waiting, "waiting for another rank")], y)
    return scene.finish(texts + [UNENDED] * (run.summary["status"] != "complete"), y + 18)


def _waits(scene: Scene, shown: Sequence[WaitTable], y: int) -> None:
    scale = WAIT_BARS / max(max(table.transfer_ns + table.waiting_ns for table in shown), 1)
    for table, name in zip(shown, distinct([table.name for table in shown], MOST_LETTERS), strict=True):
        scene.label(name, y + 10, table.name, WAIT_BEGIN - 8)
        x: float = WAIT_BEGIN
        for figure, ns in (("exposed_comm_ns", table.transfer_ns), ("waiting_ns", table.waiting_ns)):
            scene.rect(x, y, ns * scale, 11, PART_COLOURS[figure])
            x += ns * scale
        for_whom = ""
        if table.waits_for is not None:
            waited_for = called(shortened(table.waits_for, 20), 20)
            for_whom = f", {share(table.waits_for_ns, table.nodes_waiting_ns)} for {waited_for}"
        text = f"{format_ns(table.transfer_ns)} + {format_ns(table.waiting_ns)} waiting{for_whom}"
        scene.text(x + 6, y + 10, text)
        y += ROW


IDLE_BEGIN, MOST_IDLE, CAUSES = LEFT + 160, 32, 8
IDLE_COLOURS = ("#0072b2", "#9cc7e4", "#f4cfe2", "#d55e00", "#e9a06a", "#f0e442", IDLE, EARLY)
LEAST_TEXT = 40  # pixels of a part that shows its share


def idle_picture(run: RunDirectory, part: Selection = EVERYTHING) -> str:
    """Return the SVG text: what devices, streams and threads wait for."""
    idle = idle_of(run, part)
    if not idle.rows:
        raise nothing_to_draw("nothing is ever busy", run, part)
    scene, shown, y, before = Scene(), part.cut(idle.rows, MOST_IDLE), TOP, ""
    for row in shown:
        if row.ranks != before:
            y += 6
            scene.label(label_of_ranks(row.ranks), y + 10)
        before = row.ranks
        scene.text(LEFT, y + 10, shortened(row.row, 26), font_weight="bold" if row.row == DEVICE else "")
        _idle(scene, row.figures, y)
        y += 15
    used = [at for at in range(len(FIGURES)) if any(row.figures[at] for row in shown)]
    scene.legend([(IDLE_COLOURS[at], MEANINGS[at]) for at in used], y + 18, each=4)
    order = [ORDER] if len({row.ranks for row in shown}) > 1 else []
    rest = left_out(shown, idle.rows, "more row", ": --top, --ranks")
    return scene.finish([*_causes(idle), *order, *rest], y + 56)


def _idle(scene: Scene, figures: tuple[int, ...], y: int) -> None:
    scale = (PIXELS + LEFT - IDLE_BEGIN) / max(sum(figures), 1)
    titles = [f"{meaning}: {format_ns(ns)}" for meaning, ns in zip(MEANINGS, figures, strict=True)]
    widths = [ns * scale for ns in figures]
    scene.stack(IDLE_BEGIN, y, 11, zip(widths, IDLE_COLOURS, strict=True), titles)
    for at, (ns, width) in enumerate(zip(figures, widths, strict=True)):
        if width >= LEAST_TEXT:
            middle = IDLE_BEGIN + sum(widths[:at]) + width / 2
            colour = "#fff" if at == 0 else "#333"
            scene.text(middle, y + 9, share(ns, sum(figures)), "middle", font_size=9, fill=colour)


def _causes(idle: Idle) -> list[str]:
    whole = sum(idle.causes.values())
    return [
        f"idle devices wait for {SHORT[wait]}: {shortened(name, 60)}, {format_ns(ns / idle.ranks)} "
        f"per rank, {share(ns, whole)}"
        for (wait, _, name), ns in idle.causes.most_common(CAUSES)
    ]


SPREAD_ROW, MOST_SPREADS = 19, 24
SPREAD_NAMES, STRIP, GAP = 180, 250, 96  # pixels right of LEFT, and of the texts right of a strip
TICKS = 5  # at most, and so at least two
ALIKE = "ranks do not differ in any operation"
OF_SPREAD = "line: all ranks; box: half of them; mark: the median; right: the last rank, and its distance"
Of = Callable[[OperationSpread], Distribution]
PANELS: tuple[tuple[str, Of], ...] = (
    ("duration, from the average rank", lambda operation: operation.duration_ns),
    ("begin, from the average rank", lambda operation: operation.begin_ns),
)


def spread_picture(
    run: RunDirectory, part: Selection = EVERYTHING, operations: Sequence[OperationSpread] | None = None
) -> str:
    """Return the SVG text: differences between ranks, of `operations` if they are given."""
    every, scene = spreads(run, part) if operations is None else operations, Scene()
    differing = [
        operation for operation in every if any(of(operation).most > of(operation).least for _, of in PANELS)
    ]
    shown = part.cut(differing, MOST_SPREADS)
    if not shown:
        raise nothing_to_draw(ALIKE if every else NOTHING, run, part)
    bottom = TOP + 16 + SPREAD_ROW * len(shown)
    for row, name in enumerate(distinct([operation.called for operation in shown], MOST_LETTERS)):
        scene.label(name, TOP + 28 + SPREAD_ROW * row, shown[row].called, LEFT + SPREAD_NAMES - 8)
    for panel, (title, of) in enumerate(PANELS):
        _panel(scene, shown, of, title, LEFT + SPREAD_NAMES + panel * (STRIP + GAP), bottom)
    texts = [OF_SPREAD, *left_out(shown, differing, "operation", " of less cost left out: --top")]
    if alike := len(every) - len(differing):
        texts.append(f"in {plural(alike, 'other operation')}, ranks do not differ")
    return scene.finish([*texts, *notes_of(run)], bottom + 36)


def _panel(
    scene: Scene, shown: Sequence[OperationSpread], of: Of, title: str, left: int, bottom: int
) -> None:
    """Draw the strips of durations, or of begins, to one scale."""
    least = min(of(operation).least - of(operation).mean for operation in shown)
    most = max(of(operation).most - of(operation).mean for operation in shown)
    scene.text(left, TOP, title if most > least else f"{title}: all alike", font_weight="bold")
    if most <= least:
        return

    def x(value: float) -> float:
        return left + STRIP * (value - least) / (most - least)

    step = round_step((most - least) / TICKS)
    for at in range(-int(-least // step) * step, int(most) + 1, step):
        text = f"{'+' if at > 0 else '-' if at < 0 else ''}{format_ns(abs(at))}"
        scene.upright(x(at), TOP + 10, bottom, text, bottom + 14, stroke="#8d99a6" if at == 0 else GRID)
    for row, operation in enumerate(shown):
        _strip(scene, of(operation), x, TOP + 16 + SPREAD_ROW * row, colour_of(operation.kind))


def _strip(
    scene: Scene, distribution: Distribution, x: Callable[[float], float], y: int, colour: str
) -> None:
    figures = (
        distribution.least,
        distribution.quarter,
        distribution.median,
        distribution.three_quarters,
        distribution.most,
    )
    first, low, middle, high, last = (x(value - distribution.mean) for value in figures)
    scene.line(first, y + 7.5, max(last, first + 1), y + 7.5, colour, stroke_width=2)
    scene.rect(low, y + 3, max(high - low, 1), 9, colour)
    scene.line(middle, y + 1, middle, y + 14, "#111", stroke_width=1.5)
    if distribution.most > distribution.least:
        text = f"+{format_ns(distribution.most - distribution.mean)} {called(distribution.most_ranks, 9)}"
        scene.text(last + 4, y + 11, text, font_size=9)


MOST_ROWS = 256
FULL_HEIGHT, LEAST_HEIGHT, ROW_HEIGHT = 512, 2, 18
LABEL_DISTANCE = 13
RGB = np.array(
    [[int(PART_COLOURS[part.figure][at : at + 2], 16) for at in (1, 3, 5)] for part in PARTS], np.uint8
)
GOLDEN = 0.6180339887498949  # multiples of it, modulo 1, are spread evenly over 0 to 1
DUST = 1e-9  # tolerance of shares
MEANING = "a column of a row is filled from below, by the shares of its time"


def activity_picture(run: RunDirectory, part: Selection = EVERYTHING) -> str:
    """Return the SVG text."""
    activity, scene = activity_of(run, part, PIXELS, min(part.top or MOST_ROWS, MOST_ROWS)), Scene()
    whole, total = min(ROW_HEIGHT * len(activity.counts), FULL_HEIGHT), max(sum(activity.counts), 1)
    heights = [max(round(whole * count / total), LEAST_HEIGHT) for count in activity.counts]
    tops = np.append(0, np.cumsum(heights)).tolist()
    bottom = TOP + max(tops[-1], 1)
    scene.axis(activity.window, bottom + 4)
    if heights:
        content = base64.b64encode(_png(RGB[parts_of_pixels(activity.shares, heights)])).decode()
        style = {"preserveAspectRatio": "none", "image_rendering": "optimizeSpeed"}
        data = f"data:image/png;base64,{content}"
        scene.add("image", x=LEFT, y=TOP, width=PIXELS, height=tops[-1], **style, href=data)
    reached = -1.0 * LABEL_DISTANCE
    for row, ranks in enumerate(activity.ranks):  # as many labels as fit
        middle = (tops[row] + tops[row + 1]) / 2
        if middle - reached >= LABEL_DISTANCE:
            scene.label(label_of_ranks(ranks), TOP + middle + 4)
            reached = middle
    used = [part for row, part in enumerate(PARTS) if activity.shares[row].any()]
    scene.legend([(PART_COLOURS[part.figure], part.text) for part in used], bottom + 24)
    return scene.finish([MEANING, *activity.notes], bottom + 42)


def parts_of_pixels(shares: Any, heights: Sequence[int]) -> Any:
    """Return the part, as an index into `PARTS`, of every pixel from the top."""
    row_of = np.repeat(np.arange(len(heights)), heights)
    from_below = np.concatenate([np.arange(height)[::-1] for height in heights])
    shift = np.arange(shares.shape[2]) * GOLDEN % 1
    level = (from_below[:, None] + shift) / np.array(heights)[row_of][:, None]
    ends = np.cumsum(shares, axis=0)
    ends[ends > 1 - DUST] = 1
    return (ends[:-1, row_of] <= level).sum(axis=0)


def _png(pixels: Any) -> bytes:
    """Encode rows of red, green and blue as a PNG file."""

    def chunk(name: bytes, content: bytes) -> bytes:
        check = zlib.crc32(name + content)
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", check)

    height, width, _ = pixels.shape
    lines = np.concatenate((np.zeros((height, 1), np.uint8), pixels.reshape(height, -1)), axis=1)
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    body = zlib.compress(lines.tobytes(), 9)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", body) + chunk(b"IEND", b"")
