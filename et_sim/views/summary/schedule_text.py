"""A schedule as text: a line for ranks that do the same, and a second one for their communication."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec.structs import asdict

from et_sim.basics.units import format_ns
from et_sim.views.run.directory import RunDirectory
from et_sim.views.run.selection import Selection
from et_sim.views.summary.schedule import (
    BACKWARD,
    FORWARD,
    INPUTS,
    WEIGHTS,
    PipelineSchedule,
    ScheduleRow,
    WorkBlock,
    schedule_of,
)
from et_sim.views.text import not_shown, prose, shortened
from et_sim.views.view import Forms

NO_PASSES = (
    'no kernel belongs to a pass: the names of those that do begin like "forward 3", "backward 3", '
    '"backward-inputs 3" or "backward-weights 3"'
)

MOST_ROWS = 64
LABEL = 20
FILL = {FORWARD: ">", BACKWARD: "<", INPUTS: "i", WEIGHTS: "w"}
OTHER, COLLECTIVE, SENT, IDLE = "#", "=", "~", "."
MEANING = {
    FORWARD: "forward",
    BACKWARD: "backward",
    INPUTS: "gradients of inputs",
    WEIGHTS: "gradients of weights",
}


def schedule_of_run(run: RunDirectory, _: Selection, width: int) -> list[str]:
    """Return all rows, or a note that there are none."""
    schedule = schedule_of(run)
    return prose([NO_PASSES], width) if schedule is None else schedule_lines(schedule, width)


def schedule_data(run: RunDirectory, _: Selection) -> Any:
    """Return the schedule for `--json`."""
    schedule = schedule_of(run)
    return None if schedule is None else _data(schedule)


SCHEDULE = Forms(schedule_of_run, schedule_data)


def schedule_lines(schedule: PipelineSchedule, width: int) -> list[str]:
    """Return all rows in a given width, and the meanings of the characters."""
    label = min(max(len("ranks"), *(len(row.ranks) for row in schedule.rows)), LABEL)
    columns = max(width - label - 9, 20)
    lines = [f"{'ranks':{label + columns + 1}}  bubble"]
    seen: set[str] = set()
    for row in schedule.rows[:MOST_ROWS]:
        name, bubble = shortened(row.ranks, label), f"{schedule.bubble_of(row):6.1%}"
        lines.append(f"{name:{label}} {_work(row, schedule, columns)}  {bubble}")
        spans = (
            (exchange.start_ns, exchange.end_ns, COLLECTIVE if exchange.is_collective else SENT)
            for exchange in row.exchanges
        )
        if beside := _line(spans, schedule.makespan_ns, columns, " ").rstrip():
            lines.append(f"{'':{label}} {beside}")
            seen |= set(beside)
    lines += not_shown(len(schedule.rows) - MOST_ROWS, "row", " more")
    return [*lines, "", *_legend(schedule, columns, seen), *closing(schedule)]


def closing(schedule: PipelineSchedule) -> list[str]:
    """Return sentences on the bubble, and on parts that are not shown."""
    summary = f"bubble {schedule.bubble:.1%} of {format_ns(schedule.makespan_ns)}"
    summary += f", exposed collectives {schedule.exposed:.1%}" if schedule.exposed else ""
    textbook = schedule.textbook_bubble
    if textbook is not None and schedule.stages > 1:
        summary += (
            f"; {schedule.stages:,} equal stages that never wait for the network would have {textbook:.1%}"
        )
    return [summary, *schedule.notes]


def _data(schedule: PipelineSchedule) -> dict[str, Any]:
    return {
        "makespan_ns": schedule.makespan_ns,
        "stages": schedule.stages or None,
        "micro_batches": schedule.micro_batches,
        "chunks": schedule.chunks,
        "bubble": schedule.bubble,
        "textbook_bubble": schedule.textbook_bubble,
        "exposed_collectives": schedule.exposed,
        "notes": list(schedule.notes),
        "rows": [
            {
                "ranks": row.ranks,
                "bubble": schedule.bubble_of(row),
                "blocks": [_block(block) for block in row.blocks],
                "communication": [asdict(exchange) for exchange in row.exchanges],
            }
            for row in schedule.rows
        ],
    }


def _block(block: WorkBlock) -> dict[str, Any]:
    work = block.work._asdict() if block.work else {"direction": None, "micro_batch": None, "chunk": None}
    return {**work, "start_ns": block.start_ns, "end_ns": block.end_ns}


def _work(row: ScheduleRow, schedule: PipelineSchedule, columns: int) -> str:
    """Return a row: passes with numbers where they fit, and exposed collectives between them."""
    spans = ((start, end, COLLECTIVE) for start, end in row.exposed)
    line = [*_line(spans, schedule.makespan_ns, columns, IDLE)]
    for block in row.blocks:
        fill = FILL[block.work.direction] if block.work else OTHER
        begin, end = (round(columns * at / schedule.makespan_ns) for at in block[:2])
        texts = (block.work.label, str(block.work.micro_batch)) if block.work else ()
        text = next((label for label in texts if len(label) < end - begin), "")
        line[begin:end] = text + fill * (end - begin - len(text))
    return "".join(line)


def _line(spans: Iterable[tuple[int, int, str]], makespan: int, columns: int, empty: str) -> str:
    line = [empty] * columns
    for start, end, fill in spans:
        begin, until = (round(columns * at / makespan) for at in (start, end))
        line[begin:until] = fill * (until - begin)
    return "".join(line)


def _legend(schedule: PipelineSchedule, columns: int, seen: set[str]) -> list[str]:
    parts = [f"{FILL[way]} {MEANING[way]}" for way in schedule.directions]
    if any(block.work is None for row in schedule.rows for block in row.blocks):
        parts.append(f"{OTHER} other work")
    marks = ((COLLECTIVE, "collectives"), (SENT, "sends and receives"))
    parts += [f"{mark} {meaning}" for mark, meaning in marks if mark in seen]
    parts.append(f"{IDLE} none")
    column = f"a column is {format_ns(schedule.makespan_ns / columns)}"
    letters = ", letters parts of the model from the second one on" if schedule.chunks > 1 else ""
    return [f"{', '.join(parts)}; {column}", f"numbers are micro-batches{letters}"]
