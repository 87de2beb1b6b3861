"""The bottleneck in the summary is the link with the most bytes for its bandwidth."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from machines import ring, sent

import et_sim
from et_sim.timeline import write_run
from et_sim.views.view import view_text

pytestmark = pytest.mark.usefixtures("warm_engine")

SYSTEM: dict[str, Any] = {"profile": "corrected", "scheduling-policy": "FIFO", "endpoint-delay": 10}
SHARED_FOR_FREE = SYSTEM | {"corrections": {"port-bandwidth": False}}
LEAVES: dict[str, Any] = {
    "graph": {"generator": "leaf-spine", "leaves": 2, "spines": 1, "npus-per-leaf": 3, "bandwidth": "50GB/s"}
}
RING = ring(4, "50GB/s")
SIZE = 1_000_000


def _sent(pairs: dict[tuple[int, int], int], ranks: int) -> et_sim.Workload:
    return sent(ranks, [(*pair, size) for pair, size in pairs.items()])


def _line(result: Any, folder: Path) -> str:
    write_run(result, folder)
    lines = view_text("summary", folder, width=200).splitlines()
    return next((line.split(maxsplit=1)[1] for line in lines if line.startswith("bottleneck")), "")


@pytest.mark.parametrize("model", ["link", "flow"])
def test_the_link_between_switches_holds_all_messages_up(model: str, tmp_path: Path) -> None:
    """Send three messages over the only spine, and one below its leaf."""
    workload = _sent({(0, 3): SIZE, (1, 4): SIZE, (2, 5): SIZE, (3, 4): SIZE // 2}, 6)
    result = et_sim.simulate(workload, system=SYSTEM, network=LEAVES, model=model)
    bottleneck = result.summary()["bottleneck"]
    used = 3 * SIZE / 50 / result.makespan_ns
    assert bottleneck == {
        "tier": "leaf to spine",
        "link": "leaf0->spine0",
        "ranks": None,
        "used": round(used, 6),
        "links": 1,
        "links_as_loaded": 1,
        "tier_links": 2,
        "tier_used": round(used / 2, 6),
        "of": "bandwidth",
        "times_slower": 1.0,
        "has_contention": True,
    }
    assert _line(result, tmp_path / "run") == (
        f"leaf0->spine0 (leaf to spine): uses {round(100 * used)} % of its bandwidth over the run; "
        f"the tier's 2 links {round(50 * used)} %"
    )


def test_on_the_analytical_model_demand_may_exceed_capacity(tmp_path: Path) -> None:
    workload = _sent({(0, 3): SIZE, (1, 4): SIZE, (2, 5): SIZE}, 6)
    machine: dict[str, Any] = {"system": SHARED_FOR_FREE, "network": LEAVES, "fold": False}
    assert et_sim.simulate(workload, **machine).summary()["bottleneck"] is None
    result = et_sim.simulate(workload, **machine, detail="links")
    assert result.makespan_ns == SIZE // 50
    bottleneck = result.summary()["bottleneck"]
    assert (bottleneck["link"], bottleneck["used"], bottleneck["tier_used"]) == ("leaf0->spine0", 3.0, 1.5)
    line = _line(result, tmp_path / "run")
    assert line.startswith("leaf0->spine0 (leaf to spine): would need 300 % of its bandwidth over the run")
    assert line.endswith("nothing waits on this model")


@pytest.mark.parametrize("model", ["analytical", "link"])
@pytest.mark.parametrize("shape", ["Ring", "Switch", "FullyConnected"])
def test_folding_changes_no_word_of_it(model: str, shape: str, tmp_path: Path) -> None:
    build = et_sim.TraceBuilder()
    build.collective("all_reduce", SIZE)
    workload = et_sim.Workload.of([build.build()] * 4)
    machine: dict[str, Any] = {"system": SHARED_FOR_FREE | {"all-reduce-implementation": ["ring"]}}
    machine |= {"network": RING | {"topology": [shape]}, "model": model, "detail": "links"}
    folded, unfolded = (et_sim.simulate(workload, **machine, fold=fold) for fold in (True, False))
    assert (len(folded.outcome.plan.actors), len(unfolded.outcome.plan.actors)) == (1, 4)
    assert folded.summary()["bottleneck"] == unfolded.summary()["bottleneck"]
    bottleneck = folded.summary()["bottleneck"]
    assert bottleneck["ranks"] == "0-3"
    sent = 2 * 3 * SIZE // 4  # by each rank
    assert bottleneck["used"] == pytest.approx(sent / 50 / folded.makespan_ns, rel=1e-4)
    links = {"Ring": 8, "Switch": 8, "FullyConnected": 12}[shape] if model == "link" else 4
    assert bottleneck["tier_links"] == links
    line = _line(folded, tmp_path / "run")
    if model == "analytical":
        assert line.startswith("dimension 0: what each rank sends takes ")
    elif shape == "Switch":
        assert line.startswith("dimension 0: each of its 8 links uses ")
    else:
        name = {"Ring": "clockwise", "FullyConnected": "1 further on"}[shape]
        assert line.startswith(f"{name}, ranks 0-3 (dimension 0): use ")


def test_on_the_analytical_model_links_of_a_graph_are_known_folded_or_not(tmp_path: Path) -> None:
    """Record links, for which every rank is simulated."""
    build = et_sim.TraceBuilder()
    build.collective("all_to_all", 6 * SIZE)
    workload = et_sim.Workload.of([build.build()] * 6)
    system = SHARED_FOR_FREE | {"all-to-all-implementation": ["direct"] * 2}
    machine: dict[str, Any] = {"system": system, "network": LEAVES}
    assert len(et_sim.simulate(workload, **machine).outcome.plan.actors) == 1
    folded, unfolded = (
        et_sim.simulate(workload, **machine, fold=fold, detail="links") for fold in (True, False)
    )
    assert folded.summary()["bottleneck"] == unfolded.summary()["bottleneck"] is not None
    assert _line(folded, tmp_path / "folded") == _line(unfolded, tmp_path / "unfolded")


def test_the_first_of_equal_links_is_named_folded_or_not() -> None:
    """Check the flow model, where sums of fractions differ in their last digits."""
    build = et_sim.TraceBuilder()
    build.collective("all_to_all", 6 * 333_331)
    workload = et_sim.Workload.of([build.build()] * 6)
    system = SYSTEM | {"all-to-all-implementation": ["direct"]}
    leaves = {"graph": LEAVES["graph"] | {"bandwidth": "47GB/s"}, "logical-dimensions": [6]}
    for network in (leaves, RING | {"npus_count": [6], "bandwidth": ["47GB/s"]}):
        summaries = [
            et_sim.simulate(workload, system=system, network=network, model="flow", fold=fold).summary()
            for fold in (True, False)
        ]
        assert summaries[0]["folded"] != summaries[1]["folded"]
        assert summaries[0]["bottleneck"] == summaries[1]["bottleneck"]


def test_links_of_other_speeds_count_with_their_own(tmp_path: Path) -> None:
    slow = RING | {"links": [{"dimension": 0, "from": 2, "to": 3, "bandwidth": "10GB/s"}]}
    workload = _sent({(0, 1): SIZE, (2, 3): SIZE // 2}, 4)
    result = et_sim.simulate(workload, system=SYSTEM, network=slow, model="link")
    bottleneck = result.summary()["bottleneck"]
    assert (bottleneck["link"], bottleneck["ranks"], bottleneck["links_as_loaded"]) == ("clockwise", "2", 1)
    assert bottleneck["used"] == pytest.approx(SIZE / 2 / 10 / result.makespan_ns, abs=1e-6)
    assert "rank 2 (dimension 0): uses " in _line(result, tmp_path / "run")


@pytest.mark.parametrize("model", ["analytical", "link", "flow"])
def test_without_sends_there_is_no_bottleneck(model: str, tmp_path: Path) -> None:
    build = et_sim.TraceBuilder()
    build.compute("work", micros=3)
    workload = et_sim.Workload.of([build.build()] * 4)
    result = et_sim.simulate(workload, system=SYSTEM, network=RING, model=model, detail="links")
    assert result.summary()["bottleneck"] is None
    assert _line(result, tmp_path / "run") == ""
