"""The placement of experts on nodes, and the exchanges of their tokens.

- all-to-all: a rank sends a token once for each of its experts.
- hierarchical: a rank sends a token once to each node of its experts, to the rank at its own place there,
  which copies it to the ranks of the node that have its experts. The way back is the same, with sums in place
  of copies: first over the experts of a rank, then over the ranks of a node.
- deepep: the same messages at the same time. Tokens are forwarded while others arrive, and the kernels of the
  exchange order and add them, as those of DeepEP do.
"""

from __future__ import annotations

from typing import NamedTuple

from et_sim.basics.errors import FieldError
from et_sim.basics.units import plural
from et_sim.workloads.exchange_names import ALL_TO_ALL

DISPATCH = ("values", "fp8")
EXPERT = "expert"
EXPERT_TENSOR = "expert-tensor"  # ranks that share every expert
EXPERT_NODE = "expert-node"  # ranks with other experts on the same node
EXPERT_RAIL = "expert-rail"  # ranks at the same place on other nodes


class ExpertPlaces(NamedTuple):
    """The ranks of the expert axis, and their placement on nodes."""

    exchange: str
    size: int
    stride: int
    node_ranks: int

    @property
    def on_node(self) -> int:
        """Return the ranks on one node; all of them if nodes do not matter."""
        if self.exchange == ALL_TO_ALL:
            return self.size
        return max(min(self.node_ranks // self.stride, self.size), 1)

    def check(self, limit: int) -> None:
        """Refuse nodes that divide the ranks unequally, and limits of nodes that have no effect."""
        if self.exchange == ALL_TO_ALL:
            if limit:
                raise FieldError(
                    "`expert_nodes` is not supported by an all-to-all, which sends a token once for each of"
                    " its experts",
                    remedy="give `expert_exchange`, hierarchical or deepep, too",
                )
            return
        if self.size == 1:
            raise FieldError(
                f"`expert_exchange` {self.exchange} requires `expert`, 2 or more",
                remedy="give `expert`, 2 or more",
            )
        self._check_nodes(limit)

    def _check_nodes(self, limit: int) -> None:
        stride, span, node = self.stride, self.size * self.stride, self.node_ranks
        if self.size % self.on_node or (node % stride and stride % node) or (node % span and span % node):
            raise FieldError(
                f"nodes of {node} ranks cut the {self.size} expert-parallel ranks, {stride} apart, into"
                " unequal parts",
                remedy="give `node_ranks`, or numbers of ranks that divide it or are multiples of it",
            )
        nodes = self.size // self.on_node
        if limit > nodes:
            raise FieldError(
                f"`expert_nodes` is {limit}, but experts are on {plural(nodes, 'node')}",
                remedy=f"give a number from 1 to {nodes}, or leave it out",
            )
