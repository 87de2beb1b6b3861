"""Collective algorithms: group x bytes -> steps, as pure functions, one file an algorithm."""

from et_sim.collectives.algorithm import TREE, Algorithm, lower, parse_algorithm
from et_sim.collectives.program import (
    AS_REFERENCE,
    CORRECTED,
    EXCHANGES,
    OVER_A_TREE,
    Bundles,
    CostFixes,
    Operation,
    Peer,
    StepProgram,
)
from et_sim.collectives.tree import TreeProgram

__all__ = [
    "AS_REFERENCE",
    "CORRECTED",
    "EXCHANGES",
    "OVER_A_TREE",
    "TREE",
    "Algorithm",
    "Bundles",
    "CostFixes",
    "Operation",
    "Peer",
    "StepProgram",
    "TreeProgram",
    "lower",
    "parse_algorithm",
]
