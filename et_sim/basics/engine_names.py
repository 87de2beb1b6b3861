"""Names of inference engines and of exchanges with experts, shared by workloads, machines and commands."""

from __future__ import annotations

SGLANG, TRTLLM, VLLM = ENGINES = ("sglang", "trtllm", "vllm")
DEEPEP, LOW_LATENCY, BY_CARDS = EXPERT_EXCHANGES = (
    "deepep",
    "deepep-low-latency",
    "deepep-low-latency-rdma",
)

# Work that an engine does in kernels of its own, or together, and others do not.
CASTS, TENSOR_CASTS, RESIDUALS, ROTARY, CACHE = OF_LAYERS = (
    "casts",
    "tensor-casts",
    "residuals",
    "rotary",
    "cache",
)
LATENT_NORMS, LATENT_ROTARY, KEYS = OF_LATENT = ("latent-norms", "latent-rotary", "keys")
SUMS, JOINED_SHARED, PADDED_EXPERTS = OF_EXPERTS = ("sums", "joined-shared", "padded-experts")
SEPARATE = (*OF_LAYERS, *OF_LATENT, *OF_EXPERTS)
