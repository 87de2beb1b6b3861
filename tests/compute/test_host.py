"""Hosts that launch kernels: they run ahead of the device, or it waits for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from machines import network, system
from training_jobs import transformer

from et_sim.api import run
from et_sim.basics.errors import MachineError
from et_sim.plan.host import with_host
from et_sim.trace import TraceBuilder, Workload

LAUNCHES = st.one_of(st.none(), st.integers(0, 3))


def chain(kernels: Sequence[tuple[int, int | None]]) -> Workload:
    """Return a workload of kernels in sequence, each with its nanoseconds and number of launches."""
    build, last = TraceBuilder(), ()
    for nanos, launches in kernels:
        attributes = {} if launches is None else {"launches": launches}
        last = (build.compute("kernel", nanos=nanos, after=last, attributes=attributes),)  # type: ignore[assignment]
    return Workload.of([build.build()])


def simulated(workload: Workload, host: Any, **options: Any) -> Any:
    machine = {
        "system": system(profile="corrected", **{"host-time": host}),
        "network": network(["Ring"], [1]),
    }
    return run(workload, **{**machine, **options})


@given(st.lists(st.tuples(st.integers(1, 200), LAUNCHES), min_size=1, max_size=12), st.integers(1, 150))
def test_a_kernel_begins_after_its_launch_and_the_kernel_before(
    kernels: list[tuple[int, int | None]], host: int
) -> None:
    launched = ended = 0
    for nanos, launches in kernels:
        launched += host * (1 if launches is None else launches)
        ended = (ended if launches == 0 else max(ended, launched)) + nanos
    assert simulated(chain(kernels), host).makespan_ns == max(ended, launched)


@pytest.mark.deep
def test_collectives_are_launched_too_and_ranks_fold_as_before() -> None:
    workload = transformer(tensor=2, data=2, micro_batches=2)
    machine = network(["Ring"], [4])
    folded, unfolded = (simulated(workload, "3us", network=machine, fold=fold) for fold in (True, False))
    assert folded.finish_ns.tolist() == unfolded.finish_ns.tolist()
    names = [row["name"] for row in folded.timeline.to_pylist()]
    kinds = [row["kind"] for row in folded.timeline.to_pylist()]
    collectives = sum(kind.startswith("all_") for kind in kinds)
    part_of_others = sum("sum of gradients" in name for name in names)
    assert names.count("launch") == kinds.count("compute") + collectives - part_of_others


@pytest.mark.parametrize("waits", [False, True])
def test_a_host_launches_ahead_of_a_message_unless_it_waits_for_it(waits: bool) -> None:
    sender, receiver = TraceBuilder(), TraceBuilder()
    sender.send(1, 1, after=[sender.compute("kernel", nanos=1000)])
    last = receiver.receive(0, 1)
    for _ in range(3):
        last = receiver.compute("kernel", nanos=5, after=[last])
    workload = Workload.of([sender.build(), receiver.build()])
    launched, _ = with_host(workload, 20, waits=waits)
    rows = simulated(launched, 0, network=network(["Ring"], [2])).timeline.to_pylist()
    (arrived,) = (row["end_ns"] for row in rows if row["kind"] == "receive")
    assert max(row["end_ns"] for row in rows) == arrived + (3 * 20 + 5 if waits else 3 * 5)


def test_a_host_time_of_zero_has_no_effect() -> None:
    workload = chain([(5, None)])
    assert with_host(workload, 0.0) == (workload, [])


def test_a_trace_with_a_host_keeps_it_with_a_warning() -> None:
    build = TraceBuilder()
    build.compute("kernel", nanos=7, after=[build.compute("operator", nanos=5, cpu=True)])
    workload = Workload.of([build.build()])
    assert simulated(workload, "1ms").makespan_ns == 12
    (notice,) = with_host(workload, 1e6)[1]
    assert notice.key == "host-time"
    assert "no effect on 1 rank, whose traces have a host of their own" in notice.text


def test_launches_that_last_too_long_are_refused() -> None:
    with pytest.raises(MachineError, match='"host-time" is 1e\\+18 ns'):
        with_host(chain([(5, 1000)]), 1e18)


def test_a_time_that_is_none_is_refused() -> None:
    with pytest.raises(MachineError, match='key "host-time" is -1'):
        simulated(chain([(5, None)]), -1)
