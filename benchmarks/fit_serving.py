"""Fit the times of an engine's host to measured servings, with errors on cells that are left out.

    python benchmarks/fit_serving.py serving.csv --engine vllm [--most 16] [--cache DIRECTORY]

A cell is a model on a GPU. Figures are fitted to all rows of campaign B whose cache is not full; five times,
a fifth of the cells is left out and predicted with figures fitted to the others (the folds follow from the
names of cells). TPOT of campaign A is printed, too. `--most` limits the requests under way, so that a fit takes
minutes.

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
from et_sim.serving import serve as serving
from et_sim.serving.engines.description import Engine
from et_sim.serving.engines.reading import read_engine
from et_sim.serving.replicas import CachePool, SimulatedTimes
from et_sim.validation.serving_rows import ServedRow, read_servings
from et_sim.validation.servings import Latencies, latencies_of
from et_sim.workloads import Batch, Segment
from et_sim.workloads.inference.batch import GroupBatches, sights

FOLDS = 5
OCTAVE = 4  # points of the grid of tokens
CONTEXT = 512
FIRST_TOKEN_WEIGHT = 0.35  # errors of times to the first token are larger
FIGURES = {  # path: first, scale
    "host.eager-layer": (0.5e6, 1e6),
    "host.layer": (10e3, 20e3),
    "host.pass": (0.3e6, 1e6),
    "host.prompt-pass": (2e6, 10e6),
    "host.before": (5e6, 20e6),
    "prompt-factor": (1.1, 1.0),
    "token-factor": (1.0, 1.0),
}


class GridTimes(SimulatedTimes):
    """Times of passes on a grid of batches."""

    def pass_ns(self, pool: CachePool, batch: GroupBatches) -> int:
        """Return the time of a pass between two points of the grid."""
        groups = (batch,) if isinstance(batch, Batch) else batch
        most = max((group.prefill.tokens for group in groups), default=0)
        if not most:
            return self._at(pool, groups, 1.0)
        below = 2 ** (math.floor(math.log2(most) * OCTAVE) / OCTAVE)
        above = below * 2 ** (1 / OCTAVE)
        part = (most - below) / (above - below)
        low, high = (self._at(pool, groups, end / most) for end in (below, above))
        return round(low + part * (high - low))

    def _at(self, pool: CachePool, groups: Sequence[Batch], factor: float) -> int:
        loads = [self._rounded(group, factor) for group in groups]
        return super().pass_ns(pool, loads[0] if len(loads) == 1 else tuple(loads))

    def _rounded(self, batch: Batch, factor: float) -> Batch:
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
        return Batch.of(segments, 1, sights(self.model))


class Bench:
    """Rows simulated under descriptions of an engine, with passes kept on disk."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.known: dict[str, Any] = {}
        bench = self

        class Kept(GridTimes):
            def __post_init__(self) -> None:
                bench.begun(self)

        serving.SimulatedTimes = Kept  # type: ignore[misc]
        self.times: list[GridTimes] = []

    def begun(self, times: GridTimes) -> None:
        """Give times that begin the passes of earlier ones."""
        self.times = [times]

    def latencies(self, row: ServedRow, engine: Engine) -> Latencies | None:
        """Return the latencies of a row, None if it cannot be simulated."""
        assert row.case is not None
        case = row.case
        name = hashlib.sha256(repr((case.model, case.machine, case.plan, engine.exchanges)).encode()).hexdigest()
        path = self.folder / f"{name[:20]}.pickle"
        if name not in self.known:
            self.known[name] = pickle.loads(path.read_bytes()) if path.exists() else {}
        bench, passes = self, self.known[name]
        count = len(passes.get("passes", ()))

        def begun(times: GridTimes) -> None:
            if passes:
                times.passes, times.manifest, times.scope = (passes[key] for key in ("passes", "manifest", "scope"))
            bench.times = [times]

        self.begun = begun  # type: ignore[method-assign]
        try:
            found = latencies_of(case, engine)
        except EtSimError as error:
            print(f"row {row.number}: {error}")
            return None
        times = self.times[0]
        passes.update(passes=times.passes, manifest=times.manifest, scope=times.scope)
        if len(times.passes) > count:
            path.write_bytes(pickle.dumps(passes))
        return found


def changed(engine: Engine, figures: Sequence[float]) -> Engine:
    """Return the engine with figures; a request takes as long before as after."""
    values = dict(zip(FIGURES, figures, strict=True))
    host = replace(
        engine.host,
        eager_layer_ns=values["host.eager-layer"],
        layer_ns=values["host.layer"],
        pass_ns=values["host.pass"],
        prompt_pass_ns=values["host.prompt-pass"],
        before_ns=values["host.before"],
        after_ns=values["host.before"],
    )
    return replace(
        engine, host=host, prompt_factor=values["prompt-factor"], token_factor=values["token-factor"]
    )


