"""Is this installation well: what it is made of, what it keeps on disk, whether it gives known results."""

from et_sim.doctor.examination import examine
from et_sim.doctor.host import Finding

__all__ = ["Finding", "examine"]
