"""A run of a manifest equals the run of its expansion, for every rank and node."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from expanded_workloads import expanded
from machines import network, system
from training_jobs import transformer

from et_sim.api import run
from et_sim.trace import GroupRule, TraceBuilder, Workload, write_manifest, write_workload
from et_sim.trace.files import groups_path
from et_sim.workloads.microbenchmarks import make_microbenchmark


def groups_of_rules() -> Workload:
    """Return collectives in contiguous, strided and one-member groups, with distances, on two templates."""
    templates = []
    for micros in (3, 40):
        build = TraceBuilder()
        work = build.compute("work", micros=micros)
        reduced = build.collective("all_reduce", 100_000, "tensor", after=[work])
        gathered = build.collective("all_gather", 50_000, "data", after=[reduced])
        build.collective("all_reduce", 7, "alone", after=[reduced])
        sent = build.send(5, 30_000, tag=1, after=[gathered])
        got = build.receive(-5, 30_000, tag=1, after=[gathered])
        build.collective("reduce_scatter", 80_000, after=[sent, got])
        build.collective("all_to_all", 90_000, "everybody", after=[got])
        templates.append(build.build())
    of_rank = np.array([0, 0, 0, 0, 1, 1, 1, 1, 0, 0, 0, 0], np.int32)
    rules = {
        "tensor": GroupRule(2, 1),
        "data": GroupRule(3, 4),
        "alone": GroupRule(1, 1),
        "everybody": GroupRule(12, 1),
    }
    return Workload(tuple(templates), of_rank, relative_peers=(True, True), group_rules=rules)


WORKLOADS = {
    "ring": make_microbenchmark("ring_send_receive", ranks=8, size=10_000, repeat=3, compute_us=4),
    "pairs": make_microbenchmark("send_receive", ranks=8, size=10_000, repeat=3, compute_us=4),
    "groups": groups_of_rules(),
    "pipeline": transformer(pipeline=4, micro_batches=5),
    "three ways": transformer(tensor=2, pipeline=2, data=3, micro_batches=3),
    "one stage": transformer(tensor=2, data=2),
}


@pytest.mark.parametrize("name", sorted(WORKLOADS))
@pytest.mark.parametrize(("model", "shape"), [("analytical", "line"), ("link", "box")])
def test_a_manifest_runs_as_its_expansion_does(name: str, model: str, shape: str, tmp_path: Path) -> None:
    workload = WORKLOADS[name]
    ranks = workload.ranks
    net = network(["Ring"], [ranks]) if shape == "line" else network(["Ring", "Switch"], [2, ranks // 2])
    sys = system(dimensions=len(net["npus_count"]), **{"preferred-dataset-splits": 3})
    write_manifest(workload, tmp_path / "w.workload.json")
    write_workload(workload, tmp_path / "w")
    groups = groups_path(tmp_path / "w")
    listed = groups if groups.exists() else None
    results = [
        run(tmp_path / "w.workload.json", system=sys, network=net, model=model),
        run(tmp_path / "w.workload.json", system=sys, network=net, model=model, fold=False),
        run(
            tmp_path / "w",
            system=sys,
            network=net,
            model=model,
            groups=listed,
            profile=workload.profile or None,
        ),
    ]
    assert all(result.is_complete for result in results)
    for other in results[1:]:
        assert results[0].finish_ns.tolist() == other.finish_ns.tolist()
        assert results[0].reference_exposed_ns.tolist() == other.reference_exposed_ns.tolist()


def test_a_workload_in_memory_runs_as_its_expansion_does() -> None:
    workload = WORKLOADS["three ways"]
    whole, groups = expanded(workload)
    listed = {str(number): list(members) for number, members in groups.items()}
    machine = {"system": system(), "network": network(["Ring"], [workload.ranks])}
    short, other = run(workload, **machine), run(whole, groups=listed, **machine)
    assert short.finish_ns.tolist() == other.finish_ns.tolist()


def test_groups_of_one_rule_have_one_name_and_it_stands_once_in_the_timeline() -> None:
    table = run(WORKLOADS["groups"], system=system(), network=network(["Ring"], [12]), fold=False).timeline
    names = table["group"].chunk(0).dictionary.to_pylist()
    assert len(set(names)) == len(names)
    assert {"tensor", "data", "alone", "everybody", "all"} <= set(names)
    assert {text for text in table["group"].to_pylist() if text} == {"tensor", "data", "everybody", "all"}
