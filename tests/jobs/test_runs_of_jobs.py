"""Several jobs in one run: their times alone and side by side; only links couple them."""

from __future__ import annotations

import json
from itertools import permutations
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from machines import LISTS, MODELS, network, system
from random_cases import random_case
from training_jobs import transformer

import et_sim
from et_sim.api import run
from et_sim.cli import main
from et_sim.jobs import read_jobs
from et_sim.timeline import write_run
from et_sim.trace import Trace, TraceBuilder, Workload, write_manifest, write_workload
from et_sim.trace.group_rule import GroupRule
from et_sim.views import open_run

pytestmark = pytest.mark.usefixtures("warm_engine")

MIB = 1 << 20
# Two switches with two NPUs each, and one link from switch to switch.
DUMBBELL = {
    "npus": 4,
    "switches": ["left", "right"],
    "links": [
        {"from": ["npu0", "npu1"], "to": "left", "bandwidth": "100GB/s"},
        {"from": ["npu2", "npu3"], "to": "right", "bandwidth": "100GB/s"},
        {"from": "left", "to": "right", "bandwidth": "50GB/s", "latency": "700ns"},
    ],
}
CORRECTED = system(profile="corrected")


def all_reduces(ranks: int, micros: int = 5) -> Workload:
    """Return a computation, then two all-reduces of all ranks, one after the other."""
    build = TraceBuilder()
    first = build.collective("all_reduce", MIB, after=[build.compute(micros=micros)])
    build.collective("all_reduce", 65536, after=[first])
    return Workload((build.build(),), np.zeros(ranks, np.int32))


def message(size: int) -> Workload:
    """Rank 0 sends to rank 1."""
    builders = TraceBuilder(), TraceBuilder()
    builders[0].send(1, size)
    builders[1].receive(0, size)
    return Workload.of([build.build() for build in builders])


def job(name: str, workload: Workload | str, npus: Any = "packed", **more: Any) -> dict[str, Any]:
    return {"name": name, "workload": workload, "npus": npus, **more}


@pytest.mark.deep
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("fold", [True, False])
def test_jobs_that_share_no_link_take_as_long_as_alone(model: str, fold: bool) -> None:
    machine = {"system": CORRECTED, "network": network(["Switch"], [8]), "model": model, "fold": fold}
    jobs = {"jobs": [job("a", all_reduces(4), "0-3"), job("b", all_reduces(4, 9), "4-7")]}
    result = et_sim.simulate(jobs, **machine, isolated=True)
    for name, npus in (("a", "0-3"), ("b", "4-7")):
        workload = jobs["jobs"]["ab".index(name)]["workload"]
        by_itself = et_sim.simulate({"jobs": [job(name, workload, npus)]}, **machine)
        of_job = result.jobs[name]
        if model == "packet":  # which packets a switch marks depends on all that it marks
            assert of_job["slowdown"] == pytest.approx(1, abs=1e-3)
            assert of_job["alone_ns"] == by_itself.makespan_ns
            continue
        assert of_job["slowdown"] == 1.0
        assert of_job["duration_ns"] == of_job["alone_ns"] == by_itself.makespan_ns
    if model != "packet":
        assert result.jobs["b"]["duration_ns"] == result.jobs["a"]["duration_ns"] + 4000
    assert result.summary()["jobs"] == list(result.jobs.values())


def test_in_the_flow_model_two_messages_on_one_link_get_half_of_it_each() -> None:
    jobs = {"jobs": [job("a", message(100 * 50_000), [0, 2]), job("b", message(100 * 50_000), [1, 3])]}
    result = et_sim.simulate(jobs, system=CORRECTED, network=DUMBBELL, model="flow", isolated=True)
    for of_job in result.jobs.values():
        assert of_job["alone_ns"] == 700 + 5_000_000 // 50
        assert of_job["duration_ns"] == 700 + 2 * 5_000_000 // 50
        assert of_job["slowdown"] == (700 + 200_000) / (700 + 100_000)


