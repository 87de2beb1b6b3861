"""What lets a stalled run complete, if simulating it in another profile has shown that."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from et_sim.units import format_ns


def known_cures(manifest: Mapping[str, Any]) -> list[str]:
    """What is known to let a stalled run complete, as remedies: the corrected profile, or a part of it."""
    other = manifest["other_profile"]
    if other is None or other["status"] != "complete":
        return []
    figure = format_ns(other["makespan_ns"])
    cures = [f"simulate it with --profile {other['profile']}, where it completes in {figure}"]
    alone = [one["correction"] for one in other["corrections"] if one["status"] == "complete"]
    return cures + [
        f'or switch the correction {name} on, which alone lets it complete: "corrections": {{"{name}": true}}'
        for name in alone
    ]
