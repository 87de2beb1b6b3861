"""Recorded steps of pipeline-parallel training: simulated, they take the time that was recorded, and their
uneven operations cost the time that their publishers found.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from recorded_jobs import DATA, MadeJob, step_ends, written

from converters.cli import main
from et_sim.basics.errors import TraceError
from et_sim.calibrate.variation_fit import fit_all
from et_sim.calibrate.variation_sharing import with_sharing
from et_sim.calibrate.variation_steps import step_times
from et_sim.calibrate.varied_times import read_recorded
from et_sim.trace import read_workload
from et_sim.trace.recorded_steps.program import program_of
from et_sim.trace.recorded_steps.table import StepRecording, read_steps
from et_sim.trace.recorded_steps.work import even_work, mixed_work, recorded_work

PUBLISHED = json.loads((DATA / "published.json").read_text())
STEPS = {"ST": (23, 25, 1048), "SE": (16,), "AR": (16,)}
# the publishers' times are sums of numbers of 24 bits
NEAR = 2e-6


def recording_of(job: str) -> tuple[StepRecording, Any, Any]:
    """Return the recording of the steps with published figures, their work, and the even work of the job."""
    whole = read_steps(DATA / f"{job}.parquet")
    work = recorded_work(whole)
    places = np.flatnonzero(np.isin(whole.steps, STEPS[job]))
    few = {kind: values[places] for kind, values in work.items()}
    return whole.chosen(places), few, {kind: values[places] for kind, values in even_work(work).items()}


def seconds(recording: StepRecording, work: Any, *, with_gaps: bool = False) -> dict[str, float]:
    """Return the simulated time of each step."""
    ends = step_ends(program_of(recording, with_gaps=with_gaps), work)
    return dict(zip(map(str, recording.steps), np.diff([0, *ends]) / 1e9, strict=True))


@pytest.mark.parametrize("job", ["ST", "AR", pytest.param("SE", marks=pytest.mark.deep)])
def test_a_step_takes_the_published_time_without_gaps_and_the_recorded_one_with_them(job: str) -> None:
    recording, work, _ = recording_of(job)
    assert seconds(recording, work) == pytest.approx(PUBLISHED[job]["step_t_nodelay"], rel=NEAR)
    with_gaps = seconds(recording, work, with_gaps=True)
    assert with_gaps == pytest.approx(PUBLISHED[job]["step_t_base"], rel=1e-4)


def test_an_even_job_and_what_is_uneven_in_it_cost_the_published_time() -> None:
    """Check that the last stage is too long: its recorded times alone cost more than those of any other."""
    recording, work, even = recording_of("ST")
    even_s = seconds(recording, even)
    assert even_s == pytest.approx(PUBLISHED["ST"]["step_t_noblk"], rel=NEAR)
    for key, sort in (("stage", "stage"), ("replica", "dp_rank"), ("kind", "optype")):
        published = PUBLISHED["ST"][f"blocking_decompose_by_{sort}_per_step"]
        names = [name for name in published["23"] if not name.endswith("pp-comm")]
        for name in names if key == "stage" else names[:1]:
            chosen = {key: [name if key == "kind" else int(name)]}
            mixed_s = seconds(recording, mixed_work(recording, work, even, chosen))
            slowdown = {step: mixed_s[step] / even_s[step] for step in mixed_s}
            assert slowdown == pytest.approx({step: published[step][name] for step in slowdown}, rel=NEAR)


@pytest.mark.deep
def test_all_steps_of_a_job_are_slower_than_the_even_job_by_the_published_factor() -> None:
    whole = read_steps(DATA / "ST.parquet")
    work = recorded_work(whole)
    program = program_of(whole)
    mean, even = (step_ends(program, each)[-1] for each in (work, even_work(work)))
    assert mean / even == pytest.approx(PUBLISHED["ST"]["blocking_slowdown"], rel=NEAR)


def test_the_slow_worker_is_found() -> None:
    """Check that one worker was slowed down on purpose: it alone costs what the whole job loses."""
    whole = read_steps(DATA / "AR.parquet")
    work, program = recorded_work(whole), program_of(whole)
    even = even_work(work)
    ranks = [0, 4, 16, 60]
    times = [step_ends(program, mixed_work(whole, work, even, {"rank": [rank]}))[-1] for rank in ranks]
    assert times[0] > 1.3 * max(times[1:])


@pytest.mark.parametrize("seed", range(6))
def test_made_pipelines_take_the_time_that_made_them(seed: int, tmp_path: Path) -> None:
    """Find times of random pipelines by going over all operations until none changes."""
    draw = np.random.default_rng(seed)
    replicas, stages, count = (int(draw.integers(1, 4)), int(draw.integers(1, 5)), int(draw.integers(1, 7)))
    rows, ends = [], []
    for step in (3, 8):
        passes = [draw.integers(1_000, 90_000, (2, stages, count)) for _ in range(replicas)]
        jobs = [MadeJob(forward, backward, int(draw.integers(0, 5_000))) for forward, backward in passes]
        parts = [job.rows(step, replica, 7_000) for replica, job in enumerate(jobs)]
        ends.append(max(row["end"] for part in parts for row in part))
        rows += [row for part in parts for row in part]
    recording = read_steps(written(tmp_path / "made.parquet", rows))
    found = step_ends(program_of(recording), recorded_work(recording))
    assert found == pytest.approx(np.cumsum(ends), abs=2)


def test_an_even_pipeline_takes_its_passes_and_the_ramp(tmp_path: Path) -> None:
    """Check that m micro-batches on p stages take (m + p - 1) (forward + backward)."""
    stages, count = 4, 6
    job = MadeJob(np.full((stages, count), 30_000), np.full((stages, count), 50_000), 0)
    recording = read_steps(written(tmp_path / "even.parquet", job.rows(0, 0, 9_000)))
    work = recorded_work(recording)
    assert {kind: set(values.reshape(-1).tolist()) for kind, values in work.items()} == {
        "forward-compute": {30_000},
        "backward-compute": {50_000},
        "optimizer": {9_000},
        "optimizer-clip-main-grad": {0},
        **{f"{way}-{end}": {0} for way in ("forward", "backward") for end in ("send", "recv")},
    }
    expected = (count + stages - 1) * 80_000 + 9_000
    assert step_ends(program_of(recording), work) == [pytest.approx(expected, abs=2)]


def varied_rows(draw: Any, steps: range) -> list[dict[str, Any]]:
    """Return rows of steps of a pipeline whose passes vary by 10 %."""
    rows = []
    for step in steps:
        passes = 50_000 * np.exp(0.1 * draw.standard_normal((2, 2, 3)))
        rows += MadeJob(*np.rint(passes).astype(np.int64), 500).rows(step, 0, 4_000)
    return rows


@pytest.mark.deep
@pytest.mark.parametrize("slower", [1, 1.15])
def test_steps_are_near_samples_of_their_fit_and_slower_ones_are_not(slower: float, tmp_path: Path) -> None:
    rows = varied_rows(np.random.default_rng(2), range(40))
    for row in rows:
        if row["step"] % 2:
            row["begin"], row["end"] = round(row["begin"] * slower), round(row["end"] * slower)
    recorded = read_recorded([str(written(tmp_path / "varied.parquet", rows))])
    assert recorded.table is not None
    places = range(40)
    fit, others = (places, places) if slower == 1 else (places[::2], places[1::2])
    works = with_sharing(fit_all(recorded, fit, "operation"))
    found = step_times(recorded.table, works, fit, others)
    assert (found.ks <= found.band) == (slower == 1)


def table(**changes: Any) -> pa.Table:
    """Return the table of a small job with some columns replaced."""
    rows = MadeJob(np.full((2, 2), 3_000), np.full((2, 2), 5_000), 10).rows(4, 0, 20)
    columns = {name: [row[name] for row in rows] for name in rows[0] if name not in ("begin", "end")}
    columns["start_ts"] = [row["begin"] / 1e9 for row in rows]
    columns["duration"] = [(row["end"] - row["begin"]) / 1e9 for row in rows]
    return pa.table(columns | {name: change(columns[name]) for name, change in changes.items()})


def with_first(value: Any) -> Any:
    return lambda column: [value, *column[1:]]


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (table().slice(0, 0), "the table has no rows"),
        (table().slice(1), "forward-compute number 0 of step 4, dp_rank 0, stage 0 is missing"),
        (pa.concat_tables([table(), table().slice(0, 1)]), "stage 0 is there more than once"),
        (table().drop(["seq_id"]), "there is no column 'seq_id'"),
        (table(optype=with_first("sleep")), "operations of kind 'sleep' are not read"),
        (table(mc=with_first(1)), "stages of several chunks are not read"),
        (table(duration=with_first(-1.0)), "column 'duration' has times outside 0 to 1e9 s"),
        (table(start_ts=with_first(float("nan"))), "column 'start_ts' has times outside"),
        (table(stage=with_first(-1)), "column 'stage' has negative numbers"),
        (table(rank=with_first(5)), "column rank is not one rank for each dp_rank and stage"),
        (table(seq_id=with_first(10**9)), "2,000,000,002 forward-compute are expected, and 4 are there"),
        (table(dp_rank=with_first(10**9)), "1 steps of 1000000001 x 2 ranks have"),
        (table(step=with_first(None)), "column 'step' has empty values"),
        (table(step=lambda column: ["a"] * len(column)), "column 'step' has values of type string"),
        (
            table().filter(pc.not_equal(table()["optype"], "optimizer")),
            "2 optimizer are expected, and 0 are there",
        ),
        (
            table(optype=lambda column: [kind.replace("forward-send", "forward-recv") for kind in column]),
            "stage 0 of 2 has forward-recv",
        ),
    ],
)
def test_incomplete_recordings_are_refused(made: pa.Table, message: str, tmp_path: Path) -> None:
    pq.write_table(made, tmp_path / "bad.parquet")
    with pytest.raises(TraceError) as refusal:
        read_steps(tmp_path / "bad.parquet")
    assert message in str(refusal.value)
    assert refusal.value.remedy


def test_a_folder_is_no_table(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="is a folder"):
        read_steps(tmp_path)


@pytest.mark.usefixtures("in_a_folder")
def test_the_command_writes_the_chosen_steps_and_the_door_all(capsys: pytest.CaptureFixture[str]) -> None:
    source = str(DATA / "ST.parquet")
    assert main(["steps", source, "-o", "few", "--steps", "23,25", "--uneven", "stage=3", "--no-gaps"]) == 0
    assert "take the same time, but for those of stage=3" in capsys.readouterr().out
    few = read_workload("few")
    names = [few.templates[7].node_name(row) for row in range(len(few.templates[7]))]
    assert [name for name in names if name.startswith("step ")] == ["step 23", "step 25"]
    assert main(["recording", source, "-o", "all"]) == 0
    assert len(read_workload("all").templates) == 8
    assert "32, each begins when all ranks" in capsys.readouterr().out


@pytest.mark.usefixtures("in_a_folder")
@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--steps", "1-3"], "--steps '1-3' names no recorded step (recorded: 32 of 23 to 1048)"),
        (["--uneven", "stage=4"], "--uneven 'stage=4': no such stage (recorded: 0 to 3)"),
        (["--uneven", "kind=sleep"], "--uneven 'kind=sleep': no such kind (recorded: params-all-gather"),
        (
            ["--uneven", "last"],
            "--uneven 'last' cannot be understood (give stage=, replica=, rank=",
        ),
    ],
)
def test_options_that_name_nothing_are_refused(
    given: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["steps", str(DATA / "ST.parquet"), "-o", "out", *given]) == 2
    assert message in capsys.readouterr().err
    assert not list(Path().glob("out*"))
