"""Systolic arrays, as SCALE-Sim times them: layers, folds, streams of words, memories, and the reports.

`model` is the compute model and computes layers; `files` reads the files of SCALE-Sim.
"""

from et_sim.compute.systolic.model import Systolic
from et_sim.machine.systolic import ClockedArray

__all__ = ["ClockedArray", "Systolic"]
