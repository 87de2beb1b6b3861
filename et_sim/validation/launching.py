"""The time that a process takes to launch a collective on all of its GPUs.

`nccl-tests -g 8` is one process with one thread, which launches the collective on eight GPUs in turn, and
posts every send and receive of their all-to-alls. The time that launches take beyond the shortest collective
is added to each. Jobs have a process for each GPU; for these, machines have measured floors.

Launches of the next repetition need not wait for this one, so that a long collective could hide them. But
two runs on one machine of eight A100-SXM4-80GB (a note on nccl-tests with Open MPI 5.0.5; the index that has
it names no address) differ by 10 to 22 us from 8 bytes to 4 MiB, whether the collective takes 20 or 82 us.
Why is not known. From 8 to 512 MiB they differ by more; this is not modelled.
"""

from __future__ import annotations

from types import MappingProxyType

from et_sim.basics.uncertainty import DIGITS, Composition, ErrorTerm, UncertainPart
from et_sim.machine.accuracy import HOST

# NVIDIA/nccl-tests issue 123: all-reduces of bytes in one process on 2 to 8 GPUs of a DGX A100 take 10.0,
# 13.8, 16.9, 20.8, 25.2, 29.5 and 33.7 us. Issue 333 names the cause. The two runs above take 39 us, and 18
# to 25 us with a process for each GPU.
LAUNCH_US = 4.2  # of a GPU
# Estimated from one run (notes on a server of eight RTX 5090 over PCIe, NCCL 2.28.9, without an address):
# with 8 bytes an all-to-all takes 54.8 us, a broadcast 30.5 us, and a ring of one send each 42.6 us, so that
# a send takes 0.11 to 0.19 us.
PAIR_US = 0.19  # of a send or a receive


def launches_us(kind: str, gpus: int, gpus_per_process: int) -> float:
    """Return the time between two launches of a collective; 0 if each GPU has a process."""
    if gpus_per_process == 1:
        return 0.0
    pairs = 2 * gpus if kind == "all_to_all" else 0
    return gpus_per_process * (LAUNCH_US + pairs * PAIR_US)


def with_launches(composition: Composition, waited: float, term: ErrorTerm) -> Composition:
    """Return the composition of a time of which a share waits for the host's launches."""
    kept = (
        UncertainPart(part.of, part.item, round(part.share * (1 - waited), DIGITS))
        for part in composition.parts
    )
    parts = (*kept, UncertainPart(HOST, "launches", round(waited, DIGITS)))
    terms = MappingProxyType({**composition.terms, HOST: term})
    return Composition(composition.device, composition.whole, terms, parts, composition.traits)
