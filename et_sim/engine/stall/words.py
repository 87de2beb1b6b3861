"""Words of the stall report: sets of ranks, nodes, in a length that fits a line.

Not here: what is said (`report`).
"""

from __future__ import annotations

from collections.abc import Iterable

from et_sim.trace.columns import CollectiveKind, NodeKind, Trace
from et_sim.units import rank_ranges

LONGEST_NAME = 48
MOST_RANGES = 6


def ranks_text(ranks: Iterable[int]) -> str:
    """`rank 3`, `ranks 0-3,6`; many scattered ranks are cut short and counted."""
    known = list(ranks)
    if len(known) == 1:
        return f"rank {known[0]}"
    ranges = rank_ranges(known)
    if len(ranges) <= MOST_RANGES:
        return f"ranks {','.join(ranges)}"
    return f"ranks {','.join(ranges[:MOST_RANGES])},… ({len(known)} in all)"


def short(name: str) -> str:
    """A name that does not burst the line."""
    return name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 1]}…"


def node_text(trace: Trace, row: int) -> str:
    """`all_reduce "grad" (node 5)`: what the node is, how it is called, which one it is."""
    return f'{operation(trace, row)} "{short(trace.node_name(row))}" (node {int(trace.node_id[row])})'


def operation(trace: Trace, row: int) -> str:
    """What a node does, in one word."""
    kind = int(trace.kind[row])
    if kind == NodeKind.COLL:
        number = int(trace.comm_type[row])
        known = number in CollectiveKind.__members__.values()
        return CollectiveKind(number).name.lower() if known else f"collective {number}"
    words = {
        NodeKind.SEND: "send",
        NodeKind.RECV: "receive",
        NodeKind.COMP: "compute",
        NodeKind.MEM_LOAD: "load",
        NodeKind.MEM_STORE: "store",
        NodeKind.METADATA: "metadata",
        NodeKind.STORAGE: "storage",
        NodeKind.BATCH: "batch",
        NodeKind.CHECKPOINT: "checkpoint",
    }
    return words.get(NodeKind(kind), "node") if kind in NodeKind.__members__.values() else "node"
