"""Mistakes in a job file are refused in one sentence with file, line and remedy."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from machines import collective

import et_sim
from et_sim.cli import main
from et_sim.cli import main as simulate
from et_sim.jobs import read_jobs
from et_sim.trace import TraceBuilder, Workload, write_workload

GOOD = "  - { name: good, workload: four, npus: 0-3 }\n"


def workload(ranks: int, group: str = "", **more: Any) -> Workload:
    """Return one all-reduce of all ranks."""
    return collective(ranks, "all_reduce", 4096, group=group, **more)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Enter a folder with a machine of eight NPUs and a workload of four ranks."""
    monkeypatch.chdir(tmp_path)
    Path("network.yml").write_text(
        "topology: [ Ring ]\nnpus_count: [ 8 ]\nbandwidth: [ 50 ]\nlatency: [ 500 ]\n"
    )
    Path("system.json").write_text(
        json.dumps({"all-reduce-implementation": ["ring"], "profile": "corrected"})
    )
    write_workload(workload(4), "four")
    Path("layers.txt").write_text("DATA\n1\nl -1 1 NONE 0 1 NONE 0 1 ALLREDUCE 64 1\n")
    Path("other.yaml").write_text("jobs:\n" + GOOD)
    Path("bad.groups.json").write_text('{"1": [0, 4]}')
    return tmp_path


