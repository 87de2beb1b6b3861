"""A stage of a collective as one number: its sequence, its program and its phase."""

from __future__ import annotations

PHASE_BITS = 8
STAGE_BITS = 28
PROGRAM_MASK = (1 << (STAGE_BITS - PHASE_BITS)) - 1
