"""What a step of training comes to, a line for each.

Not here: how it is worked out (`et_sim.timeline.throughput`).
"""

from __future__ import annotations

from typing import Any

from et_sim.basics.units import format_joules


def throughput_text(found: dict[str, Any] | None) -> str:
    """Empty where the workload does not say what a run of it does."""
    if found is None:
        return ""
    parts = [
        f"{_rounded(found['tokens_per_s'])} tokens/s",
        f"{_rounded(found['tokens_per_s_per_rank'])} tokens/s/NPU",
    ]
    if found["tflops_per_rank"] is not None:
        parts.append(f"{found['tflops_per_rank']:,.4g} TFLOP/s/NPU")
    return ", ".join(parts)


def _rounded(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"


def utilisation_text(found: dict[str, Any] | None) -> str:
    """MFU and HFU; empty where the machine's peak is not known."""
    if found is None or found["mfu"] is None:
        return ""
    parts = [f"MFU {100 * found['mfu']:.1f} %"]
    if found["hfu"] is not None:
        parts.append(f"HFU {100 * found['hfu']:.1f} %")
    of = " ".join(filter(None, (found["datatype"], "dense peak")))
    return f"{', '.join(parts)} of the {of}, {found['peak_tflops']:g} TFLOP/s"


def per_million_tokens(summary: dict[str, Any], name: str) -> str:
    """Price or energy by tokens, to stand behind that of the step; empty where it is not known."""
    found = summary["throughput"]
    value = None if found is None else found[f"{name}_per_million_tokens"]
    if value is None:
        return ""
    shown = format_joules(value) if name == "joules" else f"{value:,.4g} {summary['costs']['currency']}"
    return f"{shown} per million tokens"
