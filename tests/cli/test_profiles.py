"""The profile of a run: its source, and the corrected profile in files that commands make."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from machines import FIFO_RING, RING_8

import et_sim
from converters.cli import main as convert
from et_sim.basics.errors import TraceError
from et_sim.cli import main
from et_sim.machine.corrections import Profile
from et_sim.trace.manifest import PROFILES
from et_sim.trace.manifest import read_manifest as read

pytestmark = pytest.mark.usefixtures("warm_engine")

NETWORK = "topology: [Ring]\nnpus_count: [8]\nbandwidth: [50]\nlatency: [500]\n"
MACHINE = ("--system=system.json", "--network=network.yml")
SHARED_FOR_FREE = {**FIFO_RING, "corrections": {"port-bandwidth": False}}  # as are links of the reference
JOB = ("--tp=2", "--pp=2", "--dp=2", "--micro-batches=2", "--layers=2", "--hidden=64")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Enter a folder with a machine without a profile and a training job."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "network.yml").write_text(NETWORK)
    (tmp_path / "system.json").write_text(json.dumps(FIFO_RING))
    assert main(["make", "transformer", *JOB, "-o", "job"]) == 0
    return tmp_path


def summary(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    """Return the data of a run; nothing else may be on stdout."""
    capsys.readouterr()
    assert main(["run", *arguments, "--json"]) == 0
    return dict(json.loads(capsys.readouterr().out))


def test_a_manifest_that_is_made_names_the_corrected_profile(folder: Path) -> None:
    assert main(["make", "all_reduce", "--ranks=8", "--bytes=1KiB", "--manifest", "-o", "ring"]) == 0
    for name in ("job", "ring"):
        assert json.loads((folder / f"{name}.workload.json").read_text())["profile"] == "corrected"


def test_the_demos_system_file_names_the_corrected_profile(folder: Path) -> None:
    assert main(["demo", "--out", "demo"]) == 0
    assert json.loads((folder / "demo" / "system.json").read_text())["profile"] == "corrected"


@pytest.mark.deep
def test_the_profile_of_a_manifest_is_simulated_where_no_machine_names_one(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "system.json").write_text(json.dumps(SHARED_FOR_FREE))
    corrected = summary(capsys, "job", *MACHINE, "--profile=corrected")
    named = summary(capsys, "job", *MACHINE)
    assert (named["profile"], named["profile_named_by"]) == ("corrected", "workload")
    assert named["makespan_ns"] == corrected["makespan_ns"]
    assert corrected["profile_named_by"] == "option"
    assert main(["run", "job", *MACHINE]) == 0
    assert "corrected profile, named by the workload" in " ".join(capsys.readouterr().out.split())
    (folder / "system.json").write_text(json.dumps({**SHARED_FOR_FREE, "profile": "reference"}))
    machines = summary(capsys, "job", *MACHINE)
    assert (machines["profile"], machines["profile_named_by"]) == ("reference", "system")
    assert machines["makespan_ns"] > corrected["makespan_ns"]
    assert summary(capsys, "job", *MACHINE, "--profile=corrected")["profile"] == "corrected"


def test_switched_corrections_stay_switched_in_the_profile_of_a_manifest(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "system.json").write_text(json.dumps({**FIFO_RING, "corrections": {"eager-sends": False}}))
    result = summary(capsys, "job", *MACHINE)
    assert (result["profile"], result["switched"]) == ("corrected", ["eager-sends"])


def test_python_follows_the_profile_of_a_workload() -> None:
    named, plain = (
        et_sim.simulate("job", system={**SHARED_FOR_FREE, **more}, network=RING_8)
        for more in ({}, {"profile": "reference"})
    )
    assert named.makespan_ns < plain.makespan_ns


@pytest.mark.deep
def test_a_run_in_the_profile_of_a_manifest_can_be_simulated_again(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", "job", *MACHINE, "--detail=path"]) == 0
    assert json.loads((folder / "job.run" / "run.json").read_text())["command"]["profile"] == "corrected"
    capsys.readouterr()
    assert main(["inspect", "job.run", "critical-path", "--verify", "--top=20"]) == 0
    assert "simulated again with" in capsys.readouterr().out


def test_check_looks_at_the_profile_that_a_manifest_names(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    orders = {**FIFO_RING, "inter-dimension-scheduling": "roundRobin"}
    (folder / "system.json").write_text(json.dumps(orders))
    capsys.readouterr()
    assert main(["check", "job", *MACHINE]) == 0
    assert "does not read it" not in capsys.readouterr().out
    assert main(["check", "job", *MACHINE, "--profile=reference"]) == 0
    assert "does not read it" in capsys.readouterr().out


def test_commands_that_are_printed_for_trace_files_name_the_profile(
    capsys: pytest.CaptureFixture[str],
) -> None:
    capsys.readouterr()
    assert main(["make", "transformer", *JOB, "--files", "-o", "each"]) == 0
    command = capsys.readouterr().out.splitlines()[-1].removeprefix("run it with: et-sim ")
    assert command == "run each --groups each.groups.json --system FILE --network FILE --profile corrected"
    assert convert(["expand", "job.workload.json", "-o", "out/job"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].endswith(" --profile corrected")
    assert convert(["scale", "job.workload.json", "--replicas=2", "--expand", "-o", "more/job"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].endswith(" --profile corrected")


def test_commands_that_are_printed_put_paths_with_spaces_in_quotes(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "my jobs").mkdir()
    commands = []
    for words in (
        ["make", "transformer", *JOB, "-o", "my jobs/a"],
        ["make", "transformer", *JOB, "--files", "-o", "my jobs/b"],
    ):
        capsys.readouterr()
        assert main(words) == 0
        commands.append(capsys.readouterr().out.splitlines()[-1].removeprefix("run it with: et-sim "))
    assert convert(["scale", "my jobs/a.workload.json", "--replicas=2", "-o", "my jobs/c"]) == 0
    commands.append(capsys.readouterr().out.splitlines()[-1].removeprefix("run with: et-sim "))
    assert [shlex.split(command)[:2] for command in commands] == [
        ["run", "my jobs/a.workload.json"],
        ["run", "my jobs/b"],
        ["run", "my jobs/c.workload.json"],
    ]


def test_files_made_from_a_manifest_name_the_same_profile(folder: Path) -> None:
    assert convert(["scale", "job.workload.json", "--replicas=2", "-o", "twice"]) == 0
    assert convert(["strip", "job.workload.json", "-o", "bare"]) == 0
    assert read(folder / "twice.workload.json").profile == "corrected"
    assert read(folder / "bare.workload.json").profile == "corrected"


@pytest.mark.parametrize("named", ["correct", "astra-1.0", "", None, 1])
def test_a_profile_that_a_manifest_cannot_name_is_refused(folder: Path, named: object) -> None:
    manifest = folder / "job.workload.json"
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "profile": named}))
    with pytest.raises(TraceError) as refused:
        read(manifest)
    assert 'key "profile" is ' in str(refused.value)
    assert "corrected" in str(refused.value)


def test_manifests_name_profiles_that_there_are() -> None:
    assert set(PROFILES) < {profile.value for profile in Profile}
