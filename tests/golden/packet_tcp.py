"""Cases of packets over TCP: the traffic of a driver of ns-3 as traces, and its networks."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from et_sim import TraceBuilder, Workload, simulate, write_workload
from et_sim.run.result import Result

TOPOLOGIES = {
    "star8_100g_500ns": {"generator": "star", "npus": 8},
    "star16_100g_500ns": {"generator": "star", "npus": 16},
    "flat128": {"generator": "star", "npus": 128},
}
PRESET = "ns3-tcp-parity"
VARIANTS = {"TcpNewReno": "newreno", "TcpLinuxReno": "reno", "TcpCubic": "cubic", "TcpDctcp": "dctcp"}
SYSTEM = {
    "endpoint-delay": 0,
    "local-mem-bw": 0,
    "profile": "corrected",
    "streams": [{"name": "sends", "takes": ["sends"], "at-a-time": 1024}],  # none waits for another
    "all-reduce-implementation": ["direct"],
    "all-to-all-implementation": ["direct"],
}


def network_of(case: dict[str, Any]) -> dict[str, Any]:
    """Return a star, or two with a trunk between them."""
    name, params = case.get("topology", "flat128"), case["params"]
    if name.startswith("dumbbell"):
        ends = [(f"npu{rank}", f"switch{rank // 8}", "100Gbps") for rank in range(16)]
        ends.append(("switch0", "switch1", "200Gbps"))
        links = [{"from": a, "to": b, "bandwidth": rate, "latency": "500ns"} for a, b, rate in ends]
        wires: dict[str, Any] = {"npus": 16, "switches": 2, "links": links}
    else:
        wires = {"graph": TOPOLOGIES[name] | {"bandwidth": "100Gbps", "latency": "500ns"}}
    tcp: dict[str, Any] = {
        "congestion-control": VARIANTS[params.get("variant", "TcpNewReno")],
        "least-timeout": params.get("minrto", "10ms"),
        "window": params.get("buf", 1 << 20),
        "per-message": params.get("connper") == "true",
    }
    protocol = {
        "preset": PRESET,
        "payload": params.get("mss", 1448),
        "buffer": 1 << 40,
        "queue-packets": int(params["q"].rstrip("p")),
        "tcp": tcp,
    }
    return wires | {"protocol": protocol}


def workload_of(case: dict[str, Any]) -> Workload:
    """Return the traffic that the driver sent."""
    kind, size = case["workload"]["kind"], case["workload"]["size"]
    ranks = network_ranks(case)
    builders = [TraceBuilder(source=f"rank {rank}") for rank in range(ranks)]
    if kind == "incast":
        for rank in range(1, ranks):
            builders[rank].send(0, size, tag=rank)
            builders[0].receive(rank, size, tag=rank)
    elif kind == "ring_ar":
        _ring(builders, size // ranks)
    else:  # all sends of a phase at once, which sends of a trace are not
        builders = [TraceBuilder()] * ranks
        builders[0].collective("all_to_all" if "a2a" in kind else "all_reduce", size)
    return Workload.of([builder.build() for builder in builders])


def network_ranks(case: dict[str, Any]) -> int:
    """Return the number of hosts."""
    name = case.get("topology", "")
    return int(case["workload"].get("n", 8 if "star8" in name else 16))


def _ring(builders: list[TraceBuilder], size: int) -> None:
    ranks = len(builders)
    for rank, builder in enumerate(builders):
        received: list[int] = []
        for step in range(2 * (ranks - 1)):
            builder.send((rank + 1) % ranks, size, tag=step, after=received)
            received = [builder.receive((rank - 1) % ranks, size, tag=step)]


def same_order(ranks: int, size: int) -> Workload:
    """Return a direct all-reduce in which all ranks send to rank 0 first, then to rank 1, and so on."""
    builders = [TraceBuilder(source=f"rank {rank}") for rank in range(ranks)]
    for rank, builder in enumerate(builders):
        others = [other for other in range(ranks) if other != rank]
        for other in others:
            builder.send(other, size)
        received = [builder.receive(other, size) for other in others]
        for other in others:
            builder.send(other, size, tag=1, after=received)
            builder.receive(other, size, tag=1)
    return Workload.of([builder.build() for builder in builders])


def simulated(case: dict[str, Any]) -> Result:
    """Return the result of a case on the packet model."""
    system: dict[str, Any] = dict(SYSTEM)
    with TemporaryDirectory() as folder:
        if "sameorder" in case["workload"]["kind"]:
            ranks = network_ranks(case)
            write_workload(same_order(ranks, case["workload"]["size"] // ranks), Path(folder) / "same")
            del system["all-reduce-implementation"]
            system["all-reduce-implementation-custom"] = [str(Path(folder) / "same")]
        result = simulate(workload_of(case), system=system, network=network_of(case), model="packet")
    assert result.is_complete
    return result
