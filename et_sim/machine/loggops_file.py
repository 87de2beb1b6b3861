"""The network file that gives the constants of LogGOPS, and nothing of links.

    loggops: { npus: 8, L: 1000, o: 200, g: 5, G: 0.04, O: 0, S: 65535 }

Not here: what they mean for messages (`et_sim.network.loggops`).
"""

from __future__ import annotations

import math

from msgspec.structs import replace

from et_sim.documents.keys import Key, Remarks, Section, inner_section, keys_of, read
from et_sim.documents.kinds import OBJECT
from et_sim.machine.model import Dimension, Network, Shape, bytes_per_ns
from et_sim.machine.transports import LogGops

LOGGOPS_KEY = Key(
    "loggops",
    OBJECT,
    "Constants of the [LogGOPS model](networks.md#loggops), in place of all other keys.",
    "Not known there.",
    choices=tuple(key.name for key in keys_of(LogGops)),
)


def read_loggops(source: Section, remarks: Remarks) -> Network:
    """All NPUs are connected with all others."""
    section = inner_section(source, LOGGOPS_KEY, remarks)
    assert section is not None
    for name in source.content:
        if name != LOGGOPS_KEY.name:
            raise source.lined.fault(
                f'key "{name}" stands beside "{LOGGOPS_KEY.name}", which describes the whole network',
                "leave one of them out",
                key=name,
            )
    constants = read(LogGops, section, remarks)
    per_byte = constants.gap_per_byte
    bandwidth = 1 / (per_byte * bytes_per_ns(1)) if per_byte else math.inf
    dimension = Dimension(Shape.FULLY_CONNECTED, constants.npus, bandwidth, float(constants.latency))
    return replace(Network.of_dimensions((dimension,)), loggops=constants)
