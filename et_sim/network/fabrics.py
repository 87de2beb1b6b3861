"""Which fabric a network has: the module that makes its tables and knows what it consists of."""

from __future__ import annotations

from typing import Any, Protocol

from et_sim.compiled.tables_by_reference import Tables
from et_sim.engine.state.resources import ResourceTable
from et_sim.fold.path_keys import PathKeys
from et_sim.machine.model import GraphFabric, GridFabric, Network


class Fabric(Protocol):
    """Python's side of a fabric."""

    def tables(self, network: Network, /) -> Tables:
        """What compiled code knows of it."""

    def flights_along(self, network: Network, along: int, distance: Any, size: Any, /) -> Any:
        """Return time of messages over `distance` places along a dimension; None if it depends on who sends
        them.
        """

    def check_reach(self, network: Network, most_bytes: int, /) -> None:
        """Refuse a network on which a message of the run would take longer than any run may."""

    def most_links(self, network: Network, /) -> int:
        """No message takes more of them."""

    def causal_events_of_message(self, network: Network, /) -> int:
        """Return the most causal events of the record of causes that a message may need."""

    def causal_classes(self, network: Network, /) -> int:
        """Return the number of classes of links switches that reduce may use."""

    def path_keys(self, network: Network, /, *, on_links: bool, whole: bool) -> PathKeys:
        """What folding must tell apart; `on_links`: messages wait for links, `whole`: they pay per leg."""

    def sending_resources(self, network: Network, actors: int, /) -> ResourceTable:
        """Return all that an actor sends along each of its tiers."""


def fabric_of(network: Network) -> Fabric:
    """Return the grid of its dimensions, a graph, or the levels of ASTRA-sim 1.0."""
    if isinstance(network.fabric, GraphFabric):
        from et_sim.network import graph

        return graph
    if isinstance(network.fabric, GridFabric):
        from et_sim.network import grid

        return grid
    from et_sim.network import levels

    return levels
