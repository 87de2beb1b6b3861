"""Larger pools of routes and of their links."""

from __future__ import annotations

from typing import Any

import numpy as np
from msgspec.structs import replace

from et_sim.engine.containers import chain_rows, empty_index, grow_pool, heap_for
from et_sim.network.flow.routes import home


def grown(tables: Any, rows: int) -> Any:
    """Return the tables with space for this many more routes and their links.

    The first pools suffice for few events: runs that begin from a kept start are mostly short.
    """
    state, is_ample = tables.state[0], len(tables.routes) > 0
    rows += int(state.to_begin + state.held)
    uses = rows * int(tables.longest[0])
    if state.free_routes.rows < rows:
        routes = grow_pool(tables.routes, state.free_routes, rows, is_ample=is_ample)
        tables = replace(
            tables,
            routes=routes,
            index=_index_of(routes, int(state.places)),
            ends=heap_for(len(routes), tables.ends),
            part_routes=np.resize(tables.part_routes, len(routes)),
        )
    if state.free_uses.rows < uses:
        tables = replace(tables, uses=grow_pool(tables.uses, state.free_uses, uses, is_ample=is_ample))
    return tables


def _index_of(routes: Any, places: int) -> Any:
    """Return the index of the open routes."""
    index, rows = empty_index(len(routes)), np.flatnonzero(routes["messages"] > 0)
    source, target, ports = (routes[name][rows].astype(np.int64) for name in ("source", "target", "ports"))
    messages = routes["kind"][rows].astype(np.int64) + routes["member"][rows]
    chain_rows(routes, index, rows, home(places, source, target, ports, messages))
    return index
