"""Names of inference engines, which workloads, machines and commands share."""

from __future__ import annotations

SGLANG, TRTLLM, VLLM = ENGINES = ("sglang", "trtllm", "vllm")
