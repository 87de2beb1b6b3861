"""Fabric of a network: the module that makes its tables and describes its parts."""

from __future__ import annotations

from typing import Any, Protocol

from et_sim.compiled.tables_by_reference import Tables
from et_sim.engine.state.resources import ResourceTable
from et_sim.fold.path_keys import PathKeys
from et_sim.machine.model import GraphFabric, GridFabric, Network


class Fabric(Protocol):
    """Functions of a fabric for Python."""

    def tables(self, network: Network, /) -> Tables:
        """Return the tables for compiled code."""

    def flights_along(self, network: Network, along: int, distance: Any, size: Any, /) -> Any:
        """Return the times of messages over `distance` places along a dimension; None: times depend on the
        sender.
        """

    def check_reach(self, network: Network, most_bytes: int, /) -> None:
        """Refuse a network on which a message would take longer than any run may."""

    def most_links(self, network: Network, /) -> int:
        """Return the largest number of links of a message."""

    def causal_events_of_message(self, network: Network, /) -> int:
        """Return the largest number of causal events of a message."""

    def causal_classes(self, network: Network, /) -> int:
        """Return the number of classes of links that reducing switches may use."""

    def path_keys(self, network: Network, /, *, on_links: bool, whole: bool) -> PathKeys:
        """Return the keys for folding; `on_links`: messages wait for links, `whole`: messages pay per leg."""

    def sending_resources(self, network: Network, actors: int, /) -> ResourceTable:
        """Return the resources of what actors send along each tier."""


def fabric_of(network: Network) -> Fabric:
    """Return the module of grids, of graphs or of the levels of ASTRA-sim 1.0."""
    if isinstance(network.fabric, GraphFabric):
        from et_sim.network import graph

        return graph
    if isinstance(network.fabric, GridFabric):
        from et_sim.network import grid

        return grid
    from et_sim.network import levels

    return levels
