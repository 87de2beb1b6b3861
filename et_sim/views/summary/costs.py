"""What a run takes of energy and money, each in one line.

Not here: how it is worked out (`et_sim.timeline.costs`).
"""

from __future__ import annotations

from typing import Any

from et_sim.units import format_joules
from et_sim.views.summary.throughput import per_million_tokens


def energy_text(summary: dict[str, Any]) -> str:
    """Empty if the machine does not say what NPUs draw."""
    found = summary["costs"]
    if found is None or found["joules"] is None:
        return ""
    parts = (
        ("computing", found["computing_joules"]),
        ("not computing", found["not_computing_joules"]),
        ("network", found["network_joules"]),
    )
    total = found["joules"]
    shares = ", ".join(f"{name} {100 * value / total:.0f} %" for name, value in parts if total and value)
    per_tokens = per_million_tokens(summary, "joules")
    return f"{format_joules(total)}{': ' * bool(shares)}{shares}{'; ' * bool(per_tokens)}{per_tokens}"


def price_text(summary: dict[str, Any]) -> str:
    """Empty if the machine does not say what NPUs are let for."""
    found = summary["costs"]
    if found is None or found["price"] is None:
        return ""
    per_tokens = per_million_tokens(summary, "price")
    return f"{found['price']:,.4g} {found['currency']}{'; ' * bool(per_tokens)}{per_tokens}"
