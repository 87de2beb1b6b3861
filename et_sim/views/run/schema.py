"""Schemas of summary.json, stall.json and run.json, as far as the views need them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from msgspec import Struct

# A shape is a type, a tuple of types, a mapping (keys with a shape each), a list of one shape (any number of
# entries), RANKS, `OrNull`, or `IfThere`.
Shape = Any
RANKS = re.compile(r"[0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*", re.ASCII)
NONE = type(None)


class OrNull(Struct, frozen=True):
    """A value of a shape, or null."""

    shape: Shape


class IfThere(Struct, frozen=True):
    """A value of a shape under an optional key."""

    shape: Shape


NUMBER = (int, float, NONE)


def _each(shape: Shape, names: str) -> dict[str, Shape]:
    """Return a shape for each of several names, separated by spaces."""
    return dict.fromkeys(names.split(), shape)


NOTICE = _each(str, "place key text")
FIGURES = {
    "ranks": RANKS,
    **_each((int, NONE), "finish_ns peak_memory_bytes"),
    **_each(
        int,
        "compute_ns exposed_comm_ns exposed_memory_ns waiting_ns host_ns idle_ns "
        "early_ns hidden_comm_ns comm_without_kernel_ns",
    ),
    "waits_for": (str, NONE),
    **_each(
        (float, NONE), "compute_bound_share compute_utilisation memory_utilisation operational_intensity"
    ),
}
COVERAGE = {
    **_each(
        int, "nodes modelled replayed defaulted instant not_executed replayed_communication ignored_metadata"
    ),
    **_each(dict, "timed_by nodes_by_kind ignored_attributes"),
    "without_tensors": (int, NONE),
}
TRIED = {**_each(str, "status reason"), "makespan_ns": (int, NONE)}
OTHER_PROFILE = {"profile": str, **TRIED, "measured": bool, "corrections": [{"correction": str, **TRIED}]}
BOTTLENECK = {
    **_each(str, "tier of"),
    **_each((str, NONE), "link ranks"),
    "used": (int, float),
    **_each((int, NONE), "links links_as_loaded tier_links"),
    "tier_used": NUMBER,
    "has_contention": bool,
    "times_slower": IfThere((int, float, NONE)),
}
GAP = {**_each(str, "ranks name"), "ns": int}
EXPLAINED = {
    **_each(int, "path_ns gaps_ns"),
    "spent_ns": dict,
    "gaps": [GAP],
    "longest": [{**GAP, "start_ns": int, "before": str}],
}
JOB = {
    **_each(str, "name npus"),
    **_each(int, "ranks start_ns"),
    **_each((int, NONE), "finish_ns duration_ns alone_ns"),
    "slowdown": (float, NONE),
}
PACKETS = {
    **_each(int, "sent acknowledgements sent_again timeouts lost marked pauses"),
    **_each((str, NONE), "lost_at paused_at"),
}
COSTS = {
    **_each(NUMBER, "computing_joules not_computing_joules network_joules joules price"),
    "currency": str,
}
THROUGHPUT = {
    "tokens": int,
    "datatype": str,
    **_each(NUMBER, "peak_tflops tflops_per_rank mfu hfu"),
    "mfu_unmasked": IfThere(NUMBER),
    **_each(NUMBER, "price_per_million_tokens joules_per_million_tokens"),
    **_each((int, float), "tokens_per_s tokens_per_s_per_rank"),
}
HELD = {
    **_each(str, "tensor class"),
    **_each(int, "bytes since_ns"),
    "node": (int, NONE),
    "node_name": (str, NONE),
}
OUT_OF_MEMORY = {
    **_each(int, "time_ns capacity_bytes alive_bytes tensors"),
    "ranks": str,
    "stopped": bool,
    "allocated": [HELD],
    "largest": [HELD],
    "by_class": dict,
}
SPILLED = _each(int, "stores loads stored_bytes loaded_bytes")
TERM = {"basis": str, **_each((int, float), "random common bias"), "rows": IfThere(int)}
UNCERTAINTY = {
    "level": float,
    **_each(int, "low_ns high_ns"),
    "shares": dict,
    "device": str,
    "whole": TERM,
    "classes": [{"class": str, **TERM}],
    "parts": [{**_each(str, "class item"), "share": (int, float)}],
    "traits": IfThere([{**_each(str, "class item"), **TERM}]),
}
POWER = {"caps_watts": [(int, float)], **_each(NUMBER, "lowered_share mean_clock")}
ROUTING: Mapping[str, Shape] = {"name": str, "is_default": bool, "actors_by_hash": (int, NONE)}
SUMMARY_SHAPE: Mapping[str, Shape] = MappingProxyType(
    {
        **_each(str, "status model profile profile_named_by"),
        **_each(int, "makespan_ns ranks messages"),
        "model_note": IfThere(str),
        "routing": IfThere(OrNull(ROUTING)),
        "scope": IfThere(_each([str], "includes leaves_out")),
        **_each([str], "corrections switched"),
        "other_profile": OrNull(OTHER_PROFILE),
        "software": IfThere(OrNull({"name": str})),
        "folded": {"actors": int},
        "uneven": _each(int, "ranks links late_ns"),
        "time_factors": [{"ranks": str}],
        "out_of_memory": OrNull(OUT_OF_MEMORY),
        "spilled": IfThere(SPILLED),
        "bottleneck": OrNull(BOTTLENECK),
        "costs": OrNull(COSTS),
        "power": IfThere(POWER),
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
        **_each(
            int,
            "requests duration_ns passes preemptions peak_cache_bytes npus "
            "simulated_passes simulated_transfers context_step",
        ),
        **_each((int, float), "requests_per_s output_tokens_per_s mean_sequences busy_share"),
        "load": {
            **_each(
                NUMBER,
                "offered_requests_per_s steady_requests_per_s steady_output_tokens_per_s "
                "growth_requests_per_s",
            ),
            "keeps_up": OrNull(bool),
        },
        "costs": OrNull(
            {
                **_each(NUMBER, "price_per_million_output_tokens most_joules_per_million_output_tokens"),
                "currency": str,
            }
        ),
        "ttft_ns": SPREAD,
        "tpot_ns": OrNull(SPREAD),
        "e2e_ns": SPREAD,
        "transfer_ns": OrNull(SPREAD),
        "goodput": OrNull(_each((int, float), "share requests_per_s")),
        "pools": [
            {"work": str, **_each(int, "replicas ranks_of_replica tensor pipeline expert cache_tokens")}
        ],
        "policy": {"name": str},
        **_each(str, "model network_model kernels"),
        "machine": (str, NONE),
        "scope": IfThere(_each([str], "includes leaves_out")),
    }
)
WAIT = {**_each(str, "ranks operation node_name waits_for"), "since_ns": int}
STALL_SHAPE: Mapping[str, Shape] = MappingProxyType(
    {
        **_each(str, "cause alike"),
        **_each([str], "jobs dead_ends nearest remedies"),
        "end_ns": int,
        "waits": [WAIT],
        "knot": [{**_each(int, "rank waits_for"), "reason": str}],
    }
)
MANIFEST_SHAPE: Mapping[str, Shape] = MappingProxyType(
    {
        **_each(str, "et_sim model profile"),
        "machine": IfThere(str),
        "npus": IfThere(int),
        "model_note": IfThere(str),
        "routing": IfThere(OrNull(ROUTING)),
        "corrections": [str],
        "switched": IfThere([str]),
        "distinct_traces": int,
        "inputs": [_each(str, "file sha256")],
        "recorded_part": IfThere({"ranks": IfThere(RANKS), "window_ns": IfThere([int])}),
        "configuration": IfThere(
            {**_each(dict, "system network"), "memory": IfThere(dict), "groups": IfThere(dict)}
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
    """Return the first fault of `content`, such as `per_rank[2].ranks is missing`; empty if there is none."""
    if isinstance(shape, OrNull):
        return "" if content is None else misfit(content, shape.shape, place)
    if isinstance(shape, IfThere):
        return misfit(content, shape.shape, place)
    if isinstance(shape, Mapping):
        return _wrong_type(content, dict, place) or _misfit_within(content, shape, place)
    if isinstance(shape, list):
        error = _wrong_type(content, list, place)
        entries = () if error else enumerate(content)
        return error or next(filter(None, (misfit(e, shape[0], f"{place}[{k}]") for k, e in entries)), "")
    if shape is RANKS:
        is_ranks = isinstance(content, str) and RANKS.fullmatch(content)
        return "" if is_ranks else f"{place} is not a list of ranks such as 0-3,6"
    return _wrong_type(content, shape, place)


_MISSING = object()


def _misfit_within(content: Mapping[str, Any], shape: Mapping[str, Shape], place: str) -> str:
    for key, wanted in shape.items():
        kind = type(content.get(key, _MISSING))
        if kind is wanted or (isinstance(wanted, tuple) and kind in wanted):  # fast path
            continue
        where = f"{place}.{key}" if place else key
        if key not in content:
            if isinstance(wanted, IfThere):
                continue
            return f"{where} is missing"
        if error := misfit(content[key], wanted, where):
            return error
    return ""


def _wrong_type(content: Any, wanted: type | tuple[type, ...], place: str) -> str:
    if isinstance(content, wanted) and (wanted is bool or not isinstance(content, bool)):
        return ""
    kinds = wanted if isinstance(wanted, tuple) else (wanted,)
    return f"{place or 'it'} is not {' or '.join(WORDS[kind] for kind in kinds)}"
