"""Results of serving: tables of requests and passes, their figures, and the directory of both.

A percentile is the smallest value that this share of the others does not exceed.

The load is compared with the work done: whether replicas keep up, and the cost of tokens then. Requests begin
with empty replicas and end with a drain, which a service in steady state does not do. So the work is counted
while the later half of the requests arrives: from the arrival of the middle one to that of the last. If
arrivals exceed completions by more than chance, requests pile up.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from math import sqrt
from pathlib import Path
from typing import Any, cast

import numpy as np
from msgspec import Struct, field, to_builtins
from msgspec.structs import asdict

from et_sim.machine.system_parts import Costs
from et_sim.serving.batcher import Policy
from et_sim.serving.caching import Caching
from et_sim.serving.cluster import ReplicaPass
from et_sim.serving.engines.description import EngineErrors
from et_sim.serving.prefixes import ENDLESS
from et_sim.serving.replicas import CachePool
from et_sim.serving.rollouts import Rollout
from et_sim.serving.scaling import OnTime, Scaler
from et_sim.serving.sequences import ServedSequence as Served
from et_sim.tables.registry import MANIFEST, SERVING_TABLES, SUMMARY
from et_sim.tables.serving_summary import ServingSummary
from et_sim.timeline.arrow_tables import FilledTable
from et_sim.timeline.content import Nullable, Texts, whole
from et_sim.timeline.writer import new_folder, write_json, write_table

FEWEST_ARRIVALS = 20  # least number for a result
LEAST_GROWTH = 0.05  # as a share of the arrivals
CHANCE = 2  # standard deviations of the number of arrivals
MILLION = 1_000_000
NS_PER_SECOND = 1_000_000_000
SECONDS_PER_HOUR = 3600


class ServedLoad(Struct, frozen=True):
    """Rates per second; None: too few requests, or too short a time."""

    offered_requests_per_s: float | None
    offered_output_tokens_per_s: float | None
    steady_requests_per_s: float | None = None
    steady_output_tokens_per_s: float | None = None
    keeps_up: bool | None = None
    growth_requests_per_s: float | None = None  # of unfinished requests, if it does not keep up


def load_of(arrival_ns: Any, finish_ns: Any, output_tokens: Any) -> ServedLoad:
    """Return the load of all requests."""
    order = np.argsort(arrival_ns, kind="stable")
    arrival, finish, tokens = arrival_ns[order], finish_ns[order], output_tokens[order]
    first, last = int(arrival[0]), int(arrival[-1])
    if first == last:
        return ServedLoad(None, None)
    offered = _per_second(len(arrival) - 1, last - first), _per_second(int(tokens[1:].sum()), last - first)
    middle = int(arrival[len(arrival) // 2])
    came = int(((arrival > middle) & (arrival <= last)).sum())
    span, shortest = last - middle, int((finish - arrival).min())
    if came < FEWEST_ARRIVALS or shortest >= min(span, middle - first):
        return ServedLoad(*offered)
    is_done = (finish > middle) & (finish <= last)
    done = int(is_done.sum())
    keeps_up = came - done <= max(CHANCE * sqrt(came), LEAST_GROWTH * came)
    return ServedLoad(
        *offered,
        _per_second(done, span),
        _per_second(int(tokens[is_done].sum()), span),
        keeps_up,
        None if keeps_up else _per_second(came - done, span),
    )


def costs_of(
    rates: Costs | None, npus: float, busy_share: float, tokens_per_s: float
) -> dict[str, Any] | None:
    """Return the cost of a million output tokens; None without costs of the machine, or without tokens.

    All NPUs of a replica count as computing during a pass: this is an upper bound of the energy.
    """
    if rates is None or not tokens_per_s:
        return None
    seconds = MILLION / tokens_per_s * npus  # of NPUs
    joules = price = None
    if rates.busy_watts is not None and rates.idle_watts is not None:
        busy = min(busy_share, 1.0)
        watts = rates.busy_watts * busy + rates.idle_watts * (1 - busy) + rates.network_watts
        joules = _rounded(seconds * watts)
    if rates.price_per_hour is not None:
        price = _rounded(seconds * rates.price_per_hour / SECONDS_PER_HOUR)
    return {
        "price_per_million_output_tokens": price,
        "most_joules_per_million_output_tokens": joules,
        "currency": rates.currency,
    }


def on_share(scaler: Scaler, first: int, end: int) -> float:
    """Return the share of all replicas that have their NPUs between two times, on average."""

    def within(of: OnTime) -> int:
        return max(min(of.end_ns, end) - max(of.begin_ns, first), 0)

    return sum(map(within, scaler.on_times(end))) / ((end - first) * scaler.rule.most)


def _per_second(count: int, span_ns: int) -> float:
    return round(count * NS_PER_SECOND / span_ns, 3)


def _rounded(value: float) -> float:
    return float(f"{value:.9g}")


def bands_of(of: Mapping[str, Any], errors: EngineErrors | None) -> dict[str, Any] | None:
    """Return the lower and the upper end of the mean of each latency, between which measured ones are likely.

    The time after the first token has the errors of the time per token. None: no errors are known.
    """
    if errors is None:
        return None
    first, whole = (float(of[name].mean()) for name in (TTFT, E2E))
    each, is_null = Nullable.of(of[TPOT])
    bands = {
        TTFT: [round(first * ratio) for ratio in errors.ttft],
        E2E: [
            round(first * ratio + (whole - first) * of_each)
            for ratio, of_each in zip(errors.ttft, errors.tpot, strict=True)
        ],
    }
    if not is_null.all():
        mean = float(each[~is_null].mean())
        bands[TPOT] = [round(mean * ratio) for ratio in errors.tpot]
    return bands


PERCENTILES = (50, 90, 99)
TTFT, TPOT, E2E = "ttft_ns", "tpot_ns", "e2e_ns"
OF_MODELS = (
    "requests",
    "output_tokens",
    "output_tokens_per_s",
    TTFT,
    TPOT,
    E2E,
    "transfer_ns",
    "goodput",
    "busy_share",
)


class Objectives(Struct, frozen=True):
    """The limits that a good request meets; 0: none."""

    ttft_ns: int = 0
    tpot_ns: int = 0


class Serving(Struct, frozen=True, eq=False):
    """The results of serving."""

    served: Sequence[Served]
    iterations: Sequence[ReplicaPass]
    pools: Sequence[CachePool]
    policy: Policy
    objectives: Objectives
    facts: dict[str, Any]  # of the summary: the inputs of the simulation
    manifest: dict[str, Any]
    rates: Costs | None = None  # of an NPU
    caching: Caching = field(default_factory=Caching)
    errors: EngineErrors | None = None  # of rows that the engine's figures are not fitted to
    rollout: Rollout | None = None
    scaler: Scaler | None = None
    models: tuple[Serving, ...] = ()  # the results of each, if there are several
    first_replica: int = 0  # its number

    def requests(self) -> dict[str, Any]:
        """Return columns of the table of requests."""
        columns = {
            "request": [sequence.request.number for sequence in self.served],
            "prompt_tokens": [sequence.request.prompt for sequence in self.served],
            "output_tokens": [sequence.produced for sequence in self.served],
            "arrival_ns": [sequence.request.arrival_ns for sequence in self.served],
            **{
                name: [getattr(sequence, name) for sequence in self.served]
                for name in (
                    *("scheduled_ns", "first_token_ns", "finish_ns", "replica", "decode_replica"),
                    *("transfer_ns", "preemptions", "hit_tokens", "loaded_tokens"),
                )
            },
        }
        table: dict[str, Any] = {name: np.array(values, np.int64) for name, values in columns.items()}
        further = table["output_tokens"] - 1
        table[TTFT] = table["first_token_ns"] - table["arrival_ns"]
        table[E2E] = table["finish_ns"] - table["arrival_ns"]
        each = (table["finish_ns"] - table["first_token_ns"]) // np.maximum(further, 1)
        table[TPOT] = Nullable(each, further <= 0)
        for name in ("decode_replica", "transfer_ns"):
            table[name] = Nullable(table[name], table[name] < 0)
        return table

    def _named_requests(self) -> dict[str, Any]:
        """Return columns of the table of requests with the names of their models."""
        names = tuple(each.facts["model"] for each in self.models or (self,))
        place = [max(sequence.request.model, 0) if self.models else 0 for sequence in self.served]
        return {**self.requests(), "model": Texts(np.array(place, np.int64), names)}

    def passes(self) -> dict[str, Any]:
        """Return columns of the table of passes."""
        rows = np.array(self.iterations, np.int64).reshape(-1, len(ReplicaPass._fields))
        table: dict[str, Any] = dict(zip(ReplicaPass._fields, rows.T, strict=True))
        number = np.repeat(np.arange(len(self.pools)), [pool.groups for pool in self.pools])
        pool = number[table["replica"] - self.first_replica]
        sizes = np.array([pool.block_bytes(self.policy.block) for pool in self.pools])
        table["cache_bytes"] = table.pop("used_blocks") * sizes[pool]
        table["pool"] = Texts(pool, tuple(pool.work for pool in self.pools))
        models = self.models or (self,)
        model = np.repeat(np.arange(len(models)), [len(each.pools) for each in models])
        table["model"] = Texts(model[pool], tuple(each.facts["model"] for each in models))
        return table

    def summary(self) -> ServingSummary:
        """Return the content of summary.json."""
        of = self.requests()
        first, last = int(of["arrival_ns"].min()), int(of["finish_ns"].max())
        span = max(last - first, 1)
        tokens = int(of["output_tokens"].sum())
        rows = self.passes()
        is_open = not self.facts["concurrency"] and not self.facts["sessions"] and self.rollout is None
        load = (
            load_of(of["arrival_ns"], of["finish_ns"], of["output_tokens"])
            if is_open
            else ServedLoad(None, None)
        )
        during = np.minimum(rows["end_ns"], last) - np.maximum(rows["start_ns"], first)
        on = 1.0 if self.scaler is None else on_share(self.scaler, first, first + span)
        busy = round(float(np.maximum(during, 0).sum()) / span / (self._replicas * on), 4)
        summary = {
            "requests": len(self.served),
            "duration_ns": last - first,
            "prompt_tokens": int(of["prompt_tokens"].sum()),
            "output_tokens": tokens,
            "requests_per_s": _per_second(len(self.served), span),
            "output_tokens_per_s": _per_second(tokens, span),
            "load": to_builtins(load),
            "costs": costs_of(self.rates, self._npus * on, busy, _per_second(tokens, span)),
            **{name: _spread(of[name]) for name in (TTFT, TPOT, E2E)},
            "bands": bands_of(of, self.errors),
            "goodput": self._goodput(of, span),
            "passes": len(self.iterations),
            "mean_sequences": round(float(rows["sequences"].mean()), 3),
            "busy_share": busy,
            "preemptions": int(of["preemptions"].sum()),
            "transfer_ns": _spread(of["transfer_ns"]),
            "prefixes": self._prefixes(of),
            **({} if self.rollout is None else {"rollout": self.rollout.summary(of, rows, self._replicas)}),
            **({} if self.scaler is None else {"scaling": self._scaling(self.scaler, first, first + span)}),
            "peak_cache_bytes": int(rows["cache_bytes"].max()),
            "pools": self._pools(),
            **({"models": [each.of_model() for each in self.models]} if self.models else {}),
            "policy": asdict(self.policy),
        }
        return cast(ServingSummary, {**summary, **self.facts})

    def of_model(self) -> dict[str, Any]:
        """Return the figures of one of several models."""
        name = self.facts["model"]
        if not self.served:
            return {"model": name, "requests": 0}
        summary: Mapping[str, Any] = self.summary()
        return {"model": name, **{figure: summary[figure] for figure in OF_MODELS}}

    def _pools(self) -> list[dict[str, Any]]:
        """Return the replicas, with their model if there are several."""
        if not self.models:
            return [self._pool(pool) for pool in self.pools]
        return [{"model": each.facts["model"], **pool} for each in self.models for pool in each._pools()]

    @property
    def _replicas(self) -> int:
        return sum(pool.groups for pool in self.pools)

    @property
    def _npus(self) -> int:
        return sum(pool.replicas * pool.ranks for pool in self.pools)

    def _pool(self, pool: CachePool) -> dict[str, Any]:
        return {
            "work": pool.work,
            "replicas": pool.replicas,
            "ranks_of_replica": pool.ranks,
            "tensor": pool.plan.tensor,
            "pipeline": pool.plan.pipeline,
            "expert": pool.plan.expert,
            "experts_apart": pool.plan.experts_apart,
            "data": pool.plan.data,
            "first_rank": pool.first_rank,
            "cache_tokens": pool.tokens(self.policy.block),
            "cache_bytes": pool.blocks * pool.block_bytes(self.policy.block),
            "token_bytes": pool.token_bytes,
        }

    def _scaling(self, scaler: Scaler, first: int, end: int) -> dict[str, Any]:
        """Return the rule, and what it did from the first arrival to the last token."""
        rule, npus = scaler.rule, self._npus * on_share(scaler, first, end)
        known = {name: getattr(rule, name) for name in ("rule", "least", "most", "source")}
        times = {name: getattr(rule, name) for name in ("every_ns", "down_after_ns", "start_ns")}
        return {
            **known,
            **times,
            "started": sum(each.begin_ns > 0 for each in scaler.on_times(end)),
            "stopped": len(scaler.ended),
            "weights_ns": _spread(np.array(scaler.weights_ns, np.int64)),
            "mean_npus": round(npus, 3),
            "npu_hours": _rounded(npus * (end - first) / NS_PER_SECOND / SECONDS_PER_HOUR),
            "replicas": [list(state) for state in scaler.course if state.time_ns <= end],
        }

    def _prefixes(self, of: dict[str, Any]) -> dict[str, Any] | None:
        """Return what was cached when requests began, or None without a cache of prefixes."""
        if not self.caching.shares_blocks:
            return None
        hits = of["hit_tokens"]
        return {
            "kept_tokens": None if self.caching.tokens == ENDLESS else self.caching.tokens,
            "remote_tokens": None if self.caching.remote_tokens == ENDLESS else self.caching.remote_tokens,
            "loaded_tokens": int(of["loaded_tokens"].sum()),
            "router": self.caching.router,
            "hit_tokens": int(hits.sum()),
            "hit_share": round(float(hits.sum() / of["prompt_tokens"].sum()), 6),
            "requests_with_hits": int((hits > 0).sum()),
        }

    def _goodput(self, of: dict[str, Any], span: int) -> dict[str, Any] | None:
        """Return the requests that met the objectives, or None without any."""
        good = np.ones(len(self.served), np.bool_)
        limits = {TTFT: self.objectives.ttft_ns, TPOT: self.objectives.tpot_ns}
        if not any(limits.values()):
            return None
        for name, limit in limits.items():
            if limit:
                values, is_null = Nullable.of(of[name])
                good &= is_null | (values <= limit)
        return {
            "requests": int(good.sum()),
            "share": round(float(good.mean()), 6),
            "requests_per_s": _per_second(int(good.sum()), span),
            **{f"{name.removesuffix('_ns')}_limit_ns": limit for name, limit in limits.items() if limit},
        }

    def write(self, target: Path) -> None:
        """Write the directory: all of it, or nothing."""
        text = json.dumps(self.manifest, ensure_ascii=False)
        with new_folder(target) as (draft, _):
            for table in SERVING_TABLES:
                columns = self._named_requests() if table.name == "requests" else self.passes()
                filled = FilledTable(table, whole(columns), text)
                write_table(draft / table.file, filled.schema, filled.batches())
            write_json(self.summary(), draft / SUMMARY)
            write_json(self.manifest, draft / MANIFEST)


def _spread(column: Any) -> dict[str, int] | None:
    """Return mean, percentiles and the largest value; None without values."""
    values, is_null = Nullable.of(column)
    known = np.sort(values[~is_null])
    count = len(known)
    if not count:
        return None
    spread = {"mean": int(known.sum()) // count}
    for percent in PERCENTILES:
        spread[f"p{percent}"] = int(known[-(-percent * count // 100) - 1])
    return {**spread, "max": int(known[-1])}
