"""Fabrics: the paths of messages, shared by network models, observers and folding.

A message crosses a fabric leg by leg (`next_leg`) and a leg link by link (`next_link`); its time is summed on
the way. Each function here calls the function of its name in the module of the fabric's tables (`grid`,
`levels`, `graph`) if that has one. In Python, such a module is a `Fabric`.

Models that follow links one by one may serve grids and graphs with one compiled form, which looks up the
fabric at every link (`Wires`). Where that costs some percent (`analytical`, `link`), each fabric has its own
compiled form.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
from msgspec import Struct

from et_sim.basics.errors import MachineError
from et_sim.basics.units import LONGEST_NS, format_bytes, format_ns
from et_sim.compiled.tables_by_reference import Tables, chosen_by_tables, in_module, works_on_tables
from et_sim.engine.containers import NONE as NONE
from et_sim.engine.observe import facade as observe
from et_sim.engine.state.run import Run
from et_sim.plan.records import record

LINKED = ("et_sim.network.grid", "et_sim.network.graph")  # fabrics with single links
SPEED = record(
    ("link", "i8"),  # of a grid, in the speed's dimension: NPU * ports + port; of a dimension's default: none
    ("bytes_per_ns", "f8"),
    ("latency_ns", "f8"),
)


class FabricTables(Tables, Struct, frozen=True):
    """Tables of a fabric with single links for compiled code: a grid or a graph; the other is empty."""

    is_grid: Any  # empty if not: an array, or a tuple whose length the compiler sees
    grid: Any
    graph: Any
    speeds: Any  # of links, by class


def fabric_tables(part: Any) -> FabricTables:
    """Return the tables of a grid or of a graph in the type that serves both."""
    grid, graph = (
        part if type(part).__module__ == module else import_module(module).NOTHING for module in LINKED
    )
    return FabricTables(np.zeros(min(len(grid.dimensions), 1), np.int8), grid, graph, part.speeds)


class Leg(NamedTuple):
    """A part of a message's path; `row` NONE: the message is at its target."""

    row: int  # the dimension or level that it crosses
    at: int  # the NPU where it begins
    here: int  # and the place along `row`
    there: int
    end: int


class Hop(NamedTuple):
    """A link of a leg, and the place after it."""

    link: int  # NONE: links are not numbered
    link_class: int  # the class of links with the same figures
    at: int
    stop: int


next_leg = chosen_by_tables("next_leg")  # (fabric, at, target): the next Leg
ends_of_leg = chosen_by_tables("ends_of_leg")  # (fabric, leg): its first and last place
next_link = chosen_by_tables("next_link")  # (fabric, leg, at, stop): the next Hop; `leg.at` is the first stop


@works_on_tables
def leg_ns_by_links(fabric: Any, leg: Leg, size: int) -> int:
    """Return the latencies of all links plus serialisation on the slowest; equal latencies are multiplied."""
    at, end = ends_of_leg(fabric, leg)
    stop, latency, count, last, slowest = leg.at, 0.0, 0, 0.0, np.inf
    while at != end:
        hop = next_link(fabric, leg, at, stop)
        speed = fabric.speeds[hop.link_class]
        if speed.latency_ns != last:
            latency, count, last = latency + count * last, 0, speed.latency_ns
        count += 1
        slowest = min(slowest, speed.bytes_per_ns)
        at, stop = hop.at, hop.stop
    return int(latency + count * last + size / slowest)


@works_on_tables
def slowest_of_links(fabric: Any, leg: Leg) -> int:
    """Return the class of the slowest link of a leg, the first of equal ones."""
    at, end = ends_of_leg(fabric, leg)
    stop, slowest = leg.at, NONE
    while at != end:
        hop = next_link(fabric, leg, at, stop)
        rate = fabric.speeds[hop.link_class].bytes_per_ns
        if slowest == NONE or rate < fabric.speeds[slowest].bytes_per_ns:
            slowest = hop.link_class
        at, stop = hop.at, hop.stop
    return slowest


@works_on_tables
def _serialisation(fabric: Any, leg: Leg, size: int) -> int:
    return int(size / fabric.speeds[leaving_class(fabric, leg)].bytes_per_ns)


@works_on_tables
def _note_dimension(fabric: Any, run: Run, leg: Leg, begin: int, size: int) -> None:
    """Record a message that crosses a dimension from `begin` on."""
    observe.actor_sends(run, leg.row, len(fabric.dimensions), begin, leaving_ns(fabric, leg, size), size)


@works_on_tables
def _describe_links(fabric: Any, run: Run, leg: Leg, size: int) -> None:
    """Describe the latencies of the links of a leg by class, and the serialisation of the slowest."""
    if not observe.describes_causes(run):
        return
    at, end = ends_of_leg(fabric, leg)
    begin, latency, count, last, stop = observe.described_until(run), 0.0, 0, NONE, leg.at
    while at != end:
        hop = next_link(fabric, leg, at, stop)
        if hop.link_class != last:
            if count > 0:
                latency += count * fabric.speeds[last].latency_ns
                observe.describe_latency(run, last, begin + int(latency))
            count, last = 0, hop.link_class
        count += 1
        at, stop = hop.at, hop.stop
    latency += count * fabric.speeds[last].latency_ns
    observe.describe_latency(run, last, begin + int(latency))
    _describe_serialisation(fabric, run, leg, size, begin, latency)


