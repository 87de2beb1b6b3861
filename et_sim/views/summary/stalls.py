"""A stall as text, from stall.json. Not here: finding out why a run stalled (`et_sim.engine.stall`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from et_sim.units import format_ns


def stall_lines(stall: dict[str, Any]) -> list[str]:
    """The cause, who waits for what, the circle if there is one, near misses, and what to do."""
    lines = [stall["cause"], f"The last thing happened at {format_ns(stall['end_ns'])}."]
    lines += [stall["alike"]] if stall["alike"] else []
    lines += ["unfinished jobs:", *(f"  {line}" for line in stall["jobs"])] if stall["jobs"] else []
    lines += _section("Waiting:", [_wait(wait) for wait in stall["waits"]])
    lines += _section("In a circle:", [_hop(hop) for hop in stall["knot"]])
    lines += _section("What nobody will provide:", stall["dead_ends"])
    lines += _section("Nearest mismatch:", stall["nearest"])
    return lines + _section("What to do:", stall["remedies"])


def _section(title: str, entries: Sequence[str]) -> list[str]:
    return [title, *(f"  {entry}" for entry in entries)] if entries else []


def _ranks(ranks: str) -> str:
    return f"rank {ranks} waits" if ranks.isdigit() else f"ranks {ranks} wait"


def _wait(wait: dict[str, Any]) -> str:
    name = f' "{wait["node_name"]}"' if wait["node_name"] else ""
    where = f"{wait['operation']}{name}, since {format_ns(wait['since_ns'])}"
    return f"{_ranks(wait['ranks'])} for {wait['waits_for']} ({where})"


def _hop(hop: dict[str, Any]) -> str:
    if hop["rank"] == hop["waits_for"]:
        return f"rank {hop['rank']}: {hop['reason']}"
    return f"rank {hop['rank']} waits for rank {hop['waits_for']} ({hop['reason']})"