def test_in_the_flow_model_a_job_that_comes_later_takes_half_from_then_on() -> None:
    """Send the first alone for 60 of its 100 us, its rest in 80 us; then the other has the link."""
    size = 5_000_000
    jobs = {"jobs": [job("a", message(size), [0, 2]), job("b", message(size), [1, 3], start="60us")]}
    result = et_sim.simulate(jobs, system=CORRECTED, network=DUMBBELL, model="flow", isolated=True)
    assert result.jobs["a"]["finish_ns"] == 60_000 + 80_000 + 700
    assert result.jobs["b"]["finish_ns"] == 200_000 + 700
    assert result.jobs["b"]["duration_ns"] == 140_000 + 700
    assert result.jobs["b"]["alone_ns"] == 100_000 + 700


def test_in_the_link_model_the_second_message_waits_for_the_first() -> None:
    size = 5_000_000
    jobs = {"jobs": [job("a", message(size), [0, 2]), job("b", message(size), [1, 3])]}
    result = et_sim.simulate(jobs, system=CORRECTED, network=DUMBBELL, model="link", isolated=True)
    alone = 50_000 + (100_000 + 700) + 50_000
    assert [job["alone_ns"] for job in result.jobs.values()] == [alone, alone]
    durations = [job["duration_ns"] for job in result.jobs.values()]
    assert durations[0] == alone
    assert alone + 100_000 <= durations[1] <= alone + 100_700


@pytest.mark.parametrize("model", MODELS)
def test_a_start_shifts_a_job_exactly(model: str) -> None:
    machine = {"system": CORRECTED, "network": network(["Ring"], [8]), "model": model}

    def times(start: Any) -> list[int]:
        jobs = {"jobs": [job("a", all_reduces(4), "1-7/2", start=start)]}
        return list(et_sim.simulate(jobs, **machine).finish_ns[1::2].tolist())

    assert times("12345ns") == times(12345) == [time + 12345 for time in times(0)]


def test_idle_npus_neither_stall_nor_count() -> None:
    machine = {"system": CORRECTED, "network": network(["Ring"], [8])}
    result = et_sim.simulate({"jobs": [job("a", all_reduces(4), "1-7/2")]}, **machine)
    assert result.finish_ns[::2].tolist() == [0, 0, 0, 0]
    assert result.summary()["coverage"]["not_executed"] == 0
    assert result.summary()["uneven"]["late_ns"] == 0


@pytest.mark.parametrize("seed", range(40))
def test_a_job_on_all_npus_is_the_run_of_its_workload(seed: int) -> None:
    """Run random programs with groups, relative peers, stragglers; both profiles, some of them stall."""
    workload, machine = random_case(seed)
    groups = machine.pop("groups", None)
    try:
        plain = run(workload, **machine, groups=groups)
    except et_sim.EtSimError:
        pytest.skip("refused")
    as_job = run({"jobs": [job("a", workload, groups=groups)]}, **machine)
    assert as_job.finish_ns.tolist() == plain.finish_ns.tolist()
    assert as_job.exposed_comm_ns.tolist() == plain.exposed_comm_ns.tolist()


