"""Layer files on the engine: the times of the training loop, to the nanosecond."""

from __future__ import annotations

import numpy as np
import pytest
from machines import network

import et_sim
from et_sim.layerfile import layer_program, layer_table, layer_workload, parse_layer_file
from et_sim.trace.workload import Workload

NETWORK = network(["Ring", "Ring"], [4, 2], [50.0, 25.0], [500.0, 300.0])
SYSTEM = {
    "scheduling-policy": "FIFO",
    "endpoint-delay": 10,
    "active-chunks-per-dimension": 1,
    "preferred-dataset-splits": 2,
    "all-reduce-implementation": ["ring", "ring"],
    "all-gather-implementation": ["ring", "ring"],
    "collective-optimization": "localBWAware",
}


def makespan(text: str, passes: int = 1, fold: bool = True) -> int:
    workload, _ = layer_workload(parse_layer_file(text), 8, passes)
    result = et_sim.simulate(workload, system=SYSTEM, network=NETWORK, fold=fold)
    return int(result.makespan_ns)


@pytest.mark.parametrize("fold", [True, False])
def test_two_silent_layers_of_ten_nanoseconds_take_55(fold: bool) -> None:
    row = "l -1 10 NONE 0 10 NONE 0 10 NONE 0 5"
    assert makespan(f"DATA 2 {row} {row}", fold=fold) == 55
    assert makespan(f"DATA 2 {row} {row}", passes=3, fold=fold) == 165


@pytest.mark.parametrize("fold", [True, False])
def test_a_blocking_collective_takes_its_time_its_update_and_a_tick(fold: bool) -> None:
    alone = makespan("MICRO 1 l -1 0 NONE 0 0 NONE 0 0 ALLREDUCE 65536 0", fold=fold)
    assert alone > 1000
    text = "DISTRIBUTED_INFERENCE 1 l -1 100 ALLREDUCE 65536 0 NONE 0 0 NONE 0 7"
    assert makespan(text, passes=2, fold=fold) == 2 * (100 + alone + 7 + 1)


def test_a_pass_waits_for_the_weights_of_the_one_before() -> None:
    alone = makespan("MICRO 1 l -1 0 NONE 0 0 NONE 0 0 ALLREDUCE 65536 0")
    text = "DATA 1 l -1 100 NONE 0 0 NONE 0 50 ALLREDUCE 65536 7"
    # The tick after the weight gradient runs beside the collective, the last update ends the run.
    assert makespan(text, passes=2) == 2 * (100 + 1 + 50 + alone + 7)


@pytest.mark.parametrize("fold", [True, False])
def test_a_model_group_of_one_dimension_takes_the_time_of_the_dimension(fold: bool) -> None:
    row = "l -1 100 ALLGATHER 4096 200 ALLREDUCE 65536 300 NONE 0 5"
    by_group = makespan(f"HYBRID_TRANSFORMER g: 4 1 {row}", fold=fold)
    file = parse_layer_file(f"HYBRID_TRANSFORMER g: 4 1 {row}")
    program = layer_program(file, 1, (4, 2))
    workload = Workload((program.trace,), np.zeros(8, np.int32))
    result = et_sim.simulate(workload, system=SYSTEM, network=NETWORK, fold=fold)
    assert program.logical is not None
    assert int(result.makespan_ns) == by_group


def test_the_table_of_a_run_adds_up() -> None:
    row = "l -1 100 ALLGATHER 4096 200 ALLREDUCE 65536 300 ALLREDUCE 131072 5"
    file = parse_layer_file(f"HYBRID_DATA_MODEL 2 {row} {row}")
    program = layer_program(file, 2, (4, 2))
    workload = Workload((program.trace,), np.zeros(8, np.int32))
    timeline = et_sim.simulate(workload, system=SYSTEM, network=NETWORK, fold=False).timeline
    mine = timeline.filter(np.asarray(timeline["actor"]) == 0).sort_by("node")
    start, end = (mine[column].to_numpy() for column in ("start_ns", "end_ns"))
    table = layer_table(program, start, end)
    assert table.compute_ns.sum() == 2 * 2 * 600
    assert table.finish_ns == end.max()
    last = end[program.steps.tick_row[-1]]
    at_end = max(int(end[program.collectives.done_row[-1]]) - int(last), 0)
    waited = int(table.exposed_ns.sum())
    assert last == table.compute_ns.sum() + len(program.steps.layer) + waited - at_end
