"""Pre-flight checks: certain or probable faults of a workload, found before it runs.

Checks work on templates (distinct traces) and on facts that depend on the rank, never on each rank of a
shared trace; Python objects are made only for findings.
"""

from et_sim.trace.preflight.check import find_mismatches, find_problems
from et_sim.trace.preflight.collectives import CorrectionEffects
from et_sim.trace.preflight.problem import Problem

__all__ = ["CorrectionEffects", "Problem", "find_mismatches", "find_problems"]
