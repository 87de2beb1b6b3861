"""The algorithm of a configured name, and the program it makes for one phase.

Names are the reference's: `ring`, `direct`, `direct4` (a window of four), `halvingDoubling`, and the `one…`
forms, which treat the whole system as a single group in rank order. Collectives with a root, and barriers, go
over a tree that no name chooses.

All-to-alls in which every pair of members has bytes of its own have the program of the plain one, message by
message, and sizes for each member. Where it relays (ring), members forward the pieces that those behind them
have for those ahead of them; the owner of each message's piece is computed here.

Members are rows of tables that have a line of `members` for each group along an axis: `to_ahead[r, j]` are
the bytes of r for the member j places ahead on its line, and `ahead[r, j]` is the row of that member.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec.structs import replace

from et_sim.basics.errors import MachineError
from et_sim.basics.lazy_names import loaded
from et_sim.collectives.names import Name, parse_name, spellings
from et_sim.collectives.program import (
    AS_REFERENCE,
    OVER_A_TREE,
    CostFixes,
    OwnBytes,
    Phase,
    PhaseOperation,
    StepProgram,
)

if TYPE_CHECKING:
    from et_sim.collectives.trees import InNetworkProgram, TreeProgram

    AnyProgram = StepProgram | TreeProgram | InNetworkProgram


class Algorithm(Name, frozen=True):
    """A parsed algorithm name; "tree" has no name in files."""

    def keeps_size(self, fixes: CostFixes) -> bool:
        """Return whether a phase of any operation leaves as many bytes as it found."""
        return self.family == "doubleBinaryTree" and not fixes.tree_operations

    def used_for(self, operation: PhaseOperation, fixes: CostFixes) -> Algorithm:
        """Return the algorithm that runs: a corrected double binary tree only does all-reduces."""
        if self == IN_NETWORK:
            from et_sim.collectives.trees import IN_NETWORK_OPERATIONS

            if operation in IN_NETWORK_OPERATIONS:
                return self
        if operation in OVER_A_TREE:
            return TREE
        corrected_tree = self.family == "doubleBinaryTree" and fixes.tree_operations
        return RING if corrected_tree and operation is not PhaseOperation.ALL_REDUCE else self


# The functions that make their steps, which are imported where they are used.
PROGRAMS: Mapping[str, str] = MappingProxyType(
    {
        "tree": "et_sim.collectives.trees:rooted_tree",
        "ring": "et_sim.collectives.shifts:ring",
        "direct": "et_sim.collectives.shifts:direct",
        "halvingDoubling": "et_sim.collectives.halving_doubling:halving_doubling",
        "doubleBinaryTree": "et_sim.collectives.trees:double_binary_tree",
        "inNetwork": "et_sim.collectives.trees:in_network",
    }
)
TREE, RING, IN_NETWORK = Algorithm("tree"), Algorithm("ring"), Algorithm("inNetwork")


def parse_algorithm(name: str) -> Algorithm:
    """Return the algorithm that a configuration file calls `name`."""
    parsed = parse_name(name)
    if parsed is None:
        raise MachineError(
            f"collective algorithm {name!r} is not known", remedy=f"known: {', '.join(spellings())}"
        )
    return Algorithm(parsed.family, parsed.spans_system, parsed.window)


def lower(
    algorithm: Algorithm,
    operation: PhaseOperation,
    members: int,
    size: int,
    *,
    subgroup: bool = False,
    fixes: CostFixes = AS_REFERENCE,
    root: int = 0,
) -> AnyProgram:
    """Return the steps of one phase: `members` take part, each starting with `size` bytes."""
    algorithm = algorithm.used_for(operation, fixes)
    phase = Phase(operation, members, size, fixes, subgroup, root, algorithm.window)
    program: AnyProgram = loaded(PROGRAMS[algorithm.family])(phase)
    return program


WITH_OWN_SIZES = ("direct", "ring")
MOST_MESSAGES = 1 << 24  # of all members, in one phase of a chunk


def uneven_exchange(
    algorithm: Algorithm, to_ahead: Any, ahead: Any, *, subgroup: bool, fixes: CostFixes
) -> StepProgram:
    """Return the plain program with the sizes of each member, clockwise and anticlockwise."""
    algorithm = algorithm.used_for(PhaseOperation.ALL_TO_ALL, fixes)
    rows, members = ahead.shape
    size = int(to_ahead.max(initial=0)) * members
    program = lower(algorithm, PhaseOperation.ALL_TO_ALL, members, size, subgroup=subgroup, fixes=fixes)
    assert isinstance(program, StepProgram)
    sizes_of_way = _relayed if algorithm.family == "ring" else _straight
    sent = np.empty((rows, 2, program.sends), np.int64)
    received = np.empty_like(sent)
    for way in range(2):
        # Anticlockwise, the member j places ahead is the one that was j places behind.
        turned = [0, *range(members - 1, 0, -1)] if way else list(range(members))
        sent[:, way], received[:, way] = sizes_of_way(to_ahead[:, turned], ahead[:, turned])
    blocks = 2 * rows
    own_bytes = OwnBytes(sent.reshape(blocks, -1), received.reshape(blocks, -1))
    distance = np.resize(program.distance, program.sends)
    largest = sent.max(axis=(0, 1), initial=0)
    return replace(program, distance=distance, message_bytes=largest, own=own_bytes)


def check_own_sizes(algorithm: Algorithm, members: int, ranks: int, fixes: CostFixes) -> None:
    """Refuse algorithms without defined owners of each message's bytes, and too many messages."""
    family = algorithm.used_for(PhaseOperation.ALL_TO_ALL, fixes).family
    messages = ranks * (members * (members - 1) // 2 if family == "ring" else members - 1)
    if family in WITH_OWN_SIZES and messages > MOST_MESSAGES:
        raise MachineError(
            f"{family} makes {messages:,} messages of an all-to-all with bytes for each pair of {members}"
            f" members; the limit is {MOST_MESSAGES:,}",
            place='system key "all-to-all-implementation"',
            remedy="use direct, more dimensions, or smaller groups",
        )
    if family not in WITH_OWN_SIZES:
        raise MachineError(
            f"{algorithm.family} cannot do an all-to-all with bytes for each pair",
            place='system key "all-to-all-implementation"',
            remedy="use direct or ring for all-to-all",
        )


def _straight(to_ahead: Any, ahead: Any) -> tuple[Any, Any]:
    """Return the bytes of step d, sent to the member d + 1 ahead, and received from the one as far behind."""
    members = ahead.shape[1]
    distance = np.arange(1, members)
    return to_ahead[:, distance], to_ahead[ahead[:, members - distance], distance]


def _relayed(to_ahead: Any, ahead: Any) -> tuple[Any, Any]:
    """Return the bytes of lap k, in which a member forwards the pieces of the one k places behind, nearest
    first.
    """
    members = ahead.shape[1]
    lap = np.concatenate([np.full(members - 1 - k, k) for k in range(members - 1)])
    place = np.concatenate([np.arange(members - 1 - k) for k in range(members - 1)])
    sent = to_ahead[ahead[:, (members - lap) % members], lap + 1 + place]
    return sent, sent[ahead[:, members - 1]]
