"""Times of passes without a simulation of each: equal to the engine's, and from few simulations."""

from __future__ import annotations

import random
from typing import Any

import pytest
from msgspec.structs import replace
from training_jobs import decoder, with_experts, with_latent_attention

from et_sim.run.options import RunOptions
from et_sim.serving import exchanges
from et_sim.serving.chains import Chains, trials
from et_sim.serving.exchanges import MOST_DOUBLINGS, ExchangeTimes
from et_sim.serving.replicas import BOTH, CachePool, SimulatedTimes
from et_sim.trace import Workload
from et_sim.workloads import Batch, Model, Plan, Segment, read_model
from et_sim.workloads.axes import Axes
from et_sim.workloads.counting import CountedProgram, NoChainError, counted_programs, equal_parts
from et_sim.workloads.inference.batch import sights
from et_sim.workloads.inference.forward import make_replica, replica_program
from et_sim.workloads.rank import Rank

SYSTEM = {"scheduling-policy": "FIFO", "peak-perf": 100, "local-mem-bw": 1000, "roofline-enabled": 1}
ALGORITHMS = ["ring", "direct", "halvingDoubling", "doubleBinaryTree"]


def random_batch(chance: random.Random, model: Model) -> Batch:
    """Return prompts, parts of prompts and single tokens, of which some are there."""
    prompts = [
        Segment(chance.randint(1, chance.choice([9, 900])), chance.choice([0, 700]), chance.random() < 0.8)
        for _ in range(chance.randint(0, 3))
    ]
    singles = [Segment(1, chance.randint(1, 900)) for _ in range(chance.choice([0, 1, 20]))]
    batch = [*prompts, *singles] or [Segment(5)]
    return Batch.of(batch, chance.choice([1, 64]), sights(model))


class CountedTimes(SimulatedTimes):
    """Times that count simulated passes."""

    simulations: int = 0

    def _simulated_pass(self, pool: CachePool, batch: Batch, made: Workload | None) -> int:
        self.simulations += 1
        return super()._simulated_pass(pool, batch, made)


def passes(
    model: Model, plan: Plan, machine: dict[str, Any], ranks: int, first: int, count: int, seed: int
) -> tuple[int, int]:
    """Compare random passes with their simulations; return the simulations needed, and different batches."""
    chance = random.Random(seed)
    options = RunOptions(**machine)
    times, reference = (kind(model, options, ranks) for kind in (CountedTimes, SimulatedTimes))
    pool = CachePool(BOTH, plan, 1, first, 10**6, 1)
    batches = [random_batch(chance, model) for _ in range(count)]
    for batch in batches:
        workload = make_replica(model, plan, batch, first=first, ranks=ranks)
        assert times.pass_ns(pool, batch) == reference._simulated(workload)
    return times.simulations, len(set(batches))


