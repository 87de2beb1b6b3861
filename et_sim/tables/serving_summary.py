"""Content of summary.json of a serving."""
# ruff: noqa: UP013 (a class needs a line for each key)

from __future__ import annotations

from typing import NotRequired, TypedDict

from et_sim.tables.summary import Scope

# fmt: off
Spread = TypedDict("Spread", {"mean": int, "p50": int, "p90": int, "p99": int, "max": int})
Load = TypedDict("Load", {
    "offered_requests_per_s": float | None, "offered_output_tokens_per_s": NotRequired[float | None],
    "steady_requests_per_s": float | None,
    "steady_output_tokens_per_s": float | None, "growth_requests_per_s": float | None,
    "keeps_up": bool | None,
})
ServingCosts = TypedDict("ServingCosts", {
    "price_per_million_output_tokens": float | None,
    "most_joules_per_million_output_tokens": float | None, "currency": str,
})
RatePoint = TypedDict("RatePoint", {
    "requests_per_s": float, "output_tokens_per_s": float, "good_share": float, "ttft_ns": Spread,
    "tpot_ns": Spread | None, "keeps_up": bool | None, "is_good": bool,
})
LargestRate = TypedDict("LargestRate", {
    "requests_per_s": float, "good_share": float, "tolerance": float, "rates": list[RatePoint],
})
Goodput = TypedDict("Goodput", {
    "requests": NotRequired[int], "share": float, "requests_per_s": float,
    "ttft_limit_ns": NotRequired[int], "tpot_limit_ns": NotRequired[int],
})
Pool = TypedDict("Pool", {
    "work": str, "replicas": int, "ranks_of_replica": int, "tensor": int, "pipeline": int, "expert": int,
    "experts_apart": NotRequired[bool],
    "cache_tokens": int, "cache_bytes": NotRequired[int], "token_bytes": NotRequired[int],
    "first_rank": NotRequired[int], "data": NotRequired[int], "model": NotRequired[str],
})
Policy = TypedDict("Policy", {
    "name": str, "block": NotRequired[int], "max_batch": NotRequired[int], "token_budget": NotRequired[int],
    "prompt_every": NotRequired[int], "wait_passes": NotRequired[int], "wait_share": NotRequired[float],
    "balance_passes": NotRequired[int],
})
Drafts = TypedDict("Drafts", {"source": str, "tokens": int, "acceptance": float})
Prefixes = TypedDict("Prefixes", {
    "kept_tokens": int | None, "remote_tokens": int | None, "loaded_tokens": int, "router": str,
    "hit_tokens": int, "hit_share": float, "requests_with_hits": int,
})
RolloutTimes = TypedDict("RolloutTimes", {
    "batches": int, "batch_requests": int, "batch_ns": int, "tail_share": float, "idle_share": float,
    "weights_ns": int, "weights_share": float,
})
Scaling = TypedDict("Scaling", {
    "rule": str, "least": int, "most": int, "source": str, "every_ns": int, "down_after_ns": int,
    "start_ns": int, "started": int, "stopped": int, "weights_ns": Spread | None, "mean_npus": float,
    "npu_hours": float, "replicas": list[list[int]],
})
OfModel = TypedDict("OfModel", {
    "model": str, "requests": int, "output_tokens": NotRequired[int],
    "output_tokens_per_s": NotRequired[float], "ttft_ns": NotRequired[Spread],
    "tpot_ns": NotRequired[Spread | None], "e2e_ns": NotRequired[Spread],
    "transfer_ns": NotRequired[Spread | None], "goodput": NotRequired[Goodput | None],
    "busy_share": NotRequired[float],
})
ServingSummary = TypedDict("ServingSummary", {
    "requests": int, "duration_ns": int, "prompt_tokens": NotRequired[int],
    "output_tokens": NotRequired[int], "requests_per_s": float, "output_tokens_per_s": float,
    "load": Load, "costs": ServingCosts | None, "ttft_ns": Spread, "tpot_ns": Spread | None,
    "e2e_ns": Spread, "goodput": Goodput | None, "passes": int, "mean_sequences": float,
    "busy_share": float, "preemptions": int, "transfer_ns": Spread | None, "peak_cache_bytes": int,
    "pools": list[Pool], "policy": Policy, "model": str, "machine": str | None, "npus": int,
    "network_model": str, "scope": NotRequired[Scope], "simulated_passes": int,
    "simulated_transfers": int, "context_step": int, "kernels": str,
    "engine": NotRequired[str], "concurrency": NotRequired[int], "warm_up": NotRequired[int],
    "bands": NotRequired[dict[str, list[int]] | None], "largest_rate": NotRequired[LargestRate],
    "speculation": NotRequired[Drafts], "transfer": NotRequired[str], "sessions": NotRequired[int],
    "prefixes": NotRequired[Prefixes | None], "image_tokens": NotRequired[int],
    "rollout": NotRequired[RolloutTimes], "scaling": NotRequired[Scaling],
    "models": NotRequired[list[OfModel]],
})
# fmt: on
