"""Pre-flight checks: what is certainly, or probably, wrong with a workload, found before it runs.

Work is done on templates (distinct traces) and on facts that depend on the rank, never on one rank
after the other where they share a trace; Python objects are made only for what is reported.
"""

from et_sim.trace.preflight.check import find_mismatches, find_problems
from et_sim.trace.preflight.collectives import Rules
from et_sim.trace.preflight.problem import Problem

__all__ = ["Problem", "Rules", "find_mismatches", "find_problems"]
