"""Collective algorithms: group x bytes -> steps, as pure functions, one file an algorithm."""

from et_sim.collectives.algorithm import Algorithm, lower, parse_algorithm
from et_sim.collectives.program import Operation, Peer, StepProgram

__all__ = ["Algorithm", "Operation", "Peer", "StepProgram", "lower", "parse_algorithm"]
