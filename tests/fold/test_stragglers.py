"""Stragglers: their cost, the ranks that they separate, and exact folding with them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_fold import (
    actors_of,
    assert_folding_is_exact,
    data_parallel,
    network,
    random_entries_fold_exactly,
    system,
)

from et_sim.api import run
from et_sim.basics.errors import MachineError
from et_sim.run.result import Result
from et_sim.trace import TraceBuilder, Workload
from et_sim.trace.group_rule import GroupRule

RING = network(["Ring"], [8])


def chain(ranks: int = 8, micros: tuple[int, ...] = (10, 20, 30)) -> Workload:
    """Return computations one after the other, every other one on the CPU."""
    build = TraceBuilder()
    last: list[int] = []
    for number, length in enumerate(micros):
        last = [build.compute(f"compute{number}", micros=length, cpu=number % 2 == 1, after=last)]
    return Workload((build.build(),), np.zeros(ranks, np.int32))


def straggling(*stragglers: dict[str, Any], workload: Workload | None = None, **options: Any) -> Result:
    return run(workload or chain(), network=RING, system=system(stragglers=list(stragglers)), **options)


def test_a_factor_multiplies_computations_of_device_and_cpu() -> None:
    finish = straggling({"ranks": "3", "compute": 1.5}).finish_ns.tolist()
    assert finish == [60_000] * 3 + [90_000] + [60_000] * 4


def test_ranks_with_a_pace_share_the_program_of_the_others() -> None:
    plan = straggling({"ranks": "all", "jitter": 0.1, "seed": 1}).outcome.plan
    assert (len(plan.templates), len(plan.nodes), len(plan.paces)) == (1, 3, 8 * 3)
    plan = straggling({"ranks": "2-3", "compute": 2}, {"ranks": "5", "delay": "1us"}, fold=False).outcome.plan
    assert plan.paces.tolist() == [20_000, 40_000, 60_000]
    assert plan.actors["pace_first"].tolist() == [-1, -1, 0, 0, -1, -1, -1, -1]


def test_a_pace_without_effect_is_none() -> None:
    plan = straggling({"ranks": "2", "compute": 1 + 1e-9}).outcome.plan
    assert len(plan.paces) == 0
    assert len(plan.actors) == 1


def test_a_factor_cuts_to_whole_nanoseconds_and_leaves_at_least_one() -> None:
    workload = chain(micros=(1, 1))
    assert straggling({"ranks": "all", "compute": 1.0006}, workload=workload).makespan_ns == 2 * 1000
    assert straggling({"ranks": "all", "compute": 1e-9}, workload=workload).makespan_ns == 2


def test_entries_about_one_rank_combine() -> None:
    entries: list[dict[str, Any]] = [
        {"ranks": "2-3", "compute": 2, "delay": 100},
        {"ranks": "3", "compute": 1.5, "delay": "1us"},
    ]
    assert straggling(*entries).finish_ns[2:5].tolist() == [120_100, 181_100, 60_000]


def test_ranks_of_other_programs_that_start_at_other_times_are_separated() -> None:
    programs = tuple(chain(micros=(length,)).templates[0] for length in (10, 20))
    workload = Workload(programs, np.tile(np.arange(2, dtype=np.int32), 6))
    late = [{"ranks": f"{first}-{first + 3}", "delay": f"{first}us"} for first in (4, 8)]
    machine = {"network": network(["Ring"], [12]), "system": system(stragglers=late)}
    assert actors_of(workload, **machine) == 2 * 3
    assert_folding_is_exact(workload, **machine)


def test_a_rank_that_starts_late_issues_nothing_before() -> None:
    result = straggling({"ranks": "5", "delay": "7us"})
    assert result.finish_ns.tolist() == [60_000] * 5 + [67_000] + [60_000] * 2
    starts = {actor: [] for actor in range(2)} | {}
    for row in result.timeline.select(["actor", "ready_ns", "start_ns"]).to_pylist():
        starts[row["actor"]].append((row["ready_ns"], row["start_ns"]))
    assert starts == {
        0: [(0, 0), (10_000, 10_000), (30_000, 30_000)],
        1: [(7000, 7000), (17_000, 17_000), (37_000, 37_000)],
    }


def test_a_delayed_node_takes_so_much_longer() -> None:
    entry = {"ranks": "1", "node": 1, "delay": 500, "compute": 2}
    assert straggling(entry).finish_ns[:2].tolist() == [60_000, 120_500]


@pytest.mark.parametrize("model", ["analytical", "link"])
@pytest.mark.parametrize("straggler", [{"compute": 3}, {"delay": 20_000}, {"node": 0, "delay": 20_000}])
def test_one_straggler_delays_a_synchronous_job_by_exactly_its_extra_time(
    straggler: dict[str, Any], model: str
) -> None:
    build = TraceBuilder()
    work = build.compute("work", micros=10)
    build.collective("all_reduce", 8 << 20, after=[work])
    workload = Workload((build.build(),), np.zeros(8, np.int32))
    on_time = run(workload, network=RING, system=system(), model=model).makespan_ns
    late = straggling({"ranks": "3", **straggler}, workload=workload, model=model).makespan_ns
    assert late == on_time + 20_000


def test_every_layer_waits_for_the_straggler_again() -> None:
    workload = data_parallel(8, layers=3)
    on_time = run(workload, network=RING, system=system()).makespan_ns
    # The next computation follows the last one, not the all-reduce, so only the last layer's wait shows.
    assert straggling({"ranks": "3", "compute": 2}, workload=workload).makespan_ns == on_time + 10_000


def test_the_straggling_replica_of_a_job_is_still_one_actor() -> None:
    """Run a switch of 4 replicas of 4 ranks: tensor groups within, data groups across."""
    build = TraceBuilder()
    work = build.compute("work", micros=10)
    summed = build.collective("all_reduce", 1 << 16, group="tensor", after=[work])
    build.collective("all_reduce", 1 << 20, group="data", after=[summed])
    rules = {"tensor": GroupRule(4, 1), "data": GroupRule(4, 4)}
    workload = Workload((build.build(),), np.zeros(16, np.int32), group_rules=rules)
    machine = {
        "network": network(["Switch"], [16]),
        "system": system(stragglers=[{"ranks": "4-7", "compute": 2, "delay": 3000}]),
    }
    assert actors_of(workload, **machine) == 4  # replicas at each distance from the slow one
    assert_folding_is_exact(workload, **machine)


def test_a_late_start_alone_breaks_symmetry() -> None:
    result = straggling({"ranks": "1-3", "delay": 10}, workload=chain())
    assert result.outcome.plan.actor_of_rank.tolist() == [0, 1, 1, 1, 0, 0, 0, 0]


def test_jitter_does_not_depend_on_other_ranks_or_on_folding() -> None:
    alone = straggling({"ranks": "5", "jitter": 0.3}).finish_ns
    among = straggling({"ranks": "all", "jitter": 0.3}).finish_ns
    unfolded = straggling({"ranks": "2-6", "jitter": 0.3}, fold=False).finish_ns
    assert alone[5] == among[5] == unfolded[5] != 60_000
    assert len(set(among.tolist())) == 8


def test_jitter_depends_on_the_seed_and_on_the_node() -> None:
    entry = {"ranks": "all", "jitter": 0.3}
    first, again = straggling(entry).finish_ns, straggling(entry | {"seed": 0}).finish_ns
    assert first.tolist() == again.tolist()
    assert first.tolist() != straggling(entry | {"seed": 1}).finish_ns.tolist()
    equal = straggling(entry, workload=chain(micros=(100, 100)))
    times = equal.timeline["end_ns"].to_numpy() - equal.timeline["start_ns"].to_numpy()
    assert len(np.unique(times)) == len(times)


def test_jitter_is_uniform_between_its_bounds() -> None:
    workload = chain(micros=(1000,) * 2000)
    result = straggling({"ranks": "all", "jitter": 0.2}, workload=workload)
    times = np.sort(result.timeline["end_ns"].to_numpy() - result.timeline["start_ns"].to_numpy())
    assert 800_000 <= times[0] <= 800_500
    assert 1_199_500 <= times[-1] <= 1_200_000
    expected = 800_000 + 400_000 * (np.arange(len(times)) + 0.5) / len(times)
    assert np.abs(times - expected).max() < 6000  # 1.5 % of the range: Kolmogorov-Smirnov, p < 0.001


def test_a_slower_kernel_uses_less_of_the_machine() -> None:
    build = TraceBuilder()
    build.compute("kernel", num_ops=10**9, tensor_bytes=1 << 20)
    workload = Workload((build.build(),), np.zeros(8, np.int32))
    on = {"roofline-enabled": 1, "peak-perf": 1, "local-mem-bw": 1000}
    slow = system(stragglers=[{"ranks": "0", "compute": 4}], **on)
    entries = run(workload, network=RING, system=slow).summary()["per_rank"]
    assert [entry["compute_utilisation"] for entry in entries] == [0.25, 1.0]


@pytest.mark.parametrize(
    ("entry", "text"),
    [
        ({"ranks": "all", "node": 9, "delay": 1}, "delays node 9, which none of its ranks has"),
        ({"ranks": "3", "node": 1, "delay": 1}, 'node 1 "all_reduce" of rank 3 cannot be delayed'),
        ({"ranks": "3", "compute": 9e15}, "a node of rank 3 would last longer than"),
    ],
)
def test_impossible_stragglers_are_refused(entry: dict[str, Any], text: str) -> None:
    build = TraceBuilder()
    work = build.compute("work", micros=10)
    build.collective("all_reduce", 1 << 10, name="all_reduce", after=[work])
    workload = Workload((build.build(),), np.zeros(8, np.int32))
    with pytest.raises(MachineError, match=text):
        straggling(entry, workload=workload)


def test_the_run_counts_stragglers_and_traces_as_given() -> None:
    result = straggling({"ranks": "0-2", "jitter": 0.1}, {"ranks": "7", "delay": 1})
    assert result.summary()["uneven"] == {"ranks": 4, "links": 0, "late_ns": 0}
    assert result.manifest["distinct_traces"] == 1


@st.composite
def stragglers(draw: st.DrawFn, ranks: int) -> dict[str, Any]:
    """Draw an entry with few distinct values, so that some ranks remain alike, and delays like messages."""
    first = draw(st.integers(0, ranks - 1))
    last = draw(st.integers(first, ranks - 1))
    step = draw(st.sampled_from((1, 2)))
    entry: dict[str, Any] = {"ranks": draw(st.sampled_from(("all", f"{first}-{last}/{step}")))}
    effect = draw(st.sampled_from(("compute", "delay", "jitter")))
    if effect == "compute":
        entry["compute"] = draw(st.sampled_from((0.5, 1.5, 2)))
    elif effect == "delay":
        entry["delay"] = draw(st.sampled_from((0, 1, 10, 500, 510, 1000, 3000)))
    else:
        entry |= {"jitter": 0.2, "seed": draw(st.integers(0, 2))}
    return entry


@given(st.data())
@settings(suppress_health_check=list(HealthCheck))
def test_random_stragglers_fold_exactly(data: st.DataObject) -> None:
    random_entries_fold_exactly(data, "stragglers", stragglers)
