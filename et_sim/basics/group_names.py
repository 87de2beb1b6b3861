"""Names of communicator groups: equal names, and the names of all ranks."""

from __future__ import annotations


def group_key(name: str) -> str:
    """Return one spelling per group; "" is the group of all ranks, which may also be called "0"."""
    return name.lstrip("0") if name.isascii() and name.isdecimal() else name


def shown_group(name: str) -> str:
    """Return the name of a group in tables: `all` for the whole system; a group of that name is quoted."""
    return f'"{name}"' if name == "all" else name or "all"
