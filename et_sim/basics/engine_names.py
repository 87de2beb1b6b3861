"""Names of inference engines and of exchanges with experts, shared by workloads, machines and commands."""

from __future__ import annotations

SGLANG, TRTLLM, VLLM = ENGINES = ("sglang", "trtllm", "vllm")
DEEPEP, LOW_LATENCY, BY_CARDS = EXPERT_EXCHANGES = (
    "deepep",
    "deepep-low-latency",
    "deepep-low-latency-rdma",
)
