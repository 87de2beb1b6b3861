"""Names of inference engines and of exchanges with experts, shared by workloads, machines and commands."""

from __future__ import annotations

SGLANG, TRTLLM, VLLM = ENGINES = ("sglang", "trtllm", "vllm")
DEEPEP, LOW_LATENCY = EXPERT_EXCHANGES = ("deepep", "deepep-low-latency")
