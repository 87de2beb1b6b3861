"""Messages of known kinds take no packets, if nothing on the network hinders a message."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from machines import simulate, system
from steady_cases import LINK, MIB, RANKS, TOLERANCE, ends

from et_sim import TraceBuilder
from et_sim.basics.errors import EtSimError
from et_sim.network.packet.model import ports_counted
from et_sim.run.result import Result
from et_sim.views.summary.sentences import packets_text

FAT_TREE = {"generator": "fat-tree", "k": 4}
PROTOCOL = {"preset": "datacenter", "congestion-control": "none", "window": "none"}


def ring(
    steady: float | None, size: int = 16 * MIB, late: int | None = None, detail: str | None = None
) -> tuple[Any, Result]:
    """Return when the nodes of a ring end, and its result; a `late` rank also sends to rank 0 meanwhile."""
    builders = [TraceBuilder() for _ in range(RANKS)]
    for rank, builder in enumerate(builders):
        builder.collective("all_reduce", size)
        if rank == late:
            begins = builder.compute(micros=2_000)
            builder.send(0, MIB, tag=1, after=[begins], concurrent=True)
    if late is not None:
        builders[0].receive(late, MIB, tag=1)
    network = {
        "graph": {**FAT_TREE, **LINK},
        "logical-dimensions": [RANKS],
        "protocol": {**PROTOCOL, "skip-repeats": False},
    }
    more: dict[str, Any] = {} if detail is None else {"detail": detail}
    found = simulate(builders, network, system("ring"), model="packet", steady=steady, **more)
    assert found.is_complete
    return np.array(found.timeline.column("end_ns").to_pylist(), float), found


def packets_of(found: Result) -> Any:
    """Return the packets of a run's summary."""
    return found.summary()["packets"]


def test_steps_of_a_ring_that_are_like_earlier_ones_take_no_packets_and_are_counted() -> None:
    (exact, all_packets), (skipped, few) = ring(None), ring(TOLERANCE)
    steady = packets_of(few)["steady"]
    assert steady["packets"] > 0.7 * packets_of(few)["sent"]
    assert np.abs(skipped / exact - 1).max() <= steady["error"] <= TOLERANCE
    told = f"{steady['messages']} messages like earlier ones), times within {steady['error']:.3%} by estimate"
    assert told in packets_text(few.summary())
    columns, totals = ports_counted(few.outcome.run.network)
    columns_then, totals_then = ports_counted(all_packets.outcome.run.network)
    assert totals["sent"] == totals_then["sent"]
    for name in ("bytes", "packets", "busy_ns"):
        assert (columns[name] == columns_then[name]).all()


def test_a_run_with_messages_that_contend_after_known_ones_has_all_packets() -> None:
    (exact, all_packets), (same, found) = ring(None, late=5), ring(TOLERANCE, late=5)
    assert exact.max() > 1.02 * ring(None)[0].max()  # they contend
    assert (same == exact).all()
    assert packets_of(found)["steady"] == {
        "tolerance": TOLERANCE, "messages": 0, "packets": 0, "error": 0.0, "contends": True
    }  # fmt: skip
    assert packets_of(found)["sent"] == packets_of(all_packets)["sent"]
    assert "all packets simulated, as messages contend" in packets_text(found.summary())


def test_messages_of_a_run_that_is_made_again_are_recorded_once() -> None:
    found = [ring(steady, late=5, detail="messages")[1] for steady in (None, TOLERANCE)]
    all_packets, again = (each.table("messages") for each in found)
    assert len(all_packets) > 0
    assert all_packets.equals(again)


def test_the_option_without_a_like_message_changes_nothing() -> None:
    (exact, _), (same, found) = ring(None, size=MIB // 2), ring(TOLERANCE, size=MIB // 2)
    assert packets_of(found)["steady"]["packets"] == 0
    assert (same == exact).all()


def test_nothing_is_skipped_by_default_nor_where_queues_are_recorded() -> None:
    assert "steady" not in packets_of(ring(None, size=MIB // 2)[1])
    assert packets_of(ring(TOLERANCE, size=4 * MIB, detail="ports")[1])["steady"]["packets"] == 0


@pytest.mark.parametrize(
    ("model", "protocol", "tolerance", "message"),
    [
        ("flow", PROTOCOL, TOLERANCE, "--steady is for packets"),
        ("packet", {"preset": "tcp"}, TOLERANCE, "RoCE only"),
        ("packet", {**PROTOCOL, "congestion-control": "hpcc"}, TOLERANCE, "adjusts rates all the time"),
        ("packet", {"preset": "roce"}, TOLERANCE, "no window limits messages"),
        ("packet", PROTOCOL, 0.0, r"--steady is 0.*above 0, up to 5%"),
        ("packet", PROTOCOL, 0.051, r"--steady is 0.051, or 5.1%.*above 0, up to 5%"),
    ],
)
def test_what_cannot_be_skipped_is_refused(
    model: str, protocol: dict[str, Any], tolerance: float, message: str
) -> None:
    network = {"graph": {**FAT_TREE, **LINK}, "protocol": protocol}
    builders = [TraceBuilder() for _ in range(RANKS)]
    with pytest.raises(EtSimError, match=message):
        simulate(builders, network, system(), model=model, steady=tolerance)


@pytest.mark.deep
@pytest.mark.in_turn(days=4)
@pytest.mark.parametrize("seeds", [range(begin, begin + 40) for begin in range(0, 160, 40)])
def test_every_node_of_random_runs_ends_within_the_tolerance(seeds: range) -> None:
    skipped = 0
    for seed in seeds:
        (exact, _), (near, found) = ends(seed, None), ends(seed, TOLERANCE)
        assert np.allclose(near, exact, rtol=TOLERANCE, atol=0, equal_nan=True), seed  # nan: a stall
        skipped += packets_of(found)["steady"]["packets"] > 0
    assert skipped > 0
