"""Random files of networks and systems in the forms of other tools, some with a mistake, as command lines."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from itertools import pairwise
from random import Random
from typing import Any

from random_commands import FILES, SYSTEM, Line

NUMBER = re.compile(r"(?<![\w.-])\d+(?:\.\d+)?(?![\w.])")
WORD = re.compile(r"[\w.+-]{2,}")
WRONG = ("-1", "0", "x", "1e99", "2.5", "")
KERNELS = "make llm --model gpt2 --layers 1 --sequence 32 --vocabulary 128 --dp 4 -o job"
SHOWS = ("", "", "--json", "--svg run/net.svg", "--path 0:1", "--path 1:0 --path 0:1")
RATES = ("100Gbps", "25GB/s", "400Gbps")


def edited(draw: Random, text: str, chance: float = 0.3) -> str:
    """Return a text, or one with a mistake: a number, a word or a line changed, moved or left out."""
    if draw.random() > chance:
        return text
    lines = text.splitlines(keepends=True)
    at = draw.randrange(len(lines))
    match draw.choice(("number", "number", "number", "word", "drop", "double", "swap")):
        case "drop" if len(lines) > 1:
            del lines[at]
        case "double" if len(lines) > 1:
            lines.insert(at, lines[draw.randrange(len(lines))])
        case "word" | "swap" if found := [*WORD.finditer(text)]:
            one, other = draw.choice(found), draw.choice(found)
            return text[: one.start()] + other[0] + text[one.end() :]
        case _ if found := [*NUMBER.finditer(text)]:
            chosen = draw.choice(found)
            new = draw.choice((*WRONG, *(f"{int(float(chosen[0])) + more}" for more in (-1, 1, 7))))
            return text[: chosen.start()] + new + text[chosen.end() :]
    return "".join(lines)


def _ns3(draw: Random) -> tuple[str, int]:
    """Return a topology of ns-3: NPUs below one or two switches."""
    npus, switches = draw.choice((2, 3, 4)), draw.choice((0, 1, 2))
    ends = [(npu, npus + npu % switches if switches else (npu + 1) % npus) for npu in range(npus)]
    ends += [(npus, npus + 1)] * draw.choice((1, 2)) if switches == 2 else []
    rows = [f"{a} {b} {draw.choice(RATES)} {draw.choice(('0.001ms', '1us'))} 0" for a, b in ends]
    named = " ".join(str(npus + n) for n in range(switches))
    return "\n".join([f"{npus + switches} {switches} {len(rows)}", named, *rows]) + "\n", npus


def _htsim(draw: Random) -> tuple[str, int]:
    """Return a fat tree of two or three tiers."""
    tiers, down = draw.choice((2, 3)), draw.choice((1, 2))
    nodes = 8 if tiers == 3 else 4
    text = f"# a tree\nNodes {nodes}\nTiers {tiers}\n" + f"Podsize {nodes // 2}\n" * (tiers == 3)
    for tier in range(tiers):
        text += f"Tier {tier}\nDownlink_speed_Gbps {draw.choice((100, 200))}\n"
        text += f"Radix_Down {down if tier == 0 else 4}\n" + "Radix_Up 2\n" * (tier + 1 < tiers)
        text += "Bundle 2\n" * (tier == 1 and draw.random() < 0.4)
        text += f"Downlink_Latency_ns {draw.choice((500, 1000))}\nSwitch_Latency_ns 100\n"
    return text, nodes


def _garnet(draw: Random) -> tuple[str, int]:
    """Return a torus of packages, or a switch."""
    keys: dict[str, Any] = {"topology": draw.choice(("Torus3D", "Torus3D", "NV_Switch"))}
    keys |= {"num-npus": draw.choice((8, 12, 16)), "num-packages": 4, "package-rows": 2}
    keys |= {"flit-width": 128, "package-packet-size": 512, "tile-link-width": 512}
    keys |= {"package-link-width": draw.choice((256, 512)), "vcs-per-vnet": 4, "buffers-per-vc": 4}
    keys |= {"router-latency": 1, "local-link-latency": 10, "package-link-latency": 30}
    for name in ("local-rings", "vertical-rings", "horizontal-rings", "links-per-tile"):
        keys |= {name: draw.choice((1, 2))} if draw.random() < 0.5 else {}
    keys |= {"local-packet-size": 256, "routing-algorithm": "ring"} if draw.random() < 0.3 else {}
    return "".join(f"{name}: {value}\n" for name, value in keys.items()), keys["num-npus"]


def _graph(draw: Random) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return nodes and links of NPUs, with or without NICs, below a switch."""
    npus, nics = draw.choice((2, 3, 4)), draw.random() < 0.4
    nodes = [{"id": "hub", "kind": "switch"}]
    links = []
    for npu in range(npus):
        nodes.append({"id": f"gpu{npu}", "kind": draw.choice(("gpu", "npu", "host"))})
        ends = [f"gpu{npu}", "hub"]
        if nics:
            nodes.append({"id": f"nic{npu}", "kind": "nic"})
            ends.insert(1, f"nic{npu}")
        for a, b in pairwise(ends):
            links.append({"source": a, "target": b, "bandwidth": draw.choice(RATES), "latency": "1us"})
    return nodes, links + links[-1:] * (draw.random() < 0.2)