def refusal(text: str, capsys: pytest.CaptureFixture[str], *more: str) -> str:
    Path("jobs.yaml").write_text(text)
    machine = ["--system=system.json", "--network=network.yml", "--out=run"]
    assert main(["run", "jobs.yaml", *machine, *more]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    sentence = captured.err.rstrip("\n").splitlines()[-1]  # a message about compilation may precede it
    assert captured.err.count("et-sim: error: ") == 1
    assert not Path("run").exists()
    assert sentence.startswith("et-sim: error: ")
    return sentence.removeprefix("et-sim: error: ")


ONE = "jobs:\n  - name: a\n    workload: four\n    "
FORMS = 'allowed: NPUs such as 0-7 or "0-14/2", a list of them, or packed, spread or random'


@pytest.mark.parametrize(
    ("text", "line", "cause", "remedy"),
    [
        (
            "jobs:\n" + GOOD + "  - { name: b, workload: four, npus: [7, 5, 3, 2] }\n",
            3,
            'job "b" overlaps with job "good" on NPU 2 and 1 more',
            "an NPU runs one job: give each of them other NPUs",
        ),
        (ONE + "npus: 0-2\n", 4, 'job "a" has 4 ranks and is placed on 3 NPUs', "name one NPU for each rank"),
        (ONE + "npus: 0-4\n", 4, 'job "a" has 4 ranks and is placed on 5 NPUs', "name one NPU for each rank"),
        (ONE + "npus: 3\n", 4, 'job "a" has 4 ranks and is placed on 1 NPU', "name one NPU for each rank"),
        (
            ONE + "npus: 5-8\n",
            4,
            'job "a" is placed on NPU 8, and the network has 8 NPUs',
            "NPUs from 0 to 7",
        ),
        (ONE + "npus: [0, 1, 1, 2]\n", 4, 'job "a" names NPU 1 twice', "an NPU runs one rank"),
        (ONE + "npus:\n    - 0\n    - x\n    - 2\n    - 3\n", 6, 'key "npus" index 1 is "x"', FORMS),
        (ONE + "npus:\n    - 0\n    - 1\n    - 2\n    - 8\n", 8, "is placed on NPU 8", "NPUs from 0 to 7"),
        (ONE + "npus:\n    - 0\n    - 1\n    - 0\n    - 2\n", 7, "names NPU 0 twice", "an NPU runs one rank"),
        (
            "jobs:\n"
            + GOOD
            + "  - name: b\n    workload: four\n    npus:\n    - 7\n    - 5\n    - 3\n    - 4\n",
            8,
            'overlaps with job "good" on NPU 3',
            "an NPU runs one job",
        ),
        (ONE + "npus: 7-4\n", 4, "has the empty range 7-4", FORMS),
        (ONE + "npus: 0-99999999999\n", 4, "cannot be understood", FORMS),
        (ONE + "npus: 0-999999999\n", 4, "there is no NPU beyond 16777215", FORMS),
        (ONE + "npus: sprad\n", 4, 'key "npus" is "sprad"', "did you mean 'spread'?"),
        (ONE + "npus: random\n", 4, 'job "a" is placed at random, and has no seed', "seed: 1"),
        (ONE + "npus: random\n    seed: 1.5\n", 5, 'key "seed" is 1.5', "an integer >= 0"),
        (ONE + "npus: packed\n    seed: 1\n", 5, "has no effect: its NPUs are packed", "npus: random"),
        (ONE + "start: 0.5ns\n", 4, "no whole number of nanoseconds", "allowed: whole nanoseconds from 0 on"),
        (ONE + "start: 99999999999s\n", 4, "more than 9007199254740992", "allowed: whole nanoseconds"),
        (ONE + "nqus: 0-3\n", 4, 'key "nqus" is not known', "did you mean 'npus'?"),
        (
            "jobs:\n" + GOOD + "  - { name: good, workload: four, npus: 4-7 }\n",
            3,
            'is called "good", as is index 0 of "jobs"',
            "give each its own name",
        ),
        ("jobs:\n  - { workload: four }\n", 2, 'key "name" is missing', "a letter, then letters"),
        ("jobs:\n  - { name: a }\n", 2, 'key "workload" is missing', "the prefix of its traces"),
        (
            "jobs:\n" + GOOD + "  - name: b\n    workload: for\n",
            4,
            'job "b" has a workload that cannot be used: for: no file for.0.et',
            "did you mean 'four'?",
        ),
        (
            "jobs:\n  - { name: a, workload: layers.txt }\n",
            2,
            "as its workload a layer file",
            "et-convert text",
        ),
        ("jobs:\n  - { name: a, workload: other.yaml }\n", 2, "as its workload a job file", "list its jobs"),
        (ONE + "groups: none.json\n", 4, 'job "a" has a groups file that cannot be used: none.json', ""),
        (ONE + "groups: bad.groups.json\n", 4, 'key "1" index 1 is 4', "an integer from 0 to 3"),
        (
            "jobs:\n" + GOOD + "  - { name: b, workload: four }\n  - { name: c, workload: four }\n",
            4,
            'job "c" has 4 ranks, and 0 of 8 NPUs are free',
            "run fewer jobs together",
        ),
        ("jobs: []\n", 1, 'key "jobs" is []: it has no entry', "give one"),
        ("jobs:\n  - four\n", 2, 'key "jobs" index 0 is "four"', "a list of objects"),
        ("job: 1\njobs:\n" + GOOD, 1, 'key "job" is not known', "did you mean 'jobs'?"),
    ],
)
def test_a_mistake_is_reported_with_its_line_and_a_remedy(
    text: str, line: int, cause: str, remedy: str, capsys: pytest.CaptureFixture[str]
) -> None:
    message = refusal(text, capsys)
    assert message.startswith(f"jobs.yaml: line {line}: ")
    assert cause in message
    assert remedy in message
    assert message.endswith(")") or not remedy


def test_invalid_yaml_is_reported_with_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert "jobs.yaml: line 3, column" in refusal("jobs:\n  - { name: a\n", capsys)
    twice = refusal("jobs:\n  - name: a\n    workload: four\n    name: b\n", capsys)
    assert twice == 'jobs.yaml: line 4: key "name" is given more than once (keep one of them)'
    assert "jobs.yaml: line 2: a key is not a plain text" in refusal("jobs:\n  - { [a]: b }\n", capsys)


@pytest.mark.parametrize(
    ("option", "cause", "remedy"),
    [
        ("--alone", "--alone is about the ranks of one workload", "give the prefix of a job"),
        ("--groups=bad.groups.json", "jobs have groups of their own", 'as "groups" of the job'),
    ],
)
def test_options_of_one_workload_are_refused(
    option: str, cause: str, remedy: str, capsys: pytest.CaptureFixture[str]
) -> None:
    message = refusal("jobs:\n" + GOOD, capsys, option)
    assert cause in message or "bad.groups.json" in message
    if "bad.groups.json" not in message:
        assert remedy in message


def test_isolated_is_refused_without_jobs(capsys: pytest.CaptureFixture[str]) -> None:
    machine = ["--system=system.json", "--network=network.yml"]
    assert main(["run", "four", *machine, "--isolated"]) == 2
    assert "--isolated is about several jobs (run a job file, or leave it out)" in capsys.readouterr().err


def test_a_trace_that_leaves_its_job_is_refused() -> None:
    build = TraceBuilder(source="rank 0")
    build.send(4, 64, name="gift")
    jobs = {"jobs": [{"name": "a", "workload": Workload.of([build.build(), TraceBuilder().build()])}]}
    with pytest.raises(et_sim.TraceError, match=r'"gift" names rank 4, and job "a" has ranks 0 to 1'):
        read_jobs(jobs, 8, profile_is_open=False)
    root = workload(2)
    build = TraceBuilder()
    build.collective("broadcast", 64, root=2)
    jobs["jobs"][0]["workload"] = Workload.of([build.build()] * root.ranks)
    with pytest.raises(et_sim.TraceError, match=r'names rank 2, and job "a" has ranks 0 to 1'):
        read_jobs(jobs, 8, profile_is_open=False)
    build = TraceBuilder()
    build.process_groups({"1": [0, 2]})
    jobs["jobs"][0]["workload"] = Workload.of([build.build()] * 2)
    with pytest.raises(
        et_sim.TraceError, match=r'process group "1" lists rank 2, and job "a" has ranks 0 to 1'
    ):
        read_jobs(jobs, 8, profile_is_open=False)


def test_an_undefined_group_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    write_workload(workload(4, group="7"), "grouped")
    message = refusal("jobs:\n  - { name: a, workload: grouped }\n", capsys)
    assert "communicator group 'a/7' is not defined" in message


def test_jobs_with_different_profiles_are_refused_unless_one_is_chosen() -> None:
    jobs = {"jobs": []}
    for name, profile in (("a", "reference"), ("b", "corrected")):
        two = workload(2)
        named = Workload(two.templates, two.template_of_rank, profile=profile)
        jobs["jobs"].append({"name": name, "workload": named})
    with pytest.raises(et_sim.TraceError, match="profile corrected, and job a in reference"):
        read_jobs(jobs, 8, profile_is_open=True)
    assert read_jobs(jobs, 8, profile_is_open=False).profile == ""
    del jobs["jobs"][0]
    assert read_jobs(jobs, 8, profile_is_open=True).profile == "corrected"


def test_check_covers_jobs_and_accepts_idle_npus(capsys: pytest.CaptureFixture[str]) -> None:
    Path("jobs.yaml").write_text("jobs:\n" + GOOD)
    machine = ["--system=system.json", "--network=network.yml"]
    assert simulate(["check", "jobs.yaml", *machine]) == 0
    assert capsys.readouterr().out == "no problems found: 8 ranks, 4 nodes, 2 distinct traces\n"
    assert simulate(["check", "jobs.yaml"]) == 2
    assert "jobs are placed on the NPUs of a machine (give --network, too)" in capsys.readouterr().err
    build = TraceBuilder()
    build.send(1, 64)
    write_workload(Workload.of([build.build(), TraceBuilder().build()]), "lost")
    Path("jobs.yaml").write_text("jobs:\n  - { name: a, workload: lost, npus: [5, 2] }\n")
    assert simulate(["check", "jobs.yaml", *machine]) == 2
    assert "rank 2" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("jobs", "place", "cause"),
    [
        ({1: 2}, "<jobs>: ", "key 1 is not known"),
        ({"jobs": [{1: 2}]}, "<jobs>: jobs.0.1: ", "key 1 is not known"),
        ({"jobs": [{"name": "a"}]}, "<jobs>: jobs.0: ", 'key "workload" is missing'),
        ({"jobs": [{"name": "a", "workload": "four", "npus": None}]}, "<jobs>: jobs.0.npus: ", "is null"),
        (
            {"jobs": [{"name": "a", "workload": "four", "groups": {"1": [7]}}]},
            "<jobs>: jobs.0.groups: ",
            "is 7",
        ),
    ],
)
def test_dicts_are_refused_by_the_place_in_them(jobs: Any, place: str, cause: str) -> None:
    with pytest.raises(et_sim.EtSimError) as refused:
        et_sim.simulate(jobs, system="system.json", network="network.yml")
    assert str(refused.value).startswith(place)
    assert cause in str(refused.value)
