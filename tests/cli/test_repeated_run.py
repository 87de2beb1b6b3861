"""The configuration in run.json and the workload's files give the same tables again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from machines import RING_4, network_1, system, system_1
from pyarrow import feather

import et_sim
from et_sim.cli import main
from et_sim.tables.registry import all_tables
from et_sim.timeline import write_run
from et_sim.trace import write_manifest
from et_sim.workloads.microbenchmarks import make_microbenchmark

LAYERS = "DATA 2 a -1 5 NONE 0 5 NONE 0 5 ALLREDUCE 65536 1 b -1 7 NONE 0 3 NONE 0 5 ALLREDUCE 1024 1"
SYSTEM_1 = system_1(splits=2)
NETWORK_1 = network_1([2, 2])
PLAIN_1 = {"topology": "Ring", "npus_count": [4], "bandwidth": [50], "latency": [500]}
NETWORK_2 = """
topology: [ Ring, Switch ]
npus_count: [ 4, 2 ]
bandwidth: [ 50, 400Gbps ]
latency: [ 500.0, 1us ]
"""
EDGES = "5 1 4\n4\n0 4 100Gbps 1us 0\n1 4 100Gbps 1us 0\n2 4 100Gbps 1us 0\n3 4 100Gbps 1us 0\n"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Enter an empty folder, without compilation."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ET_SIM_COMPILE", "never")
    return tmp_path


def rows(run: Path) -> dict[str, tuple[Any, Any]]:
    """Return the schema and the values of every table of a run."""
    results = {}
    for table in all_tables():
        if (run / table.file).exists():
            content = feather.read_table(run / table.file)
            results[table.name] = (content.schema.remove_metadata(), content.to_pydict())
    return results


def again(run: Path, workload: str) -> Path:
    """Repeat a run from its run.json alone, without other files of the machine."""
    known = json.loads((run / "run.json").read_text(encoding="utf-8"))
    configuration = known["configuration"]
    result = et_sim.simulate(workload, **configuration, model=known["model"], detail=known["detail"])
    write_run(result, Path("again.run"))
    repeated = json.loads(Path("again.run/run.json").read_text(encoding="utf-8"))
    assert {**repeated["configuration"]} == configuration
    return Path("again.run")


def check(run: str, workload: str, machine: list[str]) -> None:
    first = rows(Path(run))
    assert {"timeline", "actors", "links"} <= first.keys()
    for name in machine:
        Path(name).unlink()
    assert rows(again(Path(run), workload)) == first


@pytest.mark.parametrize("model", ["analytical", "link"])
@pytest.mark.parametrize("profile", [[], ["--profile", "corrected"], ["--no-fold"]])
def test_a_run_of_files_of_2x_is_repeated(model: str, profile: list[str]) -> None:
    write_manifest(make_microbenchmark("all_reduce", ranks=8, size=10_000), "work.workload.json")
    Path("system.json").write_text(json.dumps(system(dimensions=2, **{"track-local-mem": 1})))
    Path("network.yml").write_text(NETWORK_2)
    Path("memory.json").write_text('{"memory-type": "NO_MEMORY_EXPANSION"}')
    Path("groups.json").write_text('{"1": [0, 2, 1, 3]}')
    parts = {
        "system": "system.json",
        "network": "network.yml",
        "memory": "memory.json",
        "groups": "groups.json",
    }
    options = [word for name, path in parts.items() for word in (f"--{name}", path)]
    assert (
        main(["run", "work", *options, "--model", model, "--detail", "phases,messages,links,path", *profile])
        == 0
    )
    check("work.run", "work.workload.json", [*parts.values()])


@pytest.mark.parametrize(("model", "network"), [("analytical", NETWORK_1), ("link", PLAIN_1)])
def test_a_run_of_files_of_1_is_repeated(model: str, network: dict[str, Any]) -> None:
    Path("layers.txt").write_text(LAYERS)
    text = SYSTEM_1 if network is NETWORK_1 else SYSTEM_1.replace("ring_direct", "ring")
    Path("system.txt").write_text(text)
    Path("network.json").write_text(json.dumps(network))
    options = ["--system=system.txt", "--network=network.json", f"--network-model={model}", "--detail=links"]
    assert main(["run", "layers.txt", *options]) == 0
    check("layers.txt.run", "layers.txt", ["system.txt", "network.json"])


def test_a_run_on_a_named_machine_is_repeated() -> None:
    write_manifest(make_microbenchmark("all_reduce", ranks=8, size=10_000), "work.workload.json")
    assert main(["run", "work", "--machine", "h100-dgx:8", "--detail", "links"]) == 0
    check("work.run", "work.workload.json", [])


def test_a_run_from_python_names_its_machine_and_a_repeated_run_writes_the_same_bytes() -> None:
    networkx = pytest.importorskip("networkx")
    star = networkx.star_graph(4)
    for name, known in star.nodes(data=True):
        known["kind"] = "npu" if name else "switch"
    for _, _, known in star.edges(data=True):
        known |= {"bandwidth": "100Gbps", "latency": "1us"}
    write_manifest(make_microbenchmark("all_reduce", ranks=4, size=10_000), "work.workload.json")
    first = et_sim.simulate("work.workload.json", system=system(), network=star, detail="links")
    write_run(first, Path("graph.run"))
    check("graph.run", "work.workload.json", [])
    first = et_sim.simulate("work.workload.json", system=system(), network=RING_4, detail="links")
    write_run(first, Path("first.run"))
    written = again(Path("first.run"), "work.workload.json")
    for path in sorted(Path("first.run").iterdir()):
        assert (written / path.name).read_bytes() == path.read_bytes()


def test_a_topology_of_another_tool_is_named() -> None:
    write_manifest(make_microbenchmark("all_reduce", ranks=4, size=10_000), "work.workload.json")
    Path("system.json").write_text(json.dumps(system()))
    Path("deeper").mkdir()
    Path("deeper/star.topo").write_text(EDGES)
    assert main(["run", "work", "--system=system.json", "--network=deeper/star.topo", "--detail=links"]) == 0
    known = json.loads(Path("work.run/run.json").read_text())
    assert known["configuration"]["network"]["graph"] == {"import": "star.topo"}
    Path("deeper/star.topo").rename("star.topo")
    check("work.run", "work.workload.json", ["system.json"])
