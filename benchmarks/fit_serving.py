"""Fit the times of an engine's host to measured servings, with errors on cells that are left out.

    python benchmarks/fit_serving.py serving.csv --engine vllm [--most 16] [--cache DIRECTORY]

A cell is a model on a GPU. Figures are fitted to the rows of campaign B whose cache is not full; five
times, a fifth of the cells is left out and predicted with figures fitted to the others. `--most` and
`--every` limit the requests under way and the rows, so that a fit takes minutes.

While figures are fitted, passes are simulated on a grid of batches only: tokens of prompts by a factor of
2^(1/4), with straight lines between, contexts by steps of 512 tokens. Nothing is written but the table and
the figures, as the description of an engine has them.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import pickle
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from msgspec.structs import replace
from scipy.optimize import least_squares

from et_sim.basics.errors import EtSimError
from et_sim.machine.presets import preset
from et_sim.serving import serve as serving
from et_sim.serving.engines.description import Engine
from et_sim.serving.engines.reading import read_engine
from et_sim.serving.replicas import CachePool, SimulatedTimes
from et_sim.serving.results import Serving
from et_sim.validation.serving_rows import ServedRow, read_servings
from et_sim.validation.servings import is_full, served
from et_sim.workloads import Batch, Segment, read_model
from et_sim.workloads.inference.batch import AttentionSight, GroupBatches, sights
from et_sim.workloads.inference.numbers import unpacks_weights

FOLDS = 5
OCTAVE = 4  # points of the grid of tokens
CONTEXT = 512
FIRST_TOKEN_WEIGHT = 0.35  # errors of times to the first token are larger
FIGURES = {  # path: least, most, scale
    "host.eager-layer": (0.0, 3e6, 1e6),
    "host.layer": (0.0, 1e5, 2e4),
    "host.pass": (0.0, 1e7, 1e6),
    "host.prompt-pass": (0.0, 5e7, 1e7),
    "prompt-factor": (0.8, 2.0, 1.0),
    "unpacking-factor": (0.8, 3.0, 1.0),
    "token-factor": (0.8, 1.5, 1.0),
}


class GridTimes(SimulatedTimes):
    """Times of passes on a grid of batches, in the order of the passes."""

    def pass_ns(self, pool: CachePool, batch: GroupBatches) -> int:
        """Return the time of a pass between two points of the grid."""
        memo, order = _memo(self)
        if batch not in memo:
            memo[batch] = self._between(pool, (batch,) if isinstance(batch, Batch) else batch)
        order.append(memo[batch])
        return memo[batch]

    def _between(self, pool: CachePool, groups: Sequence[Batch]) -> int:
        most = max((group.prefill.tokens for group in groups), default=0)
        if not most:
            return self._at(pool, groups, 1.0)
        below = 2 ** (math.floor(math.log2(most) * OCTAVE) / OCTAVE)
        above = below * 2 ** (1 / OCTAVE)
        part = (most - below) / (above - below)
        low, high = (self._at(pool, groups, end / most) for end in (below, above))
        return round(low + part * (high - low))

    def _at(self, pool: CachePool, groups: Sequence[Batch], factor: float) -> int:
        loads = [_rounded(group, factor, _sights(self)) for group in groups]
        return super().pass_ns(pool, loads[0] if len(loads) == 1 else tuple(loads))


_MEMOS: dict[int, tuple[dict[Any, int], list[int]]] = {}
_SIGHTS: dict[str, tuple[AttentionSight, ...]] = {}


def _memo(times: SimulatedTimes) -> tuple[dict[Any, int], list[int]]:
    return _MEMOS.setdefault(id(times), ({}, []))


def _sights(times: SimulatedTimes) -> tuple[AttentionSight, ...]:
    return _SIGHTS.setdefault(times.model.name, sights(times.model))


def _rounded(batch: Batch, factor: float, seen: tuple[AttentionSight, ...]) -> Batch:
    segments: list[Segment] = []
    if prompts := batch.prefill.segments:
        each = max(round(batch.prefill.tokens * factor / prompts), 2)
        of_prompt = batch.prefill.tokens / prompts
        before = max(batch.prefill.pairs / batch.prefill.tokens - (of_prompt + 1) / 2, 0)
        segments += [Segment(each, round(before * factor / CONTEXT) * CONTEXT)] * prompts
    if singles := batch.decode.segments:
        step = 4 if prompts else 1
        context = -(-(batch.decode.keys // singles) // CONTEXT) * CONTEXT
        segments += [Segment(1, max(context, CONTEXT))] * (-(-singles // step) * step)
    return Batch.of(segments, 1, seen)


class Course:
    """The passes of a row, which keep their order while figures change a little."""

    def __init__(self, row: ServedRow, outcome: Serving, device_ns: Sequence[int], engine: Engine) -> None:
        assert row.case is not None
        self.row = row
        passes = sorted({(each.start_ns, each.end_ns) for each in outcome.iterations})
        with_prompts = {each.start_ns for each in outcome.iterations if each.prefill_tokens}
        ends = np.array([0, *(end for _, end in passes)])
        self.layers = read_model(row.case.model).layers
        types = ",".join(preset(row.case.machine).peaks)
        self.unpacks = unpacks_weights(read_model(row.case.model), replace(row.case.plan, computes=types))
        self.request = engine.host.before_ns + engine.host.after_ns
        self.device = np.array(device_ns, float)
        self.has_prompts = np.array([start in with_prompts for start, _ in passes])
        of, after = outcome.requests(), round(engine.host.after_ns)
        self.arrival = np.searchsorted(ends, np.maximum(of["arrival_ns"] - after, 0))
        self.first = np.searchsorted(ends, of["first_token_ns"] - after)
        self.finish = np.searchsorted(ends, of["finish_ns"] - after)
        self.further = of["output_tokens"] - 1
        self.is_full = is_full(outcome, row.case.load.concurrency)

    def errors(self, figures: Sequence[float]) -> tuple[float, float]:
        """Return the logarithms of predicted by measured times: of TPOT and of TTFT."""
        eager, layer, of_pass, of_prompts, prompt_factor, unpacking_factor, token_factor = figures
        if self.unpacks:
            prompt_factor *= unpacking_factor
        device = self.device * np.where(self.has_prompts, prompt_factor, token_factor) + self.layers * layer
        took = (
            np.where(self.has_prompts, np.maximum(device, self.layers * eager) + of_prompts, device) + of_pass
        )
        ends = np.concatenate([[0.0], np.cumsum(took)])
        first = ends[self.first] - ends[self.arrival] + self.request * (self.arrival == 0)
        each = (ends[self.finish] - ends[self.first]) / self.further
        tpot, ttft = self.row.tpot_ms or 1.0, self.row.ttft_ms or 1.0
        return math.log(each.mean() / 1e6 / tpot), math.log(first.mean() / 1e6 / ttft)


class Bench:
    """Rows simulated under descriptions of an engine, with passes kept on disk."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def course(self, row: ServedRow, engine: Engine) -> Course | None:
        """Return the passes of a row, None if it cannot be simulated."""
        assert row.case is not None
        case, made = row.case, list[GridTimes]()
        name = hashlib.sha256(
            repr((case.model, case.machine, case.plan, engine.exchanges)).encode()
        ).hexdigest()
        path = self.folder / f"{name[:20]}.pickle"
        known = pickle.loads(path.read_bytes()) if path.exists() else {}

        def begun(*given: Any, **more: Any) -> GridTimes:
            made.append(GridTimes(*given, **(more | known)))
            _MEMOS.pop(id(made[0]), None)
            return made[0]

        vars(serving)["SimulatedTimes"] = begun
        try:
            outcome = served(case, engine)
        except EtSimError as error:
            print(f"row {row.number}: {error}")
            return None
        times = made[0]
        if len(times.passes) > len(known.get("passes", ())) or not known:
            kept = {name: getattr(times, name) for name in ("passes", "manifest", "scope")}
            path.write_bytes(pickle.dumps(kept))
        return Course(row, outcome, _memo(times)[1], engine)


