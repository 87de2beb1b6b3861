"""Systolic arrays, as SCALE-Sim times them: layers, folds, streams of words, memories, and the reports.

`model` is the compute model and works out layers; the files of SCALE-Sim are `files`. Not here: what an array
is (`et_sim.machine.systolic`).
"""

from et_sim.compute.systolic.model import Systolic
from et_sim.machine.systolic import ClockedArray

__all__ = ["ClockedArray", "Systolic"]
