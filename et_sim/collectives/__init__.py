"""Collective algorithms: group x bytes -> steps, as pure functions."""

from et_sim.collectives.algorithm import IN_NETWORK, RING, TREE, Algorithm, lower, parse_algorithm
from et_sim.collectives.program import (
    AS_REFERENCE,
    CORRECTED,
    EXCHANGES,
    OVER_A_TREE,
    CostFixes,
    Peer,
    PhaseOperation,
    StepProgram,
    Transfers,
)
from et_sim.collectives.trees import InNetworkProgram, TreeProgram

__all__ = [
    "AS_REFERENCE",
    "CORRECTED",
    "EXCHANGES",
    "IN_NETWORK",
    "OVER_A_TREE",
    "RING",
    "TREE",
    "Algorithm",
    "CostFixes",
    "InNetworkProgram",
    "Peer",
    "PhaseOperation",
    "StepProgram",
    "Transfers",
    "TreeProgram",
    "lower",
    "parse_algorithm",
]
