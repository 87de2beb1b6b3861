"""Predictions of measured servings, and their errors by model, GPU, engine and campaign."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from et_sim.basics.errors import EtSimError
from et_sim.run.options import RunOptions
from et_sim.run.workers import in_order
from et_sim.serving.batcher import PREFILL_FIRST, WHOLE_PROMPTS, Policy, blocks_for
from et_sim.serving.clients import Client
from et_sim.serving.engines.description import Engine
from et_sim.serving.engines.reading import read_engine
from et_sim.serving.replicas import MachineTimes, SimulatedTimes
from et_sim.serving.results import TPOT, TTFT, Serving
from et_sim.serving.serve import serve
from et_sim.serving.setups import Setup
from et_sim.validation.campaign_settings import settings_of
from et_sim.validation.serving_rows import Load, ServedRow, ServingCase
from et_sim.workloads import Model, read_model

CONTEXT_STEP = 256  # coarser than the default of `serve`: times per token differ by less than 0.5 %
NS_PER_MS = 1e6
Band = tuple[float, float]


class Latencies(Struct, frozen=True):
    """Mean latencies of a serving in ms, with their bands."""

    ttft_ms: float
    tpot_ms: float
    ttft_band: Band | None = None
    tpot_band: Band | None = None
    is_full: bool = False  # requests waited for the cache, or lost theirs


class ServingPrediction(Struct, frozen=True):
    """The prediction for a row; without latencies, `why` is the reason."""

    row: ServedRow
    found: Latencies | None
    why: str = ""

    def ratio(self, name: str) -> float | None:
        """Return the predicted by the measured time of `ttft_ms` or `tpot_ms`."""
        measured = getattr(self.row, name)
        return None if self.found is None or measured is None else getattr(self.found, name) / measured


def predicted_servings(rows: Sequence[ServedRow], machine: str | None = None) -> Iterator[ServingPrediction]:
    """Yield a prediction for each row, in order; equal servings are simulated once, in parallel.

    `machine` overrides the machines of the systems that rows name.
    """
    cases: dict[ServingCase, int] = {}
    for row in rows:
        if row.case is not None:
            cases.setdefault(_on(row.case, machine), len(cases))
    found = in_order(_simulating, None, list(cases))
    done: list[Latencies | str] = []
    for row in rows:
        if row.case is None:
            yield ServingPrediction(row, None, row.why)
            continue
        at = cases[_on(row.case, machine)]
        while len(done) <= at:
            done.append(next(found))
        outcome = done[at]
        if isinstance(outcome, str):
            yield ServingPrediction(row, None, outcome)
        else:
            yield ServingPrediction(row, outcome)


def _on(case: ServingCase, machine: str | None) -> ServingCase:
    if machine is None:
        return case
    return replace(case, machine=f"{machine.partition(':')[0]}:{case.machine.rpartition(':')[2]}")


def _simulating(_: None) -> Callable[[ServingCase], Latencies | str]:
    """Return the function of a worker process, which returns a reason for a refused serving.

    Servings on a machine share the times of its kernels and exchanges.
    """
    machines: dict[str, MachineTimes] = {}

    def simulated(case: ServingCase) -> Latencies | str:
        try:
            return latencies_of(case, machines.setdefault(case.machine, MachineTimes()))
        except EtSimError as error:
            return error.cause

    return simulated


def served(
    case: ServingCase,
    engine: Engine | None = None,
    times_of: Callable[..., SimulatedTimes] = SimulatedTimes,
    shared: MachineTimes | None = None,
) -> Serving:
    """Return a serving by an engine, that of the case without one, with passes that `times_of` times.

    `shared` has times that were found on the machine before.
    """
    load = case.load
    setup = setup_of(case, read_engine(case.engine) if engine is None else engine)
    options = RunOptions(machine=case.machine)
    requests = f"closed:{load.prompt},{load.output}"
    return serve(requests, model_of(case), setup, options, times_of=times_of, shared=shared)


def latencies_of(case: ServingCase, shared: MachineTimes | None = None) -> Latencies:
    """Return the latencies of a serving; `shared` has times that were found on its machine before."""
    outcome = served(case, shared=shared)
    summary = outcome.summary()
    tpot, bands = summary["tpot_ns"], summary.get("bands") or {}
    ends = {name: (band[0] / NS_PER_MS, band[1] / NS_PER_MS) for name, band in bands.items()}
    return Latencies(
        summary["ttft_ns"]["mean"] / NS_PER_MS,
        (tpot["mean"] if tpot else 0) / NS_PER_MS,
        ends.get(TTFT),
        ends.get(TPOT),
        is_full(outcome, case.load.concurrency),
    )


def is_full(outcome: Serving, concurrency: int) -> bool:
    """Return whether caches were lost, or a tenth of the passes left requests waiting for room."""
    if any(each.preemptions for each in outcome.served):
        return True
    pool, block = outcome.pools[0], outcome.policy.block
    least = min(each.request.prompt for each in outcome.served)
    needed = blocks_for(least, block) if pool.units is None else pool.units.of(least)
    waits = sum(
        each.waiting > 0 and each.sequences < concurrency and each.used_blocks + needed > pool.blocks
        for each in outcome.iterations
    )
    return waits > len(outcome.iterations) / 10


def model_of(case: ServingCase) -> Model:
    """Return the model of a case, made for sequences of its length at least."""
    model = read_model(case.model)
    return replace(model, sequence=max(model.sequence, case.load.prompt + case.load.output))


def setup_of(case: ServingCase, engine: Engine) -> Setup:
    """Return the setup of a case, whose engine runs as many sequences at a time as are under way."""
    load, own = case.load, settings_of(case, engine)
    policy = own.policy or engine.policy
    budget = max(own.token_budget or engine.token_budget, load.concurrency)
    if policy == WHOLE_PROMPTS:
        budget = max(budget, load.concurrency + load.prompt)
    most = min(engine.max_batch, load.concurrency)
    waits = {
        name: getattr(own, name) or getattr(engine, name)
        for name in ("wait_passes", "wait_share", "balance_passes")
    }
    if own.prepares is not None:
        engine = replace(engine, host=replace(engine.host, prepares=own.prepares))
    prefill, decode = case.replicas
    return Setup(
        plan=own.plan or case.plan,
        replicas=decode,
        prefill_replicas=prefill,
        decode_plan=case.decode_plan,
        policy=Policy(policy, most, budget, engine.block, **waits),
        context_step=CONTEXT_STEP,
        memory_share=own.memory_share,
        client=client_of(load, policy),
        engine=engine,
    )


def client_of(load: Load, policy: str) -> Client:
    """Return the client of a load.

    Requests with lengths that vary do not stay in step, and those that warm up would end before the others
    begin. Equal ones that begin together stay together if no pass mixes prompts and tokens, or prompts are
    whole; else servers spread them in time, so that the first ones end at different times.
    """
    if load.lengths < 1 or policy.startswith(PREFILL_FIRST) or policy == WHOLE_PROMPTS:
        return Client(load.concurrency, load.lengths, warm_up=0)
    return Client(load.concurrency, warm_up=load.concurrency, is_spread=True)