def errors_of(bench: Bench, rows: Sequence[ServedRow], engine: Engine) -> np.ndarray[Any, Any]:
    """Return the logarithms of predicted by measured times: (TPOT, TTFT) of each row."""
    table = []
    for row in rows:
        found = bench.latencies(row, engine)
        assert found is not None
        table.append((math.log(found.tpot_ms / (row.tpot_ms or 1)), math.log(found.ttft_ms / (row.ttft_ms or 1))))
    return np.array(table)


def fitted(bench: Bench, rows: Sequence[ServedRow], engine: Engine, first: Sequence[float]) -> list[float]:
    """Return figures with the least errors; large ones count less."""
    scales = np.array([scale for _, scale in FIGURES.values()])
    weights = np.array([1.0, FIRST_TOKEN_WEIGHT])

    def residuals(at: Any) -> Any:
        return (errors_of(bench, rows, changed(engine, at * scales)) * weights).ravel()

    low = np.array([0.0] * 5 + [0.7, 0.7])
    high = np.array([5.0] * 5 + [2.0, 1.5])
    begin = np.clip(np.array(first) / scales, low + 1e-6, high - 1e-6)
    found = least_squares(
        residuals, begin, bounds=(low, high), loss="soft_l1", f_scale=0.08, diff_step=0.05, max_nfev=12
    )
    return [float(value) for value in found.x * scales]


def cell(row: ServedRow) -> str:
    """Return the model and the GPU of a row."""
    assert row.case is not None
    return f"{row.case.model} {row.system}"


def fold(name: str) -> int:
    """Return the fold of a cell."""
    return int(hashlib.sha256(name.encode()).hexdigest(), 16) % FOLDS


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
    parser.add_argument("--no-folds", action="store_true")
    given = parser.parse_args()
    engine, bench, begin = read_engine(given.engine), Bench(given.cache), time.process_time()
    seen: set[Any] = set()
    rows = []
    for row in read_servings(given.file):
        if row.case is None or row.backend != given.engine or row.campaign != "B" or row.case in seen:
            continue
        load = row.case.load
        if load.concurrency > given.most or load.output > given.longest:
            continue
        seen.add(row.case)
        found = bench.latencies(row, engine)
        if found is not None and not found.is_full:
            rows.append(row)
    first = [
        *(engine.host.eager_layer_ns, engine.host.layer_ns, engine.host.pass_ns, engine.host.prompt_pass_ns),
        *(engine.host.before_ns, engine.prompt_factor, engine.token_factor),
    ]
    print(f"{len(rows)} rows, {time.process_time() - begin:.0f} s", flush=True)
    figures = first if given.no_fit else fitted(bench, rows, engine, first)
    final = errors_of(bench, rows, changed(engine, figures))
    for row, (tpot, ttft) in zip(rows, final, strict=True):
        load = row.case.load if row.case else None
        plan = row.case.plan if row.case else None
        print(
            f"{row.number:4} {cell(row):28} tp {plan.tensor} {load.prompt}/{load.output} x {load.concurrency:3}"
            f" TPOT {row.tpot_ms:7.2f} {100 * math.expm1(tpot):+6.1f} %"
            f" TTFT {row.ttft_ms:7.1f} {100 * math.expm1(ttft):+6.1f} %"
        )
    print("fitted to all:", percent(final), figures_line(figures), f"{time.process_time() - begin:.0f} s", flush=True)
    if given.no_folds:
        return
    cells = sorted({cell(row) for row in rows})
    left = []
    for number in range(FOLDS):
        out = [row for row in rows if cells.index(cell(row)) % FOLDS == number]
        kept = [row for row in rows if row not in out]
        if not out or not kept:
            continue
        without = fitted(bench, kept, engine, figures)
        table = errors_of(bench, out, changed(engine, without))
        left.append(table)
        print(f"left out {sorted({cell(row) for row in out})}: {percent(table)}", figures_line(without), flush=True)
    if left:
        table = np.concatenate(left)
        print("left out:", percent(table))
        low, high = np.quantile(-table, [0.1, 0.9], axis=0)
        print("80 %: measured by predicted: TPOT", np.exp([low[0], high[0]]), "TTFT", np.exp([low[1], high[1]]))


if __name__ == "__main__":
    main()
