"""What became of packets in one line: whether any were lost or paused, and where."""

from __future__ import annotations

from typing import Any

from et_sim.units import plural


def packets_text(summary: dict[str, Any]) -> str:
    """Empty if packets were not simulated."""
    found = summary["packets"]
    if found is None:
        return ""
    parts = [f"{found['sent']:,} sent"]
    parts.append(f"{found['lost']:,} lost, most at {found['lost_at']}" if found["lost"] else "none lost")
    if found["sent_again"]:
        parts.append(f"{found['sent_again']:,} sent again")
    if found["timeouts"]:
        parts.append(plural(found["timeouts"], "timeout"))
    if found["marked"]:
        parts.append(f"{found['marked']:,} marked")
    if found["pauses"]:
        parts.append(f"{plural(found['pauses'], 'pause')}, most at {found['paused_at']}")
    else:
        parts.append("no pauses")
    return "; ".join(parts)
