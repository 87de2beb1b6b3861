"""Checkpoints cross networks: graphs, those of machines without a library, and those of given steps."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import et_sim
from et_sim.basics.errors import EtSimError
from et_sim.goodput.copies import with_copies
from et_sim.goodput.goodput import goodput
from et_sim.goodput.setting import JobStep
from et_sim.goodput.storage import (
    ends_of_step_and_writes,
    port_bytes_per_s,
    ports_of_graph,
    with_storage,
    with_writes,
)
from et_sim.run.options import RunOptions
from et_sim.trace import TraceBuilder, Workload

PORT = 50  # bytes per ns
SPEED = {"bandwidth": "50GB/s", "latency": "500ns"}
INSIDE = {"inside": {"bandwidth": "450GB/s", "latency": "300ns"}}
NICS = [f"nic{npu}" for npu in range(4)]
TO_NICS = [
    {"from": f"npu{npu}", "to": f"nic{npu}", "bandwidth": "200GB/s", "latency": "0ns"} for npu in range(4)
]
TO_PLANES = [{"from": NICS, "to": plane, **SPEED} for plane in ("a", "b")]
GRAPHS: dict[str, dict[str, Any]] = {
    "leaf-spine": {
        "graph": {"generator": "leaf-spine", "leaves": 2, "spines": 2, "npus-per-leaf": 2, **SPEED}
    },
    "fat-tree": {"graph": {"generator": "fat-tree", "k": 4, **SPEED}},
    "rails": {
        "graph": {
            "generator": "rail-optimised",
            "nodes": 4,
            "npus-per-node": 2,
            "nodes-per-leaf": 2,
            "spines": 2,
        }
        | INSIDE
        | SPEED
    },
    "planes": {
        "npus": 4,
        "nics": NICS,
        "switches": ["a", "b"],
        "links": TO_NICS + TO_PLANES,
        "routing": "spread",
    },
}
RANKS = {"leaf-spine": 4, "fat-tree": 16, "rails": 8, "planes": 4}
SYSTEM = {"profile": "corrected"}  # without a library


@pytest.fixture(autouse=True)
def _interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ET_SIM_COMPILE", "never")


def to_the_other_half(ranks: int, size: int) -> Workload:
    build = TraceBuilder()
    build.send(ranks // 2, size, after=[])
    build.receive(ranks // 2, size, after=[])
    return Workload((build.build(),), np.zeros(ranks, np.int32), relative_peers=(True,))


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("share", [0.25, 0.5])
def test_writes_share_the_ports_of_a_graph_with_messages(name: str, share: float) -> None:
    network, ranks, size = GRAPHS[name], RANKS[name], 10_000_000
    port = port_bytes_per_s(network)
    assert port == (2 if name == "planes" else 1) * PORT * 1e9
    workload = to_the_other_half(ranks, size)
    machine: dict[str, Any] = {"system": SYSTEM, "model": "flow"}
    alone = et_sim.simulate(workload, network=network, **machine).makespan_ns
    latency = alone - size / port * 1e9
    beside = et_sim.simulate(
        with_writes(workload, size), network=with_storage(network, ranks, share), **machine
    )
    step, _ = ends_of_step_and_writes(beside)
    assert step == pytest.approx(size / (1 - share) / port * 1e9 + latency, abs=2)
    assert len(beside.measurement.ranks_per_actor) == 2


def planes(inner: int, outer: list[int], above: int, **more: Any) -> dict[str, Any]:
    """Return three NPUs with a NIC each, whose links have speeds of their own to switches below a spine."""
    leaves = [f"leaf{number}" for number in range(len(outer))]
    speeds = [("npu0", "nic0", inner), ("npu1", "nic1", inner), ("npu2", "nic2", inner)]
    speeds += [(nic, leaf, speed) for nic in NICS[:3] for leaf, speed in zip(leaves, outer, strict=True)]
    speeds += [(leaf, "spine", above) for leaf in leaves]
    links = [
        {"from": begin, "to": end, "bandwidth": f"{speed}GB/s", "latency": "0ns"}
        for begin, end, speed in speeds
    ]
    return {"npus": 3, "nics": NICS[:3], "switches": [*leaves, "spine"], "links": links, **more}


@given(
    st.integers(1, 200),
    st.lists(st.integers(1, 100), min_size=1, max_size=3),
    st.integers(1, 9),
    st.booleans(),
)
def test_a_port_of_a_graph_is_the_slowest_step_to_the_first_switch(
    inner: int, outer: list[int], above: int, spreads: bool
) -> None:
    network = planes(inner, outer, above, **({"routing": "spread"} if spreads else {}))
    through_nic = sum(outer) if spreads else max(outer)
    assert port_bytes_per_s(network) == min(inner, through_nic) * 1e9
    of_nic = [f"nic{rank}->leaf{leaf}" for rank in (0, 2) for leaf in range(len(outer))]
    slowest = ["npu0->nic0", "npu2->nic2"] if inner <= through_nic else of_nic
    assert ports_of_graph(network, [2, 0]) == sorted(slowest)


@pytest.mark.parametrize("share", [0.25, 1.0, 3.0])
@pytest.mark.parametrize("ranks", [None, ["npu2", "npu0", "npu1"]])
def test_storage_behind_a_graph_has_a_part_of_each_port_and_a_switch_as_fast_as_all_ports(
    share: float, ranks: list[str] | None
) -> None:
    network = planes(80, [20, 40], 7, **({"ranks": ranks} if ranks else {}))
    wider = with_storage(network, 3, share)
    stores = [f"checkpoint-storage{rank}" for rank in range(3)]
    assert wider["npus"] == ["npu0", "npu1", "npu2", *stores]
    assert wider["switches"] == ["leaf0", "leaf1", "spine", "checkpoint-storage"]
    assert wider.get("ranks") == (ranks and [*ranks, *stores])
    assert wider["logical-dimensions"] == [6]
    own, to_top = wider["links"][-2:]
    assert (own["from"], own["to"]) == (stores, "checkpoint-storage")
    assert (to_top["from"], to_top["to"]) == ("checkpoint-storage", ["spine"])
    assert float(own["bandwidth"].removesuffix("GB/s")) == min(share, 1) * 40
    assert float(to_top["bandwidth"].removesuffix("GB/s")) == 3 * 40
    assert {own["latency"], to_top["latency"]} == {"0ns"}
    assert wider["links"][:-2] == network["links"]


@pytest.mark.parametrize("profile", ["reference", "corrected"])
def test_copies_do_not_wait_for_messages_without_a_library(profile: str) -> None:
    """Check a copy that shares the port with a message from the beginning on, and ends with it."""
    size, network = 10_000_000, GRAPHS["leaf-spine"]
    copied = with_copies(to_the_other_half(4, size), size, 1, 2)
    result = et_sim.simulate(copied, system={"profile": profile}, network=network, model="flow")
    ends = result.timeline["end_ns"].to_pylist()
    assert min(ends) > 1.9 * size / PORT
    assert max(ends) == pytest.approx(2 * size / PORT, rel=0.02)


JOB: dict[str, Any] = {
    "failures": {"parts": [{"name": "gpu", "per-1000-node-days": 200, "repair": "6h"}]},
    "checkpoints": {
        "how": "asynchronous",
        "bytes": "16GB",
        "storage": "2TB/s",
        "memory": {"interval": "1min"},
    },
}
GIVEN = {"step": "3s", "tokens-of-step": 1024, "gpus": 16}


def step_of(**keys: Any) -> tuple[JobStep, Any]:
    """Return the step of a job, and its months."""
    found = goodput({**JOB, **keys}, days=1, runs=2)
    return found.step, found


def test_checkpoints_of_a_given_step_cross_the_network_of_its_machine() -> None:
    alone, slow = step_of(**GIVEN)
    assert (alone.port, alone.write) == (float("inf"), 0.0)
    assert slow.outcome.resolved.write_seconds == 16 / 2000
    step, found = step_of(**GIVEN, machine="h100-dgx:16")
    assert step.port == PORT * 1e9
    assert found.outcome.resolved.write_seconds == pytest.approx(1 / PORT, rel=1e-3)  # 1 GB of each port
    assert step.copy_stall == 0.0  # shorter than the step
    assert "checkpoints cross the network of its machine alone" in step.notes[-1]
    assert any("traffic of checkpoints" in text for text in found.summary()["not_simulated"])


@pytest.mark.parametrize(("machine", "gpus"), [("gb200-nvl72:73", 73), ("tpu-v5e-pod:16", 16)])
def test_a_note_says_that_checkpoints_of_a_given_step_do_not_cross_the_network(
    machine: str, gpus: int
) -> None:
    """Try a rack that is partly filled, and a torus."""
    checkpoints = {"interval": "60s", "how": "asynchronous", "bytes": 16_000_000_000, "storage": "2TB/s"}
    given = {**GIVEN, "gpus": gpus, "machine": machine, "checkpoints": checkpoints}
    step, found = step_of(**given)
    assert (step.port, found.outcome.resolved.write_seconds) == (float("inf"), 16 / 2000)
    assert "checkpoints do not cross the network" in step.notes[-1]


def test_a_copy_that_takes_longer_than_a_given_step_lengthens_it() -> None:
    step, _ = step_of(**{**GIVEN, "step": "5ms"}, machine="h100-dgx:16")
    assert step.copy_stall == pytest.approx(1 / PORT - 0.005, rel=1e-3)


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({**GIVEN, "machine": "h100-dgx:8"}, "h100-dgx:8 has 8 NPUs, and the job has 16 GPUs"),
        ({"run": "step.run", "machine": "h100-dgx:8"}, '"machine" beside "run"'),
        ({"workload": {"make": "llm"}}, '"workload" without "machine"'),
        ({**GIVEN, "when-full": "report"}, '"when-full" has no effect without "workload"'),
    ],
)
def test_machines_that_do_not_fit_the_step_are_refused(keys: Any, words: str) -> None:
    with pytest.raises(EtSimError, match=re.escape(words)):
        step_of(**keys)


def test_a_step_that_storage_would_change_writes_at_a_rate() -> None:
    """Check the reference's rings through half of a machine, which take other ways."""
    from et_sim.goodput.job_file import read_spec
    from et_sim.goodput.sources import Simulator, Source
    from et_sim.goodput.states import states_of

    build = TraceBuilder()
    build.collective("all_reduce", 1 << 24)
    workload = Workload((build.build(),), np.zeros(8, np.int32), relative_peers=(True,))
    speeds = {"bandwidth": ["450GB/s", "50GB/s"], "latency": [100, 500]}
    network = {"topology": ["Switch", "Switch"], "npus_count": [4, 2], **speeds}
    found = []
    for profile in ("reference", "corrected"):
        rings = ["ring", "ring"]
        system = {"profile": profile, "all-reduce-implementation": rings}
        options = RunOptions(system=system, network=network, model="flow")
        source = Source(lambda: workload, options, system, network, "flow", {"profile": profile})
        seconds = Simulator().seconds(source)[0]
        job, _, _ = read_spec({**JOB, "step": seconds, "tokens-of-step": 1, "gpus": 8, "gpus-of-node": 4})
        found.append(states_of(job, JobStep(seconds, 1, 8, 4, "given"), source, Simulator()))
    assert "write_stall" not in found[0]
    assert found[1]["write_stall"] > 0
