"""Parts that failed within a run, in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from et_sim.basics.units import format_ns, plural

if TYPE_CHECKING:
    from et_sim.tables.summary import FailedPart, Summary


SHOWN = 8


def failed_text(summary: Summary) -> str:
    """Return the failures of a run in a line; empty if there are none."""
    failures = summary.get("failures", [])
    if not failures:
        return ""
    more = f"; {len(failures) - 1:,} more (inspect links)" if len(failures) > 1 else ""
    return _sentence(failures[0], summary["makespan_ns"]) + more


def failure_lines(summary: Summary) -> list[str]:
    """Return the failures of a run, one per line."""
    failures: Sequence[FailedPart] = summary.get("failures", [])
    lines = [f"failed: {_sentence(failure, summary['makespan_ns'])}" for failure in failures[:SHOWN]]
    if len(failures) > SHOWN:
        lines.append(f"failed: … and {len(failures) - SHOWN:,} more (all in summary.json)")
    return lines


def _sentence(failure: FailedPart, makespan_ns: int) -> str:
    """Return what failed, from when to when, and its effect."""
    of = "bandwidth" if failure["links"] else "speed"
    state = f"{failure['left'] * 100:g} % of its {of} left" if failure["left"] else "dead"
    until = "to the end" if failure["until_ns"] is None else f"to {format_ns(failure['until_ns'])}"
    if failure["at_ns"] >= makespan_ns and not failure["waited_ns"]:
        effect = "after the run"
    elif failure["waited_ns"]:
        effect = f"messages waited {format_ns(failure['waited_ns'])}"
    else:
        effect = "" if failure["left"] else "no message lost bytes"
    links = f" ({plural(failure['links'], 'link')})" if failure["links"] else ""
    sentence = f"{failure['part']}{links}, {state} from "
    sentence += f"{format_ns(failure['at_ns'])} {until}"
    return f"{sentence}: {effect}" if effect else sentence
