"""`et-sim collective library`: what a machine's collective library may choose, over sizes, and what it does.

Not here: how it chooses (`machine.collective_library`).
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from et_sim.basics.errors import UsageError

if TYPE_CHECKING:
    from et_sim.machine.collective_library import Choice, Library

KINDS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce")
SMALLEST, LARGEST, STEP = 1 << 10, 1 << 30, 4  # bytes of each rank
CHOSEN = "*"


class _Size(Struct, frozen=True):
    """A size of the table: bytes that each rank puts in, all ways, and the one that is chosen."""

    size: int
    ways: tuple[Choice, ...]
    chosen: Choice


def show_library(options: argparse.Namespace) -> int:
    """Print the table, or its JSON; draw the picture that is asked for."""
    library, ranks = _library(options)
    nodes = -(-ranks // library.node)
    sizes = [_of_size(library, options, ranks, nodes, size) for size in _sizes(options.bytes)]
    if options.svg:
        from et_sim.views.drawing.planes import Curve, choices_picture
        from et_sim.views.drawing.scene import write_picture

        lines = [
            Curve(
                name,
                [(entry.size, way.time_us) for entry in sizes for way in entry.ways if _name(way) == name],
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


def _library(options: argparse.Namespace) -> tuple[Library, int]:
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


def _sizes(text: str | None) -> list[int]:
    from et_sim.basics.units import parse_bytes

    if text is not None:
        return [max(parse_bytes(text), 1)]
    sizes = [SMALLEST]
    while sizes[-1] < LARGEST:
        sizes.append(sizes[-1] * STEP)
    return sizes


def _of_size(library: Library, options: argparse.Namespace, ranks: int, nodes: int, size: int) -> _Size:
    from et_sim.machine.collective_library import Call

    counted = size * ranks if options.type == "all_gather" else size
    call = Call(options.type, ranks, nodes, counted, options.dtype or "")
    return _Size(size, library.choices(call), library.choice(call))


def _name(way: Choice) -> str:
    return way.text.partition(",")[0]


def _names(sizes: Sequence[_Size]) -> list[str]:
    return list(dict.fromkeys(_name(way) for entry in sizes for way in entry.ways))


def _text(
    options: argparse.Namespace, library: Library, ranks: int, nodes: int, sizes: Sequence[_Size]
) -> Iterator[str]:
    from et_sim.basics.units import format_bytes, plural

    where = plural(nodes, "node")
    yield f"{library.name}, {options.type} of {ranks} ranks on {where}: us by what each puts in, * is chosen"
    names = _names(sizes)
    rows = [["bytes", *names]]
    for entry in sizes:
        times = {_name(way): f"{way.time_us:.1f}" for way in entry.ways}
        times[_name(entry.chosen)] += CHOSEN
        rows.append([format_bytes(entry.size), *(times.get(name, "-") for name in names)])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True))
    channels = dict.fromkeys(f"{_name(way)} {way.channels}" for way in sizes[-1].ways)
    yield f"channels: {', '.join(channels)}"
    yield "it chooses by its own estimates, not by these times; alone, on idle links"


def _data(
    options: argparse.Namespace, library: Library, ranks: int, nodes: int, sizes: Sequence[_Size]
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
                        "way": _name(way),
                        "channels": way.channels,
                        "time_us": way.time_us,
                        "estimate_us": way.estimate_us,
                        "chosen": way == entry.chosen,
                    }
                    for way in entry.ways
                ],
            }
            for entry in sizes
        ],
    }
