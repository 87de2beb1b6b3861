"""The time that a process takes to launch a collective on all of its GPUs.

`nccl-tests -g 8` is one process with one thread, which launches the collective on eight GPUs in turn, and
posts every send and receive of their all-to-alls. Repetitions follow each other on the GPUs, so that a short
collective takes the time of its launches. Jobs have a process for each GPU; for these, measured floors are in
the constants of machines.
"""

from __future__ import annotations

# NVIDIA/nccl-tests issue 123: all-reduces of bytes in one process on 2 to 8 GPUs of a DGX A100 take 10.0,
# 13.8, 16.9, 20.8, 25.2, 29.5 and 33.7 us. Issue 333 names the cause. Two other published runs on eight
# A100, whose addresses were not kept, take 32.0 and 39.2 us; the second 18 to 25 us with a process for each.
LAUNCH_US = 4.2  # of a GPU
# Estimated from one published run, whose address was not kept: eight RTX 5090 in one process, 8 bytes: an
# all-to-all takes 54.8 us, and a broadcast 30.5 us.
PAIR_US = 0.19  # of a send or a receive


def launches_us(kind: str, gpus: int, gpus_per_process: int) -> float:
    """Return the time between two launches of a collective; 0 if each GPU has a process."""
    if gpus_per_process == 1:
        return 0.0
    pairs = 2 * gpus if kind == "all_to_all" else 0
    return gpus_per_process * (LAUNCH_US + pairs * PAIR_US)
