"""`et-sim run --network-models`: every rung is the run of --network-model; steps show the differences."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from machines import MODELS

import et_sim
from et_sim.cli import main
from et_sim.trace import TraceBuilder, Workload, write_workload

pytestmark = pytest.mark.usefixtures("warm_engine")

MIB = 1 << 20
SYSTEM = {"profile": "corrected", "scheduling-policy": "FIFO", "all-reduce-implementation": ["ring"]}
MACHINE = ("--system=system.json", "--network=network.yml")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Enter a folder with ranks 0 and 1 that send to rank 2 over the link between 1 and 2."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "network.yml").write_text(
        "topology: [Ring]\nnpus_count: [8]\nbandwidth: [50]\nlatency: [500]\n"
    )
    (tmp_path / "system.json").write_text(json.dumps(SYSTEM))
    builders = [TraceBuilder() for _ in range(8)]
    for rank in (0, 1):
        builders[rank].send(2, MIB, name="gift", after=[builders[rank].compute("work", micros=10)])
        builders[2].receive(rank, MIB, name="gift")
    for build in builders:
        build.compute("work", micros=5)
    write_workload(Workload.of([build.build() for build in builders]), "gifts")
    return tmp_path


def ladder(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[dict[str, Any]]:
    capsys.readouterr()
    assert main(["run", "gifts", *MACHINE, *arguments, "--json"]) == 0
    return list(json.loads(capsys.readouterr().out))


@pytest.mark.deep
def test_every_model_of_the_registry_is_a_rung_and_writes_the_run_it_gives_alone(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rungs = ladder(capsys, "--network-models", ",".join(MODELS))
    assert [rung["model"] for rung in rungs] == list(MODELS)
    for rung in rungs:
        out = f"alone/{rung['model']}"
        assert main(["run", "gifts", *MACHINE, "--network-model", rung["model"], "--out", out]) == 0
        together, other = folder / "gifts.run" / rung["model"], folder / "alone" / rung["model"]
        assert rung["directory"] == f"gifts.run/{rung['model']}"
        assert (together / "timeline.arrow").read_bytes() == (other / "timeline.arrow").read_bytes()
        assert rung["makespan_ns"] == json.loads((other / "summary.json").read_text())["makespan_ns"]


@pytest.mark.deep
def test_a_step_shows_the_difference_and_where_it_begins(capsys: pytest.CaptureFixture[str]) -> None:
    below, above = ladder(capsys, "--network-models=analytical,link")
    assert below["difference_ns"] is None
    assert above["difference_ns"] == above["makespan_ns"] - below["makespan_ns"] > 0
    assert (above["most"]["kind"], above["most"]["name"]) == ("receive", "gift")
    runs = [
        et_sim.simulate("gifts", system=SYSTEM, network="network.yml", model=m)
        for m in ("analytical", "link")
    ]
    rows = [{(r["actor"], r["node"]): r["end_ns"] for r in run.timeline.to_pylist()} for run in runs]
    differing = [(min(end, rows[1][key]), key) for key, end in rows[0].items() if end != rows[1][key]]
    _, (actor, node) = min(differing)
    first = above["first_difference"]
    assert runs[0].measurement.actor_of_rank[first["rank"]] == actor
    assert (first["node"], first["a_end_ns"], first["b_end_ns"]) == (
        node,
        rows[0][actor, node],
        rows[1][actor, node],
    )
    assert main(["run", "gifts", *MACHINE, "--network-models=analytical,link"]) == 0
    text = capsys.readouterr().out
    assert "all in the corrected profile\n" in text
    assert f'gift" (node {node}) of rank {first["rank"]} ends at ' in " ".join(text.split())
    assert max(map(len, text.splitlines())) <= 80


def test_agreeing_models_are_reported(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    builders = [TraceBuilder() for _ in range(8)]
    for build in builders:
        build.compute("work", micros=5)
    write_workload(Workload.of([build.build() for build in builders]), folder / "work")
    assert main(["run", "work", *MACHINE, "--network-models=analytical,link"]) == 0
    out = capsys.readouterr().out
    assert "analytical to link: every operation, group and rank takes as long" in out


@pytest.mark.deep
def test_the_corrected_figure_of_every_model_is_shown_without_a_named_profile(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "system.json").write_text(json.dumps({**SYSTEM, "profile": "corrected"}))
    corrected = ladder(capsys, "--network-models=analytical,link")
    plain = {key: value for key, value in SYSTEM.items() if key != "profile"}
    (folder / "system.json").write_text(json.dumps(plain))
    both = ladder(capsys, "--network-models=analytical,link")
    assert [run["other_profile"]["makespan_ns"] for run in both] == [run["makespan_ns"] for run in corrected]
    assert main(["run", "gifts", *MACHINE, "--network-models=analytical,link"]) == 0
    assert "all in the reference profile, as none is named" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--network-models=analytical"], "name two or more different models"),
        (["--network-models=link,link"], "name two or more different models"),
        (["--network-models=analytical,lnik"], "did you mean 'link'?"),
        (["--models=analytical,link", "--model=link"], "--network-model and --network-models are both given"),
    ],
)
def test_wrong_lists_are_refused(
    capsys: pytest.CaptureFixture[str], arguments: list[str], sentence: str
) -> None:
    assert main(["run", "gifts", *MACHINE, *arguments]) == 2
    assert sentence in capsys.readouterr().err


def test_a_directory_with_something_else_is_not_overwritten(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", "gifts", *MACHINE]) == 0
    assert main(["run", "gifts", *MACHINE, "--network-models=analytical,link"]) == 2
    assert "gifts.run holds 'actors.arrow', and a directory for every model" in capsys.readouterr().err
    assert not (folder / "gifts.run" / "link").exists()


def test_a_stall_on_any_model_is_status_1_and_still_a_rung(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    builders = [TraceBuilder() for _ in range(8)]
    for build in builders:
        build.compute("work", micros=5)
    builders[0].receive(1, 8)
    write_workload(Workload.of([build.build() for build in builders]), folder / "waits")
    assert main(["run", "waits", *MACHINE, "--network-models=analytical,link"]) == 1
    printed = capsys.readouterr()
    assert "(5,000 ns, stalled)" in printed.out
    assert "rank 0 waits for 8 B with tag 0" in printed.err
