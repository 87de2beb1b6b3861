"""How a plan spreads experts over nodes, and which exchanges of their tokens it may ask for.

- all-to-all: a rank sends a token once for each of its experts.
- hierarchical: a rank sends a token once to each node of its experts, to the rank at its own place there;
  that one copies it to the ranks of the node that have its experts. The way back is the same, with sums in
  place of copies: of the experts of a rank, then of the ranks of a node.
- deepep: the same messages at the same time. Tokens are copied on while others arrive, and the kernels of the
  exchange put them in order and add them up, as those of DeepEP do.

Not here: what is sent (`exchanges`), and who has which rank (`plan`).
"""

from __future__ import annotations

from typing import NamedTuple

from et_sim.basics.errors import UsageError
from et_sim.workloads.exchange_names import ALL_TO_ALL

DISPATCH = ("values", "fp8")
EXPERT = "expert"
EXPERT_TENSOR = "expert-tensor"  # ranks that share every expert
EXPERT_NODE = "expert-node"  # those with other experts on the same node
EXPERT_RAIL = "expert-rail"  # those at the same place on other nodes


class ExpertPlaces(NamedTuple):
    """Ranks with other experts, and how they lie on nodes."""

    exchange: str
    size: int
    stride: int
    node_ranks: int

    @property
    def on_node(self) -> int:
        """How many are on one node; all of them, if nodes do not matter."""
        if self.exchange == ALL_TO_ALL:
            return self.size
        return max(min(self.node_ranks // self.stride, self.size), 1)

    def check(self, limit: int) -> None:
        """Refuse an exchange between parts of nodes that are not equal, or with a limit that is none."""
        if self.exchange == ALL_TO_ALL:
            if limit:
                raise UsageError(
                    "expert_nodes is given, and an all-to-all sends a token once for each of its experts,"
                    " wherever they are",
                    remedy="give expert_exchange, hierarchical or deepep, too",
                )
            return
        if self.size == 1:
            raise UsageError(
                f"expert_exchange is {self.exchange}, and no token is sent",
                remedy="give expert, 2 or more",
            )
        self._check_nodes(limit)

    def _check_nodes(self, limit: int) -> None:
        stride, span, node = self.stride, self.size * self.stride, self.node_ranks
        if self.size % self.on_node or (node % stride and stride % node) or (node % span and span % node):
            raise UsageError(
                f"nodes of {node} ranks cut the {self.size} expert-parallel ranks, {stride} apart, into"
                " unequal parts",
                remedy="give node_ranks, or numbers of ranks that divide it or are multiples of it",
            )
        nodes = self.size // self.on_node
        if limit > nodes:
            raise UsageError(
                f"expert_nodes is {limit}, and experts are on {nodes}",
                remedy=f"give a number from 1 to {nodes}, or leave it out",
            )