def _random_jobs(seed: int) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return two or three random programs, each on its own NPUs, on a machine of one dimension."""
    draw = Random(seed)
    cases = [random_case(seed * 7 + place) for place in range(draw.choice((2, 3)))]
    ranks = [case.workload.ranks for case in cases]
    npus = sum(ranks) + draw.choice((0, 1, 3))
    shuffled = draw.sample(range(npus), npus) if draw.random() < 0.5 else list(range(npus))
    jobs = []
    for place, case in enumerate(cases):
        own = [shuffled.pop() for _ in range(case.workload.ranks)]
        start = draw.choice((0, 0, 700, 5000))
        jobs.append(job(f"j{place}", case.workload, own, groups=case.machine.get("groups"), start=start))
    if draw.random() < 0.3 and len(shuffled) >= ranks[0]:
        jobs.append(
            job("twin", cases[0].workload, shuffled[: ranks[0]], groups=cases[0].machine.get("groups"))
        )
    on = {key: value for key, value in cases[0].machine["system"].items() if key != "stragglers"}
    for kind in LISTS:
        on[f"{kind}-implementation"] = on[f"{kind}-implementation"][:1]
    return jobs, {"system": on, "network": network([draw.choice(("Ring", "Switch"))], [npus])}


def _seen(jobs: list[dict[str, Any]], **machine: Any) -> Any:
    """Return the results of a run, or its refusal, in an order other than that of the jobs."""
    try:
        result = run({"jobs": jobs}, **machine)
    except et_sim.EtSimError as error:
        return type(error).__name__
    parts = (result.finish_ns, result.exposed_comm_ns, result.compute_ns, result.waiting_ns)
    durations = {name: job["duration_ns"] for name, job in result.jobs.items()}
    return [part.tolist() for part in parts], result.outcome.messages, durations


@pytest.mark.deep
@given(st.integers(0, 5000), st.sampled_from(["analytical", "link"]))
def test_jobs_in_any_order_and_folded_or_not_take_the_same_times(seed: int, model: str) -> None:
    jobs, machine = _random_jobs(seed)
    seen = _seen(jobs, **machine, model=model)
    for order in list(permutations(jobs))[:3]:
        assert _seen(list(order), **machine, model=model) == seen
    assert _seen(jobs, **machine, model=model, fold=False) == seen


def test_random_jobs_are_seldom_refused_and_often_complete() -> None:
    results = [_random_jobs(seed) for seed in range(12)]
    seen = [(jobs, _seen(jobs, **machine)) for jobs, machine in results]
    ran = [case for _, case in seen if not isinstance(case, str)]
    assert len(ran) > 9
    assert sum(None not in case[2].values() for case in ran) > 3


@given(st.integers(0, 5000))
def test_without_contention_no_job_slows_down_another(seed: int) -> None:
    jobs, machine = _random_jobs(seed)
    machine |= {"system": machine["system"] | {"corrections": {"port-bandwidth": False}}}
    try:
        result = run({"jobs": jobs}, **machine, isolated=True)
    except et_sim.EtSimError:
        return
    for job in result.jobs.values():
        assert job["duration_ns"] == job["alone_ns"]
        assert job["slowdown"] == (None if job["duration_ns"] is None else 1.0)


def _by_hand() -> Workload:
    """Rank 0 broadcasts to all, sends to the next, and joins a group of the two first, on NPUs 5, 2, 7."""
    npus = (5, 2, 7)
    traces: list[Trace] = [TraceBuilder().build()] * 8
    for rank, npu in enumerate(npus):
        build = TraceBuilder()
        build.collective("broadcast", MIB, group="all", root=npus[1])
        build.send(npus[(rank + 1) % 3], 4096, tag=3)
        build.receive(npus[(rank - 1) % 3], 4096, tag=3)
        if rank < 2:
            build.collective("all_reduce", 65536, group="two")
        traces[npu] = build.build()
    return Workload.of(traces)


@pytest.mark.parametrize("described", ["file", "trace", "rule"])
@pytest.mark.parametrize("model", MODELS)
def test_peers_roots_and_groups_refer_to_npus(described: str, model: str) -> None:
    traces = []
    for rank in range(3):
        build = TraceBuilder()
        if described == "trace":
            build.process_groups({"0": [0, 1, 2], "7": [0, 1]})
        build.collective("broadcast", MIB, root=1, group="0" if described == "trace" else "")
        build.send(1, 4096, tag=3)
        build.receive(2, 4096, tag=3)
        if rank < 2:
            build.collective("all_reduce", 65536, group="7")
        traces.append(build.build())
    first, _, last = traces
    workload = Workload((first, last), np.array([0, 0, 1], np.int32), relative_peers=(True, True))
    groups = {"7": [0, 1]} if described == "file" else None
    if described == "rule":  # a rule that a listed group stands beside
        rules = {"every": GroupRule(3)}
        workload = Workload(
            workload.templates, workload.template_of_rank, relative_peers=(True, True), group_rules=rules
        )
        groups = {"7": [0, 1]}
    machine = {"system": CORRECTED, "network": network(["Ring"], [8]), "model": model}
    as_job = et_sim.simulate({"jobs": [job("a", workload, [5, 2, 7], groups=groups)]}, **machine)
    by_hand = et_sim.simulate(_by_hand(), **machine, groups={"all": [5, 2, 7], "two": [5, 2]})
    assert as_job.finish_ns.tolist() == by_hand.finish_ns.tolist()
    assert as_job.outcome.messages == by_hand.outcome.messages


def test_a_training_job_of_rules_and_distances_takes_the_same_wherever_it_is() -> None:
    """Run tensor, pipeline and data parallelism on 8 of 24 NPUs of a switch, in any order."""
    workload = transformer(tensor=2, pipeline=2, data=2, micro_batches=2)
    durations = set()
    for how in ({"npus": "packed"}, {"npus": "spread"}, {"npus": "random", "seed": 3}, {"npus": "7-21/2"}):
        machine = {"system": CORRECTED, "network": network(["Switch"], [24])}
        result = et_sim.simulate({"jobs": [{"name": "a", "workload": workload, **how}]}, **machine)
        durations.add(result.jobs["a"]["duration_ns"])
        assert len(result.outcome.plan.actors) < 9
    assert len(durations) == 1


def test_equal_jobs_are_simulated_once() -> None:
    jobs = {"jobs": [job(name, all_reduces(64)) for name in "abcd"]}
    result = et_sim.simulate(jobs, system=CORRECTED, network=network(["Switch"], [256]))
    assert len(result.outcome.plan.actors) == 1
    assert len({job["duration_ns"] for job in result.jobs.values()}) == 1


def test_a_job_that_stalls_is_named_by_its_missing_times() -> None:
    build = TraceBuilder()
    build.receive(1, 64)
    lost = Workload.of([build.build(), TraceBuilder().build()])
    # A receive without a send is refused after a run that completes; this one does not.
    jobs = {"jobs": [job("lost", lost), job("good", all_reduces(4))]}
    result = run(jobs, system=CORRECTED, network=network(["Ring"], [8]), isolated=True)
    assert result.jobs["lost"] | {"npus": ""} == result.jobs["lost"] | {
        "npus": "",
        "finish_ns": None,
        "duration_ns": None,
        "alone_ns": None,
        "slowdown": None,
    }
    assert result.jobs["good"]["slowdown"] == 1.0


def test_a_stall_names_the_job_and_its_own_ranks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    build = TraceBuilder()
    build.receive(1, 64)
    lost = Workload.of([build.build(), TraceBuilder().build()])
    jobs = {"jobs": [job("lost", lost, [6, 4]), job("good", all_reduces(4))]}
    result = run(jobs, system=CORRECTED, network=network(["Ring"], [8]))
    assert result.stall is not None
    assert "rank 6 expects 64 B with tag 0 from rank 4" in result.stall.cause
    assert result.stall.cause.endswith("(job lost: its rank 0 is 6, 1 is 4 here)")
    assert "Unfinished jobs:\n  lost: its rank 0 is rank 6 here\n" in result.stall.text
    write_run(result, tmp_path / "run", result.stall.as_dict())
    assert main(["inspect", str(tmp_path / "run"), "stalls"]) == 0
    assert "lost: its rank 0 is rank 6 here" in capsys.readouterr().out
    assert main(["inspect", str(tmp_path / "run"), "--job", "lost", "notices"]) == 2
    assert "the view notices does not support --job" in capsys.readouterr().err
    assert main(["inspect", str(tmp_path / "run"), "--job", "good", "ops"]) == 0
    assert "only ranks 0-3" in capsys.readouterr().out


def test_a_straggler_s_node_need_not_be_in_every_job() -> None:
    slow = {**CORRECTED, "stragglers": [{"ranks": "0-3", "node": 0, "delay": "1us"}]}
    jobs = {"jobs": [job("a", all_reduces(4), "0-3"), job("b", message(4096), "4-5")]}
    result = et_sim.simulate(jobs, system=slow, network=network(["Ring"], [8]), isolated=True)
    assert [job["slowdown"] for job in result.jobs.values()] == [1.0, 1.0]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Enter a folder with a job file in a subfolder, two traces of one name, and a machine."""
    monkeypatch.chdir(tmp_path)
    for place, (name, micros) in enumerate((("one", 5), ("two", 9))):
        (tmp_path / "jobs" / name).mkdir(parents=True)
        workload = all_reduces(4, micros)
        if place:
            write_manifest(workload, tmp_path / "jobs" / name / "step.workload.json")
        else:
            write_workload(workload, tmp_path / "jobs" / name / "step")
    (tmp_path / "jobs" / "both.yaml").write_text(
        "# two of them\njobs:\n  - { name: one, workload: one/step }\n"
        "  - { name: two, workload: two/step.workload.json, npus: random, seed: 4, start: 1us }\n"
    )
    (tmp_path / "system.json").write_text(json.dumps(CORRECTED))
    (tmp_path / "network.yml").write_text(json.dumps(network(["Ring"], [9])))
    return tmp_path


