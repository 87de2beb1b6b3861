"""Searches find the best point of the whole sweep with a part of its evaluations, twice the same."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from machines import RING_4
from small_sweeps import SYSTEM, TEXT, WORKLOAD, spec, table_of, write

from et_sim.basics.errors import EtSimError
from et_sim.sweeps import sweep
from et_sim.sweeps.bounds import Bounder
from et_sim.sweeps.evaluate import Done, InProcess, PointTask
from et_sim.sweeps.goal import Goal, front_of, least_dominated
from et_sim.sweeps.journal import Point
from et_sim.sweeps.search import ByBounds
from et_sim.sweeps.state import plan_sweep
from et_sim.sweeps.sweep import SweepReport, carry_out
from et_sim.tables.sweep_tables import JOURNAL, OBJECTIVES, OF_MONTHS, OF_SAMPLES, OF_SERVING, Best
from et_sim.views.sweep.directory import open_sweep
from et_sim.views.sweep.summary import sweep_json, sweep_text

MODEL = {
    "model_type": "gpt2",
    "n_embd": 256,
    "n_head": 8,
    "n_layer": 2,
    "vocab_size": 1024,
    "n_positions": 128,
}
PLANS = {
    "tp": {"field": "workload.plan.tp", "values": [1, 2, 4]},
    "pp": {"field": "workload.plan.pp", "values": [1, 2]},
    "dp": {"field": "workload.plan.dp", "values": [1, 2, 4, 8]},
    "micro-batches": {"field": "workload.plan.micro-batches", "values": [1, 2, 4, 8]},
}
FITTING = ["tp * pp * dp == 8", "dp * micro-batches == 8"]


@pytest.fixture(autouse=True)
def _interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ET_SIM_COMPILE", "never")


def plans(folder: Path, goal: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """Return plans of a small model on eight H100s."""
    (folder / "model.json").write_text(json.dumps(MODEL), encoding="utf-8")
    workload = {"make": "llm", "model": str(folder / "model.json"), "plan": {}}
    base = {"workload": workload, "machine": "h100-dgx:8"}
    return {"base": base, "axes": PLANS, "constraints": FITTING, "search": goal, **changes}


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Return the rows of all plans."""
    folder = tmp_path_factory.mktemp("swept")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ET_SIM_COMPILE", "never")
        rows = carry_out(plan_sweep(plans(folder, {})), folder / "out", workers=1).table.to_pylist()
    assert all(row["status"] == "complete" for row in rows)
    return list(rows)


def _searched(given_: Any, out: Path) -> SweepReport:
    return carry_out(plan_sweep(given_, searches=True), out, workers=1)


@pytest.mark.deep
def test_bounds_find_the_best_of_a_sweep_with_fewer_evaluations(
    swept: list[dict[str, Any]], tmp_path: Path
) -> None:
    given_ = plans(tmp_path, {"minimise": ["makespan_ns"], "at-once": 2})
    report = _searched(given_, tmp_path / "out")
    times = [row["makespan_ns"] for row in swept]
    assert report.search.front == [min(range(len(times)), key=times.__getitem__)]
    assert report.search.method == "bounds"
    assert report.search.left == 0
    assert len(report.table) == report.search.evaluated <= len(times) / 2
    assert report.search.evaluated + report.search.ruled_out == len(times)


@pytest.mark.deep
def test_no_row_is_below_its_bound(swept: list[dict[str, Any]], tmp_path: Path) -> None:
    plan = plan_sweep(plans(tmp_path, {}))
    bounder = Bounder(plan.space)
    for row in swept:
        bound = bounder.of(plan.points[row["point"]].values)
        assert bound is not None
        unbounded = {figure.name for figure in (*OF_SAMPLES, *OF_MONTHS, *OF_SERVING)} | {
            "exposed_comm_ns",
            "hfu",
        }
        assert set(bound) == {*OBJECTIVES} - unbounded
        least = {name for name in bound if OBJECTIVES[name] is Best.LEAST}
        assert all(0 < bound[name] <= row[name] for name in least)
        assert all(bound[name] >= row[name] > 0 for name in set(bound) - least)


@pytest.mark.deep
@pytest.mark.parametrize(
    ("minimise", "maximise"),
    [
        (["makespan_ns", "peak_memory_bytes"], []),
        (["peak_memory_bytes"], ["tokens_per_s"]),
        pytest.param(["exposed_comm_ns", "price", "joules"], ["mfu"], marks=pytest.mark.deep),
    ],
)
def test_several_objectives_give_the_front_of_the_whole_sweep(
    minimise: list[str], maximise: list[str], swept: list[dict[str, Any]], tmp_path: Path
) -> None:
    given_ = plans(tmp_path, {"minimise": minimise, "maximise": maximise, "at-once": 2})
    report = _searched(given_, tmp_path / "out")
    values = {
        row["point"]: (*(row[name] for name in minimise), *(-row[name] for name in maximise)) for row in swept
    }
    assert report.search.front == front_of(values)
    assert len(report.search.front) > 1
    opened = open_sweep(tmp_path / "out")
    assert json.loads(sweep_json(opened))["search"]["front"] == report.search.front


