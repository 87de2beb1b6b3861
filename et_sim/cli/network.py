"""`et-sim network`: what a network is, and a picture of it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from et_sim.basics.declared_options import Command
from et_sim.basics.errors import UsageError
from et_sim.cli.options import Json


class Options(Command):
    """Read a network file of any form and print what it describes: devices, links by tier, diameter,
    bisection, the device of each rank, and the ways of some messages."""

    file: Annotated[str, "network file: dimensions, a graph, or one of another tool", "FILE"]
    path: Annotated[
        Sequence[str] | None, "show the way from one rank to another; repeatable", "RANK:RANK"
    ] = None
    svg: Annotated[Path | None, "draw the network into this file", "FILE"] = None
    json: Json = False


def run(options: Options) -> int:
    """Describe the network, and draw it if that is asked for."""
    from et_sim.machine import read_network_alone
    from et_sim.network.description import as_text, describe

    network = read_network_alone(options.file)
    description = describe(network, [_pair(text, network.ranks) for text in options.path or ()])
    if options.svg is not None:
        from et_sim.cli.network_picture import topology_picture
        from et_sim.views.drawing.scene import write_picture

        write_picture(topology_picture(network), options.svg, None)
    print(
        json.dumps(description, indent=2) if options.json else "\n".join(as_text(description, options.file))
    )
    return 0


def _pair(text: str, ranks: int) -> tuple[int, int]:
    source, _, other = text.partition(":")
    if not (source.isdecimal() and other.isdecimal() and int(source) < ranks and int(other) < ranks):
        raise UsageError(
            f"--path is {text!r}", remedy=f'give two ranks below {ranks}, such as "0:{ranks - 1}"'
        )
    if int(source) == int(other):
        raise UsageError(f"--path is {text!r}", remedy="give two different ranks")
    return int(source), int(other)
