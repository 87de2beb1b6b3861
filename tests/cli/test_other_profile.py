"""A run without a named profile states the time of the corrected profile, exactly."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from correction_examples import group_before_all, send_and_all_reduce
from machines import FIFO_RING

import et_sim
from et_sim.basics.units import format_ns
from et_sim.cli import main
from et_sim.run import other_profile
from et_sim.trace import TraceBuilder, Workload, write_workload

pytestmark = pytest.mark.usefixtures("warm_engine")

MIB = 1 << 20
NETWORK = "topology: [Ring]\nnpus_count: [4]\nbandwidth: [50]\nlatency: [500]\n"
# Messages share links for free here, so that the other corrections show an effect.
SHARED_FOR_FREE = {**FIFO_RING, "corrections": {"port-bandwidth": False}}
MACHINE = ("--system=system.json", "--network=network.yml", "--groups=groups.json")


def _write(name: str, fill: Any) -> None:
    builders = [TraceBuilder() for _ in range(4)]
    for rank, build in enumerate(builders):
        fill(rank, build)
    write_workload(Workload.of([build.build() for build in builders]), name)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Enter a folder with a machine without a profile, and workloads that differ, are equal, or stall."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "network.yml").write_text(NETWORK)
    (tmp_path / "system.json").write_text(json.dumps(SHARED_FOR_FREE))
    (tmp_path / "groups.json").write_text('{"1": [2, 3]}')
    _write("differs", send_and_all_reduce)
    _write("stalls", group_before_all)
    _write("same", lambda _, build: build.collective("all_reduce", MIB))
    return tmp_path


def _summary(capsys: pytest.CaptureFixture[str], *arguments: str, status: int = 0) -> dict[str, Any]:
    capsys.readouterr()
    assert main(["run", *arguments, *MACHINE, "--json"]) == status
    return dict(json.loads(capsys.readouterr().out))


def _screen(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Return the output of a run, as one line."""
    capsys.readouterr()
    main(["run", *arguments, *MACHINE])
    return " ".join(capsys.readouterr().out.split())


def test_the_corrected_figure_is_that_of_a_corrected_run(capsys: pytest.CaptureFixture[str]) -> None:
    both = _summary(capsys, "differs")
    reference = _summary(capsys, "differs", "--profile=reference")
    corrected = _summary(capsys, "differs", "--profile=corrected")
    assert both["makespan_ns"] == reference["makespan_ns"] == 99_571
    assert both["other_profile"]["makespan_ns"] == corrected["makespan_ns"] == 79_540
    assert [correction["correction"] for correction in both["other_profile"]["corrections"]] == [
        "concurrent-communication"
    ]
    assert both["other_profile"]["measured"]
    assert "makespan 99.571 µs (99,571 ns) in the reference profile; 79.54 µs corrected (-20 %): " in _screen(
        capsys, "differs"
    )


def test_equal_profiles_are_reported(capsys: pytest.CaptureFixture[str]) -> None:
    summary = _summary(capsys, "same")
    assert summary["other_profile"]["makespan_ns"] == summary["makespan_ns"]
    assert summary["other_profile"]["corrections"] == []
    screen = _screen(capsys, "same")
    assert (
        " in the reference profile; the corrected one gives the same on this network model in short "
        in screen
    )


@pytest.mark.parametrize("profile", ["reference", "corrected"])
def test_a_profile_that_is_named_is_simulated_alone(
    folder: Path, capsys: pytest.CaptureFixture[str], profile: str
) -> None:
    assert _summary(capsys, "differs", f"--profile={profile}")["other_profile"] is None
    (folder / "system.json").write_text(json.dumps({**FIFO_RING, "profile": profile}))
    assert _summary(capsys, "differs")["other_profile"] is None
    assert " in the reference profile" not in _screen(capsys, "differs")


@pytest.mark.deep
def test_python_simulates_both_only_on_request() -> None:
    machine = {"system": FIFO_RING, "network": "network.yml"}
    assert et_sim.simulate("differs", **machine).summary()["other_profile"] is None
    requested = et_sim.simulate("differs", **machine, other_profile=True)
    corrected = et_sim.simulate("differs", **machine, profile="corrected")
    assert requested.summary()["other_profile"]["makespan_ns"] == corrected.makespan_ns


@pytest.mark.parametrize("model", ["analytical", "link"])
def test_each_named_correction_has_the_time_of_a_run_with_it_alone(
    folder: Path, capsys: pytest.CaptureFixture[str], model: str
) -> None:
    """Run chunks of uneven size, two sends in sequence, and a shared slot."""

    def fill(rank: int, build: TraceBuilder) -> None:
        send_and_all_reduce(rank, build)
        build.collective("all_reduce", MIB + 1)

    _write("mixed", fill)
    uneven = {**FIFO_RING, "preferred-dataset-splits": 4}
    (folder / "system.json").write_text(json.dumps(uneven))
    summary = _summary(capsys, "mixed", "--network-model", model)
    named = summary["other_profile"]["corrections"]
    assert {"concurrent-communication", "exact-chunks"} <= {entry["correction"] for entry in named}
    for entry in named:
        (folder / "system.json").write_text(
            json.dumps({**uneven, "corrections": {entry["correction"]: True}, "profile": "reference"})
        )
        alone = _summary(capsys, "mixed", "--network-model", model)
        assert alone["makespan_ns"] == entry["makespan_ns"] != summary["makespan_ns"]