@pytest.mark.deep
def test_constraints_on_results_are_kept(swept: list[dict[str, Any]], tmp_path: Path) -> None:
    most = sorted(row["peak_memory_bytes"] for row in swept if row["pp"] > 1)[1]
    goal = {"minimise": ["makespan_ns"], "constraints": [f"peak_memory_bytes <= {most}B", "pp > 1"]}
    report = _searched(plans(tmp_path, goal), tmp_path / "out")
    best = next(row for row in report.table.to_pylist() if row["point"] == report.search.front[0])
    assert best["peak_memory_bytes"] <= most
    assert best["pp"] > 1
    assert report.search.impossible > 0


def test_the_most_tokens_per_second_are_found_and_constraints_rule_out_by_bounds(
    swept: list[dict[str, Any]], tmp_path: Path
) -> None:
    report = _searched(plans(tmp_path, {"maximise": ["tokens_per_s"], "at-once": 1}), tmp_path / "most")
    rates = [row["tokens_per_s"] for row in swept]
    assert report.search.front == [rates.index(max(rates))]
    assert report.search.ruled_out > 0
    assert sweep_text(open_sweep(tmp_path / "most")).split("\n\n")[1].splitlines()[0].endswith("tokens/s")
    goal = {"minimise": ["peak_memory_bytes"], "constraints": [f"tokens_per_s >= {max(rates)}"]}
    report = _searched(plans(tmp_path, goal), tmp_path / "limited")
    assert report.search.front == [rates.index(max(rates))]
    assert report.search.impossible > 0


RESERVED = 3_976 << 20  # of an H100, for memory outside of tensors


@pytest.mark.deep
def test_memory_that_no_machine_has_is_refused_before_evaluation(tmp_path: Path) -> None:
    given_ = plans(tmp_path, {"minimise": ["makespan_ns"]})
    sizes = {"field": "system.local-mem-capacity", "values": [RESERVED + 10**6, RESERVED + 8 * 10**6]}
    given_["axes"] = PLANS | {"capacity": sizes}
    report = _searched(given_, tmp_path / "out")
    assert 6 < report.search.impossible < 12
    assert set(report.table["status"].to_pylist()) == {"complete"}
    sizes["values"] = [RESERVED + 10**6]
    with pytest.raises(EtSimError, match=r"a rank needs .* or more, and has"):
        _searched(given_, tmp_path / "none")


def optuna(budget: int = 5, **more: Any) -> dict[str, Any]:
    """Return a search without bounds."""
    return spec(search={"minimise": ["makespan_ns"], "budget": budget, "at-once": 2, **more})


@pytest.mark.deep
def test_without_bounds_optuna_chooses_equally_for_equal_seeds(tmp_path: Path) -> None:
    pytest.importorskip("optuna")
    for name, seed in (("one", 3), ("two", 3), ("three", 4)):
        report = _searched(optuna(seed=seed), tmp_path / name)
        assert report.search.method == "optuna"
        assert (report.search.evaluated, report.search.left) == (5, 4)
        assert len(report.table) == 5
        assert report.known == 0
    assert table_of(tmp_path / "one") == table_of(tmp_path / "two") != table_of(tmp_path / "three")


def test_a_budget_for_all_points_finds_the_best(tmp_path: Path) -> None:
    pytest.importorskip("optuna")
    report = _searched(optuna(100), tmp_path / "out")
    swept = carry_out(plan_sweep(spec()), tmp_path / "all", workers=1).table
    assert report.search.left == 0
    assert report.table.drop_columns([]).equals(swept)
    times = swept["makespan_ns"].to_pylist()
    assert report.search.front == [times.index(min(times))]


class _Never:
    def close(self) -> None: ...
    def run(self, _tasks: Sequence[PointTask]) -> Iterator[Sequence[Done]]:
        raise AssertionError("something was evaluated twice")


@pytest.mark.deep
def test_rows_of_a_sweep_are_not_evaluated_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given_ = plans(tmp_path, {"minimise": ["makespan_ns"]})
    carry_out(plan_sweep(given_), tmp_path / "out", workers=1)
    monkeypatch.setattr(sweep, "_local", lambda *_: _Never())
    report = _searched(given_, tmp_path / "out")
    assert len(report.table) == report.known == 6


