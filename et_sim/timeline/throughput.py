"""What a step of training comes to: tokens per second, MFU and HFU, and the cost of a million tokens.

The makespan of the run is the time of the step. Not here: what the step consists of
(`et_sim.trace.workload`), and what the figures mean in words (`et_sim.tables.of_sweeps`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from et_sim.machine.roofline import ANY
from et_sim.trace.workload import Step

DIGITS = 9
MILLION = 1_000_000


def throughput(
    step: Step | None,
    peaks: Mapping[str, float],
    ranks: int,
    makespan_ns: int,
    taken: Mapping[str, Any] | None,
) -> dict[str, Any] | None:
    """The figures of a run that did one step; None where nobody says what that is, or no time passed.

    `peaks` are those of a rank's device, in 10^12 operations per second; `taken` is what the run cost.
    """
    if step is None or not makespan_ns:
        return None
    peak = peaks.get(step.datatype, peaks.get(ANY))
    model, hardware = (
        None if operations is None else operations / makespan_ns / ranks / 1000  # 10^12 per second
        for operations in (step.model_operations, step.hardware_operations)
    )
    found: dict[str, Any] = {
        "tokens": step.tokens,
        "datatype": step.datatype,
        "peak_tflops": peak,
        "tokens_per_s": step.tokens * 1e9 / makespan_ns,
        "tokens_per_s_per_rank": step.tokens * 1e9 / makespan_ns / ranks,
        "tflops_per_rank": model,
        "mfu": None if model is None or peak is None else model / peak,
        "hfu": None if hardware is None or peak is None else hardware / peak,
    }
    for name in ("price", "joules"):
        value = None if taken is None else taken[name]
        found[f"{name}_per_million_tokens"] = None if value is None else value * MILLION / step.tokens
    return {name: float(f"{v:.{DIGITS}g}") if isinstance(v, float) else v for name, v in found.items()}
