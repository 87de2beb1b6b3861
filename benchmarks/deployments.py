"""Forward passes of published deployments of DeepSeek-V3, and in other numbers: `benchmarks/deployments.py`.

The batch over which the curve of a deployment goes ends at the largest that memory allows: nine tenths of a
GPU's memory, less the reserved part and the weights.
"""

from __future__ import annotations

from typing import Any

from et_sim import simulate
from et_sim.basics.engine_names import BY_CARDS, DEEPEP, SGLANG
from et_sim.machine import read_machine
from et_sim.machine.presets import preset
from et_sim.run.options import RunOptions
from et_sim.serving.engines.reading import read_engine
from et_sim.trace.workload import MadeFor
from et_sim.workloads import Batch, Plan, Segment, make_inference, read_model
from et_sim.workloads.inference.batch import sights
from et_sim.workloads.inference.memory import SequenceCache, weight_bytes_of_stage

NODE, PROMPT = 8, 2000
GROUPS: dict[str, Any] = {"redundant_experts": 32, "dispatch": "fp8"}
# Both teams ran DeepEP before June 2025. DeepSeek's kernels are those of the machine, no engine's.
PROMPTS, TOKENS = DEEPEP, BY_CARDS
DEEPSEEK_V3, DEEPSEEK = "deepseek-v3", ""
LOAD = 59_337 / 50_302  # SGLang's runs of prompts with experts at random, by those with experts as they are


def plan_on(machine: str, **fields: Any) -> Plan:
    """Return a plan for the datatypes of a machine."""
    return Plan(computes=",".join(preset(machine).peaks), **fields)


def pass_ms(
    model: str, machine: str, plan: Plan, *segments: Segment, software: MadeFor | None = None
) -> float:
    """Return the time of a pass, whose batch all groups have."""
    of = read_model(model)
    workload = make_inference(of, plan, [Batch.of(segments, sights=sights(of))], software)
    return simulate(workload, machine=machine).makespan_ns / 1e6


def tokens_a_second(team: str, machine: str, batch: list[Segment], kernels: str, **fields: Any) -> int:
    """Return the tokens per second of a node."""
    separate = read_engine(team).separate if team else ()
    software = MadeFor(team or "DeepSeek", engine=team, expert_exchange=kernels, separate=separate)
    took = pass_ms(DEEPSEEK_V3, machine, plan_on(machine, **fields), *batch, software=software)
    return round(sum(segment.tokens for segment in batch) * NODE / took * 1e3)


def largest_batch(machine: str, plan: Plan, tokens: int) -> int:
    """Return the most sequences of some tokens that fit the memory of a rank."""
    memory, model = (
        read_machine(**RunOptions(machine=machine).parts).system.local_memory,
        read_model("deepseek-v3"),
    )
    assert memory is not None
    free = memory.total_bytes * 9 // 10 - memory.reserved_bytes - weight_bytes_of_stage(model, plan, 0)
    return int(free // SequenceCache.of(model, plan).bytes(tokens))


def decode(team: str, machine: str, ranks: int, cached: int, published: int, **fields: Any) -> None:
    """Print the tokens per second of a node over the batch of a group, whole and in halves."""
    groups = {"data": ranks, "expert": ranks, **GROUPS, **fields}
    machine = f"{machine}:{ranks}"
    most = largest_batch(machine, plan_on(machine, **groups), cached)
    for size in sorted({32, 64, 88, 128, 132, 256, most}):
        if size <= most:
            batch = [Segment(1, cached)] * size
            whole, halves, parts = (
                tokens_a_second(team, machine, batch, TOKENS, **groups, **order)
                for order in (
                    {},
                    {"overlap_experts": True},
                    {"overlap_experts": True, "attention_parts": True},
                )
            )
            print(
                f"{machine}, {size} of {most} sequences: {whole:,} tokens/s a node, in halves {halves:,},"
                f" with attention in parts {parts:,} ({published:,})",
                flush=True,
            )


def prefill(team: str, machine: str, ranks: int, prompt: int, published: int, load: float = 1.0) -> None:
    """Print the tokens per second of a node for some 16,000 tokens of prompts, whole and in halves.

    `load` is the factor that the busiest rank costs by the team's own runs.
    """
    machine, batch = f"{machine}:{ranks}", [Segment(prompt)] * (16_384 // prompt)
    groups = {"data": ranks, "expert": ranks, **GROUPS, "expert_exchange": "deepep"}
    whole, halves = (
        tokens_a_second(team, machine, batch, PROMPTS, **groups, overlap_experts=overlaps)
        for overlaps in (False, True)
    )
    loaded = f", by the load of experts {halves / load:,.0f}" if load > 1 else ""
    print(
        f"{machine}, {len(batch)} prompts of a group: {whole:,} tokens/s a node, in halves {halves:,}{loaded}"
        f" ({published:,})",
        flush=True,
    )


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
    prefill(SGLANG, "h100-dgx", 32, PROMPT, 52_300, LOAD)
    prefill(SGLANG, "h100-dgx", 32, 4096, 59_337)
    prefill(DEEPSEEK, "h800-node", 32, 4096, 62_713)
    decode(SGLANG, "h100-dgx", 72, PROMPT, 22_300)
    decode(DEEPSEEK, "h800-node", 144, 4989, 14_800)
    decode(DEEPSEEK, "h800-node", 128, 4096, 18_598, redundant_experts=0)
