"""run.json names every file that a run reads, with its hash, independent of the file that names it."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from machines import network, system

from et_sim import TraceBuilder, Workload, write_workload
from et_sim.cli import main
from et_sim.trace import read_workload, write_manifest
from et_sim.workloads.microbenchmarks import make_microbenchmark

pytestmark = pytest.mark.usefixtures("warm_engine")
READ: list[tuple[Path, list[Path]]] = []  # the folder that is watched now, and the files opened there
NS3_TOPOLOGY = "5 2 4\n3 4\n0 3 100Gbps 1us 0\n1 3 100Gbps 1us 0\n2 4 100Gbps 1us 0\n3 4 400Gbps 1us 0\n"
NS3_KEYS = """L2_ACK_INTERVAL 1
RP_TIMER 900
RATE_AI 50Mb/s
RATE_HAI 100Mb/s
KMAX_MAP 2 100000000000 1600 400000000000 6400
KMIN_MAP 2 100000000000 400 400000000000 1600
PMAX_MAP 2 100000000000 0.2 400000000000 0.2
CC_MODE 1
"""
RING = {"all-reduce-implementation": ["ring"]}
SWITCH = {"topology": ["Switch"], "npus_count": [3], "bandwidth": [50], "latency": [500]}


def _note(event: str, arguments: tuple[Any, ...]) -> None:
    """Record files that are opened; an audit hook cannot be removed."""
    if READ and event == "open" and isinstance(arguments[0], str) and arguments[1] in ("r", "rb"):
        folder, result = READ[-1]
        path = Path(arguments[0]).absolute()
        if path.is_relative_to(folder) and path.is_file():
            result.append(path)


sys.addaudithook(_note)


@pytest.fixture
def watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Path]]:
    """Yield the files of the current directory that were read."""
    monkeypatch.chdir(tmp_path)
    results: list[Path] = []
    READ.append((tmp_path, results))
    yield results
    READ.clear()


def _three(prefix: str, kind: str = "all_reduce") -> None:
    build = TraceBuilder()
    build.collective(kind, 3000)
    write_workload(Workload.of([build.build()] * 3), prefix)


def _exchange(prefix: str) -> None:
    """Write a workload in which every member sends to the next."""
    builders = [TraceBuilder() for _ in range(3)]
    for place, builder in enumerate(builders):
        builder.send((place + 1) % 3, 1000, tag=0)
        builder.receive((place - 1) % 3, 1000, tag=0)
    write_workload(Workload.of([builder.build() for builder in builders]), prefix)


def of_ns3() -> list[str]:
    _three("work")
    Path("topology.txt").write_text(NS3_TOPOLOGY)
    Path("config.txt").write_text(NS3_KEYS)
    Path("network.yml").write_text("graph: {import: topology.txt}\nprotocol: {file: config.txt}\n")
    Path("system.json").write_text(json.dumps(RING))
    return ["work", "--system=system.json", "--network=network.yml", "--network-model=packet"]


def of_garnet() -> list[str]:
    build = TraceBuilder()
    build.send(1, 64)
    other = TraceBuilder()
    other.receive(0, 64)
    write_workload(Workload.of([build.build(), other.build()]), "work")
    keys = {"num-npus": 2, "num-packages": 2, "topology": "NV_Switch", "flit-width": 2048}
    keys |= {"local-packet-size": 4096, "package-packet-size": 4096, "tile-link-width": 256}
    keys |= {"package-link-width": 256, "vcs-per-vnet": 50, "router-latency": 1, "local-link-latency": 90}
    keys |= {"package-link-latency": 200, "buffers-per-vc": 5000, "links-per-tile": 1, "package-rows": 1}
    keys |= {"local-rings": 1, "vertical-rings": 1, "horizontal-rings": 1}
    Path("garnet.txt").write_text("".join(f"{key}: {value}\n" for key, value in keys.items()))
    Path("network.yml").write_text("graph: {import: garnet.txt}\n")
    Path("system.json").write_text("{}")
    return ["work", "--system=system.json", "--network=network.yml", "--network-model=packet"]


def of_the_system() -> list[str]:
    _three("work")
    _exchange("program")
    _exchange("other")
    Path("nodes.yml").write_text("0: other\n")
    keys = {"all-reduce-implementation-custom": ["program"], "per-node-custom-implementation": "nodes.yml"}
    Path("system.json").write_text(json.dumps(keys))
    Path("network.yml").write_text(json.dumps(SWITCH))
    Path("memory.json").write_text(json.dumps({"memory-type": "NO_MEMORY_EXPANSION"}))
    Path("groups.json").write_text(json.dumps({"1": [0, 1]}))
    machine = ["--memory=memory.json", "--groups=groups.json", "--system=system.json"]
    return ["work", *machine, "--network=network.yml"]


def of_jobs() -> list[str]:
    _three("work")
    Path("groups.json").write_text(json.dumps({"1": [0, 1]}))
    jobs = [{"name": "one", "workload": "work", "groups": "groups.json", "npus": "0-2"}]
    Path("jobs.yml").write_text(json.dumps({"jobs": jobs}))
    Path("system.json").write_text(json.dumps(RING))
    Path("network.yml").write_text(json.dumps(SWITCH))
    return ["jobs.yml", "--system=system.json", "--network=network.yml"]


@pytest.mark.parametrize("prepared", [of_ns3, of_garnet, of_the_system, of_jobs])
def test_every_file_that_is_read_is_in_the_manifest(
    prepared: Callable[[], list[str]], watched: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = prepared()
    watched.clear()
    assert main(["run", *arguments, "--out=out"]) == 0, capsys.readouterr().err
    inputs = {path for path in watched if "out" not in path.relative_to(Path.cwd()).parts[0]}
    assert len(inputs) > 3
    known = {load["file"]: load["sha256"] for load in json.loads(Path("out/run.json").read_text())["inputs"]}
    for path in inputs:
        assert known[path.name] == hashlib.sha256(path.read_bytes()).hexdigest()


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


@pytest.mark.parametrize("command", ["run", "check"])
def test_a_machine_by_name_that_has_no_effect_is_refused(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["make", "all_reduce", "--ranks=8", "--bytes=1KiB", "-o", "job"]) == 0
    assert main(["machine", "h100-dgx:8", "--out", "files"]) == 0
    files = ["--system=files/system.json", "--network=files/network.yml"]
    capsys.readouterr()
    assert main([command, "job", "--machine=a100-dgx-80gb:8", *files]) == 2
    assert capsys.readouterr().err == (
        "et-sim: error: --machine a100-dgx-80gb:8 has no effect: --system and --network are given"
        " (leave one of the three out)\n"
    )
    for file in files:
        assert main(["check", "job", "--machine=a100-dgx-80gb:8", file]) == 0