class _Ending(InProcess):
    """A runner that is interrupted in its third batch."""

    batches = 0

    def run(self, tasks: Sequence[PointTask]) -> Iterator[Sequence[Done]]:
        type(self).batches += 1
        for number, done in enumerate(super().run(tasks)):
            if (type(self).batches, number) == (3, 1):
                raise KeyboardInterrupt
            yield done


@pytest.mark.deep
def test_an_interrupted_search_ends_like_one_that_was_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("optuna")
    with monkeypatch.context() as patch:
        patch.setattr(sweep, "_local", lambda space, *_: _Ending(space))
        with pytest.raises(KeyboardInterrupt):
            _searched(optuna(8), tmp_path / "out")
    assert (tmp_path / "out" / JOURNAL).read_bytes().count(b"\n") == 5
    _searched(optuna(8), tmp_path / "out")
    _searched(optuna(8), tmp_path / "alone")
    assert table_of(tmp_path / "out") == table_of(tmp_path / "alone")


@pytest.mark.deep
def test_a_ladder_that_is_interrupted_on_its_first_model_leaves_its_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("optuna")
    given_ = optuna(8, ladder=["analytical", "link"], keep=3)
    monkeypatch.setattr(_Ending, "batches", 0)
    with monkeypatch.context() as patch:
        patch.setattr(sweep, "_local", lambda space, *_: _Ending(space))
        with pytest.raises(KeyboardInterrupt):
            _searched(given_, tmp_path / "out")
    left = open_sweep(tmp_path / "out" / "rung-1").table
    assert left["status"].to_pylist() == ["complete"] * 5


@pytest.mark.deep
def test_a_ladder_hands_the_best_to_the_next_model(tmp_path: Path) -> None:
    pytest.importorskip("optuna")
    report = _searched(optuna(9, ladder=["analytical", "link"], keep=3), tmp_path / "out")
    below = open_sweep(tmp_path / "out" / "rung-1")
    order = sorted(below.table.to_pylist(), key=lambda row: (row["makespan_ns"], row["point"]))
    rows = report.table.to_pylist()
    assert {row["point"] for row in rows} == {row["point"] for row in order[:3]}
    assert report.search.front == [min(rows, key=lambda row: (row["makespan_ns"], row["point"]))["point"]]
    base = {"workload": WORKLOAD, "system": SYSTEM, "network": RING_4, "model": "link"}
    swept = carry_out(plan_sweep(spec(base=base)), tmp_path / "all", workers=1).table.to_pylist()
    assert all(row in swept for row in rows)
    assert "simulated on link" in sweep_text(open_sweep(tmp_path / "out"))


@pytest.mark.deep
def test_worker_processes_give_the_same_bytes(tmp_path: Path) -> None:
    for goal in ({"minimise": ["makespan_ns"]}, {"minimise": ["price"], "method": "optuna", "budget": 6}):
        given_ = plans(tmp_path, goal)
        for workers in (1, 2):
            carry_out(plan_sweep(given_, searches=True), tmp_path / f"{len(goal)}-{workers}", workers=workers)
        assert table_of(tmp_path / f"{len(goal)}-1") == table_of(tmp_path / f"{len(goal)}-2")


VALUES = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=12)


@given(VALUES)
def test_no_point_dominates_a_front(values: list[tuple[int, int]]) -> None:
    result = dict(enumerate(values))
    front = front_of(result)  # type: ignore[arg-type]
    assert [result[number] for number in front] == sorted({result[number] for number in front})
    for number, value in result.items():
        better = [
            other for other in values if other[0] <= value[0] and other[1] <= value[1] and other != value
        ]
        first = values.index(value) == number
        assert (number in front) == (not better and first)
    assert set(least_dominated(result, len(front))) == set(front)  # type: ignore[arg-type]


@given(VALUES, st.integers(1, 3), st.integers(1, 3), st.randoms(use_true_random=False))
def test_the_least_dominated_points_are_chosen_with_any_bounds(
    values: list[tuple[int, int]], keep: int, at_once: int, random: Any
) -> None:
    goal = Goal(("ranks", "price"), (), {}, None, None, 0, (None,), keep, at_once)
    points = [Point(number, (), "") for number in range(len(values))]
    bounds = {
        number: {"ranks": random.randint(0, value[0]), "price": random.randint(0, value[1])}
        for number, value in enumerate(values)
    }
    chooser, result = ByBounds(goal, points, bounds), {}
    while batch := chooser.choose(at_once):
        for point in batch:
            result[point.number] = values[point.number]
            chooser.learn(point, values[point.number])
    every = dict(enumerate(values))
    assert front_of(result) == front_of(every)  # type: ignore[arg-type]
    if keep == 1:
        assert chooser.left() == 0
    single = {number: (value[0],) for number, value in every.items()}
    assert least_dominated(single, 1) == front_of(single)  # type: ignore[arg-type]


