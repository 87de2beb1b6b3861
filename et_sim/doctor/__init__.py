"""Tests of an installation: its packages, its files on disk, and runs with known results."""

from et_sim.doctor.installation import Finding, examine

__all__ = ["Finding", "examine"]
