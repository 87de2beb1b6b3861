"""The network file that gives the constants of LogGOPS, and nothing of links.

    loggops: { npus: 8, L: 1000, o: 200, g: 5, G: 0.04, O: 0, S: 65535 }

Not here: what they mean for messages (`et_sim.network.loggops`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from et_sim.basics.errors import MachineError
from et_sim.machine.checks import check, check_names, fill_defaults, read_keys
from et_sim.machine.keys import Key, Kind, Remarks
from et_sim.machine.model import Dimension, Network, Shape, bytes_per_ns
from et_sim.machine.sources import Source
from et_sim.machine.topology.fields import line_of
from et_sim.machine.transports import LogGops

MOST_NPUS = 1 << 24
LONGEST = 1 << 40  # ns, of a constant
LOGGOPS_KEYS = (
    Key("npus", Kind.COUNT, "How many NPUs there are.", minimum=1, maximum=MOST_NPUS, required=True),
    Key("L", Kind.COUNT, "Latency.", unit="ns", maximum=LONGEST, required=True),
    Key("o", Kind.COUNT, "Overhead: processor time of a message.", unit="ns", maximum=LONGEST, required=True),
    Key("g", Kind.COUNT, "Gap: NIC time of a message.", unit="ns", maximum=LONGEST, required=True),
    Key(
        "G",
        Kind.NUMBER,
        "Gap per byte: NIC time of each byte after the first, which is also how much later it arrives.",
        unit="ns per byte",
        maximum=1 << 20,
        required=True,
    ),
    Key(
        "O",
        Kind.COUNT,
        "Overhead per byte: processor time of each byte after the first.",
        default=0,
        unit="ns per byte",
        maximum=1 << 20,
    ),
    Key(
        "S",
        Kind.COUNT,
        "The largest eager message. A send of more is done when its message has been received; with 0, so is "
        "every send.",
        unit="bytes",
        required=True,
    ),
)
LOGGOPS_KEY = Key(
    "loggops",
    Kind.OBJECT,
    "Constants of the [LogGOPS model](networks.md#loggops), in place of all other keys.",
    "Not known there.",
    choices=tuple(key.name for key in LOGGOPS_KEYS),
)


def is_loggops(content: Mapping[str, Any]) -> bool:
    """Whether a network file gives the constants of LogGOPS."""
    return LOGGOPS_KEY.name in content


def read_loggops(source: Source, remarks: Remarks) -> Network:
    """All NPUs are connected with all others."""
    for name in source.content:
        if name != LOGGOPS_KEY.name:
            raise MachineError(
                f'key "{name}" stands beside "{LOGGOPS_KEY.name}", which describes the whole network',
                place=_place(source, name),
                remedy="leave one of them out",
            )
    check_names(source, (LOGGOPS_KEY,), remarks)
    place = _place(source, LOGGOPS_KEY.name)
    given = check(LOGGOPS_KEY, source.content[LOGGOPS_KEY.name], place, remarks)
    values = read_keys(Source(place, given, ""), LOGGOPS_KEYS, remarks)
    values = fill_defaults(values, LOGGOPS_KEYS, place, remarks)
    per_byte = values["G"]
    bandwidth = 1 / (per_byte * bytes_per_ns(1)) if per_byte else math.inf
    dimension = Dimension(Shape.FULLY_CONNECTED, values["npus"], bandwidth, float(values["L"]))
    constants = LogGops(
        latency=values["L"],
        overhead=values["o"],
        gap=values["g"],
        gap_per_byte=per_byte,
        overhead_per_byte=values["O"],
        most_eager=values["S"],
    )
    return replace(Network.of_dimensions((dimension,)), loggops=constants)


def _place(source: Source, key: str) -> str:
    """Where a key stands."""
    if source.place.startswith("<"):
        return f'{source.place}: "{key}"'
    return f"{source.place}: line {line_of(Path(source.place).read_text(encoding='utf-8-sig'), (key,))}"
