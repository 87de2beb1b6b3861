"""Searches of all plans of a model: the optimum of the whole space, bounds below every run, certificates."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from random import Random
from typing import Any, ClassVar

import pytest

from et_sim.basics.errors import UsageError
from et_sim.cli import main
from et_sim.sweeps import sweep
from et_sim.sweeps.bounds import Bounder, gap_of
from et_sim.sweeps.evaluate import Done, Evaluator, InProcess, PointTask
from et_sim.sweeps.plan_space import PlanSearch, divisors
from et_sim.sweeps.state import NoSweepWatcher, SweepPlan, plan_sweep
from et_sim.sweeps.sweep import SweepReport, carry_out
from et_sim.sweeps.wires import Wires
from et_sim.tables.sweep_tables import OBJECTIVES, Best
from et_sim.trace.columns import CollectiveKind
from et_sim.views.sweep.directory import open_sweep
from et_sim.workloads.models.configuration import read_model

DENSE = {
    "model_type": "gpt2",
    "n_embd": 256,
    "n_head": 8,
    "n_layer": 4,
    "vocab_size": 1024,
    "n_positions": 128,
}
SPARSE = {
    "model_type": "mixtral",
    "hidden_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 512,
    "vocab_size": 1024,
    "max_position_embeddings": 4096,
    "num_local_experts": 4,
    "num_experts_per_tok": 2,
}
LATENT = {
    "model_type": "deepseek_v3",
    "hidden_size": 256,
    "num_hidden_layers": 3,
    "first_k_dense_replace": 1,
    "num_attention_heads": 4,
    "q_lora_rank": 64,
    "kv_lora_rank": 32,
    "qk_nope_head_dim": 32,
    "qk_rope_head_dim": 16,
    "v_head_dim": 32,
    "intermediate_size": 512,
    "moe_intermediate_size": 64,
    "n_routed_experts": 8,
    "n_shared_experts": 1,
    "num_experts_per_tok": 2,
    "vocab_size": 1024,
    "max_position_embeddings": 4096,
}
OVER_NODES = (LATENT, "h800-node:8,node=4", 8, 64)  # experts on several nodes, as of DeepSeek-V3
FEW = (DENSE | {"n_layer": 2}, "h100-dgx:2", 1, 64)
SHORT = DENSE | {"n_layer": 2}
SPACES = [  # model, machine, global batch, tokens of a sequence
    (DENSE, "h100-dgx:2", 2, 128),
    (SHORT, "h100-dgx:4", 2, 128),
    (DENSE, "h100-dgx:4,node=2", 1, 64),
    (SHORT, "a100-dgx-80gb:8", 1, 64),
    (SHORT, "mi325x-node:4", 1, 128),
    (DENSE, "gb200-nvl72:4", 1, 128),
    (SPARSE, "h100-dgx:2", 1, 256),
    (SPARSE, "h100-dgx:4,node=2", 1, 256),
]


def _search(folder: Path, space: tuple[Any, ...], **more: Any) -> dict[str, Any]:
    content, machine, batch, tokens = space
    (folder / "model.json").write_text(json.dumps(content), encoding="utf-8")
    name = str(folder / "model.json")
    given = {"machine": machine, "global_batch": batch, "sequence": tokens, "within": 0.0, **more}
    description = PlanSearch(read_model(name), name, **given).description()
    description["search"]["runners-up"] = 0
    return description


def _searched(description: dict[str, Any], out: Path) -> SweepReport:
    return carry_out(plan_sweep(description, searches=True), out, workers=1)


def _rows(plan: SweepPlan, numbers: Sequence[int]) -> Iterator[tuple[int, dict[str, Any]]]:
    evaluator = Evaluator(plan.space)
    for number in numbers:
        point = plan.points[number]
        yield number, evaluator.row(PointTask(point.digest, point.values))


def _check_optimum(space: tuple[Any, ...], folder: Path) -> None:
    description = _search(folder, space)
    report = _searched(description, folder / "out")
    plan = plan_sweep(description)
    rows = _rows(plan, range(len(plan.points)))
    every = {number: row["tokens_per_s"] for number, row in rows if row["status"] == "complete"}
    best = max(every.values())
    assert every[report.search.front[0]] == best
    assert report.search.gap == 0
    assert report.search.evaluated <= len(every)
    eased = _searched(_search(folder, space, within=0.3), folder / "eased")
    found = every[eased.search.front[0]]
    assert best <= found * (1 + eased.search.gap) * (1 + 1e-9)
    assert eased.search.gap <= 0.3
    assert eased.search.evaluated <= report.search.evaluated


def _check_bounds(space: tuple[Any, ...], folder: Path, count: int, seed: int) -> int:
    plan = plan_sweep(_search(folder, space))
    bounder, checked = Bounder(plan.space), 0
    numbers = Random(seed).sample(range(len(plan.points)), min(count, len(plan.points)))
    for number, row in _rows(plan, numbers):
        if row["status"] == "refused":
            continue
        bound = bounder.of(plan.points[number].values, number)
        assert bound is not None
        parts = bounder.parts[number]
        assert parts.compute_ns + parts.bubble_ns + parts.network_ns == bound["makespan_ns"]
        assert min(parts.compute_ns, parts.bubble_ns, parts.network_ns) >= 0
        for name, value in bound.items():
            is_least = OBJECTIVES[name] is Best.LEAST
            least, most = (value, row[name]) if is_least else (row[name], value)
            assert least <= most, (plan.named(plan.points[number]), name)
        checked += 1
    return checked


@pytest.fixture
def _interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ET_SIM_COMPILE", "never")


@pytest.mark.usefixtures("_interpreted")
def test_the_best_plan_is_that_of_all_simulated(tmp_path: Path) -> None:
    _check_optimum(FEW, tmp_path)


@pytest.mark.deep
@pytest.mark.usefixtures("_interpreted")
@pytest.mark.parametrize("number", range(len(SPACES)))
def test_the_best_plan_is_that_of_all_simulated_on_more_spaces(number: int, tmp_path: Path) -> None:
    _check_optimum(SPACES[number], tmp_path)


@pytest.mark.usefixtures("_interpreted")
def test_no_plan_is_faster_than_its_bound(tmp_path: Path) -> None:
    assert sum(_check_bounds(space, tmp_path, 1, seed) for seed, space in enumerate(SPACES)) > 5
    assert _check_bounds((SPARSE, "h100-dgx:2", 1, 4096), tmp_path, 2, 0) > 0  # with context parallelism


@pytest.mark.deep
@pytest.mark.usefixtures("_interpreted")
def test_no_random_plan_is_faster_than_its_bound(tmp_path: Path) -> None:
    assert sum(_check_bounds(space, tmp_path, 4, seed) for seed, space in enumerate(SPACES)) > 25


@pytest.mark.usefixtures("_interpreted")
def test_no_plan_of_experts_on_several_nodes_is_faster_than_its_bound(tmp_path: Path) -> None:
    assert _check_bounds(OVER_NODES, tmp_path, 2, 1) == 2


@pytest.mark.deep
@pytest.mark.usefixtures("_interpreted")
def test_no_random_plan_of_experts_on_several_nodes_is_faster_than_its_bound(tmp_path: Path) -> None:
    assert _check_bounds(OVER_NODES, tmp_path, 24, 2) > 20


class _Reading(InProcess):
    """A runner that reads the directory of the search before each batch."""

    folder: Path = Path()
    seen: ClassVar[list[int]] = []

    def run(self, tasks: Sequence[PointTask]) -> Iterator[Sequence[Done]]:
        if (type(self).folder / "sweep.arrow").exists():
            search = open_sweep(type(self).folder).search
            assert search is not None
            type(self).seen.append(search["evaluated"])
        yield from super().run(tasks)


@pytest.mark.usefixtures("_interpreted")
def test_results_can_be_read_while_a_search_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_Reading, "folder", tmp_path / "out")
    monkeypatch.setattr(_Reading, "seen", [])
    monkeypatch.setattr(sweep, "_local", lambda space, *_: _Reading(space))
    description = _search(tmp_path, FEW)
    description["search"]["runners-up"] = 4
    report = _searched(description, tmp_path / "out")
    assert _Reading.seen == list(range(2, report.search.evaluated, 2))
    assert open_sweep(tmp_path / "out").search["gap"] == report.search.gap


class _Expected(NoSweepWatcher):
    """A watcher that records the expected numbers of simulations."""

    def __init__(self) -> None:
        self.totals: list[int] = []

    def begin(self, stage: str, total: int) -> None:
        if stage == "searching":
            self.totals.append(total)

    def expect(self, total: int, text: str) -> None:  # noqa: ARG002
        self.totals.append(total)


@pytest.mark.usefixtures("_interpreted")
@pytest.mark.parametrize("budget", [None, 3])
def test_a_search_expects_the_simulations_that_it_needs(budget: int | None, tmp_path: Path) -> None:
    description = _search(tmp_path, FEW, budget=budget, within=0.3)
    description["search"]["runners-up"] = 4
    watch = _Expected()
    report = carry_out(plan_sweep(description, searches=True), tmp_path / "out", workers=1, watch=watch)
    assert watch.totals[0] == min(5, budget or 5)
    assert watch.totals[-1] == report.search.evaluated
    assert max(watch.totals) <= (budget or 9)


@pytest.mark.parametrize(
    ("best", "bounds", "gap"),
    [(110, [100, 120], 0.1), (100, [100], 0), (90, [100], 0), (-100, [-110, -90], 0.1), (100, [], 0)],
)
def test_the_gap_is_the_share_by_which_the_best_bound_is_better(
    best: float, bounds: list[float], gap: float
) -> None:
    assert gap_of(best, bounds) == pytest.approx(gap, abs=1e-12)


def test_bytes_of_other_ranks_cross_the_ports_of_a_rank() -> None:
    wires = Wires(node=8, inside=400.0, outside=50.0)
    size, kinds = 800_000, CollectiveKind
    assert wires.ports_ns(kinds.ALL_GATHER, size, 8, 8) == 7 * size / 400
    assert wires.ports_ns(kinds.REDUCE_SCATTER, size, 8, 8) == 7 * size / 8 / 400
    assert wires.ports_ns(kinds.ALL_REDUCE, size, 8, 8) == size / 400
    assert wires.ports_ns(kinds.ALL_GATHER, size, 32, 1) == 31 * size / 50
    assert wires.ports_ns(kinds.ALL_GATHER, size, 32, 8) == 24 / 8 * size / 50
    assert wires.ports_ns(kinds.ALL_TO_ALL, size, 16, 8) == 8 / 16 * size / 50
    assert wires.ports_ns(kinds.ALL_GATHER, size, 1, 1) == 0


def test_the_space_has_every_plan_of_equal_stages(tmp_path: Path) -> None:
    axes = _search(tmp_path, (DENSE, "h100-dgx:4", 4, 128))["axes"]
    names = ("tp", "cp", "pp", "dp", "chunks", "batch", "zero", "recompute")
    found = set(zip(*(axes[name]["values"] for name in names), strict=True))
    of_four = (1, 2, 4)
    wanted = {
        (tp, 1, pp, dp, chunks, batch, zero, again)
        for tp, pp, dp, chunks, batch in product(of_four, of_four, of_four, of_four, (1, 2, 4, 8))
        for zero, again in product(range(4), ("none", "selective", "full"))
        if tp * pp * dp == 4
        and 4 % (dp * batch) == 0
        and 4 % (pp * chunks) == 0
        and (chunks == 1 or (pp > 1 and 4 // (dp * batch) % pp == 0))
        and (dp > 1 or zero == 0)
    }
    assert found == wanted
    assert divisors(36) == [1, 2, 3, 4, 6, 9, 12, 18, 36]


REFUSED = [
    (["--model", "llama3-8b"], "--model requires --machine (add it, as in --machine h100-dgx:64)"),
    (["--machine", "h100-dgx:8"], "--machine belongs to --model"),
    ([], "nothing is given to search (give --model and --machine"),
    (["plans.yml", "--model", "llama3-8b", "--machine", "h100-dgx:8"], "leave one of them out"),
    (
        ["--model", "gpt2", "--machine", "h100-dgx:8", "--software", "megatron-24"],
        "there is no software called 'megatron-24' (did you mean 'megatron-2023'",
    ),
    (["--model", "llama3-1", "--machine", "h100-dgx:8"], "llama3-1"),
    (["--model", "gpt-oss-20b", "--machine", "h100-dgx:8"], "add --sequence, such as --sequence 8192"),
    (
        ["--model", "gpt2", "--machine", "h100-dgx:64", "--global-batch", "3"],
        "give --global-batch a multiple of 64, such as 64",
    ),
]


OTHER = [
    ({"global_batch": 2}, "workload.plan.global-batch is 1 there, and 2 here (choose another"),
    ({"sequence": 32}, "workload.sequence is 64 there, and 32 here (choose another"),
    (
        {"machine": "h100-dgx:1", "software": "torchtitan"},
        "machine is h100-dgx:2 there, and h100-dgx:1 here; and so differs workload.plan.software (choose",
    ),
]


@pytest.mark.usefixtures("_interpreted")
def test_a_directory_of_another_question_is_refused(tmp_path: Path) -> None:
    _searched(_search(tmp_path, FEW, budget=1), tmp_path / "out")
    before = (tmp_path / "out" / "sweep.arrow").read_bytes()
    for other, words in OTHER:
        with pytest.raises(UsageError, match=re.escape(f"out holds points of another run: {words}")):
            _searched(_search(tmp_path, FEW, **other), tmp_path / "out")
    assert (tmp_path / "out" / "sweep.arrow").read_bytes() == before
    more = _searched(_search(tmp_path, FEW, budget=2, objective="energy"), tmp_path / "out")
    assert (more.known, more.search.evaluated) == (1, 2)


@pytest.mark.parametrize(("words", "sentence"), REFUSED)
def test_a_wrong_search_is_refused_in_one_sentence(
    words: list[str],
    sentence: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["search", *words]) == 2
    assert sentence in capsys.readouterr().err.replace("\n", " ")


def test_an_unknown_objective_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no objective 'tokns'"):
        _search(tmp_path, SPACES[0], objective="tokns")
