"""A link that is slower than its equals is named if other messages wait for it."""

from __future__ import annotations

from pathlib import Path

import pytest
from machines import FIFO_RING, ring
from runs_to_show import layered, run_written

import et_sim
from et_sim.views import open_run
from et_sim.views.run.directory import RunDirectory
from et_sim.views.summary.facts import facts

pytestmark = pytest.mark.usefixtures("warm_engine")
SLOW = {"links": [{"dimension": 0, "from": 3, "to": 4, "bandwidth": "10GB/s"}]}


def simulated(folder: Path, model: str, *, is_slow: bool) -> RunDirectory:
    """Run eight ranks that sum large data on a ring; one link may have a fifth of the others' bandwidth."""
    network = ring(8, "50GB/s") | (SLOW if is_slow else {})
    workload = et_sim.Workload.of([layered(10, size=1 << 24)] * 8)
    return open_run(run_written(folder, workload, network, FIFO_RING, model=model, profile="corrected"))


@pytest.mark.parametrize("model", ["analytical", "link", "flow"])
def test_the_slow_link_is_the_bottleneck_and_the_cause(model: str, tmp_path: Path) -> None:
    run = simulated(tmp_path / "run", model, is_slow=True)
    assert run.summary["bottleneck"]["times_slower"] == pytest.approx(5)
    assert run.summary["bottleneck"]["ranks"] == "3"
    text = "link clockwise of rank 3 (dimension 0), 5 times slower than its equals: its bytes take "
    assert any(line.startswith("in short") and text in line for line in facts(run))
    waited = [line for line in facts(run) if line.startswith("waited for")]
    assert all(text in line for line in waited)


def test_a_link_like_all_others_is_not_slow(tmp_path: Path) -> None:
    run = simulated(tmp_path / "run", "link", is_slow=False)
    assert run.summary["bottleneck"]["times_slower"] == 1
    assert not any("slower than its equals" in line for line in facts(run))
