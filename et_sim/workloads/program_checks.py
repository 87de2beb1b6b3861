"""What a program gives to the operations of a `Rank`, looked at before anything is made of it.

Not here: sizes, tags and durations, which `TraceBuilder` checks.
"""

from __future__ import annotations

from et_sim.basics.errors import UsageError


def check_integer(name: str, value: object) -> None:
    """Refuse what is no whole number."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise UsageError(f"{name} is {value!r}", remedy="give a whole number")


def check_distance(name: str, value: object, ranks: int) -> None:
    """Refuse a distance to a rank that no rank has another one at."""
    check_integer(name, value)
    if not isinstance(value, int) or abs(value) >= ranks:
        raise UsageError(
            f"{name} is {value}, and no two of {ranks:,} ranks are so far apart",
            remedy="give what rank.next or rank.at returns",
        )


def check_nodes(after: object, nodes: int) -> None:
    """Refuse nodes that are none of those that the rank has so far."""
    if not isinstance(after, tuple | list):
        raise UsageError(f"after is {after!r}", remedy="give what an operation returned, or sums of that")
    for node in after:
        if isinstance(node, bool) or not isinstance(node, int) or not 0 <= node < nodes:
            raise UsageError(
                f"after names {node!r}, and the rank has {nodes:,} nodes so far",
                remedy="give what an operation of the same rank returned",
            )
