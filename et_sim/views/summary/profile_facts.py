"""What a run's makespan is in which profile, in words: the lines of the summary on profiles and corrections.

Not here: simulating the other profile (`et_sim.run.other_profile`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from et_sim.basics.units import format_ns

COMPLETE, STALLED, NOT_SIMULATED = "complete", "stalled", "not simulated"
NAMED_BY = {"workload": ", named by the workload", "nobody": ", as none is named"}


def makespan_text(summary: Mapping[str, Any]) -> str:
    """The makespan, and what the corrected profile makes of it where that is known."""
    makespan = summary["makespan_ns"]
    text = f"{format_ns(makespan)} ({makespan:,} ns)"
    other = summary["other_profile"]
    if other is None:
        return text
    stalled = "" if summary["status"] == COMPLETE else f", {summary['status']}"
    text = f"{text}{stalled} in the {summary['profile']} profile"
    if not stalled and other["makespan_ns"] == makespan:
        return f"{text}; the {other['profile']} one gives the same on this network model"
    return f"{text}; {_other(summary, other)}"


def _other(summary: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    """Such as `3.53 s corrected (-21 %): concurrent-communication`."""
    stalls, corrected = summary["status"] != COMPLETE, other["profile"]
    if other["status"] == STALLED:
        return f"the {corrected} profile stalls{', too' if stalls else ''}"
    if other["status"] == NOT_SIMULATED:
        which = _names(other["corrections"]) or "its corrections"
        return f"{which} may change that: --profile {corrected}"
    if other["status"] != COMPLETE:
        return f"the {corrected} profile is refused: {other['reason']}"
    figure = format_ns(other["makespan_ns"])
    if stalls:
        return f"{corrected}, it completes in {figure}{_reason(other, None)}"
    before = summary["makespan_ns"]
    return f"{figure} {corrected} ({_percent(before, other['makespan_ns'])}){_reason(other, before)}"


def _reason(other: Mapping[str, Any], before: int | None) -> str:
    """By which corrections."""
    acting = other["corrections"]
    if not other["measured"]:
        return f"; these corrections may act: {_names(acting)}" if acting else ""
    if not acting:
        return ", by corrections that act only together"
    if len(acting) == 1 and acting[0]["makespan_ns"] == other["makespan_ns"]:
        return f": {acting[0]['correction']}"
    return f": {', '.join(_alone(one, before) for one in acting)}"


def _alone(one: Mapping[str, Any], before: int | None) -> str:
    """A correction, and what it does by itself."""
    if one["status"] != COMPLETE:
        return f"{one['correction']} (alone: {one['status']})"
    share = f" {_percent(before, one['makespan_ns'])}" if before else ""
    return f"{one['correction']} (alone{share or ': complete'})"


def _names(corrections: Sequence[Mapping[str, Any]]) -> str:
    return ", ".join(one["correction"] for one in corrections)


def _percent(before: int, after: int) -> str:
    """How much more or less; two digits, so that a small change is not told as none."""
    percent = 100 * (after - before) / before if before else 100.0
    return f"{percent:+.0f} %" if abs(percent) >= 9.5 else f"{percent:+.2g} %"


def model_text(summary: Mapping[str, Any]) -> str:
    """The network model, what its name does not say, and the profile."""
    note = summary.get("model_note")
    in_brackets = f" ({note})" if note else ""
    return f"{summary['model']} network{in_brackets}, {profile_text(summary)}"


def profile_text(summary: Mapping[str, Any]) -> str:
    """Whose behaviour it is, and who says so where that is neither the machine nor the command."""
    named_by = NAMED_BY.get(summary["profile_named_by"], "")
    return f"{summary['profile']} profile{named_by}"


def scope_text(scope: Mapping[str, Sequence[str]] | None) -> str:
    """What figures include, and what they leave out; empty of runs that do not say it."""
    if scope is None:
        return ""
    includes, leaves_out = ("; ".join(scope[side]) for side in ("includes", "leaves_out"))
    return f"{includes or 'nothing that takes time'} (left out: {leaves_out})"
