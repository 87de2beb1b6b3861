"""The preset `htsim-parity` against ASTRA-sim's system layer on csg-htsim's TCP: 86 runs.

Without losses, single messages take the same nanoseconds; what else is within which limit stands below. Paths
are drawn by other random numbers than htsim's, and so are drops. What ours does for each case stands in
`htsim_tcp_measured.json`, and as a table in docs/packet.md; both are written anew by

    python tests/golden/test_packet_htsim.py
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from test_packets import collective, messages, system

from et_sim import simulate
from et_sim.result import Result

DATA = Path(__file__).parent / "data" / "htsim_tcp.json"
MEASURED = DATA.with_name("htsim_tcp_measured.json")
PAGE = Path(__file__).parents[2] / "docs" / "packet.md"
BEGIN, END = "<!-- cases of htsim -->\n", "<!-- end of cases of htsim -->\n"
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
    """A case by our own packets."""
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


def figures(result: Result) -> dict[str, int]:
    """What is compared."""
    state = result.outcome.run.network.state[0]
    return {
        "completion_ns": result.makespan_ns,
        "lost": int(state.lost),
        "timeouts": int(state.timeouts),
    }


@cache
def measured() -> dict[str, dict[str, int]]:
    """What ours does."""
    found: dict[str, dict[str, int]] = json.loads(MEASURED.read_text(encoding="utf-8"))
    return found


def is_free(case: dict[str, Any]) -> bool:
    """Whether neither waited for a timer, and ours lost nothing."""
    ours = measured().get(case["name"], {"lost": 1, "timeouts": 1})
    return case["rto_events"] == ours["timeouts"] == ours["lost"] == 0


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=case["name"], marks=pytest.mark.deep if case["data_packets"] > SMALL else ())
        for case in CASES
    ],
)
def test_packets_are_sent_as_those_of_htsim(case: dict[str, Any]) -> None:
    assert figures(simulated(case)) == measured()[case["name"]]


@pytest.mark.parametrize("case", [pytest.param(case, id=case["name"]) for case in CASES if is_free(case)])
def test_without_losses_the_difference_is_small(case: dict[str, Any]) -> None:
    theirs, ours = case["completion_ns"], measured()[case["name"]]["completion_ns"]
    within = next((limit for name, limit in SHORT.items() if name in case["name"]), WITHIN)
    if case["workload"]["kind"] == "p2p":
        assert ours == theirs
    elif case["name"] not in BY_CHANCE:
        assert ours == pytest.approx(theirs, rel=within)


def table() -> str:
    """All cases, theirs and ours."""
    rows = [
        "| case | htsim, ns | et-sim, ns | difference | timeouts: htsim, et-sim |\n",
        "|---|---|---|---|---|\n",
    ]
    for case in CASES:
        ours, theirs = measured()[case["name"]], case["completion_ns"]
        name = case["name"].replace("__", " ").replace("_", " ")
        difference = f"{100 * (ours['completion_ns'] / theirs - 1):+.2f} %"
        same = "0" if ours["completion_ns"] == theirs else difference
        waits = f"{case['rto_events']}, {ours['timeouts']}" if case["rto_events"] or ours["timeouts"] else ""
        rows.append(f"| {name} | {theirs:,} | {ours['completion_ns']:,} | {same} | {waits} |\n")
    return "".join(rows)


def test_the_page_shows_all_cases() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert text[text.index(BEGIN) + len(BEGIN) : text.index(END)].strip() == table().strip()


def write_measured() -> None:
    """All cases, whatever they take."""
    found = {case["name"]: figures(simulated(case)) for case in CASES}
    MEASURED.write_text(json.dumps(found, indent=0) + "\n", encoding="utf-8")
    measured.cache_clear()
    text = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(
        text[: text.index(BEGIN) + len(BEGIN)] + "\n" + table() + "\n" + text[text.index(END) :],
        encoding="utf-8",
    )


if __name__ == "__main__":
    write_measured()
