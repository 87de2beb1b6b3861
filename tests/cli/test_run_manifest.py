"""Workload manifests on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from machines import network, system

from et_sim.cli import main
from et_sim.trace import read_workload, write_manifest
from et_sim.workloads.microbenchmarks import make_microbenchmark


@pytest.mark.usefixtures("warm_engine")
def test_a_run_of_a_manifest_lists_it_and_its_templates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_manifest(make_microbenchmark("send_receive", ranks=8, size=1000), "pairs.workload.json")
    Path("system.json").write_text(json.dumps(system()), encoding="utf-8")
    Path("network.yml").write_text(json.dumps(network(["Ring"], [8])), encoding="utf-8")
    machine = ["--system", "system.json", "--network", "network.yml"]
    assert main(["check", "pairs.workload.json", *machine]) == 0
    assert main(["run", "pairs", *machine]) == 0  # without the ending, too
    inputs = json.loads(Path("pairs.run/run.json").read_text(encoding="utf-8"))["inputs"]
    hashes = {entry["file"]: entry["sha256"] for entry in inputs}
    read = {Path(path).name: digest for path, digest in read_workload("pairs.workload.json").inputs}
    assert set(read) == {"pairs.workload.json", "pairs.template0.et", "pairs.template1.et"}
    assert read.items() <= hashes.items()
    assert "written to pairs.run" in capsys.readouterr().out
