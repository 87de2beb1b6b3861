"""Goodput of jobs: their files, their steps, summaries, tables and pictures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import et_sim
from et_sim import TraceBuilder, Workload
from et_sim.basics.errors import EtSimError
from et_sim.cli import main
from et_sim.goodput import states as states_module
from et_sim.goodput.copies import by_distance, with_copies
from et_sim.goodput.goodput import goodput
from et_sim.goodput.job_file import seconds_of
from et_sim.goodput.presets import DAY, PRESETS
from et_sim.goodput.results import Goodput
from et_sim.goodput.setting import JobStep
from et_sim.goodput.sources import Simulator
from et_sim.goodput.storage import ends_of_step_and_writes, with_storage, with_writes
from et_sim.machine.presets import preset
from et_sim.recipes.recipe import make
from et_sim.trace import Trace
from et_sim.views.drawing.months import shares_of_columns
from et_sim.views.goodput import summary_lines

JOB: dict[str, Any] = {
    "step": "10s",
    "tokens-of-step": 1_000_000,
    "gpus": 64,
    "failures": {"parts": [{"name": "gpu", "per-1000-node-days": 200, "nodes": 1, "repair": "6h"}]},
    "checkpoints": {"stall": "20s"},
}
SMALL = {
    "make": "llm",
    "model": "llama3-8b",
    "layers": 1,
    "sequence": 256,
    "plan": {"tp": 8, "dp": 2, "micro-batches": 1},
}


def months_of(job: dict[str, Any], days: float = 10, runs: int = 20, seed: int = 1) -> Goodput:
    return goodput(job, days=days, runs=runs, seed=seed)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30s", 30.0), ("1.5 min", 90.0), ("3h", 10800.0), ("54d", 54 * DAY), (7, 7.0), ("250ms", 0.25)],
)
def test_times_have_units(text: Any, seconds: float) -> None:
    assert seconds_of(text) == seconds


@pytest.mark.parametrize("text", ["-3s", "3 weeks", "", None, True, "1e99d", [3]])
def test_other_values_are_no_times(text: Any) -> None:
    assert seconds_of(text) is None


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"sparse": {}}, ['"sparse"', "spares"]),
        ({"spares": {"hott": 1}}, ['"hott"', "hot"]),
        ({"failures": {"preset": "llama4"}}, ['"llama4"', "llama3-2024"]),
        ({"failures": {"parts": [{"name": "gpu"}]}}, ["gpu", "per-1000-node-days"]),
        ({"checkpoints": {}}, ["checkpoint", "bytes"]),
        ({"run": "there.run"}, ["names run and step"]),
        (
            {"failures": {"parts": [{"name": "rack", "per-1000-node-days": 1, "nodes": 9}]}},
            ['"rack" takes 9 nodes, and the job has 8'],
        ),
        (
            {"failures": {"parts": [{"name": "gpu", "per-1000-node-days": 1e6}]}},
            ["a failure every 10.8 s leaves no time for steps", "per-1000-node-days"],
        ),
        ({"maintenance": {"every": 7}}, ["every 7 s leave no time for steps", "take 80 s", '"7d"']),
        ({"checkpoints": {"stall": "2 weeks"}}, ['"2 weeks"', "10min"]),
    ],
)
def test_a_wrong_job_is_refused_with_a_remedy(change: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(EtSimError) as refused:
        months_of(JOB | change)
    for word in words:
        assert word in str(refused.value)


@pytest.mark.parametrize(
    ("change", "options", "words"),
    [
        ({}, {"days": 3660, "runs": 1}, ""),
        ({}, {"days": 3660.5}, "--days is 3660.5 (give a number of days > 0, at most 3660)"),
        ({}, {"days": 0}, "--days is 0 "),
        ({}, {"days": 1, "runs": 1_000_000}, ""),
        ({}, {"days": 1, "runs": 1_000_001}, "--runs is 1000001 (give a number from 1 to 1,000,000)"),
        ({}, {"days": 124, "runs": 1_000_000}, ""),  # 198 million failures
        ({}, {"days": 126, "runs": 1_000_000}, "about 201,600,000 failures (the limit is 200,000,000: "),
        ({"maintenance": {"every": 80}}, {}, "planned interruptions every 80 s leave no time"),
        ({"maintenance": {"every": 80.5}}, {}, ""),
        ({"failures": {}, "maintenance": {"every": 0}}, {}, "every"),
        ({}, {"seed": 0}, ""),
        ({}, {"seed": -1}, "--seed is -1 "),
    ],
)
def test_months_are_drawn_up_to_the_limits_that_refusals_state(
    change: dict[str, Any], options: dict[str, Any], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[Any] = []
    monkeypatch.setattr("et_sim.goodput.goodput.evaluate", lambda *given: drawn.append(given[2:]))
    if not words:
        months_of(JOB | change, **options)
        taken = {"days": 10, "runs": 20, "seed": 1} | options
        assert drawn == [(*taken.values(), 0.0)]
        return
    with pytest.raises(EtSimError) as refused:
        months_of(JOB | change, **options)
    assert words in str(refused.value)


@pytest.mark.parametrize("key", ["tokens-of-step", "gpus"])
def test_the_length_of_a_step_requires_its_tokens_and_gpus(key: str) -> None:
    with pytest.raises(EtSimError, match='"step" without "tokens-of-step" or "gpus"'):
        months_of({name: value for name, value in JOB.items() if name != key})


def test_a_job_has_at_least_one_gpu() -> None:
    with pytest.raises(EtSimError, match="gpus"):
        months_of(JOB | {"gpus": 0})


def test_one_run_is_the_fewest() -> None:
    found = months_of(JOB, runs=1)
    assert found.outcome.months.steps.shape == (1,)
    lines = summary_lines(found.summary(), 100)
    assert lines[0] == f"goodput      {100 * found.outcome.goodput[0]:.1f} % in one month"
    with pytest.raises(EtSimError, match="--runs is 0"):
        months_of(JOB, runs=0)


def test_the_counts_of_llama_3_are_those_of_its_table() -> None:
    preset = PRESETS["llama3-2024"]
    assert sum(part.failures for part in preset.parts) == 419
    assert preset.planned == 47
    hours = 54 * 24 * 16_384 / sum(part.failures for part in preset.parts)
    assert hours == pytest.approx(50_677, abs=1)


def test_a_failed_part_of_llama_3_takes_a_node_away_and_failed_software_none() -> None:
    parts = PRESETS["llama3-2024"].parts
    assert {part.name for part in parts if part.nodes == 0} == {"software", "nccl time-out"}
    assert {part.nodes for part in parts} == {0, 1}


def test_the_rates_of_rsc_1_are_an_interval_of_1_80_hours_at_16384_gpus() -> None:
    job = JOB | {"gpus": 16_384, "failures": {"preset": "rsc-1"}}
    summary = months_of(job, days=1, runs=2).summary()
    assert summary["interruptions"]["hours_between_failures"] == pytest.approx(1.80, abs=0.005)


def test_the_rates_of_llama_3_are_an_interval_of_3_09_hours() -> None:
    job = JOB | {"gpus": 16_384, "failures": {"preset": "llama3-2024"}}
    summary = months_of(job, days=1, runs=2).summary()
    assert summary["interruptions"]["hours_between_failures"] == pytest.approx(3.09, abs=0.005)


def test_the_causes_add_up_to_all_of_the_time() -> None:
    summary = months_of(JOB).summary()
    assert sum(summary["time"].values()) == pytest.approx(1, abs=1e-12)
    assert summary["time"]["kept steps"] == pytest.approx(summary["goodput"]["mean"], abs=1e-12)


def test_the_same_seed_gives_the_same_bytes_and_another_seed_others(tmp_path: Path) -> None:
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        months_of(JOB, seed=seed).write(tmp_path / name)
    files = {name: _content(tmp_path / name) for name in "abc"}
    assert files["a"] == files["b"]
    assert files["a"] != files["c"]
    assert set(files["a"]) == {"run.json", "summary.json", "months.arrow", "courses.arrow"}


def _content(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted(folder.iterdir())}


def test_more_months_leave_the_first_ones_unchanged() -> None:
    job = JOB | {"checkpoints": {"stall": "20s", "interval": "1h"}}
    few, many = (months_of(job, runs=runs).outcome.goodput for runs in (5, 20))
    assert (many[:5] == few).all()
    assert len(set(many.tolist())) == 20


def test_the_best_interval_is_near_that_of_the_first_order() -> None:
    checkpoints = months_of(JOB, days=30, runs=40).summary()["checkpoints"]
    best, first = checkpoints["interval_seconds"], checkpoints["first_order_seconds"]
    assert 0.49 < best / first < 2.05
    values = {seconds: value for seconds, value, _ in checkpoints["intervals"]}
    assert values[best] == max(values.values())


def test_a_restart_that_finds_all_steps_stored_ends_the_job() -> None:
    """Check steps that end between the interruptions at 30 and 50 hours, before a last write of a day."""
    checkpoints = {"bytes": 0, "stall": "1d", "how": "asynchronous"}
    of_hours = {"maintenance": {"every": "20h"}, "recovery": {"start": "30s", "load": 0}}
    job = JOB | of_hours | {"failures": {}, "checkpoints": checkpoints, "tokens": 34 * 360 * 1_000_000}
    summary = goodput(job, days=3, runs=1).summary()
    assert summary["finish_days"]["mean"] == pytest.approx((50 * 3600 + 30) / 86400)


def test_tokens_and_days_to_finish_agree() -> None:
    job = JOB | {"failures": {}, "tokens": 8640 * 1_000_000, "checkpoints": {"stall": 0}}
    summary = months_of(job, days=1).summary()
    assert summary["tokens"]["mean"] == 8640 * 1_000_000
    assert summary["finish_days"]["mean"] == 1


@pytest.mark.deep
def test_copies_in_memory_take_a_job_of_85_percent_to_more_than_95() -> None:
    job = JOB | {
        "gpus": 16_384,
        "failures": {"preset": "rsc-1"},
        "recovery": {"drain": "3min", "load": "30s"},
        "spares": {"hot": 32},
        "checkpoints": {"stall": "30s"},
    }
    memory = {"interval": "1min", "load": "5s"}
    copies = {"how": "asynchronous", "bytes": "5.68TB", "memory": memory}
    stored = months_of(job, runs=12).summary()["goodput"]["mean"]
    copied = months_of(job | {"checkpoints": copies}, runs=12).summary()["goodput"]["mean"]
    assert 0.84 < stored < 0.87
    assert 0.95 < copied < 0.98


def test_each_degraded_state_is_simulated_once_and_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ET_SIM_COMPILE", "never")
    slow = {"name": "thermal", "per-1000-node-days": 5, "effect": "slows", "detection": "1h"}
    job = {
        "workload": SMALL,
        "machine": "h100-dgx:16",
        "elastic": 1,
        "failures": {"parts": [slow], "slower": 2},
    }
    first = months_of(job, days=1, runs=2)
    step = first.step
    assert len(first.known) == 3
    assert step.seconds < step.slow < 2.01 * step.seconds
    assert step.fewer[0][0] <= step.seconds
    assert step.fewer[0][1] == 0.5
    assert {round(taken * 1e9) for taken in (step.seconds, step.slow, step.fewer[0][0])} == {
        *first.known.values()
    }
    assert not [note for note in step.notes if "not simulated" in note]
    assert step.tokens == 256 * 2
    simulator = Simulator(dict(first.known))
    again = goodput(job, days=1, runs=2, seed=1, known=simulator.known)
    assert again.known == first.known
    assert again.step == step


@pytest.mark.parametrize(
    ("elastic", "plan"),
    [
        (2, {"tp": 4, "dp": 4}),
        (3, {"tp": 4, "dp": 4}),
        (2, {"tp": 2, "pp": 2, "dp": 4, "order": "tp-pp-dp"}),
    ],
)
def test_a_failed_node_takes_all_of_its_replicas_with_it(
    elastic: int, plan: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ET_SIM_COMPILE", "never")
    recipe = {**SMALL, "layers": plan.get("pp", 1), "plan": {**plan, "micro-batches": 1}}
    found = months_of({"workload": recipe, "machine": "h100-dgx:16", "elastic": elastic}, days=1, runs=2)
    assert [share for _, share in found.step.fewer] == [0.5]
    assert "s with 0.5 of the replicas" in "\n".join(summary_lines(found.summary(), 200))


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"elastic": 1}, 'a failed node takes 2 of 4 replicas with it (give "elastic: 2")'),
        ({"elastic": 9, "gpus-of-node": 16}, "a failed node takes 4 of 4 replicas with it (leave it out"),
        ({"elastic": 3, "tp": 2, "pp": 2}, "a failed node takes 4 of 4 replicas with it (leave it out"),
        (
            {"elastic": 1, "machine": "tpu-v4-pod:64", "gpus-of-node": 4},
            "64 NPUs, and 60 NPUs are not a multiple",
        ),
    ],
)
def test_an_elastic_job_that_cannot_go_on_is_refused(keys: dict[str, Any], words: str) -> None:
    plan = {"tp": 4, "dp": 16 if "machine" in keys else 4, "micro-batches": 1}
    plan |= {name: keys[name] for name in ("tp", "pp") if name in keys}
    recipe = {**SMALL, "layers": plan.get("pp", 1), "plan": plan}
    given = {name: value for name, value in keys.items() if name not in plan}
    with pytest.raises(EtSimError) as error:
        months_of({"workload": recipe, "machine": "h100-dgx:16", **given}, days=1, runs=2)
    assert words in str(error.value)
    assert '"elastic" is' in str(error.value)


def test_the_step_with_half_of_a_link_is_that_of_a_network_with_half_of_the_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ET_SIM_COMPILE", "never")
    flap = {"name": "cable", "per-1000-node-days": 5, "effect": "halves-link"}
    job = {"workload": SMALL, "machine": "h100-dgx:16", "failures": {"parts": [flap]}}
    first = months_of(job, days=1, runs=2)
    assert len(first.known) == 2
    network = {**preset("h100-dgx:16").network}
    ends = {"dimension": 1, "bandwidth": "200Gbps"}
    network["links"] = [{**ends, "from": 0, "to": "switch"}, {**ends, "from": "switch", "to": 0}]
    expected = et_sim.simulate(make(SMALL, tmp_path), machine="h100-dgx:16", network=network)
    assert first.step.half_link == expected.makespan_ns / 1e9
    assert first.step.seconds < first.step.half_link < 2 * first.step.seconds
    assert not first.step.notes
    assert f"{first.step.half_link:.4g} s with half of a link" in "\n".join(
        summary_lines(first.summary(), 100)
    )


def test_half_of_a_link_of_a_graph_is_half_of_the_card(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Check nodes whose GPUs share cards: the link of the first card is slower, and not those inside."""
    monkeypatch.setenv("ET_SIM_COMPILE", "never")
    flap = {"name": "cable", "per-1000-node-days": 5, "effect": "halves-link"}
    job = {"workload": SMALL, "machine": "a100-pcie-node:16", "failures": {"parts": [flap]}}
    step = months_of(job, days=1, runs=2).step
    ways = "nic0->rail0-leaf0", "rail0-leaf0->nic0"
    slow = [{"link": way, "at": "0s", "slower": 0.5} for way in ways]
    network = {**preset("a100-pcie-node:16").network, "failures": slow}
    expected = et_sim.simulate(make(SMALL, tmp_path), machine="a100-pcie-node:16", network=network)
    assert step.half_link == expected.makespan_ns / 1e9
    assert step.seconds < step.half_link < 2 * step.seconds
    assert not step.notes


