"""The study of training iterations: jobs are those of the tables, and its rows are today's."""

from __future__ import annotations

import pytest
from iterations import MEGATRON, PAGE, VTRAIN, Errors, results_table, runs
from training_jobs import memory


@pytest.mark.parametrize("name", [MEGATRON, VTRAIN])
def test_jobs_have_the_gpus_and_weights_of_the_table(name: str) -> None:
    measured = runs(name)
    assert len(measured) == (8 if name == MEGATRON else 48)
    for run in measured:
        size = run.job.model.weights / 1e9
        stated = {"megatron-22B": 22, "gpt3-175B": 175, "turing-530B": 530, "megatron-1T": 1008}
        wanted = stated.get(run.job.model.name) or float(run.job.model.name.split("B")[0])
        assert size == pytest.approx(wanted, rel=0.02)


@pytest.mark.exhaustive
def test_rows_of_one_node_equal_the_simulation_of_today(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ET_SIM_COMPILE", "never")
    small = [run for run in runs(MEGATRON) if run.job.plan.ranks == 8]
    results = [run.predicted_s() for run in small]
    page = PAGE.read_text(encoding="utf-8")
    for row in results_table(small, results).splitlines()[2:]:
        assert row in page
    full, selective = results
    assert selective < full < small[0].job.measured_s


def test_errors_are_stated_with_and_without_their_common_factor() -> None:
    errors = Errors((0.5, 0.5, 0.5))
    assert (errors.mean, errors.largest, errors.middle, errors.rest) == (0.5, 0.5, 0.5, 0.0)


@pytest.mark.deep
@pytest.mark.parametrize("name", [MEGATRON, VTRAIN])
def test_measured_jobs_fit_the_memory_of_their_machine(name: str) -> None:
    for run in runs(name)[::4]:
        ends = {0, run.job.plan.ranks - 1}  # ranks of the first and the last stage
        assert max(memory(run.job.model, run.job.plan, rank).total for rank in ends) < 80e9, run.job.label
