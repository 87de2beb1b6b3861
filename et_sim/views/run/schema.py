"""What summary.json, stall.json and run.json have to hold for the views to read them.

Not here: tables (`et_sim.tables`), and opening files (`directory`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

# A shape is a type, a tuple of types, a mapping (these keys, each of a shape), a list of one shape
# (any number of these), RANKS, `OrNull`, or `IfThere`.
Shape = Any
RANKS = re.compile(r"[0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*", re.ASCII)
NONE = type(None)


@dataclass(frozen=True, slots=True)
class OrNull:
    """Something of a shape, or null."""

    shape: Shape


@dataclass(frozen=True, slots=True)
class IfThere:
    """Something of a shape, under a key that need not be there."""

    shape: Shape


NOTICE = {"place": str, "key": str, "text": str}
FIGURES = {
    "ranks": RANKS,
    "finish_ns": (int, NONE),
    "compute_ns": int,
    "exposed_comm_ns": int,
    "exposed_memory_ns": int,
    "waiting_ns": int,
    "host_ns": int,
    "idle_ns": int,
    "early_ns": int,
    "hidden_comm_ns": int,
    "comm_without_kernel_ns": int,
    "waits_for": (str, NONE),
    "compute_bound_share": (float, NONE),
    "compute_utilisation": (float, NONE),
    "memory_utilisation": (float, NONE),
    "operational_intensity": (float, NONE),
    "peak_memory_bytes": (int, NONE),
}
COVERAGE = {
    "nodes": int,
    "modelled": int,
    "replayed": int,
    "defaulted": int,
    "instant": int,
    "timed_by": dict,
    "nodes_by_kind": dict,
    "not_executed": int,
    "replayed_communication": int,
    "without_tensors": (int, NONE),
    "ignored_attributes": dict,
    "ignored_metadata": int,
}
TRIED = {"status": str, "makespan_ns": (int, NONE), "reason": str}
OTHER_PROFILE = {
    "profile": str,
    **TRIED,
    "measured": bool,
    "corrections": [{"correction": str, **TRIED}],
}
BOTTLENECK = {
    "tier": str,
    "link": (str, NONE),
    "ranks": (str, NONE),
    "used": (int, float),
    "links": (int, NONE),
    "links_as_loaded": (int, NONE),
    "tier_links": (int, NONE),
    "tier_used": (int, float, NONE),
    "of": str,
    "has_contention": bool,
}
GAP = {"ranks": str, "name": str, "ns": int}
EXPLAINED = {
    "path_ns": int,
    "gaps_ns": int,
    "spent_ns": dict,
    "gaps": [GAP],
    "longest": [{**GAP, "start_ns": int, "before": str}],
}
JOB = {
    "name": str,
    "npus": str,
    "ranks": int,
    "start_ns": int,
    "finish_ns": (int, NONE),
    "duration_ns": (int, NONE),
    "alone_ns": (int, NONE),
    "slowdown": (float, NONE),
}
PACKETS = {
    "sent": int,
    "acknowledgements": int,
    "sent_again": int,
    "timeouts": int,
    "lost": int,
    "marked": int,
    "pauses": int,
    "lost_at": (str, NONE),
    "paused_at": (str, NONE),
}
COSTS = {
    "computing_joules": (int, float, NONE),
    "not_computing_joules": (int, float, NONE),
    "network_joules": (int, float, NONE),
    "joules": (int, float, NONE),
    "price": (int, float, NONE),
    "currency": str,
}
NUMBER = (int, float, NONE)
THROUGHPUT = {
    "tokens": int,
    "datatype": str,
    "peak_tflops": NUMBER,
    "tokens_per_s": (int, float),
    "tokens_per_s_per_rank": (int, float),
    "tflops_per_rank": NUMBER,
    "mfu": NUMBER,
    "hfu": NUMBER,
    "price_per_million_tokens": NUMBER,
    "joules_per_million_tokens": NUMBER,
}
HELD = {
    "tensor": str,
    "class": str,
    "bytes": int,
    "since_ns": int,
    "node": (int, NONE),
    "node_name": (str, NONE),
}
OUT_OF_MEMORY = {
    "time_ns": int,
    "ranks": str,
    "capacity_bytes": int,
    "alive_bytes": int,
    "stopped": bool,
    "allocated": [HELD],
    "tensors": int,
    "largest": [HELD],
    "by_class": dict,
}
SPILLED = {"stores": int, "loads": int, "stored_bytes": int, "loaded_bytes": int}
TERM = {"basis": str, "random": (int, float), "common": (int, float), "bias": (int, float)}
UNCERTAINTY = {
    "level": float,
    "low_ns": int,
    "high_ns": int,
    "shares": dict,
    "device": str,
    "whole": TERM,
    "classes": [{"class": str, **TERM}],
    "parts": [{"class": str, "item": str, "share": (int, float)}],
}
SUMMARY_SHAPE: Mapping[str, Shape] = MappingProxyType(
    {
        "status": str,
        "makespan_ns": int,
        "ranks": int,
        "model": str,
        "model_note": IfThere(str),
        "scope": IfThere({"includes": [str], "leaves_out": [str]}),
        "profile": str,
        "corrections": [str],
        "profile_named_by": str,
        "switched": [str],
        "other_profile": OrNull(OTHER_PROFILE),
        "folded": {"actors": int},
        "uneven": {"ranks": int, "links": int, "late_ns": int},
        "time_factors": [{"ranks": str}],
        "out_of_memory": OrNull(OUT_OF_MEMORY),
        "spilled": IfThere(SPILLED),
        "messages": int,
        "bottleneck": OrNull(BOTTLENECK),
        "bottleneck_unknown": (str, NONE),
        "costs": OrNull(COSTS),
        "throughput": OrNull(THROUGHPUT),
        "uncertainty": IfThere(UNCERTAINTY),
        "packets": OrNull(PACKETS),
        "per_rank": [FIGURES],
        "explained": OrNull(EXPLAINED),
        "coverage": COVERAGE,
        "warnings": [NOTICE],
        "defaults": [NOTICE],
        "slowest": (dict, NONE),
        "jobs": [JOB],
    }
)
SPREAD = dict.fromkeys(("mean", "p50", "p90", "p99", "max"), int)
SERVING_SHAPE: Mapping[str, Shape] = MappingProxyType(
    {
        "requests": int,
        "duration_ns": int,
        "requests_per_s": (int, float),
        "output_tokens_per_s": (int, float),
        "load": {
            "offered_requests_per_s": NUMBER,
            "steady_requests_per_s": NUMBER,
            "steady_output_tokens_per_s": NUMBER,
            "keeps_up": OrNull(bool),
            "growth_requests_per_s": NUMBER,
        },
        "costs": OrNull(
            {
                "price_per_million_output_tokens": NUMBER,
                "most_joules_per_million_output_tokens": NUMBER,
                "currency": str,
            }
        ),
        "ttft_ns": SPREAD,
        "tpot_ns": OrNull(SPREAD),
        "e2e_ns": SPREAD,
        "transfer_ns": OrNull(SPREAD),
        "goodput": OrNull({"share": (int, float), "requests_per_s": (int, float)}),
        "passes": int,
        "mean_sequences": (int, float),
        "busy_share": (int, float),
        "preemptions": int,
        "peak_cache_bytes": int,
        "pools": [
            {
                "work": str,
                "replicas": int,
                "ranks_of_replica": int,
                "tensor": int,
                "pipeline": int,
                "expert": int,
                "cache_tokens": int,
            }
        ],
        "policy": {"name": str},
        "model": str,
        "machine": (str, NONE),
        "npus": int,
        "network_model": str,
        "scope": IfThere({"includes": [str], "leaves_out": [str]}),
        "simulated_passes": int,
        "simulated_transfers": int,
        "context_step": int,
        "kernels": str,
    }
)
WAIT = {
    "ranks": str,
    "operation": str,
    "node_name": str,
    "waits_for": str,
    "since_ns": int,
}
STALL_SHAPE: Mapping[str, Shape] = MappingProxyType(
    {
        "cause": str,
        "alike": str,
        "jobs": [str],
        "end_ns": int,
        "waits": [WAIT],
        "knot": [{"rank": int, "waits_for": int, "reason": str}],
        "dead_ends": [str],
        "nearest": [str],
        "remedies": [str],
    }
)
MANIFEST_SHAPE: Mapping[str, Shape] = MappingProxyType(
    {
        "et_sim": str,
        "machine": IfThere(str),
        "npus": IfThere(int),
        "model": str,
        "model_note": IfThere(str),
        "profile": str,
        "corrections": [str],
        "switched": IfThere([str]),
        "distinct_traces": int,
        "inputs": [{"file": str, "sha256": str}],
        "recorded_part": IfThere({"ranks": IfThere(RANKS), "window_ns": IfThere([int])}),
        "configuration": IfThere(
            {"system": dict, "network": dict, "memory": IfThere(dict), "groups": IfThere(dict)}
        ),
        "command": IfThere(
            {
                "files": dict,
                "machine": IfThere(OrNull(str)),
                "profile": OrNull(str),
                "fold": bool,
                "alone": IfThere(bool),
            }
        ),
    }
)

WORDS: Mapping[type, str] = MappingProxyType(
    {
        bool: "true or false",
        int: "a whole number",
        float: "a number",
        str: "a text",
        dict: "an object",
        list: "a list",
        NONE: "null",
    }
)


def misfit(content: Any, shape: Shape, place: str = "") -> str:
    """What is wrong with `content`, as the end of a sentence such as `per_rank[2].ranks is missing`;
    empty if nothing is."""
    if isinstance(shape, OrNull):
        return "" if content is None else misfit(content, shape.shape, place)
    if isinstance(shape, IfThere):
        return misfit(content, shape.shape, place)
    if isinstance(shape, Mapping):
        return _wrong_type(content, dict, place) or _misfit_within(content, shape, place)
    if isinstance(shape, list):
        found = _wrong_type(content, list, place)
        entries = () if found else enumerate(content)
        return found or next(filter(None, (misfit(e, shape[0], f"{place}[{k}]") for k, e in entries)), "")
    if shape is RANKS:
        is_ranks = isinstance(content, str) and RANKS.fullmatch(content)
        return "" if is_ranks else f"{place} is not a list of ranks such as 0-3,6"
    return _wrong_type(content, shape, place)


def _misfit_within(content: Mapping[str, Any], shape: Mapping[str, Shape], place: str) -> str:
    for key, wanted in shape.items():
        where = f"{place}.{key}" if place else key
        if key not in content:
            if isinstance(wanted, IfThere):
                continue
            return f"{where} is missing"
        if found := misfit(content[key], wanted, where):
            return found
    return ""


def _wrong_type(content: Any, wanted: type | tuple[type, ...], place: str) -> str:
    if isinstance(content, wanted) and (wanted is bool or not isinstance(content, bool)):
        return ""
    kinds = wanted if isinstance(wanted, tuple) else (wanted,)
    return f"{place or 'it'} is not {' or '.join(WORDS[kind] for kind in kinds)}"