def test_copies_beside_a_step_share_its_network() -> None:
    network = {"topology": ["Switch", "Switch"], "npus_count": [2, 2], "bandwidth": ["450GB/s", "50GB/s"]}
    machine: dict[str, Any] = {"system": {}, "network": {**network, "latency": [100, 500]}, "model": "flow"}

    def made(peer: int, *, copy: int) -> TraceBuilder:
        build = TraceBuilder()
        build.send(peer, 1 << 20, after=[])
        build.receive(peer, 1 << 20, after=[])
        build.compute("work", micros=200)
        if copy:
            build.send(peer, copy, 7, concurrent=True, after=[])
            build.receive(peer, copy, 7, after=[])
        return build

    alone = Workload((made(2, copy=0).build(),), np.zeros(4, np.int32), relative_peers=(True,))
    times = []
    for copy in (1 << 18, 1 << 26):
        together = Workload.of([made((rank + 2) % 4, copy=copy).build() for rank in range(4)])
        expected = et_sim.simulate(together, **machine).makespan_ns
        assert et_sim.simulate(with_copies(alone, copy, 1, 2), **machine).makespan_ns == expected
        times.append(expected)
    assert times[0] == et_sim.simulate(alone, **machine).makespan_ns == 200_000
    assert times[1] > ((1 << 26) + (1 << 20)) / 50


