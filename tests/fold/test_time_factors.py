"""Time factors: the nodes that they change, the change, and exact folding with them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_fold import (
    actors_of,
    data_parallel,
    network,
    random_entries_fold_exactly,
    system,
)

from et_sim.api import run
from et_sim.basics.errors import MachineError
from et_sim.machine import read_machine
from et_sim.machine.system_parts import TimeFactors
from et_sim.plan.straggler_variants import StragglerVariants
from et_sim.run.result import Result
from et_sim.trace import TraceBuilder, Workload

RING = network(["Ring"], [8])
TIMES = {  # of a chain of one node of every kind, in nanoseconds
    "kernels": 1_000,
    "copies": 20_000,
    "operators": 300_000,
    "launches": 4_000_000,
    "gaps": 50_000_000,
}
ALL = sum(TIMES.values())


def recording(ranks: int = 8) -> Workload:
    """Return nodes with the marks of a converted recording, one after the other."""
    build = TraceBuilder()
    last: list[int] = []
    for kind, nanos in TIMES.items():
        mark = {"copies": {"copy": 1}, "launches": {"launch": 1}, "gaps": {"gap": 1}}.get(kind, {})
        on_host = kind not in ("kernels", "copies")
        last = [build.compute(f"one of {kind}", nanos=nanos, cpu=on_host, after=last, attributes=mark)]
    return Workload((build.build(),), np.zeros(ranks, np.int32))


def communicating() -> Workload:
    build = TraceBuilder()
    work = build.compute("work", nanos=1_000)
    build.collective("all_reduce", 1 << 10, name="sum", nanos=30_000, after=[work])
    return Workload((build.build(),), np.zeros(8, np.int32))


def scaled(*entries: dict[str, Any], workload: Workload | None = None, **options: Any) -> Result:
    keys = ({"time-factors": list(entries)} if entries else {}) | options
    return run(workload or recording(), network=RING, system=system(**keys))


@pytest.mark.parametrize("kind", TIMES)
def test_a_factor_changes_the_time_of_its_kind_only(kind: str) -> None:
    assert scaled({kind: 1.5}).makespan_ns == ALL + TIMES[kind] // 2
    assert scaled({kind: 0}).makespan_ns == ALL - TIMES[kind]


def test_a_factor_cuts_to_whole_nanoseconds_and_leaves_at_least_one_unless_it_is_zero() -> None:
    assert scaled({"kernels": 0.0015}).makespan_ns == ALL - 1_000 + 1
    assert scaled({"kernels": 1e-9}).makespan_ns == ALL - 1_000 + 1
    assert scaled({"kernels": 0}).makespan_ns == ALL - 1_000


def test_a_name_rule_takes_only_nodes_called_so() -> None:
    build = TraceBuilder()
    last: list[int] = []
    for name in ("gemm_256", "softmax", "fused(gemm) [f16]"):
        last = [build.compute(name, nanos=1_000, after=last)]
    workload = Workload((build.build(),), np.zeros(8, np.int32))
    for name, met in {"*gemm*": 2, "gemm*": 1, "*[f16]": 1, "softmax": 1, "*": 3, "*gem*m*": 2}.items():
        assert scaled({"kernels": 2, "name": name}, workload=workload).makespan_ns == 3_000 + met * 1_000


def test_entries_about_one_node_are_multiplied_with_each_other_and_with_its_straggling() -> None:
    slow = [{"ranks": "1", "compute": 3}]
    finish = scaled({"kernels": 2}, {"ranks": "0-1", "kernels": 1.25}, stragglers=slow).finish_ns.tolist()
    assert finish == [ALL + 1_500, 3 * ALL - 3_000 + 7_500] + [ALL + 1_000] * 6


def test_a_factor_changes_the_roofline_figures_of_kernels() -> None:
    build = TraceBuilder()
    build.compute("kernel", num_ops=10**9, tensor_bytes=1 << 20)
    workload = Workload((build.build(),), np.zeros(8, np.int32))
    on = {"roofline-enabled": 1, "peak-perf": 1, "local-mem-bw": 1000}
    (entry,) = scaled({"kernels": 4}, workload=workload, **on).summary()["per_rank"]
    assert (entry["compute_ns"], entry["compute_utilisation"]) == (4_000_000, 0.25)


def test_communication_as_recorded_takes_its_factor() -> None:
    result = scaled({"communication": 2}, workload=communicating(), **{"replay-only": 1})
    assert result.makespan_ns == 61_000
    assert not result.manifest["warnings"]


def test_a_factor_of_communication_that_is_simulated_is_refused() -> None:
    with pytest.raises(MachineError, match=r"index 0: .* all communication of these ranks is simulated"):
        scaled({"communication": 2}, workload=communicating())


def test_communication_that_is_partly_simulated_is_reported() -> None:
    build = TraceBuilder()
    first = build.collective("broadcast", 1 << 10, nanos=30_000)  # the reference replays these
    build.collective("all_reduce", 1 << 10, nanos=30_000, after=[first])
    workload = Workload((build.build(),), np.zeros(8, np.int32))
    result = scaled({"communication": 2}, workload=workload, profile="reference")
    (warning,) = (warning for warning in result.manifest["warnings"] if warning["key"] == "communication")
    assert warning["text"] == (
        "changes 1 that are replayed; 1 are simulated, and the network sets their time"
    )


@pytest.mark.parametrize(
    ("entry", "text"),
    [
        (
            {"kernels": 2, "name": "wrok"},
            r"none of the kernels of these ranks has that name \(did you mean 'work'\?; \* stands for any",
        ),
        ({"kernels": 2, "name": "*qqqqqq*"}, r'has that name \(there are "work"\)$'),
        ({"gaps": 2, "name": "*gap*"}, r"\(they have no gaps\)$"),
    ],
)
def test_a_name_that_no_node_has_is_refused(entry: dict[str, Any], text: str) -> None:
    with pytest.raises(MachineError, match=text):
        scaled(entry, workload=communicating())


def test_a_kind_that_no_rank_has_is_reported() -> None:
    result = scaled({"gaps": 2, "kernels": 2}, {"copies": 1}, workload=communicating())
    texts = {
        warning["key"]: warning["text"]
        for warning in result.manifest["warnings"]
        if "effect" in warning["text"]
    }
    assert texts == {"gaps": "no effect: these ranks have no gaps"}


def test_the_run_lists_scaled_kinds() -> None:
    entries = [{"ranks": "all", "kernels": 0.5}, {"ranks": "2-3", "name": "one*", "gaps": 0, "operators": 3}]
    assert scaled(*entries).summary()["time_factors"] == [
        {"ranks": "all", "kernels": 0.5},
        {"ranks": "2-3", "name": "one*", "operators": 3, "gaps": 0},
    ]
    assert scaled().summary()["time_factors"] == []


def test_ranks_with_equal_factors_are_one_actor_and_others_are_not() -> None:
    def actors(*entries: dict[str, Any]) -> int:
        return actors_of(recording(), network=RING, system=system(**{"time-factors": list(entries)}))

    assert actors({"kernels": 2}) == 1
    assert actors({"ranks": "3", "kernels": 2}) == 2
    assert actors({"ranks": "3", "kernels": 2}, {"ranks": "5", "kernels": 2}) == 2
    assert actors({"ranks": "3", "kernels": 2}, {"ranks": "5", "gaps": 2}) == 3


@pytest.mark.parametrize(
    ("ranks", "is_shared"),
    [
        ([{}], True),
        ([{"ranks": "all"}], True),
        ([{"ranks": "3"}], False),
        ([{}, {"ranks": "3"}], False),
    ],
)
def test_other_factors_take_the_same_variants_only_where_they_concern_all_ranks(
    ranks: list[dict[str, str]], is_shared: bool
) -> None:
    def entries(factor: float) -> tuple[TimeFactors, ...]:
        keys = {"time-factors": [{**entry, "kernels": factor} for entry in ranks]}
        return read_machine(system=system(**keys), network=RING).system.time_factors

    variants = StragglerVariants(recording(), (), entries(2))
    assert (variants.with_factors(entries(3)) is not None) is is_shared
    assert variants.with_factors(()) is None


@st.composite
def factors(draw: st.DrawFn, ranks: int) -> dict[str, Any]:
    """Draw an entry with few distinct values, so that some ranks remain alike."""
    first = draw(st.integers(0, ranks - 1))
    last = draw(st.integers(first, ranks - 1))
    ends = f"{first}-{last}/{draw(st.sampled_from((1, 2)))}"
    kind = draw(st.sampled_from(("kernels", "operators")))
    return {"ranks": draw(st.sampled_from(("all", ends))), kind: draw(st.sampled_from((0, 0.5, 1, 1.5)))}


@given(st.data())
@settings(suppress_health_check=list(HealthCheck))
def test_random_factors_fold_exactly(data: st.DataObject) -> None:
    random_entries_fold_exactly(data, "time-factors", factors)


def test_one_straggling_kind_delays_a_synchronous_job_by_exactly_its_extra_time() -> None:
    workload = data_parallel(8, layers=1)
    on_time = run(workload, network=RING, system=system()).makespan_ns
    late = scaled({"ranks": "3", "kernels": 2}, workload=workload).makespan_ns
    assert late == on_time + 10_000
