"""The same plan on several machines: their names, and the sweep that simulates the plan on each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from et_sim.basics.errors import UsageError
from et_sim.basics.units import plural
from et_sim.machine.presets import entry, preset
from et_sim.machine.presets.options import PRICE_KEY
from et_sim.recipes.servings import PLAN
from et_sim.sweeps.state import SweepWatcher, plan_sweep
from et_sim.sweeps.sweep import carry_out
from et_sim.tables.sweep_tables import NUMBER
from et_sim.views.sweep.directory import open_sweep

MACHINE = "machine"
USUAL_CURRENCY = "USD"
FOLDER = "machines"  # in the directory of the search


def machines_of(text: str) -> list[str]:
    """Return machines separated by commas; those without a number of NPUs have that of the first one.

    A part with `=` and no `:` is an option of the machine before it, such as `node=4`.
    """
    names: list[str] = []
    for part in text.split(","):
        if names and "=" in part and ":" not in part:
            names[-1] += f",{part}"
        else:
            names.append(part.strip())
    if "" in names:
        raise UsageError(f"--machine {text!r} names no machine between two commas", remedy="leave one out")
    npus = preset(names[0]).npus
    named = [names[0], *(_with_npus(name, npus) for name in names[1:])]
    for name in named:
        if named.count(name) > 1:
            raise UsageError(f"--machine names {name} twice", remedy="name it once")
        if preset(name).npus != npus:
            raise UsageError(
                f"{name} has {plural(preset(name).npus, 'NPU')}, and {named[0]} {npus:,}: a plan has one"
                " number of ranks",
                remedy=f"leave out the numbers of NPUs after the first machine, which has {npus:,}",
            )
    return named


def _with_npus(name: str, npus: int) -> str:
    first, comma, options = name.partition(",")
    return name if ":" in first else f"{first}:{npus}{comma}{options}"


def price_source(machine: str) -> str | None:
    """Return the price of an hour of an NPU and its source; None if the price is not known."""
    known = preset(machine)
    costs = known.system["costs"]
    price = costs.get(PRICE_KEY)
    if price is None:
        return None
    source = entry(known.name, known.options).sources.get(PRICE_KEY, "as given")
    return f"{price:g} {costs.get('currency', USUAL_CURRENCY)}, {source}"


def simulate_best(
    search: Mapping[str, Any],
    folder: Path,
    machines: Sequence[str],
    model: str | None,
    when_full: str | None,
    watch: SweepWatcher,
) -> Path:
    """Simulate the best plan that a search found on several machines; return the directory of the results."""
    found = open_sweep(folder)
    assert found.search is not None
    rows = {row[NUMBER]: row for row in found.table.to_pylist()}
    best = rows[found.search["front"][0]]
    workload = search["base"]["workload"]
    plan = {**workload[PLAN], **{name: best[name] for name in found.axes}}
    described = {"base": {"workload": {**workload, PLAN: plan}}, "axes": {MACHINE: list(machines)}}
    inner = folder / FOLDER
    carry_out(plan_sweep(described, model=model, when_full=when_full), inner, workers=1, watch=watch)
    return inner
