"""Times that plans, models and loads on one machine share: equal to their own, and found once."""

from __future__ import annotations

import random
from typing import Any

import pytest
from msgspec.structs import asdict
from test_chains import SYSTEM, random_batch, random_machine
from training_jobs import decoder, with_experts

from et_sim.run.options import RunOptions
from et_sim.serving import exchanges
from et_sim.serving.batcher import Policy
from et_sim.serving.caching import Caching
from et_sim.serving.prefixes import ENDLESS
from et_sim.serving.replicas import BOTH, CachePool, MachineTimes, SimulatedTimes
from et_sim.serving.requests import Request
from et_sim.serving.serve import serve
from et_sim.serving.setups import Setup
from et_sim.workloads import Model, Plan

RINGS = SYSTEM | {
    f"{kind}-implementation": ["ring"]
    for kind in ("all-reduce", "all-gather", "all-to-all", "reduce-scatter")
}
NETWORK = {"topology": ["Ring"], "npus_count": [4], "bandwidth": [40], "latency": [700]}
MACHINE = RunOptions(network=NETWORK, system=RINGS)
MODELS = (decoder(sequence=4096), decoder(sequence=4096, hidden=128), with_experts(sequence=4096))
PLANS = (Plan(tensor=4), Plan(tensor=2), Plan(tensor=2, pipeline=2), Plan(tensor=2, data=2), Plan())


@pytest.fixture(autouse=True)
def few_sizes_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulate few sizes of exchanges together, since few are needed here."""
    monkeypatch.setattr(exchanges, "BLOCK", 2)


@pytest.fixture
def simulated(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that grows with every simulation of a pass, of a transfer, or of exchanges."""
    done: list[str] = []
    outcome = SimulatedTimes._outcome

    def counted(self: SimulatedTimes, task: Any, workload: Any, may_fold: bool = True) -> Any:
        done.append(workload.source)
        return outcome(self, task, workload, may_fold)

    monkeypatch.setattr(SimulatedTimes, "_outcome", counted)
    return done


def served(shared: MachineTimes | None, rate: int, **setup: Any) -> Any:
    given = [Request(number, number * 10**9 // rate, 40 + 7 * number, 5) for number in range(6)]
    setup = {"plan": Plan(tensor=2), "policy": Policy("chunked", 4, 64), "capacity_bytes": 10**9, **setup}
    return serve(given, MODELS[0], Setup(**setup), MACHINE, shared=shared)


def results(of: Any) -> tuple[Any, ...]:
    return of.summary(), of.manifest, of.iterations, [asdict(one) for one in of.served]


def test_runs_that_share_times_have_the_results_of_runs_by_themselves() -> None:
    shared = MachineTimes()
    apart = {"prefill_replicas": 1}
    for rate, setup in (
        *((1000, {"replicas": 2}), (1000, apart), (10_000, {"replicas": 2})),
        *((10_000, apart), (10_000, apart | {"transfer": "layers"}), (1000, {"caching": Caching(ENDLESS)})),
    ):
        assert results(served(shared, rate, **setup)) == results(served(None, rate, **setup))


def test_the_same_load_is_simulated_once(simulated: list[str]) -> None:
    shared = MachineTimes()
    served(shared, 1000, prefill_replicas=1)
    assert simulated
    simulated.clear()
    served(shared, 1000, prefill_replicas=1)
    assert simulated == []


def test_the_same_caches_are_loaded_once(simulated: list[str]) -> None:
    shared = MachineTimes()
    equal = [Request(number, number * 10**9, 100, 2, hashes=(1,)) for number in (0, 1)]
    host = {"memory-type": "PER_NPU_MEMORY_EXPANSION", "remote-mem-latency": 9, "remote-mem-bw": 50}
    setup = Setup(Plan(tensor=2), capacity_bytes=10**9, caching=Caching(0, remote_tokens=ENDLESS))
    machine = RunOptions(network=NETWORK, system=RINGS, memory=host)
    first = results(serve(equal, MODELS[0], setup, machine, shared=shared))
    assert "<cache>" in simulated
    simulated.clear()
    assert results(serve(equal, MODELS[0], setup, machine, shared=shared)) == first
    assert simulated == []


def test_plans_with_the_same_groups_share_their_exchanges(simulated: list[str]) -> None:
    shared = MachineTimes()
    served(shared, 1000)
    assert "<exchanges>" in simulated
    simulated.clear()
    served(shared, 1000, plan=Plan(tensor=2, value_type="fp16"))
    assert "<exchanges>" not in simulated


def shared_equals_own(seed: int, machine: dict[str, Any], ranks: int) -> None:
    chance, options, shared = random.Random(seed), RunOptions(**machine), MachineTimes()
    for _ in range(3):
        model: Model = chance.choice(MODELS)
        plan = chance.choice(PLANS)
        if plan.data > 1 and model.experts is None:
            continue
        first = chance.randrange(ranks // plan.ranks) * plan.ranks
        pool = CachePool(BOTH, plan, 1, first, 10**6, 1)
        times = SimulatedTimes(model, options, ranks, shared=shared), SimulatedTimes(model, options, ranks)
        for _ in range(3):
            batch = random_batch(chance, model)
            one, other = (kind.pass_ns(pool, batch) for kind in times)
            assert one == other


def test_random_plans_that_share_times_have_their_own() -> None:
    for seed in range(1):
        shared_equals_own(seed, {"network": NETWORK, "system": RINGS}, 4)


@pytest.mark.deep
@pytest.mark.parametrize("seed", range(4))
def test_random_plans_on_random_machines_that_share_times_have_their_own(seed: int) -> None:
    machine = random_machine(random.Random(seed))
    if system := machine.get("system"):  # ranks that share experts also add their outputs
        system["reduce-scatter-implementation"] = system["all-gather-implementation"]
    shared_equals_own(seed, machine, 8)
