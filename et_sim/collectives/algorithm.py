"""Which algorithm a configured name means, and the program it makes for one phase.

Names are the reference's: `ring`, `direct`, `direct4` (a window of four), `halvingDoubling`, and the
`one…` forms, which treat the whole system as a single group in rank order. Collectives with a root, and
barriers, go over a tree that no name chooses.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from et_sim.basics.errors import MachineError
from et_sim.collectives.halving_doubling import halving_doubling
from et_sim.collectives.names import Name, parse_name, spellings
from et_sim.collectives.program import AS_REFERENCE, OVER_A_TREE, CostFixes, Operation, Phase, StepProgram
from et_sim.collectives.shifts import direct, ring
from et_sim.collectives.trees import (
    IN_NETWORK_OPERATIONS,
    InNetworkProgram,
    TreeProgram,
    double_binary_tree,
    in_network,
    rooted_tree,
)


class Algorithm(Name, frozen=True):
    """A parsed algorithm name; "tree" has no name in files."""

    def keeps_size(self, fixes: CostFixes) -> bool:
        """Whether a phase leaves as many bytes as it found, whatever its operation."""
        return self.family == "doubleBinaryTree" and not fixes.tree_operations

    def used_for(self, operation: Operation, fixes: CostFixes) -> Algorithm:
        """What really runs: a double binary tree that is corrected leaves all but all-reduce to a ring."""
        if self == IN_NETWORK and operation in IN_NETWORK_OPERATIONS:
            return self
        if operation in OVER_A_TREE:
            return TREE
        mended_tree = self.family == "doubleBinaryTree" and fixes.tree_operations
        return RING if mended_tree and operation is not Operation.ALL_REDUCE else self


AnyProgram = StepProgram | TreeProgram | InNetworkProgram
PROGRAMS: Mapping[str, Callable[[Phase], AnyProgram]] = MappingProxyType(
    {
        "ring": ring,
        "direct": direct,
        "halvingDoubling": halving_doubling,
        "doubleBinaryTree": double_binary_tree,
        "inNetwork": in_network,
    }
)
TREE, RING, IN_NETWORK = Algorithm("tree"), Algorithm("ring"), Algorithm("inNetwork")


def parse_algorithm(name: str) -> Algorithm:
    """The algorithm that a configuration file calls `name`."""
    parsed = parse_name(name)
    if parsed is None:
        raise MachineError(
            f"collective algorithm {name!r} is not known", remedy=f"known: {', '.join(spellings())}"
        )
    return Algorithm(parsed.family, parsed.spans_system, parsed.window)


def lower(
    algorithm: Algorithm,
    operation: Operation,
    members: int,
    size: int,
    *,
    subgroup: bool = False,
    fixes: CostFixes = AS_REFERENCE,
    root: int = 0,
) -> AnyProgram:
    """The steps of one phase: `members` take part, each starting with `size` bytes."""
    algorithm = algorithm.used_for(operation, fixes)
    phase = Phase(operation, members, size, fixes, subgroup, root, algorithm.window)
    if algorithm == TREE:
        return rooted_tree(phase)
    return PROGRAMS[algorithm.family](phase)
