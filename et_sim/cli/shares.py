"""Shares as people write them: `2%` or `0.02`."""

from __future__ import annotations

import math

from et_sim.errors import UsageError


def parse_share(text: str, what: str) -> float:
    """The number; `what` is asked for."""
    number, percent = text.strip().removesuffix("%").strip(), text.strip().endswith("%")
    try:
        share = float(number) / (100 if percent else 1)
    except ValueError:
        share = math.nan
    if not (math.isfinite(share) and share >= 0):
        raise UsageError(
            f"{what} {text!r} cannot be understood", remedy="give a share from 0 on, such as 2% or 0.02"
        )
    return share