@works_on_tables
def _describe_serialisation_alone(fabric: Any, run: Run, leg: Leg, size: int) -> None:
    if observe.describes_causes(run):
        _describe_serialisation(fabric, run, leg, size, observe.described_until(run), 0.0)


@works_on_tables
def _describe_serialisation(fabric: Any, run: Run, leg: Leg, size: int, begin: int, latency: float) -> None:
    """Describe the serialisation of the slowest link, and of each other class, which may become
    the slowest.
    """
    sent, sent_ns = observe.described_so_far(run), observe.described_until(run)
    slowest = leaving_class(fabric, leg)
    time = latency + size / fabric.speeds[slowest].bytes_per_ns
    observe.describe_serialisation(run, slowest, begin + int(time))
    at, end = ends_of_leg(fabric, leg)
    stop, last = leg.at, slowest
    while at != end:
        hop = next_link(fabric, leg, at, stop)
        if hop.link_class not in (last, slowest):
            time = latency + size / fabric.speeds[hop.link_class].bytes_per_ns
            observe.describe_beside(run, hop.link_class, sent, sent_ns, begin + int(time))
        last, at, stop = hop.link_class, hop.at, hop.stop


@works_on_tables
def _add_links(fabric: Any, leg: Leg, size: int, longest: Any) -> None:
    """Raise the longest serialisation of each class of links to that of these bytes."""
    at, end = ends_of_leg(fabric, leg)
    stop = leg.at
    while at != end:
        hop = next_link(fabric, leg, at, stop)
        time = int(size / fabric.speeds[hop.link_class].bytes_per_ns)
        longest[hop.link_class] = max(longest[hop.link_class], time)
        at, stop = hop.at, hop.stop


# (fabric, leg, size): the time until `size` bytes reach its end, and until they have left its beginning
leg_ns = chosen_by_tables("leg_ns", default=leg_ns_by_links)
leaving_ns = chosen_by_tables("leaving_ns", default=_serialisation)
# (fabric, leg): the class of links that sets the latter
leaving_class = chosen_by_tables("leaving_class", default=slowest_of_links)
# (fabric, run, leg, size): describe the causes of both
describe_leg = chosen_by_tables("describe_leg", default=_describe_links)
describe_leaving = chosen_by_tables("describe_leaving", default=_describe_serialisation_alone)
# (fabric, leg, size, longest): serialisation by class of links
add_serialisation = chosen_by_tables("add_serialisation", default=_add_links)
# (fabric, run, leg, begin, size): record the traffic
note_leg = chosen_by_tables("note_leg", default=_note_dimension)


def refuse_slow(slowest_ns: float, most_bytes: int, where: str, figures: str) -> None:
    """Refuse a network whose largest message takes longer than the limit."""
    if not slowest_ns <= LONGEST_NS:
        raise MachineError(
            f"a message of {format_bytes(most_bytes)} could take longer than {format_ns(LONGEST_NS)}{where}",
            place="network configuration",
            remedy=f"correct {figures}",
        )


WAY_FIELDS = (  # fields of a message
    ("at", "i4"),  # its rank, or the next one if it is in a switch; NONE: another device
    ("via_switch", "i4"),
    ("dimension", "i4"),  # or tier, of its last link
    ("device", "i4"),  # on a graph: the device it has reached; the fields below are for graphs too
    ("stop", "i4"),  # the rank that it travels to
    ("source", "i4"),
    ("ports", "i8"),  # source and target port, if the path depends on them
)


@works_on_tables
def _no_ports(_network: Any, _source: int, _target: int) -> int:
    return 0


@works_on_tables
def _arrives_at_once(_network: Any) -> bool:
    return False


def _on_wires(name: str, default: Callable[..., Any] | None = None) -> Any:
    """Return a function that calls the one of this name in the fabric of the `Wires`."""
    of_grid, of_graph = (in_module(module, name, default) for module in LINKED)

    @works_on_tables(forceinline=True)
    def on_wires(network: Any, *about: Any) -> Any:
        if len(network.fabric.is_grid) > 0:
            return of_grid(network, *about)
        return of_graph(network, *about)

    return on_wires


# (network, source, target): the ports of a new message, if its path depends on them
next_ports = _on_wires("next_ports", _no_ports)
set_out = _on_wires("set_out")  # (network, message, source, ports): put it at a rank
take_hop = _on_wires("take_hop")  # (network, message): move it over its next link
# (network): whether messages to oneself pass a switch
is_wired_to_itself = _on_wires("is_wired_to_itself", _arrives_at_once)


class Wires(Tables, Struct, frozen=True):
    """Tables from which paths follow, link by link."""

    fabric: FabricTables
    home: Any  # per rank, the NPU whose links stand for its own; on a graph, the other devices follow
    first: Any  # of a grid: per dimension, its first link
    tier: Any  # of a graph: per link
    sent: Any  # messages by source and target, a counter of 16 bits; empty: no path depends on it
