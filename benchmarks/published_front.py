"""Published training plans against the best plan that a search finds: writes a section of a page.

`python benchmarks/published_front.py` searches all plans of equal stages of the rows SEARCHED of
published_plans.json on their machines, simulates the published plans, too, and writes the table of
docs/published-plans.md. `--rows 5,14` takes other rows, and prints the table only.
"""

from __future__ import annotations

import argparse
import shlex
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from published_plans import PAGE, rows

from et_sim.basics.units import format_ns
from et_sim.recipes.recipe import model_of
from et_sim.sweeps.plan_space import PlanSearch
from et_sim.sweeps.state import plan_sweep
from et_sim.sweeps.sweep import carry_out
from et_sim.tables.sweep_tables import NUMBER
from et_sim.views.bands import band_text
from et_sim.views.sweep.scales import band_of_points

SEARCHED = (1, 2, 4, 5, 14, 17, 21)
BEGIN, END = "<!-- front: begin -->", "<!-- front: end -->"
OF_MODEL = ("model", "layers", "sequence", "vocabulary")
SWITCHES = ("sequence-parallel",)
USUAL = {"zero": 0, "recompute": "none"}  # of others: 1
SHORT = ("tp", "cp", "pp", "chunks", "dp", "zero", "batch", "recompute")
Row = dict[str, Any]


class Found(NamedTuple):
    """The published plan and the best one of a search, as rows of sweeps."""

    published: Row
    best: Row
    gap: float
    points: int
    evaluated: int


def keys_of(make: str) -> dict[str, Any]:
    """Return the options of et-sim make, numbers as such."""
    words, keys = shlex.split(make)[1:], dict[str, Any]()
    while words:
        name = words.pop(0).removeprefix("--")
        text = "true" if name in SWITCHES else words.pop(0)
        keys[name] = True if name in SWITCHES else int(text) if text.isdecimal() else text
    return keys


def find(row: Row) -> Found:
    """Search the plans of a row's model on its machine, and simulate the published one."""
    keys = keys_of(row["make"])
    of_model = {name: keys[name] for name in OF_MODEL if name in keys}
    plan = {name: value for name, value in keys.items() if name not in OF_MODEL}
    if "stage-layers" in plan:
        plan["stage-layers"] = [int(word) for word in plan["stage-layers"].split(",")]
    batch = plan.get("dp", 1) * plan.get("batch", 1) * plan["micro-batches"]
    model = model_of({"make": "llm", **of_model}, Path())
    search = PlanSearch(
        model,
        keys["model"],
        row["machine"],
        sequence=keys["sequence"],
        global_batch=batch,
        software=keys.get("software", ""),
    )
    description = search.description()
    description["base"]["workload"] |= of_model
    one = {
        "base": {
            "workload": {"make": "llm", **of_model, "plan": plan},
            "when-full": "report",
            "ties-alike": True,
        },
        "axes": {"machine": [row["machine"]]},
    }
    with tempfile.TemporaryDirectory() as folder:
        (published,) = carry_out(plan_sweep(one), Path(folder, "one"), workers=1).table.to_pylist()
        report = carry_out(plan_sweep(description, searches=True), Path(folder, "all"), workers=1)
    result = report.search
    assert result is not None
    best = next(row for row in report.table.to_pylist() if row[NUMBER] == result.front[0])
    return Found({**plan, **published}, best, result.gap or 0.0, report.points, result.evaluated)


def plan_text(row: Row) -> str:
    """Return the plan of a row in short."""
    named = [f"{name} {row[name]}" for name in SHORT if row.get(name) not in (None, USUAL.get(name, 1))]
    return ", ".join(named) + (" (memory full)" if row.get("status") == "out of memory" else "")


def time_text(row: Row) -> str:
    """Return the time of a step, and its exposed communication."""
    return f"{format_ns(row['makespan_ns'])}, {format_ns(row['exposed_comm_ns'])} of it exposed communication"


def lines_of(row: Row, found: Found) -> list[str]:
    """Return the lines of the page for a row: its plans, and what is certain."""
    published, best = found.published, found.best
    slower = published["makespan_ns"] / best["makespan_ns"] - 1
    ratio = band_text(band_of_points(best, published))
    return [
        f"- **{row['name']}**. Published: {plan_text(published)}; {time_text(published)}. Best of"
        f" {found.points:,} plans: {plan_text(best)}; {time_text(best)}. The published plan takes"
        f" {100 * slower:+.1f} % (80 % band {ratio}). No plan of the space has more tokens per second than"
        f" the best one by over {100 * found.gap:.1f} %; {found.evaluated} were simulated.",
    ]


def main() -> None:
    """Search the chosen rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rows", help="numbers of rows, counted from 1; writes nothing")
    options = parser.parse_args()
    chosen = [int(word) for word in options.rows.split(",")] if options.rows else SEARCHED
    lines: list[str] = []
    for number in chosen:
        row = rows()[number - 1]
        lines += lines_of(row, find(row))
        print(lines[-1], flush=True)
    if options.rows:
        return
    text = PAGE.read_text(encoding="utf-8")
    before, after = text.split(BEGIN)[0], text.split(END)[1]
    PAGE.write_text(f"{before}{BEGIN}\n" + "\n".join(lines) + f"\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