MACHINE = ("--system=system.json", "--network=network.yml")


def test_a_run_of_files_describes_its_jobs(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "jobs/both.yaml", *MACHINE, "--network-model=link", "--isolated"]) == 0
    text = capsys.readouterr().out
    assert "jobs         2 on 8 of 9 NPUs; 1 idle" in text
    summary = json.loads((folder / "both.run" / "summary.json").read_text())
    manifest = json.loads((folder / "both.run" / "run.json").read_text())
    first, second = summary["jobs"]
    assert manifest["jobs"] == summary["jobs"]
    assert (first["npus"], first["placed"], first["workload"]) == ("0-3", "packed", "one/step")
    assert (second["placed"], second["seed"], second["start_ns"]) == ("random", 4, 1000)
    assert second["finish_ns"] == second["start_ns"] + second["duration_ns"]
    assert len(manifest["inputs"]) == 3 + 4 + 2  # job file and machine; traces; manifest and template
    for name in ("one", "two"):
        assert any(line.split()[0] == name for line in text.splitlines() if line.strip())
    assert main(["inspect", "both.run", "ranks", "--job", "two"]) == 0
    of_job = capsys.readouterr().out
    ranks = {int(npu) for npu in np.sort([*map(int, second["npus"].replace("-", ",").split(","))])}
    assert of_job.startswith("only ranks ")
    assert str(max(ranks)) in of_job.splitlines()[0]
    table = open_run(folder / "both.run").table("jobs").to_pylist()
    for row, output in zip(table, summary["jobs"], strict=True):
        assert row == {"job": output["name"], **{name: output[name] for name in row if name != "job"}}
    assert main(["sql", "both.run", "SELECT job, slowdown FROM jobs WHERE seed = 4", "--csv"]) == 0
    assert capsys.readouterr().out == f"job,slowdown\ntwo,{second['slowdown']}\n"
    assert main(["report", "both.run", "--html", "page.html"]) == 0
    page = Path("page.html").read_text()
    assert '<h2 id="jobs-title">Jobs</h2>' in page
    assert f">{second['npus']}</td>" in page
    capsys.readouterr()
    for wrong, cause in (("too", "did you mean 'two'?"), ("x", "jobs: one, two")):
        assert main(["inspect", "both.run", "ranks", "--job", wrong]) == 2
        assert cause in capsys.readouterr().err
    assert main(["inspect", "both.run", "ranks", "--job=one", "--ranks=1"]) == 2
    assert "--job and --ranks both choose ranks" in capsys.readouterr().err