def _node_link(draw: Random) -> tuple[str, int]:
    """Return a graph as JSON."""
    nodes, links = _graph(draw)
    ranks = _npus(nodes)
    if draw.random() < 0.2:
        links += [{**link, "source": link["target"], "target": link["source"]} for link in links]
        return json.dumps({"directed": True, "nodes": nodes, "links": links}, indent=1), ranks
    return json.dumps({"nodes": nodes, draw.choice(("links", "edges")): links}, indent=1), ranks


def _npus(nodes: list[dict[str, Any]]) -> int:
    return sum(node["kind"] not in ("switch", "nic") for node in nodes)


def _graphml(draw: Random) -> tuple[str, int]:
    """Return a graph as GraphML."""
    nodes, links = _graph(draw)
    keys = (("node", "kind"), ("edge", "bandwidth"), ("edge", "latency"))
    heads = "".join(
        f'<key id="{name}" for="{of}" attr.name="{name}" attr.type="string"/>\n' for of, name in keys
    )
    inside = "".join(
        f'<node id="{node["id"]}"><data key="kind">{node["kind"]}</data></node>\n' for node in nodes
    )
    for link in links:
        data = "".join(f'<data key="{name}">{link[name]}</data>' for name in ("bandwidth", "latency"))
        inside += f'<edge source="{link["source"]}" target="{link["target"]}">{data}</edge>\n'
    space = "http://graphml.graphdrawing.org/xmlns"
    text = f'<graphml xmlns="{space}">\n{heads}<graph edgedefault="undirected">\n{inside}</graph></graphml>\n'
    return text, _npus(nodes)


def _nccl(draw: Random) -> tuple[str, int]:
    """Return a host of NCCL: GPUs with NVLinks to each other, to switches or to CPUs, and NICs."""
    gpus, cpus, sm = draw.choice((2, 4)), draw.choice((1, 2)), draw.choice((70, 80, 86, 90, 100))
    speeds = ("32.0 GT/s PCIe", "16.0 GT/s PCIe", "5.0 GT/s", "Unknown")
    kind, text = draw.choice(("0x068000", "0x068001", "0x030200", "")), ""
    for cpu in range(cpus):
        text += f'<cpu numaid="{cpu}" arch="{draw.choice(("x86_64", "arm64"))}" vendor="GenuineIntel">\n'
        for gpu in range(cpu, gpus, cpus):
            speed = f'link_speed="{draw.choice(speeds)}" link_width="{draw.choice((8, 16))}"'
            count = draw.choice((2, 4))
            wire = f'<nvlink target="0000:0{(gpu + 1) % gpus}:00.0" count="{count}" tclass="{kind}"/>\n'
            wire = wire * draw.choice((1, 2)) if kind else draw.choice(('<c2c bw="50000" count="4"/>\n', ""))
            text += f'<pci busid="0000:0{gpu}:00.0" class="0x030200" {speed}>\n'
            text += f'<gpu dev="{gpu}" sm="{sm}" rank="{gpu}">\n{wire}</gpu></pci>\n'
        for nic in range(draw.choice((0, 1, 1))):
            text += (
                f'<pci busid="0000:1{cpu}:00.0" class="0x020700" link_speed="16.0 GT/s PCIe" link_width="16">'
            )
            text += f'\n<nic><net name="mlx5_{nic}" dev="{nic}" speed="200000" port="1"/></nic></pci>\n'
        text += "<other/>\n" * (draw.random() < 0.1) + "</cpu>\n"
    return f'<system version="1">\n{text}</system>\n', gpus


