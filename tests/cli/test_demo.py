"""`et-sim demo` works in any folder, leaves inputs and a run, and keeps files that were changed."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

import et_sim
from et_sim.cli import main

pytestmark = pytest.mark.usefixtures("warm_engine")


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_the_demo_leaves_inputs_and_a_run() -> None:
    assert main(["demo"]) == 0
    folder = Path("et-sim-demo")
    assert sorted(path.name for path in folder.iterdir()) == ["network.yml", "run", "system.json", "traces"]
    assert len(list((folder / "traces").iterdir())) == 8
    assert (folder / "run" / "timeline.arrow").exists()


def test_the_printed_command_repeats_the_run_to_the_byte(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--out", "here"]) == 0
    program, *arguments = shlex.split(capsys.readouterr().out.splitlines()[-1])
    before = {path.name: path.read_bytes() for path in Path("here/run").iterdir()}
    assert program == "et-sim"
    assert main(arguments) == 0
    assert {path.name: path.read_bytes() for path in Path("here/run").iterdir()} == before


def test_the_demo_has_hidden_and_exposed_communication() -> None:
    from et_sim.workloads.demo import training_step

    folder = Path(et_sim.__file__).parent / "workloads" / "demo"
    result = et_sim.simulate(training_step(), system=folder / "system.json", network=folder / "network.yml")
    statistics = result.statistics
    assert (statistics.hidden_comm_ns > 0.1 * result.makespan_ns).all()
    assert (statistics.exposed_comm_ns > 0.05 * result.makespan_ns).all()
    assert int(result.compute_ns.argmax()) == 5


def test_the_demo_can_be_run_again() -> None:
    assert main(["demo"]) == 0
    assert main(["demo"]) == 0


def test_a_changed_input_is_not_overwritten(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo"]) == 0
    network = Path("et-sim-demo/network.yml")
    network.write_text(network.read_text().replace("200Gbps", "400Gbps"))
    capsys.readouterr()
    assert main(["demo"]) == 2
    assert "nothing was overwritten" in capsys.readouterr().err
    assert "400Gbps" in network.read_text()


def test_a_place_that_is_a_file_is_refused_in_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    Path("taken").write_text("")
    assert main(["demo", "--out", "taken"]) == 2
    assert capsys.readouterr().err.count("\n") == 1
