"""`benchmarks/published_plans.py`: its rows are on the page, and the cheapest ones run."""

from __future__ import annotations

import importlib.util
import json
import sys
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from et_sim.machine.presets import preset
from et_sim.workloads import read_model

ROOT = Path(__file__).parents[2]
CHEAPEST = (20,)  # eight ranks


@pytest.fixture(scope="module")
def plans() -> ModuleType:
    """Return the program as a module, under another name than its own."""
    path = ROOT / "benchmarks" / "published_plans.py"
    spec = importlib.util.spec_from_file_location("published_plans_program", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_every_plan_names_its_source_and_has_as_many_ranks_as_its_machine(plans: ModuleType) -> None:
    for row in plans.rows():
        assert row["source"]
        assert row["assumed"]
        words = row["make"].split()
        sizes = dict(pairwise(words))
        ranks = 1
        for axis in ("--tp", "--cp", "--dp", "--pp"):
            ranks *= int(sizes.get(axis, 1))
        assert preset(row["machine"]).npus == ranks, row["name"]
        assert f"{ranks:,} " in row["name"]


def test_the_page_shows_every_plan_and_its_commands(plans: ModuleType) -> None:
    page = plans.PAGE.read_text(encoding="utf-8")
    shown = page.split(plans.BEGIN)[1].split(plans.END)[0]
    for number, row in enumerate(plans.rows(), 1):
        assert f"| {number} | {row['name']} | {row['measured']:,g} {row['unit']} |" in shown
        for command in plans.commands(row):
            assert command in shown


@pytest.mark.deep
@pytest.mark.usefixtures("warm_engine")
@pytest.mark.parametrize("number", CHEAPEST)
def test_the_page_shows_the_results_of_the_cheapest_plans(plans: ModuleType, number: int) -> None:
    row = plans.rows()[number - 1]
    result = plans.run(row)
    assert result["status"] == "simulated"
    assert plans.line(number, row, result) in plans.PAGE.read_text(encoding="utf-8")


def test_figures_have_the_unit_of_the_measured_value(plans: ModuleType) -> None:
    """Run a step of 2 s on 4 ranks with 8 sequences; full operations are the ones that the run states."""
    import msgspec

    model = read_model("gpt2")
    made: dict[str, Any] = {"model": msgspec.to_builtins(model)}
    tokens = 8 * model.sequence
    summary: dict[str, Any] = {
        "makespan_ns": 2_000_000_000,
        "ranks": 4,
        "throughput": {"tokens": tokens, "tflops_per_rank": 100.0},
    }
    simulated = {
        unit: plans.figures({"unit": unit, "measured": 4.0}, made, summary)
        for unit in ("s", "TFLOP/s", "samples/s", "GPU hours per 10^12 tokens")
    }
    assert [result["simulated"] for result in simulated.values()] == [
        2.0,
        100.0,
        4.0,
        pytest.approx(4 * 2 / 3600 * 1e12 / tokens),
    ]
    assert simulated["s"]["error_percent"] == -50.0
    masked = 6 * 12 * (1024 * 1023 // 2) * 12 * 128
    each = 100e12 * 4 * 2 / 8
    assert simulated["s"]["tflops_causal"] == pytest.approx(100 * (1 - masked / each))


def test_a_plan_that_takes_too_long_has_no_figures(plans: ModuleType) -> None:
    row = plans.rows()[0]
    result = plans.run(row, seconds=0.001)
    assert result == {"name": row["name"], "status": "ended after 0.001 s"}
    assert "| ended after 0.001 s | - | - | - |" in plans.line(1, row, result)


def test_the_table_is_written_between_its_marks(plans: ModuleType, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{plans.BEGIN}\nold\n{plans.END}\nafter\n")
    results = [{"name": row["name"], "status": "ended after 1 s"} for row in plans.rows()]
    plans.write(results, page)
    text = page.read_text()
    assert text.startswith(f"before\n{plans.BEGIN}\n| ")
    assert text.endswith(f"\n{plans.END}\nafter\n")
    assert "old" not in text
    assert json.dumps(plans.rows()[0]["name"]).strip('"') in text
