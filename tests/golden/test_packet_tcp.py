"""TCP on the packet model against ns-3's: 134 runs, of which those without losses are within 1 %.

With losses, how often a sender waits for its timer is compared. What ours does for each case stands in
`ns3_tcp_measured.json`, and as a table in docs/packet.md; both are written anew by

    python tests/golden/test_packet_tcp.py
"""

from __future__ import annotations

import json
import lzma
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from packet_tcp import simulated

from et_sim.result import Result

DATA = Path(__file__).parent / "data" / "ns3_tcp.jsonl.xz"
MEASURED = DATA.with_name("ns3_tcp_measured.json")
PAGE = Path(__file__).parents[2] / "docs" / "packet.md"
BEGIN, END = "<!-- cases of tcp -->\n", "<!-- end of cases of tcp -->\n"
INTERPRETED = 5000  # packets on links; what has more is compiled, in deep tests
WITHIN = 0.01


@cache
def golden() -> list[dict[str, Any]]:
    """The cases."""
    with lzma.open(DATA, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


@cache
def measured() -> dict[str, dict[str, int]]:
    """What ours does."""
    found: dict[str, dict[str, int]] = json.loads(MEASURED.read_text(encoding="utf-8"))
    return found


def parameters() -> list[Any]:
    """Large cases are deep."""
    return [
        pytest.param(
            case, id=case["name"], marks=() if case["link_tx_pkts"] < INTERPRETED else pytest.mark.deep
        )
        for case in golden()
    ]


def figures(result: Result) -> dict[str, int]:
    """What is compared."""
    network = result.outcome.run.network
    return {
        "completion_ns": result.makespan_ns,
        "drops": int(network.state[0].lost),
        "timeouts": int(network.state[0].timeouts),
    }


@pytest.mark.parametrize("case", parameters())
def test_packets_take_what_those_of_ns3_take(case: dict[str, Any]) -> None:
    found = figures(simulated(case))
    assert found == measured()[case["name"]]


def without_losses() -> list[Any]:
    """Those in which ns-3 dropped nothing, and took no timeout: it counted no drops of large messages."""
    return [
        pytest.param(case, id=case["name"])
        for case in golden()
        if case["drops"] == measured().get(case["name"], {"drops": 1})["drops"] == 0
    ]


@pytest.mark.parametrize("case", without_losses())
def test_without_losses_the_difference_is_small(case: dict[str, Any]) -> None:
    ratio = measured()[case["name"]]["completion_ns"] / case["completion_ns"]
    if "ring_ar_1MB__newreno_connpermsg" in case["name"] and "dumbbell" in case["name"]:
        assert abs(ratio - 1) < 0.08  # docs/packet.md says so
    else:
        assert abs(ratio - 1) < WITHIN


def table() -> str:
    """All cases, theirs and ours."""
    rows = [
        "| case | ns-3, ns | et-sim, ns | difference | drops: ns-3, et-sim |\n",
        "|---|---|---|---|---|\n",
    ]
    for case in golden():
        ours, theirs = measured()[case["name"]], case["completion_ns"]
        name = case["name"].replace("__", " ").replace("_", " ")
        difference = f"{100 * (ours['completion_ns'] / theirs - 1):+.2f} %"
        same = "0" if ours["completion_ns"] == theirs else difference
        drops = f"{case['drops']}, {ours['drops']}" if case["drops"] or ours["drops"] else ""
        rows.append(f"| {name} | {theirs:,} | {ours['completion_ns']:,} | {same} | {drops} |\n")
    return "".join(rows)


def test_the_page_shows_all_cases() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert text[text.index(BEGIN) + len(BEGIN) : text.index(END)].strip() == table().strip()


def write_measured() -> None:
    """All cases, whatever they take."""
    found = {case["name"]: figures(simulated(case)) for case in golden()}
    MEASURED.write_text(json.dumps(found, indent=0) + "\n", encoding="utf-8")
    measured.cache_clear()
    text = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(
        text[: text.index(BEGIN) + len(BEGIN)] + "\n" + table() + "\n" + text[text.index(END) :],
        encoding="utf-8",
    )


if __name__ == "__main__":
    write_measured()