@pytest.mark.deep
def test_runs_of_jobs_are_verified_and_compared(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "jobs/both.yaml", *MACHINE, "--network-model=analytical", "--detail=path"]) == 0
    assert main(["run", "jobs/both.yaml", *MACHINE, "--network-model=link", "--out=linked"]) == 0
    capsys.readouterr()
    assert main(["inspect", "both.run", "critical-path", "--verify", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document
    assert main(["compare", "both.run", "linked"]) == 0
    capsys.readouterr()
    assert main(["check", "jobs/both.yaml", *MACHINE]) == 0
    (folder / "jobs" / "both.yaml").write_text("jobs:\n  - { name: one, workload: one/step }\n")
    assert main(["inspect", "both.run", "critical-path", "--verify"]) == 2
    assert "both.yaml has changed since the run, so it cannot be simulated again" in capsys.readouterr().err


def test_the_same_job_file_gives_the_same_bytes(folder: Path) -> None:
    for out in ("first", "second"):
        options = ["--network-model=link", "--isolated", "--out", out]
        assert main(["run", "jobs/both.yaml", *MACHINE, *options]) == 0
    for path in sorted((folder / "first").iterdir()):
        assert path.read_bytes() == (folder / "second" / path.name).read_bytes()


def test_npus_without_a_job_do_not_count_as_waiting() -> None:
    late = TraceBuilder()
    late.collective("all_reduce", MIB, after=[late.compute(micros=70)])
    early = TraceBuilder()
    early.collective("all_reduce", MIB, after=[early.compute(micros=10)])
    workload = Workload.of([builder.build() for builder in (late, early, early, early)])
    costs = [
        run({"jobs": [job("a", workload)]}, system=CORRECTED, network=network(["Switch"], [npus])).summary()
        for npus in (4, 40)
    ]
    assert costs[0]["slowest"] == costs[1]["slowest"] == {"ranks": "0", "cost_ns": 60_000}


FABRICS: tuple[dict[str, Any], ...] = (
    network(["Switch"], [12]),
    {"graph": {"generator": "star", "npus": 12, "bandwidth": "47GB/s", "latency": 300}},
    {
        "graph": {
            "generator": "leaf-spine",
            "leaves": 3,
            "spines": 1,
            "npus-per-leaf": 4,
            "bandwidth": "50GB/s",
        },
        "logical-dimensions": [12],
    },
)


def _round(ranks: int, distances: tuple[int, ...] = (1,)) -> Workload:
    """Return an all-reduce, after which every rank sends to ranks at these distances."""
    build = TraceBuilder()
    last = build.collective("all_reduce", 120_000)
    for tag, distance in enumerate(distances):
        build.send(distance, 50_000, tag=tag, after=[last])
        build.receive(ranks - distance, 50_000, tag=tag, after=[last])
    return Workload((build.build(),), np.zeros(ranks, np.int32), relative_peers=(True,))


@pytest.mark.parametrize(
    "seed", [*range(4), *(pytest.param(seed, marks=pytest.mark.deep) for seed in range(4, 80))]
)
def test_jobs_at_random_places_are_folded_exactly_on_the_flow_model(seed: int) -> None:
    draw = Random(seed)
    works = [all_reduces(4), _round(3), _round(2), all_reduces(2, 9)]
    jobs = [
        job(f"j{at}", draw.choice(works), "random", seed=draw.randint(0, 99), start=draw.choice((0, 0, 700)))
        for at in range(draw.choice((2, 3)))
    ]
    keys = system(draw.choice(("ring", "direct")), profile="corrected")
    machine = {"system": keys, "network": draw.choice(FABRICS), "model": "flow"}
    assert _seen(jobs, **machine) == _seen(jobs, **machine, fold=False)


def test_ranks_with_equal_distances_share_a_template() -> None:
    """Run a job on half of the NPUs: only the neighbours of the first and the last rank are farther away."""
    both = {"jobs": [job("a", _round(32, (1, 31)), "8-39"), job("b", _round(8, (3,)), "packed")]}
    merged = read_jobs(both, 64, profile_is_open=False)
    used = [len(np.unique(merged.template_of_rank[job.npus])) for job in merged.jobs]
    assert used == [3, 3]
    whole = read_jobs({"jobs": [job("a", _round(64))]}, 64, profile_is_open=False)
    assert len(whole.templates) == 1
    machine = {"system": CORRECTED, "network": network(["Ring"], [64])}
    by_name = run(both, **machine, isolated=True)
    assert by_name.is_complete
    assert all(job["slowdown"] == 1.0 for job in by_name.jobs.values())