def changed(engine: Engine, figures: Sequence[float]) -> Engine:
    """Return the engine with figures."""
    eager, layer, of_pass, of_prompts, prompt_factor, unpacking_factor, token_factor = figures
    host = replace(
        engine.host,
        eager_layer_ns=eager,
        layer_ns=layer,
        pass_ns=of_pass,
        prompt_pass_ns=of_prompts,
    )
    return replace(
        engine,
        host=host,
        prompt_factor=prompt_factor,
        unpacking_factor=unpacking_factor,
        token_factor=token_factor,
    )


def errors_of(courses: Sequence[Course], figures: Sequence[float]) -> np.ndarray[Any, Any]:
    """Return the errors of each row."""
    return np.array([course.errors(figures) for course in courses])


def fitted(courses: Sequence[Course], first: Sequence[float]) -> list[float]:
    """Return figures with the least errors; large ones count less."""
    scales = np.array([scale for _, _, scale in FIGURES.values()])
    weights = np.array([1.0, FIRST_TOKEN_WEIGHT])

    def residuals(at: Any) -> Any:
        return (errors_of(courses, at * scales) * weights).ravel()

    low, high = (np.array([limits[end] for limits in FIGURES.values()]) / scales for end in (0, 1))
    begin = np.clip(np.array(first) / scales, low + 1e-6, high - 1e-6)
    found = least_squares(residuals, begin, bounds=(low, high), loss="soft_l1", f_scale=0.06)
    return [float(value) for value in found.x * scales]


