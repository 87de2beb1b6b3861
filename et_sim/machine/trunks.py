"""Trunks: links of a graph that always carry the same bytes when messages spread evenly over equal paths.

Devices are equivalent if each of them has as many links of the same figures to, and from, every set of
equivalent devices; an NPU is equivalent to no other device. These sets are the coarsest equitable partition
of the graph. Bytes that enter such a set evenly leave it evenly: each of its devices is equally far from
every target, has as many links to every next set, and gets as many bytes over them. So all links of one set
of figures between two sets carry the same at every time, and one link with the bandwidth of all replaces them
exactly.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from et_sim.basics.kept import Kept
from et_sim.basics.unique import unique
from et_sim.machine.graph import NPU, Graph, numbers_of


class Trunks(Struct, frozen=True, eq=False):
    """The graph with a link for each trunk, and a device for each set of equivalent devices."""

    graph: Graph  # links have the bandwidth of all that they merge
    of_link: Any  # by link of the whole graph: its trunk
    of_device: Any  # by device of the whole graph: its set


def marks_of(sets: Sequence[Sequence[int]], links: int) -> Any:
    """Return a number for the sets that each link is in; 0: it is in none."""
    marks = np.zeros(links, np.int64)
    for members in sets:
        is_in = np.zeros(links, np.int64)
        is_in[np.asarray(members, np.int64)] = 1
        marks = np.unique(marks * 2 + is_in, return_inverse=True)[1].reshape(-1)
    return marks


def trunks_of(graph: Graph, apart: Iterable[int], marks: Any) -> Trunks:
    """Return the trunks of a graph.

    Devices in `apart` are equivalent to no other, and links with different `marks` are not merged.
    """
    given = numbers_of(graph).tobytes(), np.array(sorted(apart), np.int64).tobytes(), marks.tobytes()
    made, first = graph.derived(_without_figures, *given)
    trunks = replace(
        made.graph,
        bytes_per_ns=graph.bytes_per_ns[first] * made.graph.members,
        latency_ns=graph.latency_ns[first],
    )
    return replace(made, graph=replace(trunks, numbers=numbers_of(trunks)))


def _without_figures(graph: Graph, numbers: bytes, apart: bytes, marks: bytes) -> tuple[Trunks, Any]:
    """Return the trunks of links with numbers for their figures, and the first link of each."""
    figures = _numbered(np.frombuffer(numbers, np.int64), np.frombuffer(marks, np.int64))
    of_device = _sets(graph, np.frombuffer(apart, np.int64), figures)
    first_device = np.unique(of_device, return_index=True)[1]
    ends = of_device[graph.sources], of_device[graph.targets]
    of_link = _in_order(_numbered(*ends, figures))
    _, first, members = np.unique(of_link, return_index=True, return_counts=True)
    made = Graph(
        names=tuple(graph.names[device] for device in first_device.tolist()),
        kinds=graph.kinds[first_device],
        tiers=graph.tiers[first_device],
        sources=ends[0][first].astype(np.int32),
        targets=ends[1][first].astype(np.int32),
        bytes_per_ns=None,
        latency_ns=None,
        link_names=tuple(graph.link_names[link] for link in first.tolist()),
        npus=of_device[graph.npus],
        members=members,
        kept=None if graph.kept is None else Kept(),
    )
    return Trunks(made, of_link, of_device), first


def no_trunks(graph: Graph) -> Trunks:
    """Return the graph unchanged: each link is its own trunk."""
    return Trunks(graph, np.arange(len(graph.sources)), np.arange(len(graph)))


def _sets(graph: Graph, apart: Any, figures: Any) -> Any:
    """Return the number of its set for each device, in the order of the first device of each set.

    Each round draws a number for every colour and figures of a neighbour, there and back. Devices of one
    colour whose neighbours have the same sum keep one colour; sums of 64 bits hardly collide by chance.
    """
    is_apart = graph.kinds == NPU
    is_apart[apart] = True
    alone = np.where(is_apart, np.arange(len(graph)), -1)
    colours = _numbered(alone, graph.kinds, graph.tiers)
    count, draw = 0, np.random.default_rng(0)
    while len(unique(colours)) > count:
        count = len(unique(colours))
        seen = np.zeros(len(graph), np.uint64)
        for here, there in ((graph.sources, graph.targets), (graph.targets, graph.sources)):
            kinds = colours[there] * (int(figures.max()) + 1) + figures
            different, kind = np.unique(kinds, return_inverse=True)
            words = draw.integers(0, 1 << 64, len(different), np.uint64)
            with np.errstate(over="ignore"):
                np.add.at(seen, here, words[kind.reshape(-1)])
        colours = _numbered(colours, seen.view(np.int64))
    return _in_order(colours)


def _in_order(numbers: Any) -> Any:
    """Renumber by the first row of each number, ascending."""
    _, first, of_row = np.unique(numbers, return_index=True, return_inverse=True)
    place = np.empty(len(first), np.int64)
    place[np.argsort(first)] = np.arange(len(first))
    return place[of_row.reshape(-1)]


def _numbered(*columns: Any) -> Any:
    """Number each combination of values, by row."""
    numbers = np.unique(columns[0], return_inverse=True)[1].reshape(-1)
    for column in columns[1:]:
        different, number = np.unique(column, return_inverse=True)
        both = numbers * len(different) + number.reshape(-1)
        numbers = np.unique(both, return_inverse=True)[1].reshape(-1)
    return numbers


def names_of_sets(graph: Graph, trunks: Trunks) -> list[str]:
    """Return names of sets of devices: the first device, and the number of the last one."""
    order = np.argsort(trunks.of_device, kind="stable")
    first = np.searchsorted(trunks.of_device[order], np.arange(len(trunks.graph) + 1)).tolist()
    names = []
    for begin, end in pairwise(first):
        name, last = graph.names[order[begin]], graph.names[order[end - 1]]
        number = last[len(last.rstrip("0123456789")) :]
        names.append(name if end - begin == 1 else f"{name}-{number or last}")
    return names
