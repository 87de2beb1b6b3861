"""Is this installation well: what it is made of, what it keeps on disk, whether it gives known results."""

from et_sim.doctor.installation import Finding, examine

__all__ = ["Finding", "examine"]
