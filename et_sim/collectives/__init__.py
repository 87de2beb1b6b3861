"""Collective algorithms: group x bytes -> steps, as pure functions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from et_sim.basics.lazy_names import lazy_names

if TYPE_CHECKING:
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

# Loaded on first use: a short run needs few of them.
__getattr__, __dir__ = lazy_names(
    __name__,
    __all__,
    {
        "algorithm": (
            "IN_NETWORK",
            "RING",
            "TREE",
            "Algorithm",
            "lower",
            "parse_algorithm",
        ),
        "program": (
            "AS_REFERENCE",
            "CORRECTED",
            "EXCHANGES",
            "OVER_A_TREE",
            "CostFixes",
            "Peer",
            "PhaseOperation",
            "StepProgram",
            "Transfers",
        ),
        "trees": (
            "InNetworkProgram",
            "TreeProgram",
        ),
    },
)
