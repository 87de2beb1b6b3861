"""The key `protocol` of the network file: presets, single constants, and refusals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from machines import RING_4

from et_sim import TraceBuilder, Workload, simulate
from et_sim.basics.errors import EtSimError, MachineError
from et_sim.machine import read_network_alone
from et_sim.machine.transports import Completion, PacketProtocol, Packets, SwitchBuffers, Tcp

GRAPH: dict[str, Any] = {"graph": {"generator": "star", "npus": 4, "bandwidth": "400Gbps", "latency": 500}}
BOTH = pytest.mark.parametrize("machine", [RING_4, GRAPH], ids=["dimensions", "graph"])


@BOTH
def test_without_the_key_there_is_no_protocol(machine: dict[str, Any]) -> None:
    assert read_network_alone(machine).protocol is None


@BOTH
def test_single_constants_override_the_preset(machine: dict[str, Any]) -> None:
    def read(**keys: Any) -> PacketProtocol | None:
        return read_network_alone(machine | {"protocol": keys}).protocol

    roce = PacketProtocol(1000, 36, 48, store_and_forward=True, completion=Completion.ACKNOWLEDGEMENT)
    assert read(preset="roce") == roce
    tcp = Packets(tcp=Tcp(), buffers=SwitchBuffers(pauses=False))
    assert read(preset="tcp") == PacketProtocol(1448, 54, 54, store_and_forward=True, packets=tcp)
    assert read(payload=4096) == PacketProtocol(4096)
    changed = {"payload": 9000, "header": 0, "acknowledgement": 0, "store-and-forward": False}
    wanted = PacketProtocol(9000, completion=Completion.RECEIPT, whole_ns=True)
    assert read(preset="roce", **changed, completion="receipt", **{"whole-ns": 1}) == wanted


@BOTH
@pytest.mark.parametrize(
    ("protocol", "text"),
    [
        ({}, "has no packet size (give a payload in bytes, or a preset: roce, tcp"),
        ({"header": 36}, "has no packet size"),
        ({"preset": "rocee"}, "did you mean 'roce'?"),
        ({"payload": 0}, "allowed: a number of bytes >= 1"),
        ({"payload": 2000000}, "more than 1048576"),
        ({"payload": 1000, "completion": "ack"}, "allowed: receipt or acknowledgement"),
        ("roce", "an object with some of the keys preset, file, payload"),
        (None, "an object with some of the keys preset, file, payload"),
    ],
)
def test_a_fault_is_reported_with_its_line(
    machine: dict[str, Any], protocol: Any, text: str, tmp_path: Path
) -> None:
    file = tmp_path / "network.yml"
    lines = [f"{key}: {json.dumps(value)}" for key, value in machine.items()]
    if protocol:
        lines += ["protocol:"] if isinstance(protocol, dict) else [f"protocol: {protocol}"]
        lines += [f"  {key}: {json.dumps(v)}" for key, v in protocol.items()] if len(lines[-1]) == 9 else []
    else:
        lines += [f"protocol: {json.dumps(protocol)}"]
    file.write_text("\n".join(lines), encoding="utf-8")
    with pytest.raises(MachineError) as caught:
        read_network_alone(file)
    assert text in str(caught.value)
    is_of_one = isinstance(protocol, dict) and "no packet size" not in text
    line = len(machine) + 1 + (len(protocol) if is_of_one else 0)
    assert str(caught.value).startswith(f"{file}: line {line}: ")


@BOTH
@pytest.mark.parametrize("model", ["analytical", "link"])
def test_models_without_protocols_refuse_them(machine: dict[str, Any], model: str) -> None:
    builder = TraceBuilder()
    builder.collective("all_reduce", 1000)
    workload, how = Workload.of([builder.build()] * 4), {"all-reduce-implementation": ["ring"]}
    given = machine | {"protocol": {"preset": "roce"}}
    with pytest.raises(EtSimError, match=r"not supported by the .* model \(take --network-model flow"):
        simulate(workload, system=how, network=given, model=model)
    plain = simulate(workload, system=how, network=machine, model="flow").makespan_ns
    assert simulate(workload, system=how, network=given, model="flow").makespan_ns > plain


def test_no_message_may_take_longer_than_a_run_may() -> None:
    """Send one byte in each packet of a MiB."""
    builders = [TraceBuilder(), TraceBuilder()]
    builders[0].send(1, 1 << 43)
    builders[1].receive(0, 1 << 43)
    workload = Workload.of([builder.build() for builder in builders])
    network = {**GRAPH, "graph": {**GRAPH["graph"], "npus": 2}}
    simulate(workload, system={}, network=network, model="flow")
    network["protocol"] = {"payload": 1, "header": 1 << 20}
    with pytest.raises(MachineError, match="could take longer than"):
        simulate(workload, system={}, network=network, model="flow")


def test_networks_of_astra_sim_1_have_none() -> None:
    levels = {
        "topologies-per-dim": ["Ring"],
        "dimensions-count": 1,
        "units-count": [4],
        "links-count": [2],
        "link-latency": [500],
        "link-bandwidth": [50],
        "protocol": {"preset": "roce"},
    }
    with pytest.raises(MachineError, match='key "protocol" is not known'):
        read_network_alone(levels)
