"""The record of causes explains converted recordings: many parallel nodes, with exact durations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from causes import check, check_causes
from machines import RING_2
from pytorch_cases import content
from test_pytorch_conversion import GOLDEN, SYSTEM, named
from test_sensitivities import changes, sensitivities

from et_sim.api import run
from et_sim.timeline import write_run
from et_sim.trace import Workload, decode
from et_sim.views import open_run
from et_sim.views.critical.path import CriticalPath
from et_sim.views.critical.record import PathRecord
from et_sim.views.critical.sensitivity import parameters

SIMULATED = SYSTEM | {"replay-only": 0}
RECORDINGS = ("device_only/alexnet",)
LONGER = (
    "device_only/mtia_inference_rank_0",
    "gloo_ddp_2r/et_0+kineto",
    "fake_fsdp2_tp4_1024/et_5+kineto",
    "device_only/rocm_mi250",
    "device_only/b200_eager",
)


def pair(*names: str) -> Workload:
    """Return a workload of two ranks, with these recordings or the only one."""
    traces = tuple(decode(content(named(name)), name) for name in names)
    return Workload(traces, np.arange(2, dtype=np.int32) % len(traces), source=names[0])


def paths(workload: Workload, folder: Path, **machine: Any) -> list[CriticalPath]:
    """Return the checked paths of a folded and an unfolded run."""
    results = []
    for fold in (True, False):
        result = run(workload, **machine, fold=fold, detail="path")
        check(result)
        write_run(result, folder / "run")
        results.append(CriticalPath(PathRecord(open_run(folder / "run"))))
        check_causes(results[-1], result)
    return results


@pytest.mark.parametrize(
    "name", [*RECORDINGS, *(pytest.param(name, marks=pytest.mark.deep) for name in LONGER)]
)
def test_replayed_recordings_are_explained_to_the_nanosecond(name: str, tmp_path: Path) -> None:
    folded, alone = paths(pair(name), tmp_path, system=SYSTEM, network=RING_2)
    assert folded.makespan_ns == GOLDEN[name]["time"]["replayed_ns"]
    assert folded.by_cause() == alone.by_cause()
    assert folded.by_operation() == alone.by_operation()


@pytest.mark.deep
def test_predicted_changes_of_a_recorded_training_step_are_true(tmp_path: Path) -> None:
    workload = pair("gloo_ddp_2r/et_0+kineto", "gloo_ddp_2r/et_1+kineto")
    machine: dict[str, Any] = {"system": SIMULATED, "network": RING_2, "groups": None}
    paths(workload, tmp_path, **machine)
    result = run(workload, **machine, detail="path")
    outcome = sensitivities(result, tmp_path / "run")
    by_name = {parameter.name: parameter for parameter in parameters(outcome.path)}
    tried = set()
    for effect in outcome.all():
        for side in (effect.better, effect.worse):
            for again, multiple in changes(machine, effect.parameter, side):
                factor = 1 / multiple if effect.is_rate else multiple
                predicted = result.makespan_ns + side.slope_ns * (factor - 1)
                allowed = outcome.rounding_ns(by_name[effect.parameter], factor)
                assert run(workload, **again).makespan_ns == pytest.approx(predicted, abs=allowed)
                tried.add(effect.parameter)
    assert tried >= {"bandwidth of dimension 0", "latency of dimension 0", "endpoint delay"}
