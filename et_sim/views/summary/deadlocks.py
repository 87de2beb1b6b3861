"""Collectives that waited for each other until nothing else was left to happen, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from et_sim.basics.units import format_ns
from et_sim.views.text import shortened

if TYPE_CHECKING:
    from et_sim.tables.summary import BlockedCollective, Deadlock, Summary

SHOWN, LONGEST_NAME = 4, 40


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
