"""Switches that reduce in the figures of a run: bytes of links, the bottleneck, and predicted effects."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from causes import check
from hypothesis import given, settings
from hypothesis import strategies as st
from machines import network, sends, simulate, system
from test_in_network import KINDS, MODELS, B, L, Net, P, described, star, switch, tree, workload
from test_sensitivities import sensitivities

from et_sim.machine import read_machine
from et_sim.machine.scaling import figures
from et_sim.run.result import Result
from et_sim.timeline import write_run
from et_sim.trace import TraceBuilder
from et_sim.views import open_run
from et_sim.views.critical.sensitivity import parameters
from et_sim.views.run.selection import EVERYTHING, selection
from et_sim.views.summary.links import link_uses
from et_sim.views.view import view_text

S = 80_000


def carried(result: Result) -> dict[str, tuple[int, int, int]]:
    """Return bytes, nanoseconds and messages by tier, over all links; none is beyond the run."""
    rows = result.table("links").to_pydict()
    assert max(rows["start_ns"]) < result.makespan_ns
    ranks, outcome = np.bincount(result.outcome.plan.actor_of_rank), Counter[tuple[str, str]]()
    for at, tier in enumerate(rows["tier"]):
        of = rows["actor"][at]
        for name in ("bytes", "busy_ns", "messages"):
            outcome[tier, name] += rows[name][at] * (1 if of is None else int(ranks[of]))
    tiers = {tier for tier, _ in outcome}
    return {
        tier: (outcome[tier, "bytes"], outcome[tier, "busy_ns"], outcome[tier, "messages"]) for tier in tiers
    }


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("fold", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_links_carry_the_bytes_of_the_closed_form_within_the_run(kind: str, fold: bool, model: str) -> None:
    """Run four leaves of two ranks under a spine, with one late rank."""
    size = S // 8 if kind == "all_gather" else S
    result = simulate(workload(8, kind, size), tree(), described(), model=model, fold=fold, detail="links")
    assert result.is_complete
    each = {  # (links, bytes of each), upwards from ranks, upwards from leaves, and down again
        "all_reduce": ((8, S), (4, S), (4, S), (8, S)),
        "reduce_scatter": ((8, S), (4, S), (4, S // 4), (8, S // 8)),
        "all_gather": ((8, S // 8), (4, S // 4), (4, S - S // 4), (8, S - S // 8)),
        "broadcast": ((1, S), (1, S), (3, S), (7, S)),
    }[kind]
    names = ("NPUs to leaf", "leaf to spine", "spine to leaf", "leaf to NPUs")
    outcome = carried(result)
    for name, (links, size) in zip(names, each, strict=True):
        sent, busy, messages = outcome[name]
        assert (sent, messages) == (links * size, links)
        assert busy == pytest.approx(links * (size // B), abs=2 * links * (model == "flow"))


@pytest.mark.deep
@settings(max_examples=settings.default.max_examples // 2)
@given(st.data())
def test_no_use_of_a_link_lies_beyond_the_run_and_folding_changes_no_sum(data: st.DataObject) -> None:
    net = data.draw(st.sampled_from([tree(3, 2), tree(3, 2, rate="3GB/s"), star(6), switch(6)]))
    kind, model = data.draw(st.sampled_from(KINDS)), data.draw(st.sampled_from(MODELS))
    late = {rank: data.draw(st.sampled_from([0, 1, 700])) for rank in range(6)}
    keys = described(
        **{"preferred-dataset-splits": 3, "active-chunks-per-dimension": data.draw(st.integers(1, 3))}
    )
    builders = workload(6, kind, data.draw(st.integers(6, 9_000)), late=late)
    runs = [simulate(builders, net, keys, model=model, fold=fold, detail="links") for fold in (True, False)]
    if model == "flow":
        assert carried(runs[0]).keys() == carried(runs[1]).keys()
    else:
        assert carried(runs[0]) == carried(runs[1])


def scaled_as_predicted(
    net: Net,
    folder: Path,
    *,
    kind: str,
    model: str,
    keys: Net | None = None,
    late: dict[int, int] | None = None,
) -> set[str]:
    """Simulate with each figure of the machine changed a little; returns the names of all that matter."""
    builders, keys = workload(8, kind, S, late=late), keys or described()
    result = simulate(builders, net, keys, model=model, fold=False, detail="path")
    check(result)
    outcome = sensitivities(result, folder / "run")
    known = figures(read_machine(system=keys, network=net))
    by_name = {parameter.name: parameter for parameter in parameters(outcome.path)}
    for effect in outcome.all():
        for side, multiple in (
            (effect.better, 1.25 if effect.is_rate else 0.75),
            (effect.worse, 0.75 if effect.is_rate else 1.25),
        ):
            if effect.parameter not in known or not _is_within(multiple, side.same_path_until):
                continue
            scaled = known[effect.parameter](multiple)
            assert scaled is not None
            again = _again(builders, scaled[0], net, keys, model)
            factor = 1 / scaled[1] if effect.is_rate else scaled[1]
            predicted = result.makespan_ns + side.slope_ns * (factor - 1)
            allowed = 1 + outcome.rounding_ns(by_name[effect.parameter], factor)
            assert again == pytest.approx(predicted, abs=allowed), (effect.parameter, multiple)
    return {effect.parameter for effect in outcome.all() if effect.worse.slope_ns > 0}


def _is_within(multiple: float, end: float) -> bool:
    return end <= multiple < 1 or 1 < multiple <= end


def _again(builders: list[TraceBuilder], machine: Any, net: Net, keys: Net, model: str) -> int:
    from et_sim.execution import execute
    from et_sim.run.options import RunOptions
    from et_sim.trace import Workload

    options = RunOptions(system=keys, network=net, model=model, fold=False)
    workload_ = Workload.of([builder.build() for builder in builders])
    return execute(workload_, options, change=lambda _: machine).makespan_ns


NETS = (tree(), tree(rate="45GB/s"), tree(rate="10GB/s"), switch(rate="50GB/s"))
FORETOLD = [  # (kind, model, which network)
    pytest.param(kind, model, net, marks=() if (kind, net) == ("all_reduce", usual) else pytest.mark.deep)
    for kind in KINDS
    for model, usual in (("analytical", 1), ("link", 2))
    for net in range(len(NETS))
]


@pytest.mark.deep
@pytest.mark.in_turn(days=2)
@pytest.mark.parametrize(("kind", "model", "number"), FORETOLD)
def test_the_makespan_changes_as_predicted(kind: str, model: str, number: int, tmp_path: Path) -> None:
    late = {3: 900} if number == 2 else None
    names = scaled_as_predicted(NETS[number], tmp_path, kind=kind, model=model, late=late)
    where = "dimension 0" if number == 3 else "spine"
    assert f"latency of reduction in {where}" in names
    assert (f"rate of reduction in {where}" in names) == (number >= 1)


def test_no_single_link_of_several_bottlenecks_helps_and_each_hurts(tmp_path: Path) -> None:
    """Run messages of the trace as well as chunks in switches, on the analytical model."""
    graph = {"generator": "leaf-spine", "leaves": 2, "spines": 1, "npus-per-leaf": 2, "bandwidth": "50GB/s"}
    plain = simulate(sends(4, [(0, 2, S)]), {"graph": graph}, system(dimensions=2), detail="path", fold=False)
    runs = {
        "sent": plain,
        "reduced": simulate(workload(8, "all_reduce", S), tree(), described(), detail="path"),
    }
    for name, result in runs.items():
        check(result)
        every = {effect.parameter: effect for effect in sensitivities(result, tmp_path / name).all()}
        of_links = [effect for parameter, effect in every.items() if parameter.startswith("bandwidth")]
        assert len(of_links) == 4
        assert {(link.better.slope_ns, link.worse.slope_ns) for link in of_links} == {(0, S // B)}


@pytest.mark.parametrize("model", ["link", "flow"])
def test_a_switch_at_its_rate_is_the_bottleneck_folded_or_not(model: str, tmp_path: Path) -> None:
    net = tree(rate="10GB/s")
    runs = [
        simulate(workload(8, "all_reduce", S), net, described(), model=model, fold=fold)
        for fold in (True, False)
    ]
    bottleneck = runs[0].summary()["bottleneck"]
    assert bottleneck == runs[1].summary()["bottleneck"]
    assert (bottleneck["tier"], bottleneck["of"]) == ("reduction in spine", "rate")
    assert bottleneck["used"] == pytest.approx(S / 10 / runs[0].makespan_ns, abs=1e-6)
    write_run(runs[0], tmp_path / "run")
    percent = round(100 * bottleneck["used"])
    assert (
        f"reduction in spine: the busiest switch passes data on at its rate for {percent} % of the run, more "
        "than any link"
    ) in " ".join(view_text("summary", tmp_path / "run", width=200).split())


@pytest.mark.parametrize("rate", [None, "45GB/s"])
def test_switches_of_one_row_with_other_figures_have_other_names(rate: str | None) -> None:
    net = tree()
    net["in-network"] = [{"switches": "leaf[01]", "latency": 5}, {"switches": "leaf[23]", "latency": 7}]
    net["in-network"] += [{"switches": "spine0", **({"rate": rate} if rate else {})}]
    names = [name for name in figures(read_machine(system=described(), network=net)) if "reduction" in name]
    first = [f"latency of reduction in leaf, {ns} ns" for ns in (5, 7)]
    assert names == first + (["rate of reduction in spine"] if rate else [])


@pytest.mark.deep
def test_links_between_switches_belong_to_no_rank(tmp_path: Path) -> None:
    for model in ("analytical", "link"):
        result = simulate(
            workload(8, "all_reduce", S), tree(), described(), model=model, fold=False, detail="links"
        )
        rows = result.table("links").to_pydict()
        for actor, link in zip(rows["actor"], rows["link"], strict=True):
            ends = [end for end in link.split("->") if end.startswith("npu")]
            assert ends == ([] if actor is None else [f"npu{actor}"])
        write_run(result, tmp_path / model)
        run = open_run(tmp_path / model)
        of_two = link_uses(run, selection("0-1")) or []
        assert {change.tier for change in of_two} == {"NPUs to leaf", "leaf to NPUs"}
        assert [change.ranks for change in of_two].count("0") == 2
        every = link_uses(run, EVERYTHING) or []
        assert sum(change.ranks is None for change in every) == 8


def test_a_busy_switch_counts_from_when_it_is_free(tmp_path: Path) -> None:
    """Run two groups that share a switch with a rate: each waits for the other's chunk."""
    net = network(["Switch"], [4], latency=L) | {
        "in-network": [{"dimension": 0, "latency": P, "rate": "1GB/s"}]
    }
    builders = []
    for rank in range(4):
        build = TraceBuilder()
        build.collective("all_reduce", 4000, "12"[rank // 2])
        builders.append(build)
    groups = {"1": [0, 1], "2": [2, 3]}
    result = simulate(builders, net, described(), model="link", groups=groups, detail="path", fold=False)
    check(result)
    [rate] = [
        effect
        for effect in sensitivities(result, tmp_path / "run").all()
        if effect.parameter.startswith("rate")
    ]
    assert rate.worse.slope_ns == 2 * 4000
