"""A stall as text, from stall.json."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from et_sim.basics.units import format_ns
from et_sim.tables.summary import KnotHop, Stall, Wait
from et_sim.views.run.directory import RunDirectory
from et_sim.views.run.selection import Selection
from et_sim.views.text import prose
from et_sim.views.view import Forms


def stall_lines(run: RunDirectory, _: Selection, width: int) -> list[str]:
    """Return the cause, the waits, the cycle if there is one, mistakes of the traces, and remedies."""
    stall = run.stall
    if stall is None:
        if run.summary["status"] == "out of memory":
            return ["no rank is stuck: the run ends where memory was full"]
        return ["no rank is stuck: every node of every rank completed"]
    lines = [stall["cause"], *stall_remarks(stall)]
    for title, entries in stall_sections(stall):
        lines += [f"{title}:", *(f"  {entry}" for entry in entries)]
    return prose(lines, width)


def stall_data(run: RunDirectory, _: Selection) -> Any:
    """Return stall.json for `--json`."""
    return run.stall


STALLS = Forms(stall_lines, stall_data)


def stall_remarks(stall: Stall) -> list[str]:
    """Return sentences that follow the cause."""
    last = f"The last event was at {format_ns(stall['end_ns'])}."
    return [last, *([stall["alike"]] if stall["alike"] else [])]


def stall_sections(stall: Stall) -> list[tuple[str, Sequence[str]]]:
    """Return sections of details with their titles; empty ones are left out."""
    sections = (
        ("unfinished jobs", stall["jobs"]),
        ("Waiting", [_wait(wait) for wait in stall["waits"]]),
        ("Cycle of waits", [_hop(hop) for hop in stall["knot"]]),
        ("Mistakes in the traces", [text for text in stall["nearest"] if text not in stall["cause"]]),
        ("Remedies", stall["remedies"]),
    )
    return [(title, entries) for title, entries in sections if entries]


def _ranks(ranks: str) -> str:
    return f"rank {ranks} waits" if ranks.isdigit() else f"ranks {ranks} wait"


def _wait(wait: Wait) -> str:
    name = f' "{wait["node_name"]}"' if wait["node_name"] else ""
    where = f"{wait['operation']}{name}, since {format_ns(wait['since_ns'])}"
    return f"{_ranks(wait['ranks'])} for {wait['waits_for']} ({where})"


def _hop(hop: KnotHop) -> str:
    if hop["rank"] == hop["waits_for"]:
        return f"rank {hop['rank']}: {hop['reason']}"
    return f"rank {hop['rank']} waits for rank {hop['waits_for']} ({hop['reason']})"
