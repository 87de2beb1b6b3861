"""Forward passes of published deployments of DeepSeek-V3, and in other numbers: `benchmarks/deployments.py`.

The batch over which the curve of a deployment goes ends at the largest that memory allows: nine tenths of a
GPU's memory, less the reserved part and the weights.
"""

from __future__ import annotations

from typing import Any

from et_sim import simulate
from et_sim.machine import read_machine
from et_sim.machine.presets import preset
from et_sim.run.options import RunOptions
from et_sim.workloads import Batch, Plan, Segment, make_inference, read_model
from et_sim.workloads.inference.batch import sights
from et_sim.workloads.inference.memory import SequenceCache, weight_bytes_of_stage

NODE, PROMPT = 8, 2000
GROUPS: dict[str, Any] = {"redundant_experts": 32, "dispatch": "fp8"}


def plan_on(machine: str, **fields: Any) -> Plan:
    """Return a plan for the datatypes of a machine."""
    return Plan(computes=",".join(preset(machine).peaks), **fields)


def pass_ms(model: str, machine: str, plan: Plan, *segments: Segment) -> float:
    """Return the time of a pass, whose batch all groups have."""
    of = read_model(model)
    workload = make_inference(of, plan, [Batch.of(segments, sights=sights(of))])
    return simulate(workload, machine=machine).makespan_ns / 1e6


def largest_batch(machine: str, plan: Plan, tokens: int) -> int:
    """Return the most sequences of some tokens that fit the memory of a rank."""
    memory, model = (
        read_machine(**RunOptions(machine=machine).parts).system.local_memory,
        read_model("deepseek-v3"),
    )
    assert memory is not None
    free = memory.total_bytes * 9 // 10 - memory.reserved_bytes - weight_bytes_of_stage(model, plan, 0)
    return int(free // SequenceCache.of(model, plan).bytes(tokens))


def decode(machine: str, ranks: int, cached: int, published: int) -> None:
    """Print the tokens per second of a node over the batch of a group."""
    machine, plan = f"{machine}:{ranks}", plan_on(f"{machine}:{ranks}", data=ranks, expert=ranks, **GROUPS)
    most = largest_batch(machine, plan, cached)
    for batch in (32, 64, 128, 256, most):
        if batch <= most:
            took = pass_ms("deepseek-v3", machine, plan, *[Segment(1, cached)] * batch)
            rate = round(batch * NODE / took * 1e3)
            print(f"{machine}, {batch} of {most} sequences: {rate:,} tokens/s a node ({published:,})")


def prefill(machine: str, ranks: int, published: int) -> None:
    """Print the tokens per second of a node for prompts."""
    machine = f"{machine}:{ranks}"
    plan = plan_on(machine, data=ranks, expert=ranks, expert_exchange="deepep", **GROUPS)
    for prompts in (2, 4, 8):
        took = pass_ms("deepseek-v3", machine, plan, *[Segment(PROMPT)] * prompts)
        rate = round(prompts * PROMPT * NODE / took * 1e3)
        print(f"{machine}, {prompts} prompts of a group: {rate:,} tokens/s a node ({published:,})")


def halves() -> None:
    """Print passes in halves whose load of experts is even in the published run, too: LMSYS, 2025-05-05."""
    normal = {**GROUPS, "expert_exchange": "deepep"}
    for machine, ranks, batch, published, fields in (
        ("h100-dgx", 32, [Segment(4096)] * 4, 59_337, normal),
        ("h800-node", 32, [Segment(4096)] * 4, 62_713, normal),
        ("h800-node", 128, [Segment(1, 4096)] * 128, 18_598, {**GROUPS, "redundant_experts": 0}),
    ):
        machine = f"{machine}:{ranks}"
        plan = plan_on(machine, data=ranks, expert=ranks, overlap_experts=True, **fields)
        took = pass_ms("deepseek-v3", machine, plan, *batch)
        rate = round(sum(segment.tokens for segment in batch) * NODE / took * 1e3)
        print(f"{machine}, {len(batch)} sequences in halves: {rate:,} tokens/s a node ({published:,})")


def numbers() -> None:
    """Print passes of one sequence in the file's numbers and in others."""
    for model, machine, tensor, words in (
        ("deepseek-v3", "b200-dgx:8", 8, ("", "values")),
        ("gpt-oss-120b", "h100-dgx:1", 1, ("", "values")),
        ("llama3-70b", "h100-dgx:8", 8, ("values", "fp8", "int4")),
    ):
        for word in words:
            plan = plan_on(machine, tensor=tensor, products=word)
            took = pass_ms(model, machine, plan, Segment(1, 1000))
            print(f"{model} on {machine}, one sequence, {word or 'those of its file'}: {took:.3f} ms")


if __name__ == "__main__":
    numbers()
    prefill("h100-dgx", 32, 52_300)
    decode("h100-dgx", 72, 2000, 22_300)
    decode("h800-node", 144, 4989, 14_800)
    halves()