def test_only_points_that_can_still_be_the_best_or_next_are_expected() -> None:
    goal = Goal(("ranks",), (), {}, None, None, 0, (None,), 1, 2, within=0.1, runners_up=3)
    points = [Point(number, (), "") for number in range(100)]
    chooser = ByBounds(goal, points, {number: {"ranks": 100 + number} for number in range(100)})
    values = iter((150, 120, 119, 113, 113))
    expected = []
    while batch := chooser.choose(1):
        chooser.learn(batch[0], (next(values),))
        expected.append(chooser.to_come())
    assert expected == [36, 8, 6, 0]  # bounds up to 150 / 1.1, 120 / 1.1, 119 / 1.1
    assert chooser.left() == 0


WRONG = [
    ({}, "search: there is no objective (add one, as in minimise: [makespan_ns])"),
    ({"minimise": ["makespan"]}, "'makespan' is no objective (did you mean 'makespan_ns'?)"),
    ({"minimise": ["time"]}, "'time' is no objective (known: makespan_ns,"),
    ({"minimise": ["price", "price"]}, "'price' is named twice in minimise"),
    ({"minimise": ["mfu"]}, "'mfu' is better if it is larger (name it in maximise)"),
    ({"maximise": ["ranks"]}, "'ranks' is better if it is smaller (name it in minimise)"),
    ({"keep": 3}, "`keep` requires a ladder"),
    ({"method": "bound"}, "there is no method 'bound' (did you mean 'bounds'?)"),
    ({"method": "bounds"}, "no bounds are known of these points (they are of workloads of kind llm"),
    ({"ladder": ["analytic", "link"]}, "network model 'analytic'"),
    ({"ladder": ["link"]}, "a ladder needs two or more different network models"),
    ({"ladder": ["link", "link"]}, "a ladder needs two or more different network models"),
    (
        {"constraints": ["memory <= 80GB"]},
        "names 'memory', which is no axis and no figure of a run (known: bandw",
    ),
    ({"constraints": ["ranks <= "]}, "cannot be read"),
    ({"constraints": ["ranks + 1"], "budget": 3}, "neither true nor false"),
    (
        {"constraints": ["peak_memory_bytes <= 80GB"], "budget": 3},
        "peak_memory_bytes is not known of these runs",
    ),
    ({"minimise": ["price"], "budget": 3}, "price is not known of these runs (leave it out, or state"),
    ({"budget": None}, "the search needs a limit (add a budget, such as budget: 50)"),
]


@pytest.mark.parametrize(("section", "sentence"), WRONG)
def test_a_mistake_is_one_sentence(section: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    section = {"minimise": ["makespan_ns"], **section} if section else section
    with pytest.raises(EtSimError) as refusal:
        _searched(spec(search=section), tmp_path / "out")
    assert sentence in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_a_sweep_that_looks_for_nothing_is_no_search(tmp_path: Path) -> None:
    with pytest.raises(EtSimError, match=r"rings.yml: has no section `search` \(add search, as in"):
        plan_sweep(write(tmp_path), searches=True)
    path = write(tmp_path, TEXT + "search:\n  minimise: [makespan_ns]\n  budget: 0\n")
    with pytest.raises(EtSimError, match=r'rings\.yml: line 10: key "budget" is 0'):
        plan_sweep(path, searches=True)
    text = TEXT + "  model: [analytical, link]\nsearch: {minimise: [ranks], ladder: [analytical, link]}\n"
    with pytest.raises(EtSimError, match="the ladder names network models, and so does the run"):
        plan_sweep(write(tmp_path, text), searches=True)


@pytest.mark.deep
def test_a_table_with_a_broken_search_is_refused(tmp_path: Path) -> None:
    import pyarrow as pa

    _searched(plans(tmp_path, {"minimise": ["makespan_ns"]}), tmp_path / "out")
    path = tmp_path / "out" / "sweep.arrow"
    table = pa.ipc.open_file(path).read_all()
    about = json.loads(table.schema.metadata[b"et-sim.sweep"])
    about["search"]["minimise"] = ["status_of_things"]
    with pa.OSFile(str(path), "wb") as sink:
        changed = table.replace_schema_metadata({"et-sim.sweep": json.dumps(about)})
        with pa.ipc.new_file(sink, changed.schema) as out:
            out.write_table(changed)
    with pytest.raises(EtSimError, match="has no description of the sweep"):
        open_sweep(tmp_path / "out")
