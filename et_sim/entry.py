"""The entry point of `et-sim`."""

from __future__ import annotations

from et_sim.basics.starting import started


def main() -> int:
    """Run the program, and return its exit status."""
    return started("et-sim", "et_sim.cli", ends_at_once=True)
