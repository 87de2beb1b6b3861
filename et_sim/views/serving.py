"""A serving as text: its summary, and its course over time."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from msgspec import Struct

from et_sim.basics.unique import unique
from et_sim.basics.units import format_bytes, format_joules, format_ns, plural
from et_sim.tables.serving_summary import Load, OfModel, RatePoint, ServingCosts, ServingSummary, Spread
from et_sim.views.run.directory import RunDirectory
from et_sim.views.sheet import Sheet, SheetColumn
from et_sim.views.summary.sentences import scope_text
from et_sim.views.text import fact, fact_lines

_TIMES = (
    ("ttft_ns", "time to first token"),
    ("tpot_ns", "time per output token"),
    ("e2e_ns", "whole request"),
    ("transfer_ns", "cache on its way"),
)
_COLUMNS = ("mean", "p50", "p90", "p99", "max")
_WORKS = {"both": "prompts and tokens", "prefill": "prompts", "decode": "further tokens"}
SLICES = 12
COLUMNS = ("arrival_ns", "finish_ns", "ttft_ns", "tpot_ns")


class Slice(Struct, frozen=True):
    """A part of the time from the first arrival to the last token."""

    start_ns: int
    end_ns: int
    arrived: int
    done: int
    under_way: int  # at its end
    ttft_ns: int | None  # median of the requests that arrived in it; None: none arrived
    tpot_ns: int | None
    replicas: int | None = None  # that serve at its end, if a rule changes their number
    others: int | None = None  # that start, or end their last requests


def summary_lines(summary: ServingSummary, width: int) -> list[str]:
    """Return the printed lines."""
    facts_of_run = (("in short", in_short(summary)), ("includes", scope_text(summary.get("scope"))))
    bands = fact_lines(_bands(summary), width) if summary.get("bands") else []
    before, after = ([fact(*of) for of in facts] for facts in (_outcome(summary), _setting(summary)))
    return [
        *fact_lines(facts_of_run, width),
        *before,
        "",
        *LATENCIES.lines(latencies(summary)),
        *bands,
        *rate_lines(summary),
        "",
        *after,
    ]


def serving_text(run: RunDirectory, width: int) -> str:
    """Return the summary of a directory, and the table over time."""
    return "\n".join([*summary_lines(run.serving_summary, width), "", *SLICE_SHEET.lines(slices_of(run))])


def facts(summary: ServingSummary) -> list[tuple[str, str]]:
    """Return (name, text) of all facts besides the tables."""
    return [*_outcome(summary), *_bands(summary), *_setting(summary)]


def latencies(summary: ServingSummary) -> list[tuple[str, Spread]]:
    """Return (name, times) of latencies of requests."""
    parts: list[tuple[str, Mapping[str, Any]]] = [("", summary)]
    parts += [(f", {of['model']}", of) for of in summary.get("models", ()) if of["requests"]]
    return [(text + whose, of[name]) for whose, of in parts for name, text in _TIMES if of[name] is not None]


def rate_lines(summary: ServingSummary) -> list[str]:
    """Return the table of the rates that were tried, if the largest good one was sought."""
    if not (found := summary.get("largest_rate")):
        return []
    return ["", *RATE_SHEET.lines(found["rates"])]


def _good(point: RatePoint) -> str:
    return f"{point['good_share']:.1%}"


def _verdict(point: RatePoint) -> str:
    if point["is_good"]:
        return "good enough"
    return "the queue grows" if point["keeps_up"] is False else "too few are good"


def _at(name: str, column: str, point: Mapping[str, Any]) -> str:
    return "-" if point[name] is None else format_ns(point[name][column])


def _latency(column: str, of: tuple[str, Mapping[str, Any]]) -> str:
    return format_ns(of[1][column])


LATENCIES = Sheet(
    (
        SheetColumn("", 0, "<"),
        *(SheetColumn(name, partial(_latency, name)) for name in _COLUMNS),
    )
)
RATE_SHEET = Sheet(
    (
        SheetColumn("requests/s", lambda point: f"{point['requests_per_s']:,.4g}", "<"),
        SheetColumn("output tokens/s", lambda point: f"{point['output_tokens_per_s']:,.1f}"),
        SheetColumn("good", _good),
        SheetColumn("p50 to first token", partial(_at, "ttft_ns", "p50")),
        SheetColumn("p99 to first token", partial(_at, "ttft_ns", "p99")),
        SheetColumn("p50 per token", partial(_at, "tpot_ns", "p50")),
        SheetColumn("p99 per token", partial(_at, "tpot_ns", "p99")),
        SheetColumn("", _verdict, "<"),
    )
)
SLICE_SHEET = Sheet(
    (
        SheetColumn("from", "start_ns", "<"),
        SheetColumn("came", "arrived"),
        SheetColumn("done"),
        SheetColumn("under way", "under_way"),
        SheetColumn("p50 to first token", "ttft_ns"),
        SheetColumn("p50 per token", "tpot_ns"),
        SheetColumn("replicas", "replicas", is_optional=True),
        SheetColumn("start or end", "others", is_optional=True),
    )
)


def _outcome(summary: ServingSummary) -> list[tuple[str, str]]:
    requests = plural(summary["requests"], "request")
    rates = (
        f"{summary['requests_per_s']:,.2f} requests/s, {summary['output_tokens_per_s']:,.1f} output tokens/s"
    )
    outcome = [
        ("served", f"{requests} in {format_ns(summary['duration_ns'])}, from first arrival to last token"),
        ("throughput", rates),
        *_load(summary["load"]),
    ]
    if found := summary.get("largest_rate"):
        enough = f"{found['good_share']:.4g} of all requests are good at"
        most = f"{found['requests_per_s']:,.4g} requests/s, the most within {found['tolerance']:.4g} of it"
        outcome.append(("rate", f"{enough} {most}"))
    if good := summary["goodput"]:
        kept = f"{good['share']:.1%} keep {_limits(good)}"
        outcome.append(("goodput", f"{good['requests_per_s']:,.2f} requests/s: {kept}"))
    return [*outcome, *map(_of_model, summary.get("models", ()))]


def _of_model(of: OfModel) -> tuple[str, str]:
    """Return the line of one of several models."""
    text = plural(of["requests"], "request")
    if of["requests"]:
        text += (
            f", {of['output_tokens_per_s']:,.1f} output tokens/s; replicas are busy {of['busy_share']:.0%}"
        )
    if good := of.get("goodput"):
        text += f"; {good['share']:.1%} keep {_limits(good)}"
    return (of["model"], text)


def in_short(summary: ServingSummary) -> str:
    """Return the sentence: whether the load is sustainable, the first-token latency, and the busy share."""
    load, first, each = summary["load"], summary["ttft_ns"], summary["tpot_ns"]
    text = f"{plural(summary['requests'], 'request')} served"
    if load["keeps_up"] is not None:
        verb = "keeps" if load["keeps_up"] else "does not keep"
        text = f"{verb} up with {load['offered_requests_per_s']:,.4g} requests/s"
    half, most = (format_ns(first[column]) for column in ("p50", "p99"))
    text += f"; half of the first tokens are there within {half}, 99 % within {most}"
    if each is not None:
        text += f", and half of the further ones take {format_ns(each['p50'])} or less"
    return f"{text}; replicas are busy {summary['busy_share']:.0%} of the time"


def _load(load: Load) -> list[tuple[str, str]]:
    """Return the offered load beside the completed load, and whether it is sustainable."""
    if load["offered_requests_per_s"] is None:
        return []
    text = f"{load['offered_requests_per_s']:,.2f} requests/s offered"
    if load["keeps_up"] is None:
        return [("load", f"{text}; too few requests, or too short a time, to decide whether this keeps up")]
    growth = load["growth_requests_per_s"]
    growth_text = "keeps up" if load["keeps_up"] else f"the queue grows by {growth:,.2f} requests/s"
    steady = f"{load['steady_requests_per_s']:,.2f} done while they arrive"
    return [
        (
            "load",
            f"{text}, {steady} ({load['steady_output_tokens_per_s']:,.1f} output tokens/s): {growth_text}",
        )
    ]


def _stay(count: int, noun: str) -> str:
    return f"{plural(count, noun)} {'stays' if count == 1 else 'stay'}"


def _prefixes(summary: ServingSummary) -> list[tuple[str, str]]:
    """Return the tokens of prompts that were cached when their requests began."""
    if not (of := summary.get("prefixes")):
        return []
    most = of["kept_tokens"]
    kept = "as many idle tokens as fit stay"
    if most is not None:
        kept = f"at most {_stay(most, 'idle token')}" if most else "no idle tokens stay"
    hits = (
        f"{of['hit_share']:.1%} of the tokens of prompts were cached"
        f" ({of['hit_tokens']:,}, of {plural(of['requests_with_hits'], 'request')});"
    )
    found = [("prefixes", f"{hits} {kept}; router by {of['router']}")]
    if of["remote_tokens"] != 0:
        far = of["remote_tokens"]
        room = "all tokens stay" if far is None else f"at most {_stay(far, 'token')}"
        found.append(("offload", f"{of['loaded_tokens']:,} tokens loaded from remote memory; {room} there"))
    return found


def _rollout(summary: ServingSummary) -> list[tuple[str, str]]:
    """Return the time of a batch of a rollout, and its parts."""
    if not (of := summary.get("rollout")):
        return []
    each = f"{plural(of['batches'], 'batch', 'batches')} of {plural(of['batch_requests'], 'request')}"
    weights = (
        f"; new weights take {format_ns(of['weights_ns'])}, {of['weights_share']:.1%} of all"
        if of["weights_ns"]
        else ""
    )
    return [
        (
            "rollout",
            f"{each}, {format_ns(of['batch_ns'])} each, {of['tail_share']:.0%} of it after 90 % of the"
            f" requests; replicas are idle {of['idle_share']:.0%} of it{weights}",
        )
    ]


def _scaling(summary: ServingSummary) -> list[tuple[str, str]]:
    """Return the rule by which replicas start and stop, and what it did."""
    if not (of := summary.get("scaling")):
        return []
    after = f"fewer after {format_ns(of['down_after_ns'])}"
    came = f"{of['started']} started and {of['stopped']} stopped"
    cold = (
        f"; weights from a {of['source']} took {format_ns(weights['p50'])} in half of the cases, the engine"
        f" {format_ns(of['start_ns'])}"
        if (weights := of["weights_ns"])
        else ""
    )
    hours = f"{of['npu_hours']:,.4g} hours of NPUs are paid, of {of['mean_npus']:,.4g} NPUs on average"
    rule = f"{of['rule']} of a replica, every {format_ns(of['every_ns'])}, {after}: {came}{cold}"
    return [("autoscaling", rule), ("paid", hours)]


def _costs(costs: ServingCosts | None) -> list[tuple[str, str]]:
    if costs is None:
        return []
    prices, of = [], "per million output tokens"
    if (price := costs["price_per_million_output_tokens"]) is not None:
        prices.append(("price", f"{price:,.4g} {costs['currency']} {of}"))
    if (joules := costs["most_joules_per_million_output_tokens"]) is not None:
        prices.append(("energy", f"at most {format_joules(joules)} {of}"))
    return prices


def _bands(summary: ServingSummary) -> list[tuple[str, str]]:
    """Return the sentence about the measured means that are likely."""
    if not (bands := summary.get("bands")):
        return []
    parts = (f"{text} {' to '.join(map(format_ns, bands[name]))}" for name, text in _TIMES if name in bands)
    return [("uncertainty", f"80 % of the means: {'; '.join(parts)}")]


def _limits(good: Mapping[str, Any]) -> str:
    words = (("ttft_limit_ns", "a first token within"), ("tpot_limit_ns", "a token within"))
    return " and ".join(f"{text} {format_ns(good[key])}" for key, text in words if key in good)


def _setting(summary: ServingSummary) -> list[tuple[str, str]]:
    policy, step = summary["policy"], summary["context_step"]
    setting = []
    for pool in summary["pools"]:
        sizes = {"tensor": pool["tensor"], "data": pool.get("data", 1), "pipeline": pool["pipeline"]}
        axes = [f"{axis} {size}" for axis, size in sizes.items() if size > 1]
        spread = " x ".join(axes) or "whole"
        if pool["expert"] > 1:
            own = " of their own" if pool.get("experts_apart") else ""
            spread += f", experts over {pool['expert']}{own}"
        name = pool.get("model", summary["model"])
        each = f"each {name} on {plural(pool['ranks_of_replica'], 'NPU')} ({spread})"
        cache = f"with a cache of {pool['cache_tokens']:,} tokens"
        cache += f" in each of {sizes['data']} groups" if sizes["data"] > 1 else ""
        count = f"{of['least']} to {of['most']}" if (of := summary.get("scaling")) else f"{pool['replicas']}"
        setting.append(("replicas", f"{count} for {_WORKS[pool['work']]}, {each}, {cache}"))
    used = sum(pool["replicas"] * pool["ranks_of_replica"] for pool in summary["pools"])
    if used < summary["npus"]:
        idle = summary["npus"] - used
        setting.append(("idle", f"{idle} of the machine's {plural(summary['npus'], 'NPU')}"))
    lost = (
        f"; {plural(summary['preemptions'], 'cache')} lost for want of blocks"
        if summary["preemptions"]
        else ""
    )
    rounding = "exact contexts" if step == 1 else f"contexts rounded up to {step} tokens"
    passes = plural(summary["passes"], "pass", "passes")
    distinct = plural(summary["simulated_passes"], "distinct pass", "distinct passes")
    transfers = summary["simulated_transfers"]
    also = f" and {plural(transfers, 'distinct transfer')}" if transfers else ""
    also += " (by layers)" if summary.get("transfer") == "layers" else ""
    if engine := summary.get("engine"):
        setting.append(("engine", engine))
    if drafts := summary.get("speculation"):
        count = plural(drafts["tokens"], "draft")
        kept = f"{drafts['acceptance']:g} tokens of a pass are kept on average"
        setting.append(("speculation", f"{count} of a sequence by {drafts['source']}; {kept}"))
    if tokens := summary.get("image_tokens"):
        setting.append(("images", f"{plural(tokens, 'token')} of each request, encoded before its prompt"))
    if under_way := summary.get("concurrency"):
        sent = f"{plural(under_way, 'request')} under way at a time"
        warm_up = summary.get("warm_up", 0)
        setting.append(("client", f"{sent}, after {plural(warm_up, 'request')} that are not counted"))
    if sessions := summary.get("sessions"):
        setting.append(("client", f"{plural(sessions, 'session')}, whose turns follow the answers"))
    setting += [
        (
            "batches",
            f"{passes} ({policy['name']}), of {summary['mean_sequences']:.1f} sequences on average;"
            f" replicas are busy {summary['busy_share']:.0%} of the time{lost}",
        ),
        ("cache", f"{format_bytes(summary['peak_cache_bytes'])} of an NPU at most"),
        *_prefixes(summary),
        *_rollout(summary),
        *_scaling(summary),
        ("simulated", f"{distinct}{also}, {summary['network_model']} network, {rounding}"),
        *_costs(summary["costs"]),
    ]
    if summary["kernels"] != "machine":
        setting.append(("kernels", "by --tflops and --memory-gbps: the machine does not time them"))
    return setting


def slices_of(run: RunDirectory, count: int = SLICES) -> tuple[Slice, ...]:
    """Return this many equal slices, or fewer if there are fewer nanoseconds."""
    arrival, finish, ttft, tpot = run.arrays("requests", COLUMNS).values()
    first, last = int(arrival.min()), int(finish.max()) + 1
    edges = unique(np.linspace(first, last, count + 1).astype(np.int64)).tolist()
    slices = []
    for start, end in pairwise(edges):
        came = (arrival >= start) & (arrival < end)
        done = (finish >= start) & (finish < end)
        left = int((arrival < end).sum() - (finish < end).sum())
        others = (
            *(_median(column[came]) for column in (ttft, tpot)),
            *_replicas_at(end, run.serving_summary),
        )
        slices.append(Slice(start - first, end - first, int(came.sum()), int(done.sum()), left, *others))
    return tuple(slices)


def _replicas_at(end_ns: int, summary: ServingSummary) -> tuple[int | None, int | None]:
    """Return the replicas that serve just before a time, and those that start or end their last requests."""
    if not (of := summary.get("scaling")):
        return None, None
    serving, starting, draining = next(
        state for time_ns, *state in reversed(of["replicas"]) if time_ns < end_ns
    )
    return serving, starting + draining


def _median(values: Any) -> int | None:
    """Return the smallest value that half of the known ones do not exceed."""
    known = np.sort(values[values >= 0])
    return int(known[(len(known) - 1) // 2]) if len(known) else None
