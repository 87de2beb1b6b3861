"""Hosts that NCCL described, and infrastructures of InfraGraph, as network files."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from machines import sent

import et_sim
from et_sim.basics.errors import MachineError
from et_sim.cli import main
from et_sim.documents.reading import MOST_DEVICES
from et_sim.machine import read_network_alone
from et_sim.machine.graph import NIC, NPU
from et_sim.machine.infragraph import from_infragraph
from et_sim.machine.model import GraphFabric
from et_sim.machine.nccl_topology import import_nccl_topology
from et_sim.workloads.microbenchmarks import make_microbenchmark

DATA = Path(__file__).parent / "data" / "hosts"
DGX, EXAMPLE = DATA / "dgx_a100_nccl_topo.xml", DATA / "infragraph_example.yaml"
SYSTEM = {"profile": "corrected", "endpoint-delay": 0, "preferred-dataset-splits": 1}
SIZE = 24_000_000
NVLINKS = 12 * 25  # GB/s of an A100 each way
PCIE = 16 * 16 / 8 * 128 / 130  # GB/s of 16 lanes of 16 GT/s


def link_speeds(network: Any) -> dict[tuple[str, str], float]:
    """Return the bytes per ns of each link by its ends."""
    fabric = read_network_alone(network).fabric
    assert isinstance(fabric, GraphFabric)
    graph = fabric.graph
    ends = zip(graph.sources.tolist(), graph.targets.tolist(), graph.bytes_per_ns.tolist(), strict=True)
    return {(graph.names[source], graph.names[target]): speed for source, target, speed in ends}


def host(*gpus: str, extra: str = "") -> str:
    """Return the topology of a host with a bridge, and GPUs with these contents."""
    devices = "".join(
        f'<pci busid="0:{n}" class="0x030200" link_speed="32.0 GT/s PCIe" link_width="16">'
        f'<gpu dev="{n}" sm="90" rank="{n}">{inside}</gpu></pci>'
        for n, inside in enumerate(gpus)
    )
    cpu = '<cpu numaid="0" arch="x86_64" vendor="GenuineIntel">'
    return f'<system version="1">{cpu}{devices}{extra}</cpu></system>'


def listed(text: str, hosts: int = 1) -> dict[str, Any]:
    """Return the network file of a topology."""
    made = import_nccl_topology(text, "topo.xml", hosts)
    return {**made.content, **made.keys, "logical-dimensions": list(made.dimensions) or [2]}


def test_the_links_of_a_real_host_have_the_speed_of_their_wires() -> None:
    speeds = link_speeds(DGX)
    assert all(speeds[f"gpu{n}", "nvswitch"] == speeds["nvswitch", f"gpu{n}"] == NVLINKS for n in range(8))
    pci = [speed for (source, _), speed in speeds.items() if source.startswith(("pci", "nic"))]
    assert len(pci) == 8 + 2 * 34 - 6  # 24 bridges and 10 NICs, of which 6 lie below a CPU
    assert pci == pytest.approx([PCIE] * 70, rel=1e-9)
    between = [speed for ends, speed in speeds.items() if all(end.startswith("cpu") for end in ends)]
    assert between == [16.0] * (6 * 5)


def test_the_devices_of_a_real_host_are_those_of_the_file() -> None:
    fabric = read_network_alone(str(DGX)).fabric
    assert isinstance(fabric, GraphFabric)
    text = DGX.read_text()
    kinds = fabric.graph.kinds.tolist()
    assert kinds.count(NPU) == text.count("<gpu ") == 8
    assert kinds.count(NIC) == text.count("<nic>") == 10
    bridges = text.count("<pci ") - 8 - 10
    assert len(kinds) - 18 == bridges + text.count("<cpu ") + 1


@pytest.mark.parametrize("model", ["analytical", "flow"])
def test_a_message_in_a_real_host_takes_its_bytes_by_the_wire(model: str) -> None:
    run = et_sim.simulate(sent(8, [(0, 5, SIZE)]), system=SYSTEM, network=str(DGX), model=model)
    assert run.makespan_ns == pytest.approx(SIZE / NVLINKS, abs=2)


def test_an_all_reduce_in_a_real_host_takes_its_bytes_by_the_wire() -> None:
    workload = make_microbenchmark("all_reduce", ranks=8, size=SIZE)
    system = SYSTEM | {"all-reduce-implementation": ["direct"]}
    run = et_sim.simulate(workload, system=system, network=str(DGX), model="flow")
    assert run.makespan_ns == pytest.approx(2 * 7 / 8 * SIZE / NVLINKS, abs=20)


def test_a_message_to_another_host_takes_its_bytes_by_the_port() -> None:
    network = listed(DGX.read_text(), 2)
    run = et_sim.simulate(sent(16, [(0, 8, SIZE)]), system=SYSTEM, network=network, model="flow")
    assert run.makespan_ns == pytest.approx(SIZE / 25, abs=2)  # 200 Gbit/s


def test_a_message_without_nvlinks_takes_its_bytes_by_pci() -> None:
    run = et_sim.simulate(sent(2, [(0, 1, SIZE)]), system=SYSTEM, network=listed(host("", "")), model="flow")
    assert run.makespan_ns == pytest.approx(SIZE / (2 * PCIE), abs=2)


@pytest.mark.parametrize(("sm", "speed"), [(70, 25), (80, 25), (90, 25), (100, 50)])
def test_nvlinks_between_gpus_lead_one_way_each_and_count_by_their_generation(sm: int, speed: int) -> None:
    wires = [
        f'<nvlink target="0:{other}" count="{count}" tclass="0x030200"/>' for other, count in ((1, 3), (0, 4))
    ]
    speeds = link_speeds(listed(host(*wires).replace('sm="90"', f'sm="{sm}"')))
    assert (speeds["gpu0", "gpu1"], speeds["gpu1", "gpu0"]) == (3 * speed, 4 * speed)


@pytest.mark.parametrize(("bits", "speed"), [(50_000, 4 * 50), (1, 2 * PCIE)])
def test_a_gpu_has_the_faster_of_its_two_links_to_the_cpu(bits: int, speed: float) -> None:
    wire = f'<c2c bw="{bits}" count="4"/>'
    speeds = link_speeds(listed(host(wire, "")))
    assert speeds["gpu0", "cpu0"] == speeds["cpu0", "gpu0"] == pytest.approx(speed)
    assert speeds["gpu1", "cpu0"] == pytest.approx(2 * PCIE)


def test_ranks_are_those_of_the_file_and_old_pci_has_its_own_line_code() -> None:
    text = host("", "").replace('rank="0"', 'rank="9"').replace("32.0 GT/s", "5.0 GT/s")
    network = listed(text)
    assert [device["name"] for device in network["devices"]][:2] == ["gpu1", "gpu9"]
    assert link_speeds(network)["gpu9", "cpu0"] == 5 * 16 / 8 * 8 / 10


def test_a_link_without_a_speed_has_the_one_that_nccl_assumes_and_a_notice_says_so() -> None:
    made = import_nccl_topology(host("", "").replace("32.0 GT/s PCIe", "Unknown", 1), "topo.xml")
    assert "8 GT/s and 16 lanes" in dict(made.notices)["PCI 0:0"]
    assert made.content["links"][0]["bandwidth"] == f"{8 * 16 / 8 * 128 / 130:.10g}GB/s"


WIRE = '<nvlink target="0:1" count="2" tclass="0x030200"/>'
OLD_GPU = host(WIRE, "").replace('sm="90"', 'sm="55"')
TWICE = host("", "").replace('rank="1"', 'rank="0"')
FAULTY_NIC = '<pci busid="1" link_width="16"><nic><net name="a" speed="x"/></nic></pci>'


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (host(""), "the host has 1 GPU"),
        (host("", "")[:-20], "not valid XML"),
        ("<system>" + "<pci>" * 100, "nested too deeply"),
        ('<!DOCTYPE a [<!ENTITY b "c">]><system/>', "document type"),
        (TWICE, "two devices are named gpu0"),
        (host(WIRE.replace("0:1", "0:7"), ""), "which the file lacks"),
        (host(WIRE.replace("2", "999", 1), ""), "999 NVLinks"),
        (OLD_GPU, "sm 55 is unknown"),
        (host("", "", extra=FAULTY_NIC), "no whole number"),
    ],
)  # fmt: skip
def test_a_topology_that_cannot_be_a_host_is_refused(text: str, cause: str) -> None:
    with pytest.raises(MachineError, match=re.escape(cause)):
        import_nccl_topology(text, "topo.xml")


def infrastructure(**changes: Any) -> dict[str, Any]:
    """Return two servers of two XPUs, and a switch, in the words of the schema."""
    eth = {"bandwidth": {"choice": "gigabits_per_second", "gigabits_per_second": 400}}
    bus = {"bandwidth": {"choice": "gigabytes_per_second", "gigabytes_per_second": 64}}
    late = {"latency": {"choice": "us", "us": 0.5}}
    server = {
        "name": "server",
        "components": [
            {"name": "xpu", "choice": "xpu", "count": 2},
            {"name": "nic", "choice": "nic", "count": 2},
        ],
        "links": [{"name": "bus", "physical": bus}],
        "edges": [
            {
                "ep1": {"component": "xpu"},
                "ep2": {"component": "nic[0:2]"},
                "scheme": "one2one",
                "link": "bus",
            }
        ],
    }
    switch = {"name": "switch", "components": [{"name": "port", "choice": "switch", "count": 1}]}
    edge = {
        "ep1": {"instance": "host[0:2]", "component": "nic"},
        "ep2": {"instance": "top[0]", "component": "port[0]"},
    }
    return {
        "name": "two servers",
        "devices": [server, switch],
        "links": [{"name": "eth", "physical": eth | late}],
        "instances": [
            {"name": "host", "device": "server", "count": 2},
            {"name": "top", "device": "switch", "count": 1},
        ],
        "edges": [{**edge, "scheme": "many2many", "link": "eth"}],
        **changes,
    }


def test_an_infrastructure_has_its_instances_and_a_message_its_time() -> None:
    network = infrastructure()
    speeds = link_speeds(network)
    assert len(speeds) == 2 * (4 + 4)
    assert speeds["host.1.nic.0", "top.0.port.0"] == 50.0
    run = et_sim.simulate(sent(4, [(0, 2, SIZE)]), system=SYSTEM, network=network, model="flow")
    assert run.makespan_ns == pytest.approx(SIZE / 50 + 2 * 500, abs=2)
    assert link_speeds({"infrastructure": network}) == speeds


@pytest.mark.parametrize(("scheme", "links"), [("ring", 3), ("many2many", 3), ("one2one", 0)])
def test_the_schemes_of_edges_join_their_ends(scheme: str, links: int) -> None:
    bus = {"bandwidth": {"choice": "gigabytes_per_second", "gigabytes_per_second": 64}}
    end = {"component": "xpu"}
    device = {"name": "box", "components": [{"name": "xpu", "choice": "xpu", "count": 3}],
              "links": [{"name": "bus", "physical": bus}],
              "edges": [{"ep1": end, "ep2": end, "scheme": scheme, "link": "bus"}]}  # fmt: skip
    made = from_infragraph({"devices": [device]}, "infra.yml").content["links"]
    assert len([link for link in made if link["from"] != link["to"]]) == links


def test_the_short_form_of_edges_is_read_and_a_missing_instance_noted() -> None:
    speeds = link_speeds(EXAMPLE)
    assert speeds["generic-server.0.xpu.3", "generic-server.0.nvlsw.0"] == 128.0
    assert speeds["generic-server.0.xpu.3", "generic-server.0.nic.3"] == 32.0
    assert len(speeds) == 16


STILL = {"name": "eth", "bandwidth": {"choice": "gigabits_per_second", "gigabits_per_second": 0}}
FAR = {"ep1": {"instance": "host[0:9]", "component": "nic"}, "ep2": {"instance": "top", "component": "port"}}


@pytest.mark.parametrize(
    ("changes", "cause"),
    [
        ({"instances": [{"name": "host", "device": "other"}]}, "which is not described"),
        ({"instances": [{"name": "host", "device": "server", "count": 10**9}]}, "count of instance"),
        ({"links": []}, 'names the link "eth"'),
        ({"links": [{"name": "eth", "bandwidth": {"choice": "gigatransfers_per_second"}}]}, "gigatransfers"),
        ({"links": [{"name": "eth", "bandwidth": {"choice": ["gigabytes_per_second"]}}]}, "in no unit"),
        ({"links": [STILL]}, "is 0"),
        ({"edges": [FAR]}, "there are 2"),
        ({"edges": [{"ep1": 3}]}, 'lacks "ep1" or "ep2"'),
        ({"edges": 7}, "is no list"),
    ],
)  # fmt: skip
def test_an_infrastructure_that_cannot_be_built_is_refused(changes: dict[str, Any], cause: str) -> None:
    with pytest.raises(MachineError, match=re.escape(cause)):
        from_infragraph(infrastructure(**changes), "infra.yml")


@pytest.mark.parametrize("count", [-1, MOST_DEVICES + 1, True, 1.0, "1"])
def test_counts_of_components_and_instances_beyond_their_limits_are_refused(count: Any) -> None:
    devices = infrastructure()["devices"]
    devices[1]["components"].append({"name": "fan", "choice": "cpu", "count": count})
    instances = [*infrastructure()["instances"], {"name": "more", "device": "switch", "count": count}]
    for changes, entry in (({"devices": devices}, "component"), ({"instances": instances}, "instance")):
        with pytest.raises(MachineError, match=f"the count of {entry}"):
            from_infragraph(infrastructure(**changes), "infra.yml")


def test_a_component_may_be_there_no_times_and_an_instance_once_at_least() -> None:
    devices = infrastructure()["devices"]
    devices[1]["components"].append({"name": "fan", "choice": "cpu", "count": 0})
    content = from_infragraph(infrastructure(devices=devices), "infra.yml").content
    assert content == from_infragraph(infrastructure(), "infra.yml").content
    with pytest.raises(MachineError, match="the count of instance"):
        from_infragraph(
            infrastructure(instances=[{"name": "host", "device": "server", "count": 0}]), "infra.yml"
        )


def test_the_written_file_is_the_network_of_the_topology(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["machine", "from", str(DGX), "--out", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert "note: latency: the file has none" in printed
    assert link_speeds(tmp_path / "network.yml") == link_speeds(DGX)
    assert main(["machine", "from", str(DGX), "--hosts", "3", "--json"]) == 0
    network = json.loads(capsys.readouterr().out)["network"]
    assert read_network_alone(network).ranks == 24


@pytest.mark.parametrize(
    ("name", "content"), [("host.yaml", b"a: [1"), ("host.bin", b"\n\x08\x01"), ("", b"")]
)
def test_what_describes_no_host_is_refused_with_a_remedy(
    name: str, content: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / name
    if name:
        path.write_bytes(content)
    assert main(["machine", "from", str(path)]) == 2
    printed = capsys.readouterr().err
    assert ("is neither a topology of NCCL nor of InfraGraph: " in printed) == bool(name)
    assert "(name the file of " in printed


def test_more_hosts_than_can_be_simulated_are_refused_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["machine", "from", str(DGX), "--hosts", "1000000"]) == 2
    assert "1,000,000 hosts of 49 devices are more than can be simulated" in capsys.readouterr().err


def test_a_folder_that_cannot_be_written_is_refused_with_a_remedy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    assert main(["machine", "from", str(DGX), "--out", str(tmp_path / "file")]) == 2
    assert "(name another folder with --out)" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments", [["from"], ["from", str(EXAMPLE), "--hosts", "2"], ["h100-dgx", "--hosts", "2"]]
)
def test_a_command_that_lacks_its_file_is_refused(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["machine", *arguments]) == 2
    assert capsys.readouterr().err.startswith("et-sim: error: ")