@pytest.mark.deep
def test_a_stall_names_the_profile_and_the_correction_that_cure_it(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    figure = format_ns(_summary(capsys, "stalls", "--profile=corrected")["makespan_ns"])
    assert main(["run", "stalls", *MACHINE]) == 1
    report = capsys.readouterr().err
    assert f"simulate it with --profile corrected, where it completes in {figure}" in report
    assert '"corrections": {"group-counters": true}' in report
    assert main(["inspect", "stalls.run"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert f"stalled in the reference profile; corrected, it completes in {figure}: group-counters" in text
    (folder / "system.json").write_text(json.dumps({**FIFO_RING, "corrections": {"group-counters": True}}))
    assert _summary(capsys, "stalls")["status"] == "complete"


@pytest.mark.deep
def test_a_stall_in_a_profile_that_is_named_is_cured_as_well(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "stalls", *MACHINE, "--profile=reference"]) == 1
    assert "simulate it with --profile corrected" in capsys.readouterr().err


def test_a_stall_in_every_profile_has_no_such_remedy(capsys: pytest.CaptureFixture[str]) -> None:
    _write("alone", lambda rank, build: build.receive(3, 1) if rank == 0 else build.compute(micros=1))
    assert main(["run", "alone", *MACHINE]) == 1
    assert "--profile" not in capsys.readouterr().err
    assert main(["inspect", "alone.run"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "stalled in the reference profile; the corrected profile stalls, too" in text


def test_a_machine_that_the_corrected_profile_refuses_is_reported(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "system.json").write_text(json.dumps({**FIFO_RING, "inter-dimension-scheduling": "anyhow"}))
    summary = _summary(capsys, "same")["other_profile"]
    assert summary["status"] == "refused"
    assert "inter-dimension-scheduling" in summary["reason"]
    assert "; the corrected profile is refused: system.json: key" in _screen(capsys, "same")


def _tensors_of_exchanges(_: int, build: TraceBuilder) -> None:
    """Add exchanges whose outputs the reference, which runs one after the other, has in memory in turn."""
    for number in range(4):
        tensor = {f"t{number}": 4000}
        exchange = build.collective("all_reduce", 1 << 16, after=[], outputs=tensor)
        build.compute("use", nanos=10, inputs=tensor, after=[exchange])


def test_a_corrected_run_that_memory_stops_has_no_time(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _write("tensors", _tensors_of_exchanges)
    (folder / "system.json").write_text(json.dumps({**SHARED_FOR_FREE, "local-mem-capacity": 10_000}))
    summary = _summary(capsys, "tensors")
    assert summary["status"] == "complete"
    assert summary["other_profile"]["status"] == "out of memory"
    assert summary["other_profile"]["makespan_ns"] is None
    assert "; the corrected profile needs more memory than there is" in _screen(capsys, "tensors")


@pytest.mark.deep
def test_corrections_that_are_expensive_one_by_one_may_act(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    off = {"port-bandwidth": False, "concurrent-communication": False}
    (folder / "system.json").write_text(json.dumps({**FIFO_RING, "corrections": off}))
    monkeypatch.setattr(other_profile, "ALWAYS", 12)  # messages and nodes: those of the run
    summary = _summary(capsys, "differs")["other_profile"]
    assert (summary["status"], summary["measured"]) == ("complete", False)
    assert "; these corrections may act: " in _screen(capsys, "differs")


@pytest.mark.deep
def test_an_expensive_corrected_run_is_simulated_only_beside_one_that_stalls(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(other_profile, "ALWAYS", 0)
    summary = _summary(capsys, "differs")["other_profile"]
    assert (summary["status"], summary["makespan_ns"], summary["measured"]) == ("not simulated", None, False)
    named = [correction["correction"] for correction in summary["corrections"]]
    assert {"concurrent-communication", "eager-sends"} <= set(named)
    assert f"{len(named)} corrections may change that: --profile corrected" in _screen(capsys, "differs")
    assert _summary(capsys, "stalls", status=1)["other_profile"]["status"] == "complete"
    monkeypatch.setattr(other_profile, "AT_MOST", 0)
    assert _summary(capsys, "stalls", status=1)["other_profile"]["status"] == "not simulated"


def test_all_files_are_the_same_bytes_on_every_run(folder: Path) -> None:
    digests = []
    for _ in range(2):
        main(["run", "differs", *MACHINE, "--detail=phases,path"])
        files = sorted((folder / "differs.run").iterdir())
        digests.append({path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files})
    assert digests[0] == digests[1]
    manifest = json.loads((folder / "differs.run" / "run.json").read_text())
    assert manifest["other_profile"]["makespan_ns"] == 79_540


@pytest.mark.deep
def test_switched_corrections_stay_switched(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    off = {"port-bandwidth": False, "concurrent-communication": False}
    (folder / "system.json").write_text(json.dumps({**FIFO_RING, "corrections": off}))
    both = _summary(capsys, "differs")["other_profile"]
    assert both["makespan_ns"] == _summary(capsys, "differs", "--profile=corrected")["makespan_ns"] > 79_540


def test_the_page_has_the_headline_too(capsys: pytest.CaptureFixture[str]) -> None:
    shown = _screen(capsys, "differs")
    assert main(["report", "differs.run", "--html", "page.html"]) == 0
    headline = "99.571 µs (99,571 ns) in the reference profile; 79.54 µs corrected (-20 %): "
    assert headline in shown
    assert headline in Path("page.html").read_text(encoding="utf-8")
