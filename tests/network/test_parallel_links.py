"""Parallel links: a count of links carries a message together; links listed one by one carry their own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from machines import sent as messages_of

import et_sim
from et_sim.timeline.contents.network import _of_each

SYSTEM: dict[str, Any] = {"profile": "corrected", "endpoint-delay": 0}
MODELS = ("analytical", "link", "flow", "packet")
SIZE, B, L, N = 1_000_000, 25, 300, 3


def dumbbell(*middle: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Return two NPUs left and two right, and links from left to right."""
    ends = [{"from": f"npu{npu}", "to": "lr"[npu // 2], "bandwidth": "100GB/s"} for npu in range(4)]
    own = [{"from": "l", "to": "r", "latency": L, **keys} for keys in middle]
    return {"npus": 4, "switches": ["l", "r"], "links": [*ends, *own], "logical-dimensions": [4], **more}


def sent(network: dict[str, Any], model: str, messages: int = 1) -> et_sim.Result:
    """Run one or two messages of different ranks from left to right, at the same time."""
    workload = messages_of(4, [(source, 2 + source, SIZE) for source in range(messages)])
    return et_sim.simulate(workload, system=SYSTEM, network=network, model=model, detail="links", fold=False)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("messages", [1, 2])
def test_a_count_of_links_is_one_link_of_the_whole_bandwidth(model: str, messages: int) -> None:
    counted = dumbbell({"bandwidth": f"{B}GB/s", "count": N})
    wide = dumbbell({"bandwidth": f"{N * B}GB/s"})
    slow = dumbbell({"bandwidth": "1GB/s", "count": 2})
    slow["overrides"] = [{"between": ["l", "r"], "bandwidth": f"{N * B}GB/s"}]  # of all together
    runs = [sent(network, model, messages) for network in (counted, wide, slow)]
    assert len({tuple(run.finish_ns.tolist()) for run in runs}) == 1
    assert len({str(run.table("links").to_pylist()) for run in runs}) == 1


def test_a_message_takes_the_time_of_all_of_them_together() -> None:
    counted, ends, middle = dumbbell({"bandwidth": f"{B}GB/s", "count": N}), SIZE // 100, SIZE // (N * B)
    assert sent(counted, "analytical").makespan_ns == L + middle
    assert sent(counted, "flow").makespan_ns == pytest.approx(L + middle, abs=1)
    assert sent(counted, "link").makespan_ns == L + middle + 2 * ends
    assert sent(counted, "flow", 2).makespan_ns == pytest.approx(L + 2 * SIZE / (N * B), abs=1)
    assert sent(counted, "link", 2).makespan_ns == L + 2 * middle + 2 * ends


@pytest.mark.parametrize("model", ["link", "flow"])
def test_parallel_links_carry_a_message_each_as_the_hash_selects(model: str) -> None:
    """Check that with the default routing, only the first of the links is used."""
    two = {"bandwidth": f"{B}GB/s"}, {"bandwidth": f"{B}GB/s", "name": "second"}
    ends = 2 * (SIZE // 100) if model == "link" else 0
    alone = L + SIZE // B + ends
    shared = L + 2 * (SIZE // B) + ends
    assert sent(dumbbell(*two), model, 2).makespan_ns == pytest.approx(shared, abs=1)
    results = [sent(dumbbell(*two, routing="ecmp", seed=seed), model, 2) for seed in range(6)]
    times = {result.makespan_ns for result in results}
    assert sorted(times) == pytest.approx([alone, shared], abs=1)
    for result in results:
        rows = result.table("links").to_pylist()
        used = {row["link"] for row in rows if row["tier"] == "l, r to l, r"}
        assert len(used) == (2 if result.makespan_ns < shared - 1 else 1)


def test_slices_of_a_trunk_add_up_to_its_share_rounded_down() -> None:
    sizes, trunk = np.array([3, 3, 3, 4, 4, 5]), np.array([0, 0, 0, 1, 1, 2])
    members = np.array([2, 3, 1])
    shares = _of_each(members, trunk, sizes).tolist()
    assert shares == [1, 2, 1, 1, 1, 5]
    for number, count in enumerate(members.tolist()):
        of = trunk == number
        assert sum(np.array(shares)[of]) == sizes[of].sum() // count
