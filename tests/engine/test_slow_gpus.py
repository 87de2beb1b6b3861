"""GPUs that slow down or die within a run: the key `failures` of the system file."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from failing_parts import in_machine_code
from machines import collective, network, system

from et_sim.api import simulate
from et_sim.basics.errors import InputError, StallError, UsageError
from et_sim.compiled.entry_points import CompiledEntry
from et_sim.machine import read_machine
from et_sim.trace import TraceBuilder, Workload
from et_sim.views.summary.failures import failure_lines

MS = 1_000_000
KERNEL_NS = 10 * MS
RING = {"topology": ["Ring"], "npus_count": [4], "bandwidth": ["1GB/s"], "latency": [0]}


@pytest.fixture(autouse=True)
def _interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ET_SIM_COMPILE", "never")


def on(*failures: Any, dimensions: int = 1) -> dict[str, Any]:
    of_gpus = {"failures": list(failures)} if failures else {}
    return {**system("ring", dimensions, profile="corrected"), **of_gpus}


def kernels(count: int, ranks: int = 4) -> Workload:
    """Return ranks with kernels of 10 ms, one after the other."""
    build = TraceBuilder()
    for number in range(count):
        build.compute(f"kernel {number}", micros=KERNEL_NS // 1000)
    return Workload.of([build.build()] * ranks)


def finish(count: int, *failures: Any, model: str = "analytical") -> list[int]:
    result = simulate(kernels(count), network=RING, system=on(*failures), model=model)
    return [int(time) for time in result.finish_ns]


@pytest.mark.parametrize("model", ["analytical", "link", "flow", "packet"])
def test_kernels_of_a_slow_gpu_take_longer_from_then_on(model: str) -> None:
    slow = {"gpu": 2, "at": "25ms", "slower": 0.5}
    assert finish(4, slow, model=model) == [40 * MS, 40 * MS, (25 + 15 * 2) * MS, 40 * MS]


@pytest.mark.parametrize(
    ("failure", "expected"),
    [
        ({"at": "0s", "slower": 0.25}, 160),
        ({"at": "5ms", "for": "10ms", "slower": 0.5}, 45),  # it does 5 ms of work in these 10
        ({"at": "12ms", "for": "2ms", "slower": 0.5}, 41),  # within a kernel
        ({"at": "40ms", "slower": 0.5}, 40),
        ({"at": "1h", "slower": 0.5}, 40),
    ],
)
def test_a_kernel_does_its_parts_at_the_speeds_of_their_times(failure: Any, expected: int) -> None:
    assert finish(4, {"gpu": "1-2", **failure}) == [40 * MS, expected * MS, expected * MS, 40 * MS]


def test_slowdowns_at_one_time_multiply() -> None:
    several = [{"gpu": 1, "at": "0s", "slower": 0.5}, {"gpu": "0-1", "at": "20ms", "slower": 0.5}]
    assert finish(4, *several) == [60 * MS, (20 + 30 * 4) * MS, 40 * MS, 40 * MS]


def test_a_node_is_a_line_of_dimension_0() -> None:
    two = network(["Ring", "Ring"], [2, 2])
    slow = on({"node": 1, "at": "10ms", "slower": 0.5}, dimensions=2)
    result = simulate(kernels(2), network=two, system=slow)
    assert [int(time) for time in result.finish_ns] == [20 * MS, 20 * MS, 30 * MS, 30 * MS]


def test_a_slow_gpu_holds_up_those_that_need_it() -> None:
    build = TraceBuilder()
    build.compute("work", micros=KERNEL_NS // 1000)
    build.collective("all_reduce", 4_000_000)
    workload = Workload.of([build.build()] * 4)
    slow = {"gpu": 3, "at": "5ms", "slower": 0.5}
    times = [
        simulate(workload, network=RING, system=on(*failures), model="flow").makespan_ns
        for failures in ([], [slow])
    ]
    assert times[1] == times[0] + 5 * MS


@pytest.mark.parametrize("model", ["flow", "link", "packet"])
def test_a_dead_gpu_stalls_those_that_wait_for_it(model: str) -> None:
    dead = {"gpu": 2, "at": "1ms"}
    with pytest.raises(StallError, match=r"4 of 4 ranks cannot finish: gpu 2 failed at 1 ms"):
        simulate(collective(4, "all_reduce", 8_000_000), network=RING, system=on(dead), model=model)
    with pytest.raises(StallError, match=r"1 of 4 ranks cannot finish: gpu 2 failed at 1 ms, before rank 2"):
        finish(1, dead, model=model)
    assert finish(1, {"gpu": 2, "at": "11ms"}, model=model) == [KERNEL_NS] * 4


def test_a_model_without_failures_of_links_refuses_a_dead_gpu() -> None:
    with pytest.raises(UsageError, match="take --network-model flow, link or packet"):
        finish(1, {"gpu": 2, "at": "1ms"})


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"at": "1s"}, "names no part"),
        ({"gpu": 1, "node": 0, "at": "1s"}, "names 2 parts"),
        ({"gpu": 1}, "has no time"),
        ({"gpu": 4, "at": "1s"}, "allowed: 0 to 3"),
        ({"gpu": "x", "at": "1s"}, "cannot be understood"),
        ({"node": 1, "at": "1s"}, "allowed: 0 to 0"),
        ({"gpu": 1, "at": "1s", "for": "1s"}, "loses its state"),
        ({"gpu": 1, "at": "1s", "slower": 2}, "slower"),
        ({"gpu": 1, "at": "1s", "seed": 3}, "no effect without"),
    ],
)
def test_entries_without_a_meaning_are_refused(entry: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_machine(system=on(entry), network=RING)


def test_shares_that_multiply_below_the_least_are_refused() -> None:
    several = [{"gpu": "0-1", "at": "1s", "slower": 1e-4}, {"gpu": 1, "at": "2s", "slower": 1e-4}]
    with pytest.raises(InputError, match="leave 1e-08 of the speed of a GPU from 2 s on"):
        read_machine(system=on(*several), network=RING)


def test_a_rate_draws_a_time_for_each_gpu() -> None:
    machine = read_machine(system=on({"gpu": "0-3", "rate": 2, "slower": 0.5}), network=RING)
    assert len({failure.at_ns for failure in machine.slow}) == 4


def test_the_summary_names_slow_gpus_and_no_longer_leaves_failures_out() -> None:
    slow = {"gpu": 2, "at": "1ms", "for": "1h", "slower": 0.25}
    summaries = [
        simulate(kernels(1), network=RING, system=on(*failures)).summary() for failures in ([slow], [])
    ]
    assert failure_lines(summaries[0]) == ["failed: gpu 2, 25 % of its speed left from 1 ms to 1 h"]
    assert ["failures" in summary["scope"]["includes"] for summary in summaries] == [True, False]
    assert ["noise, failures" in summary["scope"]["leaves_out"] for summary in summaries] == [False, True]


def test_a_record_of_causes_is_refused() -> None:
    slow = {"gpu": 2, "at": "1ms", "slower": 0.5}
    with pytest.raises(UsageError, match='"failures", and a record of causes'):
        simulate(kernels(1), network=RING, system=on(slow), detail="path")


def random_case(seed: int) -> tuple[Workload, dict[str, Any]]:
    """Return kernels and collectives on a machine whose GPUs slow down."""
    draw = Random(seed)
    build = TraceBuilder()
    for number in range(6):
        if draw.random() < 0.5:
            build.compute(f"kernel {number}", micros=draw.choice((10, 333)))
        else:
            build.collective(draw.choice(("all_reduce", "all_to_all")), draw.choice((4096, 100_001)))
    failures = [
        {
            draw.choice(("gpu", "node")): draw.choice((0, 1)),
            "at": f"{draw.choice((0, 5, 111, 400))}us",
            "slower": draw.choice((0.5, 0.3)),
            **({"for": f"{draw.choice((3, 250))}us"} if draw.random() < 0.5 else {}),
        }
        for _ in range(draw.choice((1, 2)))
    ]
    wires = network([draw.choice(("Ring", "Switch")) for _ in range(2)], draw.choice(([4, 2], [2, 4])))
    model = draw.choice(("analytical", "link", "flow"))
    return Workload.of([build.build()] * 8), {
        "network": wires,
        "system": on(*failures, dimensions=2),
        "model": model,
    }


def figures(seed: int, *, fold: bool = True) -> Any:
    workload, machine = random_case(seed)
    result = simulate(workload, **machine, fold=fold)
    return result.finish_ns.tolist(), result.outcome.messages


def test_random_slow_gpus_fold_exactly() -> None:
    assert [seed for seed in range(6) if figures(seed) != figures(seed, fold=False)] == []


@pytest.mark.deep
def test_many_random_slow_gpus_fold_exactly() -> None:
    assert [seed for seed in range(6, 60) if figures(seed) != figures(seed, fold=False)] == []


@pytest.mark.deep
def test_machine_code_and_interpreted_code_agree_on_slow_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    interpreted = [figures(seed) for seed in range(6)]
    monkeypatch.setenv("ET_SIM_COMPILE", "now")
    monkeypatch.setattr(CompiledEntry, "_run", in_machine_code)
    assert [figures(seed) for seed in range(6)] == interpreted
