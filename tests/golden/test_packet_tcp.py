"""TCP on the packet model against ns-3's: 134 runs, of which those without losses are within 1 %.

With losses, the number of waits for a timer is compared. The results of et-sim for each case are in
`ns3_tcp_measured.json`, and as a table in docs/packet-tcp.md; both are rewritten by

    python tests/golden/test_packet_tcp.py
"""

from __future__ import annotations

import json
import lzma
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from packet_pages import Section, completions, pair, parameters
from packet_tcp import simulated

from et_sim.run.result import Result

DATA = Path(__file__).parent / "data" / "ns3_tcp.jsonl.xz"
INTERPRETED = 5000  # packets on links; cases with more are compiled, in deep tests
WITHIN = 0.01
DAYS = {"TcpCubic": 0, "TcpDctcp": 1}


def control_of(case: dict[str, Any]) -> str:
    """Return the name of the congestion control of a case."""
    return str(case["params"].get("variant"))


@cache
def golden() -> list[dict[str, Any]]:
    """Return the cases."""
    with lzma.open(DATA, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def cells(case: dict[str, Any], ours: dict[str, int]) -> list[str]:
    """Return a row of the table."""
    return [*completions(case, ours), pair(case["drops"], ours["drops"])]


SECTION = Section(
    "cases of tcp",
    "packet-tcp.md",
    DATA.with_name("ns3_tcp_measured.json"),
    "| case | ns-3, ns | et-sim, ns | difference | drops: ns-3, et-sim |",
    cells,
)


def figures(result: Result) -> dict[str, int]:
    """Return the figures to compare."""
    network = result.outcome.run.network
    return {
        "completion_ns": result.makespan_ns,
        "drops": int(network.state[0].lost),
        "timeouts": int(network.state[0].timeouts),
    }


@pytest.mark.parametrize("case", parameters(golden(), "link_tx_pkts", INTERPRETED, DAYS, control_of))
def test_packets_take_the_recorded_time(case: dict[str, Any]) -> None:
    result = figures(simulated(case))
    assert result == SECTION.measured[case["name"]]


def without_losses() -> list[Any]:
    """Return cases without drops and timeouts in ns-3, which did not count drops of large messages."""
    return [
        pytest.param(case, id=case["name"])
        for case in golden()
        if case["drops"] == SECTION.measured.get(case["name"], {"drops": 1})["drops"] == 0
    ]


@pytest.mark.parametrize("case", without_losses())
def test_without_losses_the_difference_is_small(case: dict[str, Any]) -> None:
    ratio = SECTION.measured[case["name"]]["completion_ns"] / case["completion_ns"]
    if "ring_ar_1MB__newreno_connpermsg" in case["name"] and "dumbbell" in case["name"]:
        assert abs(ratio - 1) < 0.08  # docs/packet-tcp.md states this case
    else:
        assert abs(ratio - 1) < WITHIN


def test_the_page_shows_all_cases() -> None:
    assert SECTION.on_the_page() == SECTION.table(golden())


if __name__ == "__main__":
    SECTION.write(golden(), lambda case: figures(simulated(case)))
