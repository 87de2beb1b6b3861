"""Every key of a run's JSON files is declared."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from machines import FIFO_RING, RING_4, ring
from msgspec import convert
from training_jobs import transformer

import et_sim
from et_sim.api import run
from et_sim.tables.summary import Manifest, Stall, Summary
from et_sim.timeline import write_run

pytestmark = pytest.mark.usefixtures("warm_engine")


def _of_one_collective(ranks: int = 4) -> et_sim.Workload:
    build = et_sim.TraceBuilder()
    work = build.compute("work", micros=1, outputs={"x": 64})
    build.collective("all_reduce", 1 << 16, after=[work])
    return et_sim.Workload.of([build.build()] * ranks)


def _stalled() -> et_sim.Result:
    build = et_sim.TraceBuilder()
    build.receive(1, 64)
    workload = et_sim.Workload.of([build.build(), et_sim.TraceBuilder().build()])
    return run(workload, system=FIFO_RING, network=ring(2, "50GB/s"))


def _full() -> et_sim.Result:
    system = FIFO_RING | {"local-mem-capacity": 32, "track-local-mem": 1, "when-full": "report"}
    return et_sim.simulate(_of_one_collective(), system=system, network=RING_4)


RUNS = {
    "stalled": _stalled,
    "full": _full,
    "packets": lambda: et_sim.simulate(
        _of_one_collective(), system=FIFO_RING, network=RING_4, model="packet"
    ),
    "training": lambda: et_sim.simulate(
        transformer(tensor=2, pipeline=2, data=2), machine="h100-dgx:8", model="flow"
    ),
}


@pytest.mark.parametrize("name", RUNS)
def test_all_keys_that_a_run_writes_are_declared_and_of_their_kind(tmp_path: Path, name: str) -> None:
    result = RUNS[name]()
    stall = result.stall
    write_run(result, tmp_path / "run", stall.as_dict() if stall else None)

    def written(file: str) -> Any:
        return json.loads((tmp_path / "run" / file).read_text(encoding="utf-8"))

    summary = written("summary.json")
    assert convert(summary, Summary) == summary  # keys that are not declared would be left out
    manifest = written("run.json")
    declared = convert(manifest, Manifest)
    del manifest["configuration"], declared["configuration"]  # which has the keys of all options
    assert declared == manifest
    if stall:
        assert convert(written("stall.json"), Stall) == written("stall.json")
