"""Names of communicator groups: what counts as one name, and what means all ranks.

Not here: members (`et_sim.machine.readers`, `et_sim.trace.group_attributes`).
"""

from __future__ import annotations


def group_key(name: str) -> str:
    """One spelling per group; "" is the group of all ranks, which may also be called "0"."""
    return name.lstrip("0") if name.isascii() and name.isdecimal() else name


def shown_group(name: str) -> str:
    """What tables call a group; the whole system has no name of its own, and a group named like it quotes."""
    return f'"{name}"' if name == "all" else name or "all"
