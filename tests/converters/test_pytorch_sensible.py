"""Changes of converted recordings have the right direction: faster parts never make them slower."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from machines import ring
from pytorch_cases import Case, cases, content, converted, some
from test_pytorch_conversion import SYSTEM, named

import et_sim
from converters.pytorch.columns import NONE
from converters.pytorch.graph import ON_HOST, RunPart, replay_times
from converters.pytorch.rank import ConvertedRank
from et_sim.trace import Workload, decode

MACHINE = {name: value for name, value in SYSTEM.items() if name != "replay-only"}
FASTER = ("kernels", "copies", "operators", "launches", "gaps")
JOBS = {
    "gloo_ddp_2r": ["gloo_ddp_2r/et_0+kineto", "gloo_ddp_2r/et_1+kineto"],
    "gloo_mixed_4r": [f"gloo_mixed_4r/et_{rank}+kineto" for rank in range(4)],
    "dlrm_8r": [f"dlrm_8r/et_{rank % 2}+kineto" for rank in range(8)],
    "megatron_tp8": [f"megatron_tp8/et_{rank % 2}+kineto" for rank in range(8)],
}


def deep(*names: str) -> list[Any]:
    return [pytest.param(name, marks=pytest.mark.deep) for name in names]


def ends(rank: ConvertedRank, *free: Any) -> int:
    """Return the end of the last node if some nodes take no time."""
    graph = rank.graph
    duration = graph.end_ns - graph.start_ns
    for nodes in free:
        duration[nodes] = 0
    result, decisive = np.zeros(len(graph), np.int64), np.zeros(len(graph), np.int32)
    replay_times(duration, graph.first_dependency, graph.before, result, decisive)
    return int(result.max(initial=0))


@some((case for case in cases() if case.device is not None or case.linked is not None), 2)
def test_without_work_of_devices_only_the_path_of_the_host_remains(case: Case) -> None:
    """Keep the waits of streams without a known reason: at most the longest chain of them."""
    rank = converted(case)
    graph = rank.graph
    on_device = ~np.isin(graph.role, [int(role) for role in ON_HOST]) | (rank.communication != NONE)
    gaps = np.isin(graph.role, (RunPart.LAUNCH_GAP, RunPart.STREAM_GAP))
    whole, host, alone = ends(rank), ends(rank, on_device), ends(rank, on_device, gaps)
    assert alone <= host <= whole == rank.measured_ns
    assert host - alone <= int((graph.end_ns - graph.start_ns)[gaps].sum())


@pytest.fixture(scope="module")
def jobs() -> dict[str, Workload]:
    results = {}
    for job, names in JOBS.items():
        traces = [decode(content(named(name)), name) for name in dict.fromkeys(names)]
        results[job] = Workload.of([traces[rank % len(traces)] for rank in range(len(names))])
    return results


def makespan(job: Workload, bandwidth: float, **system: Any) -> int:
    network = ring(job.ranks, bandwidth)
    return int(et_sim.simulate(job, system=MACHINE | system, network=network).makespan_ns)


@pytest.mark.deep
@pytest.mark.parametrize("name", ["gloo_ddp_2r", "gloo_mixed_4r", *deep("dlrm_8r", "megatron_tp8")])
def test_a_faster_network_is_never_slower_and_leaves_the_longest_path_of_computation(
    name: str, jobs: dict[str, Workload]
) -> None:
    results = [makespan(jobs[name], bandwidth) for bandwidth in (0.1, 1, 10, 100, 1e6)]
    assert results == sorted(results, reverse=True)
    ranks = [converted(named(name_of_rank)) for name_of_rank in JOBS[name]]
    computing = max(ends(rank, rank.communication != NONE) for rank in ranks)
    assert results[-1] >= computing
    assert results[-1] < 0.8 * max(rank.measured_ns for rank in ranks) or name in (
        "gloo_ddp_2r",
        "megatron_tp8",
    )


@pytest.mark.deep
@pytest.mark.parametrize("name", ["gloo_mixed_4r", *deep("gloo_ddp_2r", "dlrm_8r", "megatron_tp8")])
def test_a_faster_part_never_makes_a_run_slower(name: str, jobs: dict[str, Workload]) -> None:
    as_it_is = makespan(jobs[name], 10)
    for kind in FASTER:
        halved = makespan(jobs[name], 10, **{"time-factors": [{kind: 0.5}]})
        nothing = makespan(jobs[name], 10, **{"time-factors": [{kind: 0}]})
        assert nothing <= halved <= as_it_is
