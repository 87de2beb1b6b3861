"""Content of the JSON files of a run: summary.json, stall.json and run.json.

They are plain dicts, as `summary()` of a result returns them. Type checkers check the uses of keys, and
`et_sim.views.run.faults` checks the files that views read. Files of an older et-sim may lack keys that are
`NotRequired`. Files may have further keys.
"""
# ruff: noqa: UP013 (a class needs a line for each key)

from __future__ import annotations

from typing import Annotated, Any, NotRequired, TypedDict

from msgspec import Meta

Ranks = Annotated[str, Meta(pattern=r"^[0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*\Z")]
Object = dict[str, Any]  # its keys depend on the run

# fmt: off
Notice = TypedDict("Notice", {"place": str, "key": str, "text": str})
Scope = TypedDict("Scope", {"includes": list[str], "leaves_out": list[str]})
Routing = TypedDict("Routing", {"name": str, "is_default": bool, "actors_by_hash": int | None})
TriedCorrection = TypedDict("TriedCorrection", {
    "correction": str, "status": str, "makespan_ns": int | None, "reason": str,
    "made_of": NotRequired[Object | None],
})
OtherProfile = TypedDict("OtherProfile", {
    "profile": str, "status": str, "makespan_ns": int | None, "reason": str,
    "made_of": NotRequired[Object | None], "measured": bool, "corrections": list[TriedCorrection],
})
FoldLimit = TypedDict("FoldLimit", {"reason": str, "remedy": str})
Folded = TypedDict("Folded", {
    "actors": int, "ranks": NotRequired[int], "limits": NotRequired[list[FoldLimit]],
})
Uneven = TypedDict("Uneven", {"ranks": int, "links": int, "late_ns": int})
Job = TypedDict("Job", {
    "name": str, "workload": NotRequired[str], "ranks": int, "npus": str, "placed": NotRequired[str],
    "seed": NotRequired[int | None], "start_ns": int, "finish_ns": int | None,
    "duration_ns": int | None, "alone_ns": int | None, "slowdown": float | None,
})
HeldTensor = TypedDict("HeldTensor", {
    "tensor": str, "class": str, "bytes": int, "since_ns": int, "node": int | None,
    "node_name": str | None,
})
OutOfMemory = TypedDict("OutOfMemory", {
    "time_ns": int, "ranks": str, "capacity_bytes": int, "reserved_bytes": NotRequired[int],
    "alive_bytes": int, "stopped": bool, "allocated": list[HeldTensor], "tensors": int,
    "largest": list[HeldTensor], "by_class": dict[str, int], "too_large": NotRequired[Object],
})
Spilled = TypedDict("Spilled", {"stores": int, "loads": int, "stored_bytes": int, "loaded_bytes": int})
Bottleneck = TypedDict("Bottleneck", {
    "tier": str, "used": float, "of": str, "has_contention": bool,
    "times_slower": NotRequired[float | None], "link": str | None, "ranks": str | None,
    "links": int | None, "links_as_loaded": int | None, "tier_links": int | None,
    "tier_used": float | None,
})
Costs = TypedDict("Costs", {
    "computing_joules": float | None, "not_computing_joules": float | None,
    "network_joules": float | None, "joules": float | None, "price": float | None, "currency": str,
})
Power = TypedDict("Power", {
    "caps_watts": list[float], "lowered_share": float | None, "mean_clock": float | None,
})
Throughput = TypedDict("Throughput", {
    "tokens": int, "datatype": str, "peak_tflops": float | None, "tokens_per_s": float,
    "tokens_per_s_per_rank": float, "tflops_per_rank": float | None, "mfu": float | None,
    "hfu": float | None, "mfu_unmasked": NotRequired[float | None],
    "price_per_million_tokens": float | None, "joules_per_million_tokens": float | None,
})
Term = TypedDict("Term", {
    "basis": str, "random": float, "common": float, "bias": float, "rows": NotRequired[int],
})
ClassTerm = TypedDict("ClassTerm", {
    "class": str, "basis": str, "random": float, "common": float, "bias": float, "rows": NotRequired[int],
})
TraitTerm = TypedDict("TraitTerm", {
    "class": str, "item": str, "basis": str, "random": float, "common": float, "bias": float,
    "rows": NotRequired[int], "job": NotRequired[str],
})
Share = TypedDict("Share", {"class": str, "item": str, "share": float})
Uncertainty = TypedDict("Uncertainty", {
    "level": float, "low_ns": int, "high_ns": int, "shares": dict[str, float], "device": str,
    "whole": Term, "classes": list[ClassTerm], "parts": list[Share],
    "traits": NotRequired[list[TraitTerm]],
})
Steady = TypedDict("Steady", {
    "tolerance": float, "messages": int, "packets": int, "error": float, "contends": bool,
})
Packets = TypedDict("Packets", {
    "sent": int, "acknowledgements": int, "sent_again": int, "timeouts": int, "lost": int,
    "marked": int, "pauses": int, "lost_at": str | None, "paused_at": str | None,
    "steady": NotRequired[Steady],
})
RankFigures = TypedDict("RankFigures", {
    "ranks": Ranks, "finish_ns": int | None, "compute_ns": int, "exposed_comm_ns": int,
    "exposed_memory_ns": int, "waiting_ns": int, "host_ns": int, "idle_ns": int, "early_ns": int,
    "transfer_ns": NotRequired[int], "hidden_comm_ns": int, "communication_ns": NotRequired[int],
    "comm_without_kernel_ns": int, "memory_ns": NotRequired[int], "cpu_ns": NotRequired[int],
    "reference_exposed_ns": NotRequired[int], "compute_bound_share": float | None,
    "compute_utilisation": float | None, "memory_utilisation": float | None,
    "operational_intensity": float | None, "peak_memory_bytes": int | None, "waits_for": str | None,
})
Slowest = TypedDict("Slowest", {"ranks": str, "cost_ns": int})
Gap = TypedDict("Gap", {"ranks": str, "name": str, "ns": int})
LongGap = TypedDict("LongGap", {"ranks": str, "name": str, "ns": int, "start_ns": int, "before": str})
Explained = TypedDict("Explained", {
    "path_ns": int, "gaps_ns": int, "spent_ns": dict[str, int], "gaps": list[Gap],
    "longest": list[LongGap],
})
Coverage = TypedDict("Coverage", {
    "nodes": int, "executed": NotRequired[int], "modelled": int, "replayed": int, "defaulted": int,
    "instant": int, "not_executed": int, "timed_by": dict[str, int], "nodes_by_kind": dict[str, int],
    "bytes_by_kind": NotRequired[dict[str, int]], "replayed_communication": int,
    "without_tensors": int | None, "ignored_attributes": dict[str, int], "ignored_metadata": int,
})
FailedPart = TypedDict("FailedPart", {
    "part": str, "at_ns": int, "until_ns": int | None, "left": float, "links": int, "waited_ns": int,
})
BlockedCollective = TypedDict("BlockedCollective", {
    "operation": str, "node_name": str, "group": str, "waiting": str,
})
Deadlock = TypedDict("Deadlock", {
    "at_ns": int, "waited_ns": int, "collectives": list[BlockedCollective],
})
FactorsOfRanks = TypedDict("FactorsOfRanks", {"ranks": str, "name": NotRequired[str]})  # and kinds of work
Software = TypedDict("Software", {
    "name": str, "about": NotRequired[str], "launch": NotRequired[float], "step": NotRequired[float],
    "processors": NotRequired[int], "kernels": NotRequired[float], "assumed": NotRequired[bool],
    "host-waits": NotRequired[bool],
})
OtherSoftware = TypedDict("OtherSoftware", {
    "name": str, "status": str, "makespan_ns": int | None, "reason": NotRequired[str],
})
Estimate = TypedDict("Estimate", {"value_ns": float, "low_ns": float | None, "high_ns": float | None})
WithoutCause = TypedDict("WithoutCause", {
    "cause": str, "mean": float, "p50": float, "p90": float, "p99": float, "saved": Estimate,
})
BlamedPart = TypedDict("BlamedPart", {"name": str, "ns": float})
Blame = TypedDict("Blame", {
    "slowest": int, "rest": int, "difference_ns": float, "by_kind": list[BlamedPart],
    "by_rank": list[BlamedPart], "by_stage": list[BlamedPart], "by_link": list[BlamedPart],
})
Samples = TypedDict("Samples", {
    "samples": int, "seed": int, "actors": int, "ranks": int, "last_at_barriers": bool,
    "limits": list[FoldLimit],
    "nominal_ns": int, "step": dict[str, Estimate], "without": list[WithoutCause], "blame": Blame,
})
Summary = TypedDict("Summary", {
    "status": str, "makespan_ns": int, "ranks": int, "model": str, "model_note": NotRequired[str],
    "routing": NotRequired[Routing | None], "scope": NotRequired[Scope], "profile": str,
    "profile_named_by": str, "corrections": list[str], "switched": list[str],
    "other_profile": OtherProfile | None, "software": NotRequired[Software | None],
    "other_software": NotRequired[OtherSoftware], "folded": Folded,
    "uneven": Uneven, "time_factors": list[FactorsOfRanks], "detail": NotRequired[list[str]],
    "failures": NotRequired[list[FailedPart]], "deadlocks": NotRequired[list[Deadlock]],
    "jobs": list[Job], "out_of_memory": OutOfMemory | None, "spilled": NotRequired[Spilled], "messages": int,
    "bottleneck": Bottleneck | None, "costs": Costs | None, "power": NotRequired[Power],
    "throughput": Throughput | None, "uncertainty": NotRequired[Uncertainty], "packets": Packets | None,
    "samples": NotRequired[Samples],
    "per_rank": list[RankFigures], "slowest": Slowest | None, "explained": Explained | None,
    "coverage": Coverage, "warnings": list[Notice], "defaults": list[Notice],
})
Wait = TypedDict("Wait", {
    "ranks": str, "kind": NotRequired[str], "operation": str, "node_name": str,
    "node_ids": NotRequired[list[int]], "waits_for": str, "provider": NotRequired[str], "since_ns": int,
})
KnotHop = TypedDict("KnotHop", {"rank": int, "waits_for": int, "reason": str})
Stall = TypedDict("Stall", {
    "ranks": NotRequired[int], "unfinished": NotRequired[str], "cause": str, "alike": str,
    "jobs": list[str], "dead_ends": list[str], "nearest": list[str],
    "remedies": list[str], "end_ns": int, "waits": list[Wait], "knot": list[KnotHop],
})
Input = TypedDict("Input", {"file": str, "sha256": str})
RecordedPart = TypedDict("RecordedPart", {
    "ranks": NotRequired[Ranks], "window_ns": NotRequired[tuple[int, int]],
})
Configuration = TypedDict("Configuration", {
    "system": Object, "network": Object, "memory": NotRequired[Object], "groups": NotRequired[Object],
    "compute_model": NotRequired[str],
})
Command = TypedDict("Command", {
    "files": dict[str, str], "machine": NotRequired[str | None], "profile": str | None, "fold": bool,
    "alone": NotRequired[bool], "retime": NotRequired[bool], "when_full": NotRequired[str],
    "power": NotRequired[Any], "steady": NotRequired[float],
})
ScopeOfMachine = TypedDict("ScopeOfMachine", {  # of which a run's scope is a part
    "of_messages": list[str], "of_kernels": dict[str, list[str]], "includes": list[str],
    "leaves_out": list[str],
})
Manifest = TypedDict("Manifest", {
    "et_sim": str, "model": str, "model_note": NotRequired[str], "scope": NotRequired[ScopeOfMachine],
    "profile": str, "profile_named_by": NotRequired[str], "corrections": list[str],
    "switched": NotRequired[list[str]], "software": NotRequired[Software | None],
    "other_software": NotRequired[OtherSoftware], "ranks": NotRequired[int],
    "uneven": NotRequired[Uneven], "costs": NotRequired[Object | None],
    "power_caps": NotRequired[list[float]], "accuracy": NotRequired[Object],
    "peak_tflops": NotRequired[dict[str, float]], "time_factors": NotRequired[list[FactorsOfRanks]],
    "distinct_traces": int, "inputs": list[Input], "warnings": NotRequired[list[Notice]],
    "defaults": NotRequired[list[Notice]], "machine": NotRequired[str], "npus": NotRequired[int],
    "routing": NotRequired[Routing | None], "jobs": NotRequired[list[Job]],
    "other_profile": NotRequired[OtherProfile | None], "configuration": NotRequired[Configuration],
    "detail": NotRequired[list[str]], "recorded_part": NotRequired[RecordedPart],
    "command": NotRequired[Command],
})
# fmt: on
