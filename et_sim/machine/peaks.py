"""What a device does at most, by datatype, as its description says it: the peaks that MFU is a share of.

Not here: how much of it kernels reach (`et_sim.compute`).
"""

from __future__ import annotations

from et_sim.machine.model import System
from et_sim.machine.roofline import RooflineDevice

ANY = ""  # the datatype of a peak that holds for all of them


def peaks_of(system: System) -> dict[str, float]:
    """In 10^12 operations per second; no datatype that rules for different kernels differ about."""
    found: dict[str, set[float]] = {}
    for rule in system.compute:
        if isinstance(rule.settings, RooflineDevice):
            for datatype, peak in rule.settings.peaks.items():
                found.setdefault(datatype, set()).add(peak)
    if system.roofline and system.peak_perf and not found:
        found[ANY] = {system.peak_perf}
    return {datatype: peaks.pop() for datatype, peaks in sorted(found.items()) if len(peaks) == 1}
