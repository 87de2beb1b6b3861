"""Machines whose last node is partly filled: folded runs equal unfolded ones; absent NPUs have no ports."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from machines import network, sent, system
from random_cases import ALGORITHMS, ALL_TO_ALL, Case, Step, actors_of, outcome, random_program, random_trace

from et_sim.api import run
from et_sim.basics.errors import MachineError
from et_sim.cli import main
from et_sim.machine.networks import bytes_per_ns
from et_sim.machine.presets import preset
from et_sim.machine.readers import read_machine
from et_sim.trace import GroupRule, TraceBuilder, Workload
from et_sim.validation.networks import machine_measured

# ranks of a node, all ranks, neighbours in a group
JOBS = ((4, 6, 2), (4, 6, 3), (4, 9, 3), (4, 10, 2), (3, 8, 2), (3, 8, 4), (6, 15, 3), (8, 12, 4), (8, 20, 2))
LATE = ({"delay": "1us"}, {"delay": "70us"}, {"compute": 1.5})
MIB, HOP_NS = 1 << 20, 500
TEN_OF_TWELVE = network(["Switch", "Switch"], [4, 3], bandwidth=50.0, latency=HOP_NS) | {"npus": 10}
CORRECTED = system("ring", 2, profile="corrected")


def partly_filled_case(seed: int) -> Case:
    """Return the case of a seed: one program with groups of neighbours, of equal places, and of all ranks."""
    draw = Random(seed)
    node, ranks, size = draw.choice(JOBS)
    found = preset(f"gb200-nvl72:{ranks},node={node}")
    keys = {name: value for name, value in found.system.items() if name not in ("compute", "costs")}
    if draw.random() < 0.4:
        keys = _with_lists(draw)
    if draw.random() < 0.25:
        keys["stragglers"] = [{"ranks": draw.choice(("0", f"{ranks - 1}")), **draw.choice(LATE)}]
    model = draw.choice(("analytical", "link", "flow", "flow"))
    rules = {"near": GroupRule(size), "far": GroupRule(ranks // size, size), "all": GroupRule(ranks)}
    few = ("near", "near", "near"), ("far", "far", "far"), ("near", "far", "near"), ("near", "far", "all")
    named = draw.choice(few)
    program = random_program(draw, ranks)
    if draw.random() < 0.7:  # messages to peers distinguish ranks
        program = [step if step.what != "exchange" else Step("instant", step.after, ()) for step in program]
    trace = random_trace(program, ranks, named, 0, 0)
    workload = Workload((trace,), np.zeros(ranks, np.int32), relative_peers=(True,), group_rules=rules)
    return Case(workload, {"system": keys, "network": found.network, "model": model})


def _with_lists(draw: Random) -> dict[str, Any]:
    """Return a system with an algorithm for each dimension."""
    keys = system("ring", 2, profile="corrected") | {"scheduling-policy": draw.choice(("LIFO", "FIFO"))}
    keys["all-to-all-implementation"] = [draw.choice(ALL_TO_ALL)] * 2
    for kind in ("all-reduce", "all-gather", "reduce-scatter"):
        keys[f"{kind}-implementation"] = [draw.choice(ALGORITHMS)] * 2
    return keys


@pytest.mark.parametrize("seed", range(8))
def test_random_jobs_on_partly_filled_nodes_fold_exactly(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ET_SIM_COMPILE", "never")
    case = partly_filled_case(seed)
    assert outcome(case, fold=True) == outcome(case, fold=False)


@pytest.mark.seeds(deep=20, exhaustive=2000, at_a_time=20)
def test_many_random_jobs_on_partly_filled_nodes_fold_exactly(seeds: range) -> None:
    folded, refused = 0, 0
    for seed in seeds:
        case = partly_filled_case(seed)
        found = outcome(case, fold=True)
        assert found == outcome(case, fold=False), seed
        refused += isinstance(found, str)
        folded += not isinstance(found, str) and actors_of(case) < case.workload.ranks
    assert folded > 0
    assert refused < len(seeds) // 2


def by_group(kind: str, ranks: int, size: int = MIB, group: str | None = None) -> Workload:
    """Return a workload of one collective of all ranks, or of a group."""
    build = TraceBuilder()
    build.collective(kind, size, **({} if group is None else {"group": group}))
    return Workload(
        (build.build(),),
        np.zeros(ranks, np.int32),
        relative_peers=(True,),
        group_rules={"all": GroupRule(ranks)},
    )


@pytest.mark.parametrize("model", ["analytical", "flow"])
def test_a_message_pays_for_each_dimension_in_which_its_ends_differ(model: str) -> None:
    for source, target in ((0, 3), (0, 9), (1, 8), (3, 8), (8, 3), (9, 1), (9, 7), (9, 8)):
        legs = (source // 4 != target // 4) + (source % 4 != target % 4)
        found = run(sent(10, [(source, target, MIB)]), system=CORRECTED, network=TEN_OF_TWELVE, model=model)
        assert found.makespan_ns == int(MIB / bytes_per_ns(50.0) + 2 * HOP_NS * legs), (source, target)


def test_messages_from_the_last_node_leave_by_its_own_ports(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Show that 9 sends to 2 by its own port, as 10 and 11, on the rails of 2 and 3, do not exist."""
    file = tmp_path / "network.yml"
    file.write_text(json.dumps(TEN_OF_TWELVE))
    assert main(["network", str(file), "--path", "9:2", "--path", "2:9", "--json"]) == 0
    there, back = json.loads(capsys.readouterr().out)["paths"]
    over = [[name for name in path["devices"] if name.startswith("npu")] for path in (there, back)]
    assert over == [["npu9", "npu1", "npu2"], ["npu2", "npu1", "npu9"]]