@pytest.fixture(autouse=True)
def few_sizes_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulate few sizes of exchanges together, since few are needed here."""
    monkeypatch.setattr(exchanges, "BLOCK", 2)


PRESET = {"machine": "h100-dgx:8"}
TWO_NODES = {"machine": "h100-dgx:16"}


@pytest.mark.parametrize(
    ("model", "plan", "machine", "ranks", "first"),
    [
        (decoder(sequence=4096), Plan(tensor=4), PRESET, 8, 4),
        pytest.param(
            decoder(sequence=4096, windows=(0, 128)),
            Plan(tensor=2, pipeline=2),
            *(PRESET, 8, 0),
            marks=pytest.mark.deep,
        ),
        pytest.param(
            with_experts(sequence=4096),
            Plan(tensor=8, expert=8),
            *(TWO_NODES, 16, 8),
            marks=pytest.mark.deep,
        ),
    ],
)
def test_a_pass_takes_the_time_of_its_simulation(
    model: Model, plan: Plan, machine: dict[str, Any], ranks: int, first: int
) -> None:
    simulations, different = passes(model, plan, machine, ranks, first, 8, 1)
    assert simulations < different


PLANS = [
    Plan(tensor=8),
    Plan(tensor=4, pipeline=2),
    Plan(tensor=2, pipeline=4),
    Plan(tensor=1, pipeline=8),
    Plan(tensor=8, expert=4, expert_tensor=2),
    Plan(tensor=4, data=2, expert=8),
    Plan(tensor=8, expert=8),
    Plan(),
]


@pytest.mark.deep
@pytest.mark.parametrize("seed", range(6))
def test_a_pass_on_a_random_machine_takes_the_time_of_its_simulation(seed: int) -> None:
    chance = random.Random(seed)
    plan = chance.choice(PLANS)
    model = (
        with_experts(sequence=4096) if plan.expert > 1 else chance.choice([decoder, with_latent_attention])()
    )
    machine = random_machine(chance)
    passes(replace(model, layers=8), plan, machine, 8, 0, 8, seed)


def random_machine(chance: random.Random) -> dict[str, Any]:
    """Return a machine with eight NPUs, made of dimensions, or a preset."""
    if chance.random() < 0.3:
        return {"machine": chance.choice(["h100-dgx:8", "b200-dgx:8", "a100-dgx-40gb:8"])}
    counts = chance.choice([[8], [2, 4], [4, 2], [2, 2, 2]])
    network = {
        "topology": [chance.choice(["Ring", "Switch", "FullyConnected"]) for _ in counts],
        "npus_count": counts,
        "bandwidth": [chance.choice([3, 40, 450]) for _ in counts],
        "latency": [chance.choice([1, 700]) for _ in counts],
    }
    system = SYSTEM | {"preferred-dataset-splits": chance.choice([1, 4])}
    for kind, choices in (
        ("all-reduce", ALGORITHMS),
        ("all-gather", ALGORITHMS[:3]),
        ("all-to-all", ALGORITHMS[:2]),
    ):
        system[f"{kind}-implementation"] = [chance.choice(choices) for _ in counts]
    kinds = ["analytical", "flow"]
    return {"network": network, "system": system, "model": chance.choice(kinds)}


@pytest.mark.parametrize("name", ["llama3-8b", "gemma3-12b", "deepseek-v3", "gpt-oss-20b", "nemotron-h-8b"])
def test_equal_layers_are_run_once(name: str) -> None:
    model, chance = read_model(name), random.Random(3)
    known = sights(model)

    def program(batch: Batch) -> tuple[Axes, Any]:
        return replica_program(model, Plan(tensor=4, pipeline=2 - model.layers % 2), batch, 0, 8)

    made = [program(batch) for batch in trials(known)]
    equal = equal_parts(made[0][0], [trial for _, trial in made])
    for _ in range(10):
        axes, one = program(random_batch(chance, model))
        every, once = counted_programs(axes, one), counted_programs(axes, one, equal)
        assert [counted.ranks for counted in every] == [counted.ranks for counted in once]
        assert [counted.steps for counted in every] == [counted.steps for counted in once]
        assert max(len(parts) for of_rank in equal.values() for parts in of_rank.values()) < model.layers / 4


def counted(*operations: str) -> CountedProgram:
    """Return the operations of a program: k(ernel), e(xchange), s(end), or one that waits for nothing."""

    def program(rank: Rank) -> None:
        at: tuple[int, ...] = ()
        for operation in operations:
            if operation == "k":
                at = rank.compute("k", num_ops=1, after=at)
            elif operation == "e":
                at = rank.collective("all_reduce", 8, "all", after=at)
            elif operation == "s":
                rank.send(1, 8, after=at)
            elif operation == "other stream":
                rank.compute("k", num_ops=1, after=at, stream="other")
            else:
                rank.compute("k", num_ops=1, after=())

    (program_of_all,) = counted_programs(Axes(all=4), program)
    return program_of_all


@pytest.mark.parametrize(("simulated_ns", "simulations"), [(7, 1), (8, 3)])
def test_passes_of_a_structure_are_added_up_only_if_the_first_sum_is_its_simulation(
    simulated_ns: int, simulations: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, calls = decoder(sequence=4096), []

    def simulate() -> int:
        calls.append(1)
        return simulated_ns

    def program(batch: Batch) -> tuple[Axes, Any]:
        return replica_program(model, Plan(tensor=4), batch, 0, 8)

    unused: Any = None
    chains = Chains(program, trials(sights(model)), unused, unused)
    monkeypatch.setattr(chains, "_sum", lambda _programs: 7)
    batch = random_batch(random.Random(3), model)
    assert [chains.pass_ns(batch, simulate) for _ in range(3)] == [simulated_ns] * 3
    assert len(calls) == simulations


def test_operations_that_wait_for_the_last_are_counted() -> None:
    (first, message, rest) = counted("k", "e", "k", "s").steps
    assert sorted(first.values()) == [1, 2]
    assert (message.bytes, rest) == (8, {})


@pytest.mark.parametrize("wrong", ["other stream", "waits for nothing"])
def test_operations_that_wait_for_another_are_refused(wrong: str) -> None:
    with pytest.raises(NoChainError):
        counted("k", "e", wrong)


@pytest.mark.deep
def test_blocks_of_sizes_grow_where_many_are_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Serve prompts of 1 to 2,000 tokens: blocks of 2 sizes alone would need 1,000 runs."""
    runs: list[int] = []
    simulate = ExchangeTimes._exchanged

    def counted(self: ExchangeTimes, program: CountedProgram, steps: Any) -> Any:
        runs.append(len(steps))
        return simulate(self, program, steps)

    monkeypatch.setattr(ExchangeTimes, "_exchanged", counted)
    model, plan, options = decoder(sequence=4096, layers=1), Plan(tensor=2), RunOptions(**PRESET)
    times, reference = (SimulatedTimes(model, options, 8) for _ in range(2))
    pool = CachePool(BOTH, plan, 1, 0, 10**6, 1)
    for tokens in range(1, 2000, 25):
        batch = Batch.of([Segment(tokens)])
        took = times.pass_ns(pool, batch)
        if tokens % 500 == 1:
            assert took == reference._simulated(make_replica(model, plan, batch, first=0, ranks=8))
    assert runs[0] <= 4
    assert max(runs) == 2 << MOST_DOUBLINGS
    assert len(runs) < 80
