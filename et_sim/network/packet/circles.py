"""Ports that were told to pause and wait for each other: each has packets at the next one, which pauses, too.

A port is paused because what came over it fills a buffer; that waits for other ports of the same device. If
these are paused in turn, and so on back to the first, nothing moves any more.
"""

from __future__ import annotations

from typing import Any

import networkx as nx

from et_sim.engine.state.run import NONE


def ports_in_a_circle(tables: Any) -> list[int]:
    """The ports of one such circle, in their order; none if there is none."""
    ports, packets = tables.ports, tables.packets
    paused = ports["is_paused"] == 1
    if not paused.any():
        return []
    waits: nx.DiGraph[int] = nx.DiGraph()
    for port in paused.nonzero()[0].tolist():
        row = int(ports["head"][port])
        while row != NONE:
            came = int(packets["port"][row])
            if came != NONE and paused[came]:
                waits.add_edge(came, port)
            row = int(packets["next"][row])
    try:
        return [int(before) for before, _ in nx.find_cycle(waits)]
    except nx.NetworkXNoCycle:
        return []
