"""What the chosen way takes on a machine: the library's cost model, with factors fitted to measurements.

The cost model is made for choosing, and is 15 to 35 % too fast as a prediction. Measured times follow it with
a factor for launches, for steps and for bandwidth of each protocol, and one stage more: a rank passes one
piece (its part of the bytes) through its own memory. Without measurements the factors are 1 and the stage
costs nothing. Sends and receives, of which all-to-alls consist, are not in the library's model: short ones
have a small start and a low bandwidth, long ones the opposite.

Not here: fitting (`et_sim.calibrate`).
"""

from __future__ import annotations

from functools import partial
from typing import Any

from et_sim.basics.quick_dataclass import quick_dataclass
from et_sim.documents.kinds import number
from et_sim.machine.library.candidates import Candidate, Group
from et_sim.machine.library.rules import NVLS, NVLS_TREE, Protocol

NO_COPY = 0.0  # GB/s: the stage is left out
RING_LL_US, RING_SIMPLE_US = 6.6, 8.4  # launches, of which short and long sends take a multiple


MOST = 1_000_000


def factor(default: float, **more: Any) -> Any:
    """A field that a file may set."""
    return number("", default, maximum=MOST, **more)


positive = partial(factor, above_minimum=True)


@quick_dataclass(frozen=True)
class Calibration:
    """Factors of the library's cost model, but where a unit is named."""

    base_ll: float = factor(1.0)  # launch and entry
    base: float = factor(1.0)  # of LL128 and Simple
    step_ll: float = factor(1.0)
    step_ll128: float = factor(1.0)
    step_simple: float = factor(1.0)
    bandwidth_ll: float = positive(1.0)
    bandwidth_ll128: float = positive(1.0)
    bandwidth_simple: float = positive(1.0)
    copy: float = factor(NO_COPY)  # GB/s
    start_simple: float = factor(0.0)  # us
    nvls_step: float = factor(1.0)
    nvls_bandwidth: float = positive(1.0)
    nvls_copy: float = factor(NO_COPY)  # GB/s
    pairs_base: float = factor(1.25)  # of short sends: of a ring's launch with LL
    pairs_step: float = factor(0.2)  # us, for each other rank
    pairs_bandwidth_short: float = factor(0.25)  # of the rings' bus bandwidth
    pairs_start: float = factor(1.0)  # of long sends: of a ring's launch with Simple
    pairs_bandwidth: float = factor(0.83)  # of that of rings with Simple
    pairs_copy: float = factor(1.0)  # of that of rings
    between_base: float = factor(1.0)  # of groups on several nodes, in place of `base`
    between_step: float = factor(1.0)
    between_bandwidth: float = positive(1.0)

    def time_us(self, way: Candidate, group: Group, size: int) -> float:
        """Of a collective that takes this way."""
        piece = size / group.ranks / 1000
        if way.algorithm in (NVLS, NVLS_TREE):
            step, bandwidth, copy = self.nvls_step, self.nvls_bandwidth, self.nvls_copy
            base, start = self.base, 0.0
        else:
            step = (self.step_ll, self.step_ll128, self.step_simple)[way.protocol]
            bandwidth = (self.bandwidth_ll, self.bandwidth_ll128, self.bandwidth_simple)[way.protocol]
            is_simple = way.protocol is Protocol.SIMPLE
            copy, start = (self.copy, self.start_simple) if is_simple else (NO_COPY, 0.0)
            base = self.base_ll if way.protocol is Protocol.LL else self.base
        if group.nodes > 1:
            base = self.between_base
            bandwidth = (
                min(self.between_bandwidth, bandwidth)
                if way.algorithm == NVLS_TREE
                else (self.between_bandwidth)
            )
        return (
            base * way.base_us
            + start
            + step * way.within_us
            + self.between_step * way.between_us
            + size / (1000 * bandwidth * way.bandwidth)
            + (piece / copy if copy else 0.0)
        )

    def pairs_us(
        self,
        group: Group,
        size: int,
        bus: float,
        rail: float,
        step: tuple[float, float, float],
        *,
        is_pci: bool,
    ) -> float:
        """Of an all-to-all: copies of all pairs at once.

        `bus` is that of rings on a node, `rail` what a rank has to other nodes, both in GB/s; `step` what
        the way to another node takes by protocol. With PCI, all bytes go over one link.
        """
        n, away = group.ranks, (group.ranks - group.fewest) / group.ranks
        inside = size * (n - 1 if is_pci else group.ppn - 1) / n / 1000
        outside = size * away / 1000 / (rail * self.between_bandwidth) if group.nodes > 1 else 0.0
        steps = self.pairs_step * (n - 1)
        short_us = self.pairs_base * self.base_ll * RING_LL_US + self.between_step * step[Protocol.LL]
        long_us = self.pairs_start * (self.base * RING_SIMPLE_US + self.start_simple)
        long_us += self.between_step * step[Protocol.SIMPLE]
        full = self.pairs_bandwidth * self.bandwidth_simple * bus
        short = short_us + steps + max(inside / (self.pairs_bandwidth_short * bus), outside)
        long = long_us + steps + max(inside / full, outside)
        if self.copy and self.pairs_copy:
            long += size / n / 1000 / (self.pairs_copy * self.copy)
        return min(short, long)
