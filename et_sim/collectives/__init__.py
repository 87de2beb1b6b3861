"""Collective algorithms: group x bytes -> steps, as pure functions, one file an algorithm."""

from et_sim.collectives.algorithm import Algorithm, lower, parse_algorithm
from et_sim.collectives.double_binary_tree import TreeProgram
from et_sim.collectives.program import Bundles, Operation, Peer, StepProgram

__all__ = [
    "Algorithm",
    "Bundles",
    "Operation",
    "Peer",
    "StepProgram",
    "TreeProgram",
    "lower",
    "parse_algorithm",
]
