"""The prices of kernels that a model times: the nominal time of each, and its parts and use of the machine.

Lowering prices every kernel once. Folding and the timeline read the prices here.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from msgspec import Struct

from et_sim.compute import Durations, Treatment, Utilisation

THOUSANDTHS = 1000  # in which a part of the bandwidth of memory is counted


class NominalUse(Struct, frozen=True, eq=False):
    """The use of the machine by nodes whose kernels take the times of their model."""

    kernels: Any  # their indices
    ns: Any  # and times
    used: Utilisation  # by all nodes

    def of(self, duration_ns: Any) -> Utilisation:
        """Return the use if the nodes take these times."""
        nominal_ns = duration_ns.copy()
        nominal_ns[self.kernels] = self.ns
        return self.used.slowed(nominal_ns, duration_ns)


class KernelTable(Struct, frozen=True, eq=False):
    """A row for each timed kernel of the plan's templates, by ascending node."""

    node: Any  # row of the plan's table of nodes
    ns: Any  # before stragglers and time factors
    used: Utilisation

    def of_template(self, template: Any) -> Utilisation:
        """Return the use of the machine by the kernels of a template."""
        first = int(template.node_first)
        begin, end = np.searchsorted(self.node, [first, first + int(template.nodes)]).tolist()
        return self.used.take(slice(begin, end))

    def of_nodes(self, at: Any, duration_ns: Any) -> Utilisation:
        """Return the use of the machine by nodes, of which some are kernels, if they take these times."""
        return self.nominal(at).of(duration_ns)

    def nominal(self, at: Any) -> NominalUse:
        """Return the use of the machine by nodes, of which some are kernels."""
        kernels = np.flatnonzero(np.isin(at, self.node))
        row = np.searchsorted(self.node, at[kernels])
        return NominalUse(kernels, self.ns[row], self.used.take(row).spread(kernels, len(at)))

    def processors(self, nodes: int) -> Any:
        """Return the processors over which each node is spread if its arithmetic sets its time, else 0."""
        processors = np.zeros(nodes, np.float32)
        processors[self.node] = np.nan_to_num(self.used.processors)
        return processors

    def memory(self, nodes: int) -> Any:
        """Return the thousandths of memory that each node has if traffic sets its time, else 0."""
        thousandths, used = np.zeros(nodes, np.float32), self.used
        is_bound = used.traffic_ns > np.maximum(used.arithmetic_ns, used.launch_ns)
        thousandths[self.node] = np.where(is_bound, THOUSANDTHS, 0)
        return thousandths


class KernelPrices:
    """The prices of kernels, template after template."""

    def __init__(self) -> None:
        self._nodes = 0
        self._parts: list[KernelTable] = []
        self._is_known = True

    def add(self, rows: Any, durations: Durations) -> None:
        """Add kernels by their rows of the next templates."""
        timed = np.flatnonzero(durations.treatment == Treatment.MODELLED)
        used = durations.utilisation
        if used is None:
            self._is_known &= not len(timed)
            return
        if len(timed) < len(rows):
            used = used.take(timed)
        self._parts.append(KernelTable(self._nodes + rows[timed], durations.ns[timed], used))

    def finish_templates(self, nodes: int) -> None:
        """Finish templates of so many nodes."""
        self._nodes += nodes

    def table(self) -> KernelTable | None:
        """Return the prices of all kernels; None if a model gives times only, or none models."""
        if not self._is_known or not self._parts:
            return None
        columns = zip(*((part.node, part.ns, part.used) for part in self._parts), strict=True)
        node, ns, used = map(list, columns)
        return KernelTable(np.concatenate(node), np.concatenate(ns), Utilisation.joined(used).by_first_use())
