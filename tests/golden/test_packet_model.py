"""The packet model takes the nanoseconds of ns-3's RoCE, and pauses as often: 154 runs of ASTRA-sim on it.

Each network file names the key file and the topology file that ns-3 read. The results of et-sim for each
case are in `ns3_roce_measured.json`, and as a table in docs/packet-ns3.md; both are rewritten by

    python tests/golden/test_packet_model.py
"""

from __future__ import annotations

import json
import lzma
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from packet_pages import Section, completions, pair, parameters
from test_packets import collective, messages, system
from test_packets import golden as flow_golden

from et_sim import simulate
from et_sim.run.result import Result

DATA = Path(__file__).parent / "data" / "ns3_roce.jsonl.xz"
INTERPRETED = 9000  # events of ns-3; cases with more are compiled, in deep tests
CONTROLS = {1: "DCQCN", 3: "HPCC", 7: "TIMELY", 8: "DCTCP"}
DAYS = {"DCQCN": 0, "HPCC": 0, "TIMELY": 1, "DCTCP": 1}


@cache
def golden() -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the configuration of all cases, and the cases."""
    with lzma.open(DATA, "rt", encoding="utf-8") as lines:
        first, *cases = map(json.loads, lines)
    return first["base_config"], cases


def simulated(case: dict[str, Any], folder: Path) -> Result:
    """Return the result of a case, on the files that ns-3 read."""
    keys = golden()[0] | case["config"]
    topology = flow_golden()["topologies"][case["topology"]]
    (folder / "topology.txt").write_text(topology, encoding="utf-8")
    (folder / "ns3.txt").write_text(
        "".join(f"{key} {value}\n" for key, value in keys.items()), encoding="utf-8"
    )
    network = folder / "network.yml"
    network.write_text(
        "graph: { import: topology.txt }\nrouting: ecmp-ns3\nprotocol: { file: ns3.txt }\n", encoding="utf-8"
    )
    nodes, switches = map(int, topology.split()[:2])
    if "messages" in case:
        workload, described = messages(nodes - switches, case["messages"]), system("ring")
    else:
        workload = collective(nodes - switches, case["collective"], case["bytes"])
        described = system(case["algorithm"], **{"preferred-dataset-splits": case["chunks"]})
    result = simulate(workload, system=described, network=network, model="packet")
    assert result.is_complete
    return result


def control_of(case: dict[str, Any]) -> str:
    """Return the name of the congestion control of a case."""
    return CONTROLS.get(case["config"].get("CC_MODE", 12), "none")


def cells(case: dict[str, Any], ours: dict[str, int]) -> list[str]:
    """Return a row of the table."""
    return [control_of(case), *completions(case, ours), pair(case["pauses"], ours["pauses"])]


SECTION = Section(
    "cases",
    "packet-ns3.md",
    DATA.with_name("ns3_roce_measured.json"),
    "| case | congestion control | ns-3, ns | et-sim, ns | difference | pauses: ns-3, et-sim |",
    cells,
)


def figures(result: Result) -> dict[str, int]:
    """Return the figures to compare."""
    network = result.outcome.run.network
    return {
        "completion_ns": result.makespan_ns,
        "pauses": int(network.ports["paused"].sum()),
        "drops": int(network.state[0].lost),
    }


@pytest.mark.parametrize("case", parameters(golden()[1], "events", INTERPRETED, DAYS, control_of))
def test_packets_take_the_nanoseconds_of_ns3(case: dict[str, Any], tmp_path: Path) -> None:
    result = simulated(case, tmp_path)
    outcome = figures(result)
    assert outcome == SECTION.measured[case["name"]]
    assert outcome == {name: case[name] for name in outcome}
    network = result.outcome.run.network
    assert network.state[0].sent == case["packets"] + network.flows["retransmitted"].sum()
    if "messages" in case:
        received = [row for row in result.timeline.to_pylist() if row["kind"] == "receive"]
        ends = sorted(row["end_ns"] for row in received)
        assert ends == sorted(end for _, _, end in case["end_ns"])


def anew(case: dict[str, Any]) -> dict[str, int]:
    with tempfile.TemporaryDirectory() as folder:
        return figures(simulated(case, Path(folder)))


def test_the_page_shows_all_cases() -> None:
    assert SECTION.on_the_page() == SECTION.table(golden()[1])


if __name__ == "__main__":
    SECTION.write(golden()[1], anew)
