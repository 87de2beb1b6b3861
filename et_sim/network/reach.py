"""Refuses networks on which a message of the run would take longer than any run may."""

from __future__ import annotations

from et_sim.basics.errors import MachineError
from et_sim.basics.units import LONGEST_NS, format_bytes, format_ns


def refuse_slow(slowest_ns: float, tier: int, most_bytes: int) -> None:
    """`slowest_ns` is what the largest message may take in a dimension or level."""
    if not slowest_ns <= LONGEST_NS:
        raise MachineError(
            f"a message of {format_bytes(most_bytes)} could take longer than {format_ns(LONGEST_NS)} "
            f"in dimension {tier}",
            place="network configuration",
            remedy="correct its latency (ns) or bandwidth (GB/s)",
        )
