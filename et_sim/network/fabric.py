"""Fabrics: what messages cross, with one walk each for network models, observers and folding.

A message crosses a fabric leg by leg (`next_leg`), and a leg link by link (`next_link`); what it costs is
added up on that walk. Each function here stands for the function of its name in the module of the fabric's
tables (`grid`, `levels`, `graph`), if that has one. On Python's side, such a module is a `Fabric`.

Where links are followed one by one, a form of the engine may serve grids and graphs alike: what `Wires` lead
to is looked up for every link. Where that is much of the work (`analytical`, `link`), it costs some percent,
and each fabric has a form of its own.

Not here: what collectives run along (`machine.model`), and who has to wait for whom (the network models).
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np

from et_sim.basics.errors import MachineError
from et_sim.basics.quick_dataclass import quick_dataclass
from et_sim.basics.units import LONGEST_NS, format_bytes, format_ns
from et_sim.compiled.tables_by_reference import Tables, chosen_by_tables, in_module, works_on_tables
from et_sim.engine.containers import NONE as NONE
from et_sim.engine.observe import facade as observe
from et_sim.engine.state.run import Run
from et_sim.plan.records import record

LINKED = ("et_sim.network.grid", "et_sim.network.graph")  # fabrics with single links
SPEED = record(
    ("link", "i8"),  # of a grid, in the speed's dimension: NPU * ports + port; of a dimension's own: none
    ("bytes_per_ns", "f8"),
    ("latency_ns", "f8"),
)


@quick_dataclass(frozen=True)
class FabricTables(Tables):
    """What compiled code knows of a fabric with single links, grid or graph; what it is not is empty."""

    is_grid: Any  # empty if not: an array, or a tuple, whose length compiling sees
    grid: Any
    graph: Any
    speeds: Any  # of links, by class


def fabric_tables(part: Any) -> FabricTables:
    """Return the tables of a grid or of a graph as those of either."""
    grid, graph = (
        part if type(part).__module__ == module else import_module(module).NOTHING for module in LINKED
    )
    return FabricTables(np.zeros(min(len(grid.dimensions), 1), np.int8), grid, graph, part.speeds)


class Leg(NamedTuple):
    """A part of a message's way; `row` NONE: the message is there."""

    row: int  # of the dimension or level that it crosses
    at: int  # where it begins, as an NPU
    here: int  # and as a place along `row`
    there: int
    end: int


class Hop(NamedTuple):
    """A link of a leg, and the place behind it."""

    link: int  # NONE: links are not numbered
    link_class: int  # of links with the same figures
    at: int
    stop: int


next_leg = chosen_by_tables("next_leg")  # (fabric, at, target): the Leg that comes next
ends_of_leg = chosen_by_tables("ends_of_leg")  # (fabric, leg): the places where its walk begins and ends
next_link = chosen_by_tables(
    "next_link"
)  # (fabric, leg, at, stop): the Hop from a place on; the first stop is `leg.at`


@works_on_tables
def leg_ns_by_links(fabric: Any, leg: Leg, size: int) -> int:
    """Return the latencies of all links, and serialisation on the slowest; equal latencies are multiplied."""
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
    """Return the class of the slowest link of a leg: the first such one."""
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
    """A message crosses a dimension from `begin` on."""
    observe.actor_sends(run, leg.row, len(fabric.dimensions), begin, leaving_ns(fabric, leg, size), size)


@works_on_tables
def _describe_links(fabric: Any, run: Run, leg: Leg, size: int) -> None:
    """The latencies of the links of a leg, class by class, and then the slowest one's serialisation."""
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
    """That of the slowest link, and beside it that of each other class, which may become the slowest."""
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
    """Note how long each class of links takes for these bytes, where that is longer than what is noted."""
    at, end = ends_of_leg(fabric, leg)
    stop = leg.at
    while at != end:
        hop = next_link(fabric, leg, at, stop)
        time = int(size / fabric.speeds[hop.link_class].bytes_per_ns)
        longest[hop.link_class] = max(longest[hop.link_class], time)
        at, stop = hop.at, hop.stop


# (fabric, leg, size): until `size` bytes are at its end, and until they have left its beginning
leg_ns = chosen_by_tables("leg_ns", default=leg_ns_by_links)
leaving_ns = chosen_by_tables("leaving_ns", default=_serialisation)
# (fabric, leg): the class of links that decides that
leaving_class = chosen_by_tables("leaving_class", default=slowest_of_links)
# (fabric, run, leg, size): tells the record of causes of both
describe_leg = chosen_by_tables("describe_leg", default=_describe_links)
describe_leaving = chosen_by_tables("describe_leaving", default=_describe_serialisation_alone)
# (fabric, leg, size, longest): serialisation by class of links
add_serialisation = chosen_by_tables("add_serialisation", default=_add_links)
# (fabric, run, leg, begin, size): tells the record of traffic
note_leg = chosen_by_tables("note_leg", default=_note_dimension)


def refuse_slow(slowest_ns: float, most_bytes: int, where: str, figures: str) -> None:
    """`slowest_ns` is what the largest message may take."""
    if not slowest_ns <= LONGEST_NS:
        raise MachineError(
            f"a message of {format_bytes(most_bytes)} could take longer than {format_ns(LONGEST_NS)}{where}",
            place="network configuration",
            remedy=f"correct {figures}",
        )


WAY_FIELDS = (  # of a message
    ("at", "i4"),  # the rank it has reached, or will when it leaves the switch it is in; NONE: another device
    ("via_switch", "i4"),
    ("dimension", "i4"),  # or tier, of its last link
    ("device", "i4"),  # on a graph, this and what follows: that it has reached
    ("stop", "i4"),  # the rank it is on its way to
    ("source", "i4"),
    ("ports", "i8"),  # both, if its way depends on them
)


@works_on_tables
def _no_ports(_network: Any, _source: int, _target: int) -> int:
    """Return a fabric on which no way depends on ports."""
    return 0


@works_on_tables
def _arrives_at_once(_network: Any) -> bool:
    """Return a fabric on which messages to oneself pass nothing."""
    return False


def _on_wires(name: str, default: Callable[..., Any] | None = None) -> Any:
    """Return the functions of a name of both fabrics with single links: `Wires` are of one of them."""
    of_grid, of_graph = (in_module(module, name, default) for module in LINKED)

    @works_on_tables(forceinline=True)
    def on_wires(network: Any, *about: Any) -> Any:
        if len(network.fabric.is_grid) > 0:
            return of_grid(network, *about)
        return of_graph(network, *about)

    return on_wires


# (network, source, target): the ports of a new message between two ranks, if its way depends on them
next_ports = _on_wires("next_ports", _no_ports)
set_out = _on_wires("set_out")  # (network, message, source, ports): one is at a rank
take_hop = _on_wires("take_hop")  # (network, message): its next link; moves it to the far end
# (network): whether messages to oneself pass a switch
is_wired_to_itself = _on_wires("is_wired_to_itself", _arrives_at_once)


@quick_dataclass(frozen=True)
class Wires(Tables):
    """What the ways of messages, link by link, follow from."""

    fabric: FabricTables
    home: Any  # per rank, the NPU whose links stand for its own; of a graph, behind these the other devices
    first: Any  # of a grid: per dimension, its first link
    tier: Any  # of a graph: per link
    sent: Any  # messages by source and target, as a counter of 16 bits; empty: no way depends on it
