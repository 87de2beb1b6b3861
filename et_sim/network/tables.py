"""What compiled code knows of a network, whichever model runs on it.

Both models use the same dimensions; the link model adds links with a state. A link belongs to the NPU
it leaves (or, behind a switch, reaches): a ring dimension has two per NPU, a fully connected one has one
per pair, a switch dimension has one up and one down per NPU. NPUs that behave alike share their links'
records, as they share an actor.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np

from et_sim.compiled.tables_by_reference import Tables
from et_sim.errors import MachineError
from et_sim.machine.model import Network
from et_sim.network.hierarchy import level_table, plain_flight
from et_sim.network.speeds import SHAPE_CODE, npu_and_port, port_names, ports_of, speed_table
from et_sim.plan.tables import record, table
from et_sim.units import LONGEST_NS, format_bytes, format_ns


class Model(IntEnum):
    """Network models."""

    ANALYTICAL = 0
    LINK = 1


DIMENSION = record(
    ("npus", "i8"),
    ("stride", "i8"),
    ("wiring", "i8"),
    ("link_first", "i8"),
    ("bytes_per_ns", "f8"),
    ("latency_ns", "f8"),
    ("ports", "i8"),  # links of an NPU
    ("uneven_first", "i8"),  # into `speeds`: links of a speed of their own
    ("uneven_end", "i8"),
)
LINK = record(
    ("busy", "i4"),
    ("head", "i4"),  # messages that wait for the link
    ("tail", "i4"),
    ("speed", "i4"),
    ("home", "i4"),  # the NPU it belongs to
    ("joined_ns", "i8"),  # this and what follows: to notice ties
    ("joined_group", "i8"),
    ("joined_origin", "i8"),
)


@dataclass(frozen=True, slots=True)
class NetworkTables(Tables):
    """One network during one run."""

    dimensions: Any
    speeds: Any  # the first ones are the dimensions'
    links: Any
    step_flight_ns: Any  # analytical: per row of the plan's steps; -1: depends on who talks to whom
    home: Any  # link: per rank, the NPU whose links stand for its own
    model: Any  # one Model
    levels: Any  # of a network of ASTRA-sim 1.0, else none


def dimension_tables(network: Network, homes: int) -> tuple[Any, Any]:
    """The network's dimensions and the speeds of its links as records; `homes` NPUs have links."""
    dimensions = table(DIMENSION, len(network.dimensions))
    speeds, uneven = speed_table(network)
    units = 1 << network.fraction_bits  # of time, per ns
    dimensions["uneven_first"], dimensions["uneven_end"] = uneven[:-1], uneven[1:]
    speeds["bytes_per_ns"] /= units
    speeds["latency_ns"] *= units
    link_first = 0
    for row, dimension, stride in zip(dimensions, network.dimensions, network.strides, strict=True):
        row.npus, row.stride, row.wiring = dimension.npus, stride, SHAPE_CODE[dimension.shape]
        row.bytes_per_ns, row.latency_ns = dimension.bytes_per_ns / units, dimension.latency_ns * units
        row.link_first, row.ports = link_first, ports_of(dimension)
        link_first += homes * row.ports
    return dimensions, speeds


def link_table(network: Network, dimensions: Any, speeds: Any, home: Any) -> Any:
    """All links, idle; `home` says per rank whose links stand for its own."""
    homes = int(home.max()) + 1
    counts = [homes * ports_of(dimension) for dimension in network.dimensions]
    links = table(LINK, sum(counts))
    links["head"] = links["tail"] = links["joined_ns"] = -1
    links["speed"] = np.repeat(np.arange(len(dimensions)), counts)
    for link in network.links:
        npu, port = npu_and_port(network, link)
        of = dimensions[link.dimension]
        own = speeds[of.uneven_first : of.uneven_end]["link"]
        speed = of.uneven_first + np.searchsorted(own, npu * of.ports + port)
        links["speed"][of.link_first + home[npu] * of.ports + port] = speed
    links["home"] = np.concatenate([np.repeat(np.arange(homes), count // homes) for count in counts])
    return links


def numbered_links(network: NetworkTables) -> list[dict[str, Any]]:
    """Per dimension of the link model: the number of its first link, and what an NPU's links are called."""
    if not len(network.links):
        return []
    return [
        {"first": int(row["link_first"]), "ports": port_names(int(row["wiring"]), int(row["ports"]))}
        for row in network.dimensions
    ]


def check_reach(network: Network, most_bytes: int) -> None:
    """Refuse a network on which a message of the run would take longer than any run may."""
    for number, level in enumerate(network.levels):
        row = level_table(network)[number]
        flight = plain_flight(row, level.npus // 2, most_bytes)
        _refuse_slow(flight / row.units_per_ns, number, most_bytes)
    for number, dimension in enumerate(network.dimensions if not network.levels else ()):
        hops = max(dimension.npus // 2, 2)
        uneven = [link for link in network.links if link.dimension == number]
        bandwidth = min([dimension.bytes_per_ns, *(link.bytes_per_ns for link in uneven)])
        latency = max([dimension.latency_ns, *(link.latency_ns for link in uneven)])
        slowest = hops * (latency + most_bytes / bandwidth)
        _refuse_slow(slowest, number, most_bytes)


def _refuse_slow(slowest_ns: float, number: int, most_bytes: int) -> None:
    if not slowest_ns <= LONGEST_NS:
        raise MachineError(
            f"a message of {format_bytes(most_bytes)} could take longer than {format_ns(LONGEST_NS)} "
            f"in dimension {number}",
            place="network configuration",
            remedy="correct its latency (ns) or bandwidth (GB/s)",
        )
