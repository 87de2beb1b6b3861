"""Names of the figures that set times, shared by `--vary` and the critical path."""

from __future__ import annotations

from enum import StrEnum


class Quantity(StrEnum):
    """Kinds of figures."""

    BANDWIDTH = "bandwidth"  # by class of links
    LATENCY = "latency"
    SWITCH_RATE = "rate"  # by class of switches that reduce
    SWITCH_LATENCY = "latency of switches"
    ENDPOINT_DELAY = "endpoint delay"
    SHARED_BUS = "time of the shared bus"
    LIBRARY = "time of the collective library"  # besides the wires
    LATE_STARTS = "late starts"
    PEAK_COMPUTE = "peak compute"
    LOCAL_MEMORY_BANDWIDTH = "local memory bandwidth"
    OF_DEVICE = "rate of a device"  # a peak, a level of memory, or an efficiency of the key "compute"
    LAUNCH = "launch overhead"
    REMOTE_MEMORY = "time of remote memory"
    KERNELS = "time of all kernels"
    OPERATION = "time of an operation"

    def of(self, owner: str) -> str:
        """Return the name of the figure of a class of links or switches, such as `latency of dimension 0`."""
        return f"{self.partition(' ')[0]} of {owner}"
