"""What an NPU costs while a run goes on, as a value.

Not here: reading it (`objects`), and what a run has cost (`et_sim.timeline.recorded`).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Costs:
    """Of one NPU; None: not known."""

    busy_watts: float | None
    idle_watts: float | None
    network_watts: float
    price_per_hour: float | None
    currency: str

    def as_dict(self) -> dict[str, Any]:
        """As a run's manifest has it."""
        return asdict(self)
