"""Fit figures of an engine to measured servings, with errors on cells that are left out.

    python benchmarks/fit_serving.py serving.csv --engine vllm [--most 16] [--rounds 2] [--keep FOLDS.json]
    python benchmarks/fit_serving.py --table FOLDS.json

A cell is a model on a GPU. At most `--most` rows of each cell count, evenly in the order of lengths, requests
under way and ranks, so that all loads are in the sample; rows whose cache is full do not count. `--held` is
the same of a campaign that no figure is fitted to. Figures are fitted to times per token of both campaigns
and to times to the first token of campaign B, each cell with the same weight; factors of kernels, which were
measured, stay near 1 unless rows oppose. Only SGLang, which has one cell in campaign B, is fitted to rows of
campaign A, too; for the others, these are left out.

Then each fold, a fifth of the cells or a whole cell, is predicted with figures that are fitted to the others;
of an engine with one cell, rows are left out in place of cells. Passes are simulated as `et-sim validate`
does, in each of `--rounds` under the figures of the last one. The result is printed; `--keep` writes it to a
file, too, by engine, whose lines for the documentation `--table` prints.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import compress
from operator import not_
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import field
from msgspec.structs import replace
from numpy.typing import NDArray
from scipy.optimize import least_squares

from et_sim.basics.errors import EtSimError
from et_sim.machine.presets import preset
from et_sim.serving.engines.description import Engine
from et_sim.serving.engines.reading import read_engine
from et_sim.serving.replicas import CachePool, MachineTimes, SimulatedTimes
from et_sim.serving.results import Serving
from et_sim.validation.serving_rows import CLOSED_CAMPAIGN, ServedRow, read_servings
from et_sim.validation.servings import is_full, served, setup_of
from et_sim.workloads import read_model
from et_sim.workloads.inference.batch import GroupBatches
from et_sim.workloads.inference.numbers import unpacks_weights

FOLDS = 5
FIRST_TOKEN_WEIGHT = 0.35  # errors of times to the first token are larger
PRIOR = 0.1  # of the logarithm of a factor of kernels, in errors of rows
FACTORS = ("prompt-factor", "token-factor")
LIMITS = {  # of figures: least, most, scale
    "host.layer": (0.0, 1e5, 2e4),
    "host.expert-layer": (0.0, 1.5e5, 2e4),
    "host.eager-layer": (0.0, 3e6, 3e5),
    "host.before": (0.0, 4e8, 5e7),
    "host.before-layer": (0.0, 6e6, 1e6),
    "host.before-expert-layer": (0.0, 6e6, 1e6),
    "prompt-factor": (0.7, 2.0, 1.0),
    "unpacking-factor": (0.8, 3.0, 1.0),
    "token-factor": (0.7, 1.5, 1.0),
}
FITTED = {  # of each engine; the others are as its description has them
    "vllm": ("host.layer", "prompt-factor", "unpacking-factor", "token-factor"),
    "trtllm": ("host.expert-layer", "token-factor"),
    "sglang": ("host.layer", "host.expert-layer", "host.before"),
}
CAMPAIGNS = {"vllm": "B", "trtllm": "B", "sglang": "AB"}  # B has one model for SGLang
Errors = NDArray[np.float64]
Figures = Mapping[str, float]


class RecordedTimes(SimulatedTimes):
    """Times of passes, which are kept in the order of the passes."""

    order: list[int] = field(default_factory=list)

    def pass_ns(self, pool: CachePool, batch: GroupBatches) -> int:
        """Return the time of a pass."""
        self.order.append(super().pass_ns(pool, batch))
        return self.order[-1]


class Course:
    """The passes of a row, which keep their order while figures change a little."""

    def __init__(self, row: ServedRow, outcome: Serving, device_ns: Sequence[int], engine: Engine) -> None:
        assert row.case is not None
        model = read_model(row.case.model)
        types = ",".join(preset(row.case.machine).peaks)
        self.row, self.device = row, np.array(device_ns, float)
        self.engine = setup_of(row.case, engine).engine
        self.layers = model.layers
        self.expert_layers = sum(map(model.has_experts, range(model.layers)))
        self.unpacks = unpacks_weights(model, replace(row.case.plan, computes=types))
        passes = sorted({(each.start_ns, each.end_ns) for each in outcome.iterations})
        with_prompts = {each.start_ns for each in outcome.iterations if each.prefill_tokens}
        self.has_prompts = np.array([start in with_prompts for start, _ in passes])
        ends = np.array([0, *(end for _, end in passes)])
        of, after = outcome.requests(), round(engine.host.after_ns)
        self.arrival = np.searchsorted(ends, np.maximum(of["arrival_ns"] - after, 0))
        self.first = np.searchsorted(ends, of["first_token_ns"] - after)
        self.finish = np.searchsorted(ends, of["finish_ns"] - after)
        self.further = of["output_tokens"] - 1
        self.is_full = is_full(outcome, row.case.load.concurrency)

    def errors(self, figures: Figures) -> tuple[float, float]:
        """Return the logarithms of predicted by measured times: of TPOT and of TTFT."""
        host, simulated = self.engine.host, self.engine.before_ns(self.layers, self.expert_layers)
        before = figures["host.before"] + self.layers * figures["host.before-layer"] - simulated
        before += self.expert_layers * figures["host.before-expert-layer"]
        factor = figures["prompt-factor"] * (figures["unpacking-factor"] if self.unpacks else 1)
        device = self.device * np.where(self.has_prompts, factor, figures["token-factor"])
        device += self.layers * figures["host.layer"] + self.expert_layers * figures["host.expert-layer"]
        eager = self.layers * figures["host.eager-layer"] + self.expert_layers * host.eager_expert_layer_ns
        eager = np.maximum(device, eager) + host.prompt_pass_ns
        ends = np.concatenate([[0.0], np.cumsum(np.where(self.has_prompts, eager, device) + host.between_ns)])
        at_first = simulated + host.after_ns
        first = ends[self.first] - ends[self.arrival] + (self.arrival == 0) * at_first + before
        each = (ends[self.finish] - ends[self.first]) / self.further
        tpot, ttft = self.row.tpot_ms or 1.0, self.row.ttft_ms or 1.0
        return math.log(each.mean() / 1e6 / tpot), math.log(first.mean() / 1e6 / ttft)


def course_of(row: ServedRow, engine: Engine, shared: dict[str, MachineTimes]) -> Course | None:
    """Return the passes of a row, None if it cannot be simulated or its cache is full."""
    assert row.case is not None
    made: list[RecordedTimes] = []
    known = shared.setdefault(row.case.machine, MachineTimes())

    def times_of(*given: Any, **more: Any) -> RecordedTimes:
        made.append(RecordedTimes(*given, **{**more, "shared": known}))
        return made[0]

    try:
        outcome = served(row.case, engine, times_of)
    except EtSimError as error:
        print(f"row {row.number}: {error}")
        return None
    course = Course(row, outcome, made[0].order, engine)
    if course.is_full:
        print(f"row {row.number}: the cache is full")
    return None if course.is_full else course


def figures_of(engine: Engine) -> dict[str, float]:
    """Return the figures of a description."""
    host = engine.host
    before = host.before_ns, host.before_layer_ns, host.before_expert_layer_ns
    times = (host.layer_ns, host.expert_layer_ns, host.eager_layer_ns, *before)
    factors = (engine.prompt_factor, engine.unpacking_factor, engine.token_factor)
    return dict(zip(LIMITS, (*times, *factors), strict=True))


def changed(engine: Engine, figures: Figures) -> Engine:
    """Return the engine with figures."""
    layer, expert_layer, eager, before, before_layer, before_experts, prompt, unpacking, token = (
        figures[name] for name in LIMITS
    )
    host = replace(
        engine.host,
        layer_ns=layer,
        expert_layer_ns=expert_layer,
        eager_layer_ns=eager,
        before_expert_layer_ns=before_experts,
        before_ns=before,
        before_layer_ns=before_layer,
    )
    return replace(engine, host=host, prompt_factor=prompt, unpacking_factor=unpacking, token_factor=token)


def errors_of(courses: Sequence[Course], figures: Figures) -> Errors:
    """Return the errors of each row."""
    return np.array([course.errors(figures) for course in courses])


def fitted(courses: Sequence[Course], first: Figures, names: Sequence[str]) -> dict[str, float]:
    """Return figures, some of them with the least errors; large errors count less."""
    low, high, scales = (np.array([LIMITS[name][part] for name in names]) for part in range(3))
    cells = Counter(cell(course.row) for course in courses)
    weights = np.array(
        [
            np.array([1.0, FIRST_TOKEN_WEIGHT * (course.row.campaign == CLOSED_CAMPAIGN)])
            * math.sqrt(len(courses) / len(cells) / cells[cell(course.row)])
            for course in courses
        ]
    )
    priors = [name for name in names if name in FACTORS]

    def with_values(at: Errors) -> dict[str, float]:
        return {**first, **dict(zip(names, (at * scales).tolist(), strict=True))}

    def residuals(at: Errors) -> Errors:
        figures = with_values(at)
        known = np.log([figures[name] for name in priors]) * PRIOR * math.sqrt(len(courses))
        return np.concatenate([np.ravel(errors_of(courses, figures) * weights), known])

    low, high = low / scales, high / scales
    begin = np.clip(np.array([first[name] for name in names]) / scales, low + 1e-3, high - 1e-3)
    return with_values(least_squares(residuals, begin, bounds=(low, high), loss="soft_l1", f_scale=0.06).x)


def cell(row: ServedRow) -> str:
    """Return the model and the GPU of a row."""
    assert row.case is not None
    return f"{row.case.model} {row.system}"


def sample(rows: Sequence[ServedRow], engine: str, campaigns: str, most: int) -> list[ServedRow]:
    """Return at most so many rows of each cell of some campaigns, evenly; equal cases count once."""
    cells: dict[str, dict[Any, ServedRow]] = {}
    for row in rows:
        if row.case is not None and row.backend == engine and row.campaign in campaigns and row.tpot_ms:
            cells.setdefault(cell(row), {}).setdefault(row.case, row)

    def load(row: ServedRow) -> tuple[int, ...]:
        assert row.case is not None
        of = row.case.load
        return of.output, of.prompt, of.concurrency, row.case.plan.tensor, row.number

    chosen = []
    for cases in cells.values():
        each = sorted(cases.values(), key=load)
        chosen += [each[at * len(each) // min(most, len(each))] for at in range(min(most, len(each)))]
    return chosen


def summary(courses: Sequence[Course], table: Errors) -> dict[str, Any]:
    """Return rows, MAPE and bias in percent of each campaign; only B has comparable first tokens."""
    found: dict[str, Any] = {}
    for campaign in sorted({course.row.campaign for course in courses}):
        ratios = 100 * (np.exp(table[[course.row.campaign == campaign for course in courses]]) - 1)
        figures: dict[str, float] = {"rows": len(ratios)}
        for at, name in enumerate(("tpot", "ttft") if campaign == CLOSED_CAMPAIGN else ("tpot",)):
            figures[name] = round(float(abs(ratios[:, at]).mean()), 1)
            figures[f"{name}_bias"] = round(float(ratios[:, at].mean()), 1)
        found[campaign] = figures
    return found


def rounded(figures: Figures, names: Sequence[str]) -> dict[str, float]:
    """Return some figures with four digits."""
    return {name: float(f"{figures[name]:.4g}") for name in names}


def line_of(row: ServedRow, tpot: float, ttft: float) -> str:
    """Return a row with its errors."""
    assert row.case is not None
    load, plan = row.case.load, row.case.plan
    return (
        f"{row.number:4} {cell(row):28} tp {plan.tensor} ep {plan.expert} {load.prompt}/{load.output} x"
        f" {load.concurrency:3} TPOT {row.tpot_ms:7.2f} {100 * math.expm1(tpot):+6.1f} %"
        f" TTFT {row.ttft_ms:7.1f} {100 * math.expm1(ttft):+6.1f} %"
    )


def folds_of(
    courses: Sequence[Course], held: Sequence[Course], figures: Figures, names: Sequence[str]
) -> dict[str, Any]:
    """Return errors of cells that figures are not fitted to.

    No figure is fitted to `held` rows.
    """
    of_course = [cell(course.row) for course in courses]
    if len(set(of_course)) == 1:  # then loads are left out, which are the rows
        of_course = [f"row {course.row.number}" for course in courses]
    groups = sorted(set(of_course))
    folds, tables, order = [], [], list[Course]()
    for number in range(min(FOLDS, len(groups))):
        is_out = [groups.index(group) % FOLDS == number for group in of_course]
        without = fitted(list(compress(courses, map(not_, is_out))), figures, names)
        out = list(compress(courses, is_out))
        tables.append(errors_of(out, without))
        folds.append({"left out": groups[number::FOLDS], "rows": sum(is_out)})
        folds[-1] |= {"figures": rounded(without, names), **summary(out, tables[-1])}
        order += out
    if held:
        order += held
        tables.append(errors_of(held, figures))
    return {"folds": folds, "left out": summary(order, np.concatenate(tables))}


def table_of(kept: Mapping[str, Any]) -> list[str]:
    """Return the lines of a table of all engines: fitted figures, rows and errors of each campaign."""
    lines = [
        "| engine | fitted figures | campaign | rows | per token: fitted, left out | to the first token |",
        "|---|---|---|---|---|---|",
    ]
    for engine, of in sorted(kept.items()):
        names = ", ".join(f"`{name}`" for name in of["fitted"])
        for campaign, out in sorted(of["left out"].items(), reverse=True):
            inside = of["in sample"].get(campaign, {})
            both = [
                f"{inside.get(name, '-')}, {out[name]} %" if name in out else "-" for name in ("tpot", "ttft")
            ]
            lines.append(f"| `{engine}` | {names} | {campaign} | {out['rows']} | {both[0]} | {both[1]} |")
    return lines


def main() -> None:
    """Fit, print errors by row and by fold, and keep them."""
    parser = argparse.ArgumentParser()
    parser.add_argument("file", type=Path)
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--engine", choices=FITTED, default="vllm")
    parser.add_argument("--most", type=int, default=16)
    parser.add_argument("--held", type=int, help="as --most, of a campaign that no figure is fitted to")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--keep", type=Path)
    given = parser.parse_args()
    if given.table:
        print("\n".join(table_of(json.loads(given.file.read_text()))))
        return
    engine, names, begin = read_engine(given.engine), FITTED[given.engine], time.process_time()
    every, campaigns, figures = read_servings(given.file), CAMPAIGNS[given.engine], figures_of(engine)
    rows = sample(every, given.engine, campaigns, given.most)
    others = sample(every, given.engine, "A" if campaigns == "B" else "", given.held or given.most)
    shared: dict[str, MachineTimes] = {}

    def courses_of(rows: Sequence[ServedRow]) -> list[Course]:
        found = (course_of(row, changed(engine, figures), shared) for row in rows)
        return [course for course in found if course is not None]

    for _ in range(given.rounds):
        courses = courses_of(rows)
        took = time.process_time() - begin
        print(f"{len(courses)} rows, {took:.0f} s", summary(courses, errors_of(courses, figures)), flush=True)
        simulated, figures = figures, fitted(courses, figures, names)
        print(rounded(figures, names), summary(courses, errors_of(courses, figures)), flush=True)
    held = courses_of(others)
    for course in (*courses, *held):
        print(line_of(course.row, *course.errors(figures)))
    kept = {
        "rows": [course.row.number for course in courses],
        "held": [course.row.number for course in held],
        "simulated with": rounded(simulated, names),
        "fitted": rounded(figures, names),
        "in sample": summary(courses, errors_of(courses, figures)),
        **folds_of(courses, held, figures, names),
    }
    print(json.dumps(kept, indent=1))
    if given.keep is not None:
        known = json.loads(given.keep.read_text()) if given.keep.exists() else {}
        given.keep.write_text(json.dumps({**known, given.engine: kept}, indent=1) + "\n")


if __name__ == "__main__":
    main()