def _infragraph(draw: Random) -> tuple[str, int]:
    """Return an infrastructure of servers below a switch."""
    xpus, hosts = draw.choice((1, 2)), draw.choice((1, 2, 3))
    bus = {"bandwidth": {"choice": "gigabytes_per_second", "gigabytes_per_second": draw.choice((32, 64))}}
    wire = {
        "bandwidth": {"choice": "gigabits_per_second", "gigabits_per_second": 400},
        "latency": {"choice": draw.choice(("us", "ns", "ms")), "us": 0.5, "ns": 700, "ms": 0.001},
    }
    schemes = ("one2one", "many2many", "ring")
    inner = {"ep1": {"component": "xpu"}, "ep2": {"component": draw.choice(("nic[0:2]", "nic", "nic[1]"))}}
    server: dict[str, Any] = {
        "name": "server",
        "components": [
            {"name": "xpu", "choice": "xpu", "count": xpus},
            {"name": "nic", "choice": "nic", "count": 2},
        ],
        "links": [{"name": "bus", "physical": bus}],
        "edges": [{**inner, "scheme": draw.choice(schemes), "link": "bus"}],
    }
    switch = {"name": "switch", "components": [{"name": "port", "choice": "switch"}]}
    ends = {
        "ep1": {"instance": draw.choice(("host", "host", f"host[0:{hosts}]", "host[1]")), "component": "nic"},
        "ep2": {"instance": "top[0]", "component": "port[0]"},
    }
    if draw.random() < 0.2:
        server["edges"] = []
        server["connections"] = ["xpu.0.bus.nic.0", "xpu.1.bus.nic.1"]
    scheme = draw.choice(("many2many", "many2many", "one2one"))
    content = {
        "devices": [server, switch],
        "links": [{"name": "eth", "physical": wire}],
        "instances": [
            {"name": "host", "device": "server", "count": hosts},
            {"name": "top", "device": "switch", "count": 1},
        ],
        "edges": [{**ends, "scheme": scheme, "link": "eth"}],
    }
    return json.dumps(content, indent=1), xpus * hosts


def _hierarchy(draw: Random) -> tuple[str, int]:
    """Return a network of ASTRA-sim 1.0."""
    count = draw.choice((1, 2))

    def each(*values: Any) -> list[Any]:
        return [draw.choice(values) for _ in range(count)]

    keys: dict[str, Any] = {
        "topology-name": "Hierarchical",
        "topologies-per-dim": each("Ring", "FullyConnected", "Switch"),
        "dimension-type": each("N", "P", "T"),
        "dimensions-count": count,
        "units-count": each(2, 4) if count == 2 else [4],
        "links-count": each(1, 2, 3),
        "link-latency": each(100, 500),
        "link-bandwidth": each(25, 50),
    }
    more = {
        name: each(0, 1, 7)
        for name in ("nic-latency", "router-latency", "hbm-latency")
        if draw.random() < 0.7
    }
    memory = {"hbm-bandwidth": each(100, 500), "hbm-scale": each(0, 0.5, 1)}
    content = keys | more | (memory if draw.random() < 0.7 else {})
    return json.dumps(content, indent=1), math.prod(keys["units-count"])


NETWORKS: dict[str, Callable[[Random], tuple[str, int]]] = {
    "topology.txt": _ns3,
    "tree.topo": _htsim,
    "garnet.txt": _garnet,
    "net.graphml": _graphml,
    "net.json": _node_link,
    "host.xml": _nccl,
    "infrastructure.json": _infragraph,
    "network1.json": _hierarchy,
}
OF_1: dict[str, tuple[Any, ...]] = {
    "scheduling-policy": ("LIFO", "FIFO"),
    "endpoint-delay": (10, 99),
    "preferred-dataset-splits": (1, 4),
    "active-chunks-per-dimension": (1, 2),
    "all-reduce-implementation": ("ring", "direct", "halvingDoubling", "direct4", "ring_direct"),
    "all-gather-implementation": ("ring", "direct"),
    "reduce-scatter-implementation": ("ring",),
    "all-to-all-implementation": ("direct", "ring"),
    "collective-optimization": ("baseline", "localBWAware"),
    "inter-dimension-scheduling": ("baseline", "themis", "offlineGreedy"),
    "intra-dimension-scheduling": ("FIFO", "SCF", "smallestFirst"),
    "injection-scale": (1, 2.5),
    "compute-scale": (1, 0.5),
    "comm-scale": (1, 2),
    "num-passes": (1, 2),
    "boost-mode": (0, 1),
    "link-latency": ("200", "100_300"),
    "units-count": ("4", "2_2"),
    "L": (1,),
}
TABLES: dict[str, tuple[Any, ...]] = {
    "operation": ("gemm", "", "", ""),
    "dtype": ("bf16", "bf16", ""),
    "size": (1000, 50_000, 900_000, 20_000_000),
}


