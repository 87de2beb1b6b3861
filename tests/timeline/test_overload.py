"""Ranks that sent or received more than their ports carry are named; with limited ports there are none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from machines import network, network_1, of_all_ranks, sends, simulate, system, system_1
from msgspec import structs
from random_cases import random_case

from et_sim.api import run
from et_sim.basics.errors import EtSimError
from et_sim.machine import read_network_alone
from et_sim.run.result import Result
from et_sim.timeline.network_load import Overload, overload
from et_sim.trace import TraceBuilder, Workload

MIB = 1 << 20
SWITCH = network(["Switch"], [8], latency=0)


def overload_of(result: Result, net: dict[str, Any]) -> Overload:
    worst = overload(result.outcome, read_network_alone(net))
    assert worst is not None
    assert worst.sentence in [warning["text"] for warning in result.manifest["warnings"]]
    return worst


def test_many_senders_to_one_receiver() -> None:
    builders = sends(8, [(source, 0, MIB) for source in range(1, 8)])
    worst = overload_of(simulate(builders, SWITCH), SWITCH)
    assert (worst.ranks, worst.verb, worst.port) == ("0", "gets", (-1, 0))
    assert worst.factor == pytest.approx(7, rel=1e-3)
    assert worst.sentence.startswith("rank 0 gets 7 times what its links carry over all its ports, within ")
    several = structs.replace(worst, ranks="0-3", port=(1, 2)).sentence
    assert several.startswith(
        "each of ranks 0-3 gets 7 times what its links carry along dimension 1 to ranks 2 further on, within "
    )


def test_chunks_that_go_up_a_tree_side_by_side() -> None:
    chunks = system(**{"preferred-dataset-splits": 8, "active-chunks-per-dimension": 8})
    worst = overload_of(simulate(of_all_ranks(8, "reduce", 16 * MIB, root=0), SWITCH, chunks), SWITCH)
    assert worst.verb == "gets"
    assert worst.factor > 1.5


def test_exchanges_in_which_one_rank_sends_more() -> None:
    builders = [TraceBuilder() for _ in range(8)]
    for rank, build in enumerate(builders):
        build.collective("all_to_all", splits=[16 * MIB if rank == 3 else 1] * 8)
    worst = overload_of(simulate(builders, SWITCH, system("direct")), SWITCH)
    assert (worst.ranks, worst.port) == ("3", (0, 0))
    assert worst.factor == pytest.approx(7, rel=1e-2)


def test_collectives_on_a_machine_of_version_1(tmp_path: Path) -> None:
    build = TraceBuilder()
    for _ in range(2):
        build.collective("all_reduce", 64 * MIB)
    (tmp_path / "system.txt").write_text(system_1(4).replace("ring_", "direct_"))
    where = {"system": tmp_path / "system.txt", "network": network_1([4, 2])}
    result = run(Workload.of([build.build()] * 8), **where)
    worst = overload_of(result, network_1([4, 2]))
    assert worst.factor > 1.2
    assert "network file in the form of 2.x" in worst.sentence


@given(st.integers(0, 10**6))
def test_no_rank_overloads_its_ports_where_their_bandwidth_is_limited(seed: int) -> None:
    case = random_case(seed, in_parts=True)
    try:
        outcome = run(case.workload, **case.machine).outcome
    except EtSimError:  # some cases are refused
        return
    shown = structs.replace(outcome, has_contention=False)
    assert overload(shown, read_network_alone(case.machine["network"])) is None