def test_the_ports_of_the_last_node_bound_an_all_to_all() -> None:
    """Check that ten ranks send 8 x 2 parts each way over the two ports of the last node."""
    size = 10 * MIB
    keys = CORRECTED | {"all-to-all-implementation": ["direct", "direct"]}
    found = run(by_group("all_to_all", 10, size), system=keys, network=TEN_OF_TWELVE, model="flow")
    least = 8 * 2 * (size / 10) / (2 * bytes_per_ns(50.0))
    assert least <= found.makespan_ns <= 1.2 * least


@pytest.mark.parametrize("kind", ["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast"])
def test_the_group_of_all_ranks_is_the_same_by_any_name(kind: str) -> None:
    of_all, named = (
        run(by_group(kind, 10, group=group), system=CORRECTED, network=TEN_OF_TWELVE, model="flow")
        for group in (None, "all")
    )
    assert of_all.makespan_ns == named.makespan_ns > 0
    assert of_all.finish_ns.tolist() == named.finish_ns.tolist()


def test_a_last_node_that_is_full_needs_no_key() -> None:
    whole = {name: value for name, value in TEN_OF_TWELVE.items() if name != "npus"}
    work = by_group("all_reduce", 12)
    found = [run(work, system=CORRECTED, network=net).makespan_ns for net in (whole, whole | {"npus": 12})]
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"npus": 8}, 'key "npus" is 8 (allowed: 9 to 12, as only the last node may be partly filled)'),
        ({"npus": 13}, 'key "npus" is 13 (allowed: 9 to 12, as only'),
        ({"npus": 0}, 'key "npus" is 0'),
        ({"topology": ["Switch", "Ring"]}, "give 12, or leave it out: only nodes of two Switch dimensions"),
        (
            {"in-network": [{"dimension": 0}]},
            '"in-network" names switches that reduce (leave one of them out)',
        ),
    ],
)
def test_impossible_numbers_of_npus_are_refused(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(MachineError) as error:
        run(sent(10, [(0, 1, MIB)]), system=CORRECTED, network=TEN_OF_TWELVE | changes)
    assert sentence in str(error.value)


def test_the_reference_profile_has_no_partly_filled_nodes() -> None:
    with pytest.raises(
        MachineError, match="the last node of 10 NPUs is partly filled, and groups do not run"
    ):
        run(by_group("all_reduce", 10), system=system("ring", 2), network=TEN_OF_TWELVE)


def test_a_collective_along_some_dimensions_is_refused() -> None:
    build = TraceBuilder()
    build.collective("all_reduce", MIB, involved_dims=[True, False])
    workload = Workload((build.build(),), np.zeros(10, np.int32), relative_peers=(True,))
    with pytest.raises(MachineError, match="use a communicator group instead of involved_dim"):
        run(workload, system=CORRECTED, network=TEN_OF_TWELVE)


@pytest.mark.parametrize(("npus", "counts"), [(100, [72, 2]), (200, [72, 3]), (73, [72, 2])])
def test_racks_have_any_number_of_gpus(npus: int, counts: list[int]) -> None:
    for name in ("gb200-nvl72", "gb300-nvl72"):
        found = preset(f"{name}:{npus}")
        assert (found.npus, found.network["npus_count"], found.network["npus"]) == (npus, counts, npus)
        assert found.node == 72
    assert preset("gb200-nvl72:128,node=64").network["npus_count"] == [64, 2]
    assert preset("gb200-nvl72:100,node=64").network["npus"] == 100


@pytest.mark.parametrize(("gpus", "counts"), [(200, [72, 3]), (256, [64, 4]), (100, [50, 2])])
def test_a_measured_job_on_racks_is_on_as_few_as_hold_it(gpus: int, counts: list[int]) -> None:
    """Show that racks are filled in turn where GPUs cannot be divided among them."""
    for trays in (0, gpus // 4):
        measured = machine_measured("gb200-nvl72", gpus, trays, "GB200 NVL72", "InfiniBand")
        assert preset(measured.text).network["npus_count"] == counts


@pytest.mark.parametrize(("node", "ranks"), [("0", (0, 1, 2, 3)), ("2", (8, 9))])
def test_a_failing_last_node_has_the_ranks_that_exist(node: str, ranks: tuple[int, ...]) -> None:
    failures = [{"node": node, "at": "1ms", "slower": 0.5, "for": "1ms"}]
    found = read_machine(system=CORRECTED | {"failures": failures}, network=TEN_OF_TWELVE)
    assert [failure.ranks for failure in found.slow] == [ranks]
    with pytest.raises(MachineError, match=r"allowed: 0 to 2"):
        read_machine(system=CORRECTED | {"failures": [{"node": "3", "at": "1ms"}]}, network=TEN_OF_TWELVE)


def test_jobs_run_on_partly_filled_nodes_as_on_a_machine_of_their_own() -> None:
    six = {**TEN_OF_TWELVE, "npus_count": [4, 2], "npus": 6}
    work = {"first": by_group("all_reduce", 6), "second": by_group("all_reduce", 4)}
    jobs = {"jobs": [{"name": name, "workload": each} for name, each in work.items()]}
    together = run(jobs, system=CORRECTED, network=TEN_OF_TWELVE, isolated=True)
    alone = run(work["first"], system=CORRECTED, network=six).makespan_ns
    assert together.jobs["first"]["alone_ns"] == alone
    whole = {"jobs": [{"name": "all", "workload": by_group("all_reduce", 10)}]}
    times = [
        run(each, system=CORRECTED, network=TEN_OF_TWELVE).makespan_ns
        for each in (whole, by_group("all_reduce", 10))
    ]
    assert times[0] == times[1]