@pytest.mark.deep
def test_copies_in_memory_stand_still_for_the_time_by_which_they_lengthen_a_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ET_SIM_COMPILE", "never")
    memory = {"interval": "1min", "load": "5s"}
    checkpoints = {"how": "asynchronous", "bytes": "64GB", "memory": memory}
    job = {**JOB, "workload": SMALL, "machine": "h100-dgx:16", "checkpoints": checkpoints}
    job = {name: value for name, value in job.items() if name not in ("step", "tokens-of-step", "gpus")}
    found = months_of(job)
    workload = make(SMALL, tmp_path)
    alone, beside = (
        et_sim.simulate(made, machine="h100-dgx:16").makespan_ns
        for made in (workload, with_copies(workload, 64_000_000_000 // 16, 1, 8))
    )
    assert 0.05 < found.step.copy_stall == pytest.approx((beside - alone) / 1e9)
    stated = {**checkpoints, "memory": {**memory, "stall": found.step.copy_stall}}
    same = months_of({**job, "checkpoints": stated})
    assert same.outcome.goodput.tolist() == found.outcome.goodput.tolist()
    assert found.outcome.setting.cycle.memory_stall == found.step.copy_stall
    begin = f"other steps  {beside / 1e9:.4g} s with copies in memory, "
    assert any(line.startswith(begin) for line in summary_lines(found.summary(), 100))
    given = months_of({**JOB, "checkpoints": checkpoints}).summary()
    assert given["notes"] == ["copies in memory were not simulated: they do not lengthen a step"]


def test_copies_of_a_checkpoint_without_bytes_send_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ET_SIM_COMPILE", "never")
    memory = {"interval": "1min", "load": "5s"}
    job = {"workload": SMALL, "machine": "h100-dgx:16", "checkpoints": {"bytes": 0, "memory": memory}}
    found = months_of(job, days=1, runs=2)
    assert found.step.copy_stall == 0.0
    assert len(found.known) == 1


TWO_NODES: dict[str, Any] = {
    "topology": ["Switch", "Switch"],
    "npus_count": [2, 2],
    "bandwidth": ["450GB/s", "50GB/s"],
    "latency": [100, 500],
}
PORT = 50  # bytes per ns


def beside_writes(size: int, written: int, share: float) -> tuple[int, int]:
    """Return when messages to the other node arrive and writes beside them end."""
    build = TraceBuilder()
    build.send(2, size, after=[])
    build.receive(2, size, after=[])
    workload = with_writes(Workload((build.build(),), np.zeros(4, np.int32), relative_peers=(True,)), written)
    network = with_storage(TWO_NODES, 4, share)
    system = {"profile": "corrected", "library": {"name": "nccl-2.30", "gpu": "hopper"}}
    return ends_of_step_and_writes(et_sim.simulate(workload, system=system, network=network, model="flow"))


@pytest.mark.parametrize("share", [0.1, 0.25, 0.5])
def test_writes_to_slow_storage_take_their_part_of_a_port(share: float) -> None:
    size, alone = 50_000_000, beside_writes(50_000_000, 1, 1.0)[0]
    latency = alone - size // PORT
    step, writes = beside_writes(size, size, share)
    assert step == pytest.approx(size / (1 - share) / PORT + latency, abs=2)
    rest = size - share * size / (1 - share)  # is written after the step, at the speed of storage
    assert writes == pytest.approx((size / (1 - share) + rest / share) / PORT + latency, abs=2)


def test_writes_to_fast_storage_share_a_port_with_messages() -> None:
    size, written = 50_000_000, 10_000_000
    latency = beside_writes(size, 1, 1.0)[0] - size // PORT
    step, writes = beside_writes(size, written, 7.0)
    assert writes == pytest.approx(2 * written / PORT + latency, abs=2)
    assert step == pytest.approx((size + written) / PORT + latency, abs=2)


def test_a_step_beside_storage_that_is_not_written_is_that_of_the_machine(tmp_path: Path) -> None:
    workload = make(SMALL, tmp_path)
    written = with_writes(workload, 1)
    known = preset("h100-dgx:16")
    network = with_storage(known.network, 16, 0.5)
    beside = et_sim.simulate(written, system=known.system, network=network, model="flow")
    assert ends_of_step_and_writes(beside)[0] == et_sim.simulate(workload, machine="h100-dgx:16").makespan_ns
    assert len(beside.measurement.ranks_per_actor) <= 4


def test_a_collective_of_all_ranks_stays_among_the_ranks_of_the_step() -> None:
    build = TraceBuilder()
    build.collective("all_reduce", 1 << 26)
    build.send(1, 1 << 20)
    build.receive(3, 1 << 20)
    workload = Workload((build.build(),), np.zeros(4, np.int32), relative_peers=(True,))
    system = {"profile": "corrected", "all-reduce-implementation": ["ring", "ring"]}
    machine: dict[str, Any] = {"system": system, "model": "flow"}
    alone = et_sim.simulate(workload, network=TWO_NODES, **machine)
    beside = et_sim.simulate(with_writes(workload, 1), network=with_storage(TWO_NODES, 4, 1.0), **machine)
    assert alone.makespan_ns > (1 << 25) / PORT  # each rank has half of the bytes in its node
    assert ends_of_step_and_writes(beside)[0] == pytest.approx(alone.makespan_ns, abs=2)


@pytest.mark.parametrize(
    ("interval", "words"), [("1min", "every 10 min (1 min is given, but"), ("20min", "every 20 min (given)")]
)
def test_the_summary_states_if_checkpoints_come_later_than_given(interval: str, words: str) -> None:
    checkpoints = {"how": "asynchronous", "bytes": "600GB", "storage": "1GB/s", "interval": interval}
    summary = months_of({**JOB, "checkpoints": checkpoints}, days=1, runs=2).summary()
    assert words in " ".join(summary_lines(summary, 300))


def test_an_asynchronous_checkpoint_lengthens_steps_by_the_traffic_of_its_bytes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ET_SIM_COMPILE", "never")
    job = {"workload": SMALL, "machine": "h100-dgx:16", "failures": JOB["failures"]}

    def with_checkpoints(**keys: Any) -> Goodput:
        return months_of({**job, "checkpoints": {"how": "asynchronous", **keys}}, days=1, runs=2)

    slow, fast = (with_checkpoints(bytes="160GB", storage=speed) for speed in ("200GB/s", "2TB/s"))
    for found in (slow, fast):
        assert found.step.write_stall is not None
        assert found.outcome.setting.cycle.storage_stall == found.step.write_stall > 0
        assert (
            "traffic of checkpoints to storage beside that of steps" not in found.summary()["not_simulated"]
        )
    assert slow.outcome.resolved.write_seconds == pytest.approx(160 / 200, rel=1e-3)
    assert fast.outcome.resolved.write_seconds > 160 / (16 * 50)  # the ports, and not the storage
    text = "\n".join(summary_lines(slow.summary(), 200))
    assert f"{slow.step.write_stall:.3g} s more in all beside the writing of a checkpoint" in text
    again = with_checkpoints(bytes="160GB", storage="200GB/s", stall=0)
    assert again.step.write_stall is None
    assert again.outcome.setting.cycle.storage_stall == 0
    least = with_checkpoints(bytes="1MB", storage="1kB/s")  # traffic that is too little to be simulated
    assert (least.step.write_stall, least.outcome.setting.cycle.storage_stall) == (None, 0)
    none = with_checkpoints(bytes=0, storage="200GB/s")
    assert (none.step.write_stall, none.outcome.resolved.write_seconds) == (0, 0)


def test_faster_storage_does_not_make_ports_faster() -> None:
    job = {"workload": SMALL, "machine": "h100-dgx:16", "failures": JOB["failures"]}
    found = months_of({**job, "checkpoints": {"bytes": "160GB", "storage": "4TB/s"}}, days=5).summary()
    assert found["checkpoints"]["write_seconds"] == 160 / (16 * 50)
    assert {change["name"]: change["more"] for change in found["changes"]}["storage twice as fast"] == 0


def two_slow_parts() -> dict[str, Any]:
    """Return a job of which a node may be slow and a link have half of its bandwidth."""
    flap = {"name": "cable", "per-1000-node-days": 5, "effect": "halves-link"}
    hot = {"name": "thermal", "per-1000-node-days": 5, "effect": "slows"}
    recipe = {**SMALL, "plan": {"tp": 8, "dp": 4, "micro-batches": 1}}
    return {"workload": recipe, "machine": "h100-dgx:32", "failures": {"parts": [flap, hot]}}


def test_nodes_that_are_alike_stand_for_one_only_where_one_has_too_much_to_simulate(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Check 32 ranks with half of a link: 3,968 messages and nodes; 8 are alike if four links are halved."""
    one = months_of(two_slow_parts(), days=1, runs=2).step
    monkeypatch.setattr(states_module, "MOST_APART", 1000)
    found = months_of(two_slow_parts(), days=1, runs=2)
    alike = found.step
    assert not one.notes
    assert len(alike.notes) == 1
    assert "a link has half of its bandwidth in each of 4 nodes that are alike" in alike.notes[0]
    assert "more than 1,000 messages and nodes" in alike.notes[0]
    assert one.seconds < one.slow == alike.slow  # one slow node has 496 of them
    assert one.seconds < one.half_link <= alike.half_link < 1.01 * one.half_link
    again = goodput(two_slow_parts(), days=1, runs=2, known=found.known)
    assert again.known == found.known
    assert again.step == alike


def test_slow_parts_with_too_much_to_simulate_have_their_bound_and_a_note(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(states_module, "MOST_APART", 100)
    step = months_of(two_slow_parts(), days=1, runs=2).step
    assert step.slow == 1.5 * step.seconds
    assert step.half_link == 2 * step.seconds
    assert not step.has_half_link
    assert [note.split(" not simulated")[0] for note in step.notes] == ["a link was", "a slow node was"]


def test_a_second_port_is_worth_what_the_step_with_half_of_a_link_leaves() -> None:
    """Check the preset, whose switches and cables would leave half of the bandwidth with a second port."""
    step = months_of({**two_slow_parts(), "failures": {"preset": "llama3-2024"}}, days=1, runs=2).step
    assert step.has_half_link
    assert step.half_link == months_of(two_slow_parts(), days=1, runs=2).step.half_link < 2 * step.seconds
    without = {"preset": "llama3-2024", "parts": [{"name": "switch or cable", "link": False}]}
    assert not months_of({**two_slow_parts(), "failures": without}, days=1, runs=2).step.has_half_link


def test_a_slow_node_with_more_gpus_than_the_job_slows_all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ET_SIM_COMPILE", "never")
    hot = {"name": "thermal", "per-1000-node-days": 5, "effect": "slows"}
    job = {"workload": SMALL, "machine": "h100-dgx:16", "failures": {"parts": [hot]}}
    whole = months_of({**job, "gpus-of-node": 16}, days=1, runs=2).step
    larger = months_of({**job, "gpus-of-node": 64}, days=1, runs=2).step
    assert whole.seconds < whole.slow == larger.slow


@pytest.mark.deep
def test_a_slow_replica_slows_a_step_as_much_as_two(tmp_path: Path) -> None:
    """Check that ranks begin collectives in one order: else, chunks wait until all other ranks have ended."""
    plan = {"tp": 4, "pp": 4, "dp": 4, "micro-batches": 8, "zero": 1, "sequence-parallel": True}
    recipe = {"make": "llm", "model": "mixtral-8x7b", "layers": 8, "sequence": 256, "plan": plan}
    workload, known = make(recipe, tmp_path), preset("h100-dgx:64")
    times = []
    for ranks in ("0-7", "0-15"):
        system = {**known.system, "stragglers": [{"ranks": ranks, "compute": 1.5}]}
        times.append(et_sim.simulate(workload, machine="h100-dgx:64", system=system).makespan_ns)
    assert times[0] == times[1]


def test_nodes_of_other_stages_are_not_alike() -> None:
    of_rank = np.array([0] * 12 + [1] * 12 + [0] * 8, np.int32)
    traces = [TraceBuilder().build(), TraceBuilder().build()]
    workload = Workload(tuple(traces), of_rank, relative_peers=(True, True))
    assert states_module.like_the_first(workload, 8) == [0, 24]


def test_a_second_port_is_worth_the_goodput_of_a_job_whose_links_are_halved() -> None:
    cable = {"name": "cable", "per-1000-node-days": 300, "nodes": 1, "repair": "6h", "link": True}
    job = JOB | {"failures": {"parts": [cable]}, "spares": {"hot": 4}}
    one_port = months_of(job)
    change = one_port.summary()["changes"][-1]
    assert change["name"] == "a second port for each GPU"
    interval = {"stall": "20s", "interval": one_port.summary()["checkpoints"]["interval_seconds"]}
    halved = job | {"failures": {"parts": [{**cable, "effect": "halves-link"}]}, "checkpoints": interval}
    two_ports = months_of(halved)
    assert two_ports.step.half_link == 20
    assert two_ports.outcome.goodput.mean() == pytest.approx(change["goodput"])
    assert change["more"] == pytest.approx(change["goodput"] - one_port.outcome.goodput.mean())
    assert change["more"] > 2 * change["error"] > 0
    assert two_ports.summary()["changes"][-1]["name"] != change["name"]  # it has them already


def test_the_command_writes_shows_and_draws_months(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("job.yml").write_text(json.dumps(JOB), encoding="utf-8")
    assert main(["goodput", "job.yml", "--days", "5", "--runs", "10"]) == 0
    printed = capsys.readouterr().out
    assert main(["inspect", "job.goodput"]) == 0
    assert capsys.readouterr().out.strip() in printed
    assert main(["inspect", "job.goodput", "--svg", "months.svg"]) == 0
    drawn = Path("months.svg").read_text(encoding="utf-8")
    assert drawn.startswith("<svg")
    assert all(f">{name}<" in drawn for name in ("p10", "p50", "p90"))
    assert main(["goodput", "job.yml", "--days", "5", "--runs", "10", "--json"]) == 0
    capsys.readouterr()
    assert main(["inspect", "job.goodput", "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert (summary["months"], summary["days"]) == (10, 5)
    with pa.memory_map("job.goodput/months.arrow") as source:
        assert pa.ipc.open_file(source).read_all().num_rows == 10


def test_unknown_keys_are_refused_with_their_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("job.yml").write_text("step: 3s\ntokens-of-step: 8\ngpus: 8\nelastik: 1\n", encoding="utf-8")
    assert main(["goodput", "job.yml"]) == 2
    error = capsys.readouterr().err
    assert "job.yml: line 4" in error
    assert "elastic" in error


def test_columns_of_a_strip_are_filled_by_their_shares() -> None:
    begin, end = np.array([0.0, 2.5, 9.0]), np.array([1.0, 3.5, 10.0])
    assert shares_of_columns(begin, end, 10.0, 5).tolist() == pytest.approx([0.5, 0.5, 0, 0, 0.5])
    assert not shares_of_columns(begin[:0], end[:0], 10.0, 5).any()


def test_the_step_of_a_run_is_that_of_its_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ET_SIM_COMPILE", "never")
    result = et_sim.simulate(make(SMALL, tmp_path), machine="h100-dgx:16")
    result.save(tmp_path / "step.run")
    job = JOB | {"run": str(tmp_path / "step.run"), "elastic": 1}
    for name in ("step", "tokens-of-step", "gpus"):
        del job[name]
    step = months_of(job, days=1, runs=2).step
    assert step.seconds == result.makespan_ns / 1e9
    assert (step.tokens, step.gpus) == (512, 16)
    assert step.notes == ("fewer replicas were not simulated: steps take as long, and a replica is a node",)


MAKE = "make llm --model llama3-8b --layers 1 --sequence 256 --tp 8 --dp 2 --micro-batches 1"
STATES: dict[str, Any] = {
    "failures": {
        "parts": [
            {"name": "cable", "per-1000-node-days": 5, "effect": "halves-link"},
            {"name": "thermal", "per-1000-node-days": 5, "effect": "slows"},
        ]
    },
    "checkpoints": {
        "how": "asynchronous",
        "bytes": "160GB",
        "storage": "200GB/s",
        "memory": {"interval": "1min"},
    },
}
STATE_NAMES = ("seconds", "tokens", "gpus", "slow", "half_link", "copy_stall", "write_stall", "write", "port")


def states_of_run(folder: Path, monkeypatch: pytest.MonkeyPatch, *options: str) -> JobStep:
    """Return the states of a step that the commands make and run in a folder with these options."""
    monkeypatch.setenv("ET_SIM_COMPILE", "never")
    monkeypatch.chdir(folder)
    assert main([*MAKE.split(), "--machine", "h100-dgx:16", "-o", "job"]) == 0
    run = ["run", "job.workload.json", "--machine", "h100-dgx:16", "--out", "step.run"]
    assert main([*run, *options]) == 0
    return months_of({**STATES, "run": str(folder / "step.run")}, days=1, runs=2).step


@pytest.mark.deep
def test_a_run_has_the_states_of_its_recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    of_recipe = months_of({**STATES, "workload": SMALL, "machine": "h100-dgx:16"}, days=1, runs=2).step
    of_run = states_of_run(tmp_path, monkeypatch)
    assert [getattr(of_run, name) for name in STATE_NAMES] == [
        getattr(of_recipe, name) for name in STATE_NAMES
    ]
    assert of_run.copy_stall > 0
    assert of_run.write_stall is not None
    assert of_run.write_stall > 0
    assert not of_run.notes


def test_states_of_a_run_have_its_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = states_of_run(tmp_path, monkeypatch, "--network-model", "analytical", "--profile", "reference")
    expected = et_sim.simulate(
        str(tmp_path / "job.workload.json"),
        machine="h100-dgx:16",
        model="analytical",
        profile="reference",
        system={**preset("h100-dgx:16").system, "stragglers": [{"ranks": "0-7", "compute": 1.5}]},
    )
    assert found.slow == expected.makespan_ns / 1e9


def test_messages_beside_files_of_each_rank_are_those_beside_their_templates() -> None:
    network = {**TWO_NODES, "npus_count": [2, 3]}
    machine: dict[str, Any] = {"system": {"profile": "corrected"}, "network": network, "model": "flow"}

    def made(ahead: int, behind: int) -> Trace:
        build = TraceBuilder()
        build.send(ahead, 1 << 20, after=[])
        build.receive(behind, 1 << 20, after=[])
        return build.build()

    files = Workload.of([made((rank + 2) % 6, (rank + 4) % 6) for rank in range(6)])
    template = Workload((made(2, 4),), np.zeros(6, np.int32), relative_peers=(True,))
    given = by_distance(files)
    assert given.are_relative.all()
    for beside in (lambda of: with_copies(of, 1 << 22, 1, 2), lambda of: of):
        times = {et_sim.simulate(beside(of), **machine).makespan_ns for of in (files, given, template)}
        assert len(times) == 1
    wide = with_storage(network, 6, 0.5)
    beside_files, beside_template = (
        ends_of_step_and_writes(et_sim.simulate(with_writes(of, 1 << 22), **{**machine, "network": wide}))
        for of in (files, template)
    )
    assert beside_files == beside_template
