"""What lets a stalled run complete, if simulating it in another profile has shown that."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from et_sim.units import format_ns

MEMORY = (
    "it completes if no tensors wait in remote memory; where they do, nodes keep the order of their ids: "
    'give NPUs more memory ("local-mem-capacity"), or number the nodes of all ranks in one order'
)


def known_cures(manifest: Mapping[str, Any], *, has_moves: bool) -> list[str]:
    """What is known to let a stalled run complete, as remedies: enough memory, the corrected profile, or a
    part of it; `has_moves`: it did complete before tensors were moved to remote memory."""
    cures = [MEMORY] if has_moves else []
    other = manifest["other_profile"]
    if other is None or other["status"] != "complete":
        return cures
    figure = format_ns(other["makespan_ns"])
    cures.append(f"simulate it with --profile {other['profile']}, where it completes in {figure}")
    alone = [one["correction"] for one in other["corrections"] if one["status"] == "complete"]
    return cures + [
        f'or switch the correction {name} on, which alone lets it complete: "corrections": {{"{name}": true}}'
        for name in alone
    ]