def _system_of_1(draw: Random) -> str:
    """Return a system file of ASTRA-sim 1.0."""
    always = {"scheduling-policy", "endpoint-delay", "all-reduce-implementation"}
    seldom = {"link-latency", "units-count", "L"}
    given = {
        name: draw.choice(values)
        for name, values in OF_1.items()
        if name in always or draw.random() < (0.05 if name in seldom else 0.5)
    }
    return "".join(f"{name}: {value}\n" for name, value in given.items())


def _system_with_times(draw: Random) -> dict[str, str]:
    """Return a system with a table of measured times, as JSON and CSV."""
    rows = []
    for operation in sorted({draw.choice(TABLES["operation"]), draw.choice(TABLES["operation"])}):
        datatype = draw.choice(TABLES["dtype"])
        sizes = draw.sample(TABLES["size"], draw.choice((2, 2, 3)))
        rows += [f"{operation},{datatype},{size},{draw.choice((3, 40, 99.5))}" for size in sizes]
    rule: dict[str, Any] = {
        "model": "table",
        "file": "times.csv",
        "size": draw.choice(("operations", "bytes")),
    }
    rule |= {"outside": draw.choice(("leave", "extrapolate"))} if draw.random() < 0.9 else {}
    rule |= {"dtype": "bf16"} if draw.random() < 0.5 else {}
    text = json.dumps(SYSTEM | {"compute": [rule], "peak-perf": 10, "local-mem-bw": 50}, indent=1)
    head = f"{','.join(TABLES)},{draw.choice(('us', 'us', 'ns'))}"
    return {
        "times.csv": edited(draw, "\n".join([head, *rows]) + "\n", 0.3),
        "system.json": edited(draw, text, 0.2),
    }


def topologies(draw: Random) -> Line:
    """Return a network in one of the forms of other tools, described, converted or simulated."""
    name = draw.choice(sorted(NETWORKS))
    text, ranks = NETWORKS[name](draw)
    files: dict[str, Any] = {name: edited(draw, text)}
    of_1 = name == "network1.json" or draw.random() < 0.04
    make = f"make {draw.choice(('all_reduce', 'all_to_all'))} --ranks {max(ranks, 2)} --bytes 64KiB -o job"
    system = "system.txt" if of_1 else "system.json"
    run = f"{draw.choice(('run', 'check'))} job --system {system} --network {{name}}"
    run += f" --out run/r{' --network-model packet' * (name == 'garnet.txt')}" * run.startswith("run")
    hosts = f"--hosts {draw.choice((1, 2, 3))}" * (draw.random() < (0.6 if name == "host.xml" else 0.1))
    chance = draw.random()
    if chance < 0.15:
        files |= _system_with_times(draw)
        run, name, make = run.replace("system.txt", "system.json"), "network.yml", KERNELS
    elif name in ("host.xml", "infrastructure.json") and chance < 0.6:
        run = f"machine from {{name}} {hosts} {draw.choice(('', '--json', '--out run/m'))}"
    elif chance > (0.9 if of_1 else 0.5):
        run = f"network {{name}} {draw.choice(SHOWS)}"
    if of_1:
        files["system.txt"] = edited(draw, _system_of_1(draw), 0.25)
    if name in NETWORKS and draw.random() < 0.15:
        files["outer.yml"] = f"graph: {{ import: {name} }}\n" + draw.choice(("", "routing: ecmp-ns3\n"))
        name = "outer.yml"
    before = (make,) * run.startswith(("run", "check"))
    return Line(run.format(name=name), 1, before=before, files=FILES | files, without={"out", "hosts"})
