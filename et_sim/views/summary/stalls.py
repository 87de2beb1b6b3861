"""Stalls, and collectives that waited for each other until nothing else was left, as text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from et_sim.basics.units import format_ns
from et_sim.views.run.directory import RunDirectory
from et_sim.views.run.selection import Selection
from et_sim.views.text import prose, shortened
from et_sim.views.view import Forms

if TYPE_CHECKING:
    from et_sim.tables.summary import BlockedCollective, Deadlock, KnotHop, Stall, Summary, Wait


SHOWN, LONGEST_NAME = 4, 40  # collectives, and letters


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


def deadlock_text(summary: Summary) -> str:
    """Return the longest wait of collectives for each other in a line; empty if there was none."""
    found = summary.get("deadlocks", [])
    if not found:
        return ""
    longest = max(found, key=lambda entry: entry["waited_ns"])
    more = f"; {len(found) - 1:,} more in summary.json" if len(found) > 1 else ""
    return f"{_sentence(longest)}{more}"


def _sentence(entry: Deadlock) -> str:
    shown = [_called(one) for one in entry["collectives"][:SHOWN]]
    if len(entry["collectives"]) > SHOWN:
        shown.append(f"{len(entry['collectives']) - SHOWN:,} more")
    text = f"{', '.join(shown)} waited for each other for {format_ns(entry['waited_ns'])}, up to "
    text += f"{format_ns(entry['at_ns'])}, when nothing else was left and queues went over their limits"
    if len(entry["collectives"]) == 1:
        return f"chunks of {text}"
    return f"{text}; a library would hang, or run them in the order of launch: give all members one order"


def _called(one: BlockedCollective) -> str:
    """Return a collective with its group, and the ranks on which it waits."""
    group = f" of group {one['group']}" if one["group"] else ""
    ranks = f" (waits on ranks {shortened(one['waiting'], LONGEST_NAME)})" if one["waiting"] else ""
    return f'{one["operation"]} "{shortened(one["node_name"], LONGEST_NAME)}"{group}{ranks}'