def cell(row: ServedRow) -> str:
    """Return the model and the GPU of a row."""
    assert row.case is not None
    return f"{row.case.model} {row.system}"


def figures_line(figures: Sequence[float]) -> str:
    """Return figures as text."""
    return json.dumps({name: float(f"{value:.4g}") for name, value in zip(FIGURES, figures, strict=True)})


def percent(table: Any) -> str:
    """Return MAPE and bias of both latencies."""
    ratios = np.exp(table) - 1
    mape, bias = 100 * abs(ratios).mean(axis=0), 100 * ratios.mean(axis=0)
    return f"TPOT {mape[0]:.1f} ({bias[0]:+.1f}), TTFT {mape[1]:.1f} ({bias[1]:+.1f})"


def main() -> None:
    """Fit, and print errors by cell."""
    parser = argparse.ArgumentParser()
    parser.add_argument("file", type=Path)
    parser.add_argument("--engine", default="vllm")
    parser.add_argument("--most", type=int, default=16)
    parser.add_argument("--longest", type=int, default=1024)
    parser.add_argument("--cache", type=Path, default=Path("fit-serving"))
    parser.add_argument("--no-fit", action="store_true")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--every", type=int, default=1)
    given = parser.parse_args()
    engine, bench, begin = read_engine(given.engine), Bench(given.cache), time.process_time()
    rows: dict[Any, ServedRow] = {}
    for row in read_servings(given.file):
        if row.case is None or row.backend != given.engine or row.campaign != "B" or row.tpot_ms is None:
            continue
        load = row.case.load
        if load.concurrency <= given.most and load.output <= given.longest and row.number % given.every == 0:
            rows.setdefault(row.case, row)
    figures = [
        *(engine.host.eager_layer_ns, engine.host.layer_ns, engine.host.pass_ns, engine.host.prompt_pass_ns),
        *(engine.prompt_factor, engine.unpacking_factor, engine.token_factor),
    ]
    courses: list[Course] = []
    for _ in range(1 if given.no_fit else given.rounds):
        found = [bench.course(row, changed(engine, figures)) for row in rows.values()]
        courses = [course for course in found if course is not None and not course.is_full]
        took = time.process_time() - begin
        print(f"{len(courses)} rows, {took:.0f} s: {percent(errors_of(courses, figures))}", flush=True)
        if not given.no_fit:
            figures = fitted(courses, figures)
            print(percent(errors_of(courses, figures)), figures_line(figures), flush=True)
    for course, (tpot, ttft) in zip(courses, errors_of(courses, figures), strict=True):
        print(line_of(course.row, tpot, ttft))
    if not given.no_fit:
        print_left_out(courses, figures)


def line_of(row: ServedRow, tpot: float, ttft: float) -> str:
    """Return a row with its errors."""
    assert row.case is not None
    load, plan = row.case.load, row.case.plan
    return (
        f"{row.number:4} {cell(row):28} tp {plan.tensor} ep {plan.expert} {load.prompt}/{load.output} x"
        f" {load.concurrency:3} TPOT {row.tpot_ms:7.2f} {100 * math.expm1(tpot):+6.1f} %"
        f" TTFT {row.ttft_ms:7.1f} {100 * math.expm1(ttft):+6.1f} %"
    )


def print_left_out(courses: Sequence[Course], figures: Sequence[float]) -> None:
    """Print errors of cells that figures are not fitted to."""
    cells = sorted({cell(course.row) for course in courses})
    left = []
    for number in range(FOLDS):
        out = [course for course in courses if cells.index(cell(course.row)) % FOLDS == number]
        kept = [course for course in courses if course not in out]
        if not out or not kept:
            continue
        without = fitted(kept, figures)
        left.append(errors_of(out, without))
        print(f"left out {cells[number::FOLDS]}: {percent(left[-1])}", figures_line(without), flush=True)
    if left:
        table = np.concatenate(left)
        low, high = np.exp(np.quantile(-table, [0.1, 0.9], axis=0))
        print("left out:", percent(table))
        for name, *ends in zip(("TPOT", "TTFT"), low, high, strict=True):
            print(f"80 %: measured by predicted {name}: {ends[0]:.3f} to {ends[1]:.3f}")


if __name__ == "__main__":
    main()
