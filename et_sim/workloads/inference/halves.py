"""Halves of a batch, which take turns in the layers: while one waits for an exchange, the other one computes.

They take turns at every exchange, or, with attention in two parts, at every stage. A layer has five of these:
products before attention; attention and the router; dispatch, with the shared expert beside it; experts;
combine. The first half is two stages ahead, and all stages wait in one stream, so that an exchange is hidden
by a stage of the other half only.

Exchanges of prompts hold some processors throughout, since engines compute on the others even if none runs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, cycle, repeat, zip_longest

from msgspec.structs import replace

from et_sim.trace.workload import MadeFor
from et_sim.workloads.exchange_names import DEEPEP
from et_sim.workloads.inference.batch import Batch, GroupBatches, halves_of_groups, have_prompts
from et_sim.workloads.training.plan import Plan
from et_sim.workloads.training.work import RankWork

# Processors of DeepEP's normal kernels, unless a program gives another number (deepseek-ai/DeepEP,
# deep_ep/buffer.py: num_sms). Products have the others (sgl-project/sglang, operations_strategy.py:
# deep_gemm_num_sms; vllm-project/vllm: VLLM_DBO_COMM_SMS, 20, too).
DEEPEP_PROCESSORS = 20
AHEAD = 2  # stages (sgl-project/sglang, operations_strategy.py: tbo_delta_stages)
END = object()
Half = tuple[RankWork, Iterator[None]]  # its program so far, and its layers, which yield where it waits


def reserving(plan: Plan, batches: Iterable[GroupBatches], software: MadeFor | None) -> MadeFor | None:
    """Return the software of passes, with the processors that exchanges of halves of prompts hold."""
    if not plan.overlap_experts or plan.expert_exchange != DEEPEP:
        return software
    passes = [(batch,) * plan.data if isinstance(batch, Batch) else batch for batch in batches]
    for groups in passes:
        if len(groups) < 2 or not have_prompts(groups) or not halves_of_groups(groups):
            return software
    software = software or MadeFor(DEEPEP, about="kernels by which tokens reach their experts")
    return replace(software, reserved=DEEPEP_PROCESSORS)


def take_exchanges(work: RankWork, halves: Sequence[Half]) -> None:
    """Run layers of the halves of a batch: at each exchange with experts, the other half goes on."""
    for half, _ in halves:
        half.at, half.during = work.at, work.during
    deque(zip_longest(*(layers for _, layers in halves)), maxlen=0)
    work.at = tuple(dict.fromkeys(node for half, _ in halves for node in half.at))


def take_stages(work: RankWork, halves: Sequence[Half]) -> None:
    """Run layers of the halves of a batch by stages, each after the one before, whose half it is."""
    left = set(range(len(halves)))
    for number in chain(repeat(0, AHEAD), cycle(range(len(halves)))):
        half, stages = halves[number]
        half.at, half.during = work.at, work.during
        if next(stages, END) is END:
            left.discard(number)
        work.at = half.at
        if not left:
            return
