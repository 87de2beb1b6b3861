"""The key of a phase of a chunk, one number: its sequence, its program and its phase."""

from __future__ import annotations

PHASE_BITS = 8
PHASE_KEY_BITS = 28
PROGRAM_MASK = (1 << (PHASE_KEY_BITS - PHASE_BITS)) - 1
