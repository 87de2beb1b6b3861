"""Parameters of a run: parts of a network of ASTRA-sim 1.0, and all kernels together."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from machines import RING_2

import et_sim
from et_sim.run.result import Result
from et_sim.timeline import write_run
from et_sim.views import open_run
from et_sim.views.critical.path import CriticalPath
from et_sim.views.critical.record import PathRecord
from et_sim.views.critical.sensitivity import MOST_CHANGES, MakespanChange, Sensitivities, Sensitivity

pytestmark = pytest.mark.usefixtures("warm_engine")

SYSTEM = {"scheduling-policy": "FIFO", "all-reduce-implementation": ["ring"]}
ALL_REDUCE = "MICRO 1 layer -1 1 NONE 0 1 NONE 0 1 ALLREDUCE 4194304 1"


def path_and_parameters(result: Result, folder: Path) -> tuple[CriticalPath, dict[str, Sensitivity]]:
    write_run(result, folder / "run")
    path = CriticalPath(PathRecord(open_run(folder / "run")))
    assert sum(path.by_cause().values()) == result.makespan_ns
    return path, {sensitivity.parameter: sensitivity for sensitivity in Sensitivities(path).all()}


def of_nodes(*nodes: tuple[str, int, tuple[int, ...]]) -> et_sim.Workload:
    build = et_sim.TraceBuilder()
    for name, nanos, after in nodes:
        build.compute(name, nanos=nanos, concurrent=name.startswith("beside"), after=after)
    return et_sim.Workload.of([build.build()] * 2)


def of_1_0(folder: Path, system: dict[str, Any], network: dict[str, Any], **more: Any) -> Result:
    names = [
        f"{kind}-implementation" for kind in ("all-reduce", "all-gather", "reduce-scatter", "all-to-all")
    ]
    given = {"scheduling-policy": "LIFO", "endpoint-delay": 10, "preferred-dataset-splits": 4}
    algorithms = "_".join(["ring"] * len(network["units-count"]))
    given |= {"collective-optimization": "localBWAware", **dict.fromkeys(names, algorithms), **system}
    (folder / "layers.txt").write_text(ALL_REDUCE)
    (folder / "system.txt").write_text("".join(f"{key}: {value}\n" for key, value in given.items()))
    (folder / "network.json").write_text(json.dumps({"topology-name": "Hierarchical", **network}))
    files = {part: folder / f"{part}.{end}" for part, end in (("system", "txt"), ("network", "json"))}
    return et_sim.simulate(folder / "layers.txt", **files, detail="path", **more)


def network_1(dimensions: int, **more: list[float]) -> dict[str, Any]:
    each = {"units-count": 4, "links-count": 4, "link-latency": 500, "link-bandwidth": 50}
    return {
        "dimensions-count": dimensions,
        "topologies-per-dim": ["Switch"] * dimensions,
        **{key: [value] * dimensions for key, value in each.items()},
        **more,
    }


@pytest.mark.parametrize("fold", [True, False])
def test_cards_router_and_memory_are_separate_parameters(tmp_path: Path, fold: bool) -> None:
    extra = {"nic-latency": [100], "router-latency": [70]}
    path, parameters = path_and_parameters(of_1_0(tmp_path, {}, network_1(1, **extra), fold=fold), tmp_path)
    messages = 4 * 6
    latency = {link["link"]: link["latency"] for link in path.by_link()}
    assert latency == {
        "dimension 0": messages * 2 * 500,
        "dimension 0: cards": messages * 2 * 100,
        "dimension 0: router": messages * 70,
    }
    assert parameters["latency of dimension 0: router"].better.slope_ns == messages * 70
    assert sum(hop.messages for hop in path.hops()) == messages
    slow = {"hbm-latency": [500.5], "hbm-bandwidth": [50], "hbm-scale": [1]}
    path, parameters = path_and_parameters(
        of_1_0(tmp_path, {}, network_1(1, **extra, **slow), fold=fold), tmp_path
    )
    [memory] = path.by_link()
    assert memory["link"] == "dimension 0: memory"
    assert memory["serialisation"] == pytest.approx(messages * 4194304 / 16 / 50, abs=messages)
    assert memory["latency"] == pytest.approx(messages * 500.5, abs=messages)
    assert parameters["bandwidth of dimension 0"].better.slope_ns == 0
    assert 0 < parameters["bandwidth of dimension 0: memory"].better.same_path_until < 10


def test_all_kernels_together_are_a_parameter_of_their_own(tmp_path: Path) -> None:
    first, two = ("one", 1000, ()), ("two", 500, (0,))
    machine = {"system": SYSTEM, "network": RING_2}
    _, parameters = path_and_parameters(
        et_sim.simulate(of_nodes(first, two), **machine, detail="path"), tmp_path
    )
    assert parameters["time of all kernels"].worse.slope_ns == 1500
    _, parameters = path_and_parameters(et_sim.simulate(of_nodes(first), **machine, detail="path"), tmp_path)
    assert "time of all kernels" not in parameters


def test_the_changes_of_a_page_are_the_first_of_all(tmp_path: Path) -> None:
    work = of_nodes(("long", 30_000, ()), ("short", 10_000, (0,)))
    path, every = path_and_parameters(
        et_sim.simulate(work, system=SYSTEM, network=RING_2, detail="path"), tmp_path
    )
    changes = Sensitivities(path).changes()
    assert changes == [MakespanChange.of(sensitivity) for sensitivity in every.values()][:MOST_CHANGES]
    assert changes[0].better_ns == pytest.approx(-400)


OF_DEVICE = {
    "compute": {
        "model": "roofline",
        "peaks": {"bf16": 100},
        "dtype": "bf16",
        "memory": [{"name": "HBM", "bandwidth": 1000}],
    }
}
OF_SYSTEM = {"roofline-enabled": 1, "peak-perf": 1, "local-mem-bw": 100}


@pytest.mark.parametrize(
    ("machine", "parameters", "work"),
    [
        (OF_DEVICE, ("peak of bf16", "bandwidth of HBM"), (1 << 30, 1 << 24)),
        (OF_DEVICE, ("peak of bf16", "bandwidth of HBM"), (1 << 30, 0)),
        (OF_SYSTEM, ("peak compute", "local memory bandwidth"), (1 << 30, 1 << 24)),
        (OF_SYSTEM, ("peak compute", "local memory bandwidth"), (0, 1 << 24)),
    ],
)
def test_a_figure_that_sets_no_time_is_no_parameter(
    machine: dict[str, Any], parameters: tuple[str, str], work: tuple[int, int], tmp_path: Path
) -> None:
    """Check kernels without arithmetic or without bytes, whose rates have no effect."""
    build = et_sim.TraceBuilder()
    build.compute("kernel", num_ops=work[0], tensor_bytes=work[1])
    trace = et_sim.Workload.of([build.build()] * 2)
    result = et_sim.simulate(trace, system={**SYSTEM, **machine}, network=RING_2, detail="path")
    _, known = path_and_parameters(result, tmp_path)
    assert [name in known for name in parameters] == [amount > 0 for amount in work]


@pytest.mark.parametrize("launch_us", [0, 3])
def test_launches_are_a_parameter_where_they_take_time(launch_us: int, tmp_path: Path) -> None:
    build = et_sim.TraceBuilder()
    build.compute("kernel", num_ops=1 << 30, tensor_bytes=1 << 24)
    device = OF_DEVICE["compute"] | ({"launch-overhead": f"{launch_us}us"} if launch_us else {})
    trace = et_sim.Workload.of([build.build()] * 2)
    machine = {**SYSTEM, "compute": device}
    result = et_sim.simulate(trace, system=machine, network=RING_2, detail="path")
    _, known = path_and_parameters(result, tmp_path)
    assert ("launch overhead" in known) is (launch_us > 0)
