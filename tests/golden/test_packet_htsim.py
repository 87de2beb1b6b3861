"""The preset `htsim-parity` against ASTRA-sim's system layer on csg-htsim's TCP: 86 runs.

Without losses, single messages take the same nanoseconds; other cases have the limits below. Paths and drops
are drawn by other random numbers than htsim's. The results of et-sim for each case are in
`htsim_tcp_measured.json`, and as a table in docs/packet-tcp.md; both are rewritten by

    python tests/golden/test_packet_htsim.py
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from packet_pages import Section, completions, pair
from test_packets import collective, messages, system

from et_sim import simulate
from et_sim.run.result import Result

DATA = Path(__file__).parent / "data" / "htsim_tcp.json"
CASES: list[dict[str, Any]] = json.loads(DATA.read_text(encoding="utf-8"))
FIGURES = {"bandwidth": "100Gbps", "latency": "1us"}
LEAF_SPINE = {"generator": "leaf-spine", "leaves": 4, "spines": 4, "npus-per-leaf": 4}
TOPOLOGIES: dict[str, dict[str, Any]] = {
    "ls16_4x4_4s_100g_1us": {
        "generator": "leaf-spine",
        "leaves": 4,
        "spines": 4,
        "npus-per-leaf": 4,
        **FIGURES,
    },
    "ft16_k4_100g_1us": {"generator": "fat-tree", "k": 4, **FIGURES},
    "ft8_example": {"import": str(DATA.with_name("htsim_ft8_example.topo"))},
}
PACKET, SMALL = 1500, 600
WITHIN = 0.02
# Messages of a few packets, whose receives end early, and which then follow each other in another order.
SHORT = {"ring_64KB": 0.06}
# Paths meet by chance, other ones than there.
BY_CHANCE = (
    "ls16_4x4_4s_100g_1us__all_to_all_direct_16MB__q1000_seed1",
    "ft16_k4_100g_1us__all_reduce_ring_16MB__q1000_seed1",
    "ft16_k4_100g_1us__all_to_all_direct_1MB__q1000_seed1",
    "ft16_k4_100g_1us__all_reduce_direct_64KB__q100_seed1",
    "ft16_k4_100g_1us__all_reduce_direct_64KB__q1000_seed1",
)


def simulated(case: dict[str, Any]) -> Result:
    """Return the result of a case on the packet model."""
    work, queue, topology = case["workload"], case["queue_pkts"], case["topology"]
    ranks = 8 if topology == "ft8_example" else 16
    network = {
        "graph": TOPOLOGIES[topology],
        "routing": "ecmp",
        "logical-dimensions": [ranks],
        "protocol": {
            "preset": "htsim-parity",
            "queue-bytes": queue * PACKET,
            "random-drop-from": (queue - 3) * PACKET,
        },
    }
    if "msgs" in work:
        workload, algorithm = messages(ranks, work["msgs"]), "ring"
    else:
        workload, algorithm = collective(ranks, work["kind"], work["size"]), work["impl"]
    return simulate(workload, system=system(algorithm), network=network, model="packet")


def cells(case: dict[str, Any], ours: dict[str, int]) -> list[str]:
    """Return a row of the table."""
    return [*completions(case, ours), pair(case["rto_events"], ours["timeouts"])]


SECTION = Section(
    "cases of htsim",
    "packet-tcp.md",
    DATA.with_name("htsim_tcp_measured.json"),
    "| case | htsim, ns | et-sim, ns | difference | timeouts: htsim, et-sim |",
    cells,
)


def figures(result: Result) -> dict[str, int]:
    """Return the figures to compare."""
    state = result.outcome.run.network.state[0]
    return {
        "completion_ns": result.makespan_ns,
        "lost": int(state.lost),
        "timeouts": int(state.timeouts),
    }


def is_free(case: dict[str, Any]) -> bool:
    """Return whether neither simulator waited for a timer, and et-sim lost nothing."""
    ours = SECTION.measured.get(case["name"], {"lost": 1, "timeouts": 1})
    return case["rto_events"] == ours["timeouts"] == ours["lost"] == 0


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=case["name"], marks=pytest.mark.deep if case["data_packets"] > SMALL else ())
        for case in CASES
    ],
)
def test_packets_are_sent_as_those_of_htsim(case: dict[str, Any]) -> None:
    assert figures(simulated(case)) == SECTION.measured[case["name"]]


@pytest.mark.parametrize("case", [pytest.param(case, id=case["name"]) for case in CASES if is_free(case)])
def test_without_losses_the_difference_is_small(case: dict[str, Any]) -> None:
    theirs, ours = case["completion_ns"], SECTION.measured[case["name"]]["completion_ns"]
    within = next((limit for name, limit in SHORT.items() if name in case["name"]), WITHIN)
    if case["workload"]["kind"] == "p2p":
        assert ours == theirs
    elif case["name"] not in BY_CHANCE:
        assert ours == pytest.approx(theirs, rel=within)


def test_the_page_shows_all_cases() -> None:
    assert SECTION.on_the_page() == SECTION.table(CASES)


if __name__ == "__main__":
    SECTION.write(CASES, lambda case: figures(simulated(case)))
