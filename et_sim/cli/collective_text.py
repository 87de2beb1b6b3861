"""Text of `et-sim collective`: common steps of all ranks, totals per rank, and choices of a
library by size.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from et_sim.basics.alignment import aligned
from et_sim.basics.errors import UsageError
from et_sim.basics.units import format_bytes, plural, rank_ranges
from et_sim.collectives import Peer, StepProgram, TreeProgram
from et_sim.collectives.movement import Movement
from et_sim.collectives.schedule import UP, MemberSteps, Schedule, expand, member_steps

if TYPE_CHECKING:
    from et_sim.machine.collective_library import Library, LibraryChoice


PAIRS_SHOWN = 8


class _Rule(Struct, frozen=True):
    """Consecutive steps of one round, or of equal rounds, that every rank takes."""

    first: int
    last: int
    first_round: int
    last_round: int
    nearest: int
    farthest: int
    size: int
    reduces: bool
    charged: bool

    def swept_on(self, other: _Rule) -> bool:
        """Return whether the next step does the same in this round with the next rank."""
        here = (self.last_round, self.farthest + 1, self.size, self.reduces, self.charged)
        return here == (other.first_round, other.nearest, other.size, other.reduces, other.charged)

    def repeated_by(self, other: _Rule) -> bool:
        """Return whether the next step is the same one a round later."""
        here = (self.last_round + 1, self.nearest, self.farthest, self.size, self.reduces, self.charged)
        return self.nearest == self.farthest and here == (
            other.first_round,
            other.nearest,
            other.farthest,
            other.size,
            other.reduces,
            other.charged,
        )


def step_lines(program: StepProgram, moved: Movement) -> Iterator[str]:
    """Yield lines for the steps of a step program."""
    rules = list(_merged(_rules(member_steps(program), moved)))
    names = [_span("step", rule.first, rule.last) for rule in rules]
    rounds = [_span("round", rule.first_round, rule.last_round) for rule in rules]
    actions = [_action(rule, program.peer) for rule in rules]
    yield from aligned([("", *row) for row in zip(rounds, names, actions, strict=True)], "<<<<")


def tree_lines(schedule: Schedule) -> Iterator[str]:
    """Yield lines for the rounds of a tree, with the pairs that exchange messages."""
    for number in range(schedule.rounds):
        rows = schedule.round == number
        going_up, charged = schedule.step[rows][0] == UP, bool(schedule.charged[rows].any())
        way = "up" if going_up else "down"
        if charged:
            way += ", reduced" if going_up else ", charged as a reduction to ranks with children"
        for size in sorted(set(schedule.bytes[rows].tolist()), reverse=True):
            alike = rows & (schedule.bytes == size)
            pairs = list(zip(schedule.source[alike].tolist(), schedule.target[alike].tolist(), strict=True))
            shown = ", ".join(f"{source} -> {target}" for source, target in pairs[:PAIRS_SHOWN])
            more = f" and {len(pairs) - PAIRS_SHOWN:,} more" if len(pairs) > PAIRS_SHOWN else ""
            yield f"  {_span('round', number, number):<9} {format_bytes(size)} {way}: {shown}{more}"


def total_lines(program: StepProgram | TreeProgram, *, second_tree: bool) -> Iterator[str]:
    """Yield lines of messages, bytes and reductions; ranks with equal figures share one."""
    for figures in totals(program, second_tree=second_tree):
        names = figures["ranks"].split(",")
        shown = ",".join(names[:PAIRS_SHOWN]) + (",…" if len(names) > PAIRS_SHOWN else "")
        who = f"{'rank' if shown.isdecimal() else 'ranks'} {shown}"
        sent, size = plural(figures["messages"], "message"), format_bytes(figures["bytes_sent"])
        charged = plural(figures["reductions_charged"], "reduction")
        yield f"{who}: {sent} and {size} sent, {charged} charged"


def totals(program: StepProgram | TreeProgram, *, second_tree: bool) -> list[dict[str, Any]]:
    """Return messages, bytes and reductions of each rank; entries merge ranks with equal figures."""
    if isinstance(program, StepProgram):
        steps = member_steps(program)
        sent, size, charged = len(steps), int(steps.bytes.sum()), int(steps.charged.sum())
        return [_figures(range(program.members), sent, size, charged)]
    schedule = expand(program, second_tree=second_tree)
    sent_by = np.bincount(schedule.source, minlength=program.members)
    charged_to = np.bincount(schedule.target, schedule.charged, minlength=program.members).astype(np.int64)
    size_of = np.zeros(program.members, np.int64)
    np.add.at(size_of, schedule.source, schedule.bytes)
    figures: dict[tuple[int, int, int], list[int]] = {}
    for rank, of_rank in enumerate(zip(sent_by.tolist(), size_of.tolist(), charged_to.tolist(), strict=True)):
        figures.setdefault(of_rank, []).append(rank)
    return [_figures(ranks, *of_rank) for of_rank, ranks in figures.items()]


def _figures(ranks: Iterable[int], sent: int, size: int, charged: int) -> dict[str, Any]:
    listed = ",".join(rank_ranges(ranks))
    return {"ranks": listed, "messages": sent, "bytes_sent": size, "reductions_charged": charged}


def _rules(steps: MemberSteps, moved: Movement) -> Iterator[_Rule]:
    columns = (steps.round, steps.distance, steps.bytes, steps.charged)
    for step, (number, distance, size, charged) in enumerate(
        zip(*(column.tolist() for column in columns), strict=True)
    ):
        reduces = step < moved.reducing_steps
        yield _Rule(step, step, number, number, distance, distance, size, reduces, charged)


def _merged(rules: Iterator[_Rule]) -> Iterator[_Rule]:
    """Yield the rules, with equal neighbours merged."""
    pending = next(rules)
    for rule in rules:
        if pending.swept_on(rule) and pending.first_round == pending.last_round:
            pending = replace(pending, last=rule.last, farthest=rule.farthest)
        elif pending.repeated_by(rule):
            pending = replace(pending, last=rule.last, last_round=rule.last_round)
        else:
            yield pending
            pending = rule
    yield pending


def _action(rule: _Rule, peer: Peer) -> str:
    size = format_bytes(rule.size)
    if peer is Peer.PAIR:
        sends = f"every rank exchanges {size} with the rank {rule.nearest} away"
    elif rule.nearest == rule.farthest:
        sends = f"every rank sends {size} to rank+{rule.nearest}"
    else:
        sends = f"every rank sends {size} to each of rank+{rule.nearest} to rank+{rule.farthest}"
    if rule.reduces:
        return f"{sends}, reduces" if rule.charged else f"{sends}, reduces at no charge"
    return f"{sends}, charged as a reduction" if rule.charged else sends


def _span(noun: str, first: int, last: int) -> str:
    return f"{noun} {first}" if first == last else f"{noun}s {first}-{last}"


KINDS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce")
SMALLEST, LARGEST, STEP = 1 << 10, 1 << 30, 4  # bytes of each rank
CHOSEN = "*"


class _Size(Struct, frozen=True):
    """A size of the table: bytes of each rank, all ways, and the chosen one."""

    size: int
    ways: tuple[LibraryChoice, ...]
    chosen: LibraryChoice


class LibraryOptions(Protocol):
    """Options that are passed to a library."""

    type: str
    machine: str | None
    ranks: int | None
    bytes: int | None
    dtype: str | None
    svg: Path | None
    json: bool


def show_library(options: LibraryOptions) -> int:
    """Print the table or its JSON, and draw a picture if it is requested."""
    library, ranks = _library(options)
    nodes = -(-ranks // library.node)
    sizes = [_of_size(library, options, ranks, nodes, size) for size in _sizes(options.bytes)]
    if options.svg:
        from et_sim.views.drawing.planes import MeasuredCurve, choices_picture
        from et_sim.views.drawing.scene import write_picture

        lines = [
            MeasuredCurve(
                name,
                [(entry.size, way.time_us) for entry in sizes for way in entry.ways if way.name == name],
            )
            for name in _names(sizes)
        ]
        chosen = [(entry.size, entry.chosen.time_us) for entry in sizes]
        title = f"{options.type} of {ranks} ranks on {options.machine}"
        write_picture(choices_picture(title, lines, chosen), options.svg, None)
    elif options.json:
        print(json.dumps(_data(options, library, ranks, nodes, sizes), indent=2))
    else:
        print("\n".join(_text(options, library, ranks, nodes, sizes)))
    return 0


def _library(options: LibraryOptions) -> tuple[Library, int]:
    from et_sim.machine.presets import preset
    from et_sim.machine.readers import read_machine

    if options.machine is None:
        raise UsageError("a library is part of a machine", remedy="name one, as in --machine h100-dgx:16")
    if options.type not in KINDS:
        raise UsageError(
            f"a library does not choose for {options.type}", remedy=f"it does for {', '.join(KINDS)}"
        )
    machine = preset(options.machine)
    library = read_machine(system=machine.system, network=machine.network).system.library
    if library is None:
        raise UsageError(
            f"{machine.name} names no collective library", remedy="give its algorithms in place of `library`"
        )
    if machine.npus < 2:
        raise UsageError(f"{machine.text} has one NPU", remedy="name two or more, as in h100-dgx:16")
    return library, machine.npus


def _sizes(size: int | None) -> list[int]:
    if size is not None:
        return [max(size, 1)]
    sizes = [SMALLEST]
    while sizes[-1] < LARGEST:
        sizes.append(sizes[-1] * STEP)
    return sizes


def _of_size(library: Library, options: LibraryOptions, ranks: int, nodes: int, size: int) -> _Size:
    from et_sim.machine.collective_library import Call

    counted = size * ranks if options.type == "all_gather" else size
    call = Call(options.type, ranks, nodes, counted, options.dtype or "")
    chosen = library.choice(call)
    ways = tuple(chosen if way.name == chosen.name else way for way in library.choices(call))
    return _Size(size, ways, chosen)


def _names(sizes: Sequence[_Size]) -> list[str]:
    return list(dict.fromkeys(way.name for entry in sizes for way in entry.ways))


def _time_of(name: str, entry: _Size) -> str:
    times = {way.name: f"{way.time_us:.1f}{CHOSEN * (way == entry.chosen)}" for way in entry.ways}
    return times.get(name, "-")


def _text(
    options: LibraryOptions, library: Library, ranks: int, nodes: int, sizes: Sequence[_Size]
) -> Iterator[str]:
    from et_sim.views.sheet import Sheet, SheetColumn

    where = plural(nodes, "node")
    yield f"{library.name}, {options.type} of {ranks} ranks on {where}: us by what each puts in, * is chosen"
    columns = (SheetColumn(name, partial(_time_of, name)) for name in _names(sizes))
    yield from Sheet((SheetColumn("bytes", lambda entry: format_bytes(entry.size)), *columns)).lines(sizes)
    channels = dict.fromkeys(f"{way.name} {way.channels}" for way in sizes[-1].ways)
    yield f"channels: {', '.join(channels)}"
    yield "it chooses by its own estimates, not by these times; alone, on idle links"
    for entry in sizes:
        if entry.chosen.larger is not None:
            yield f"more bytes are faster: {_fall(options, ranks, nodes, entry)}"


def _fall(options: LibraryOptions, ranks: int, nodes: int, entry: _Size) -> str:
    from et_sim.machine.collective_library.candidates import LibraryGroup
    from et_sim.machine.collective_library.falls import text_of

    chosen, group = entry.chosen, LibraryGroup(ranks, nodes)
    assert chosen.larger is not None
    text = text_of(options.type, group, chosen.time_us, chosen.unlimited_us, chosen.larger)
    return f"{options.type} of {format_bytes(entry.size)} on {ranks} takes {text}"


def _data(
    options: LibraryOptions, library: Library, ranks: int, nodes: int, sizes: Sequence[_Size]
) -> dict[str, Any]:
    return {
        "library": library.name,
        "type": options.type,
        "ranks": ranks,
        "nodes": nodes,
        "sizes": [
            {
                "bytes": entry.size,
                "ways": [
                    {
                        "way": way.name,
                        "channels": way.channels,
                        "time_us": way.time_us,
                        "estimate_us": way.estimate_us,
                        "chosen": way == entry.chosen,
                    }
                    for way in entry.ways
                ],
                "more_bytes_are_faster": _larger(options, ranks, entry.chosen),
            }
            for entry in sizes
        ],
    }


def _larger(options: LibraryOptions, ranks: int, chosen: LibraryChoice) -> dict[str, Any] | None:
    """Return the larger size that takes less time, and the time of this one by the calibration alone."""
    larger = chosen.larger
    if larger is None:
        return None
    size = -(-larger.size // ranks) if options.type == "all_gather" else larger.size
    unlimited = chosen.unlimited_us or chosen.time_us
    return {"bytes": size, "time_us": larger.time_us, "unlimited_us": unlimited}
