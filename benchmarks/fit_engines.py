"""Fit constants of inference engines' kernels and exchanges to a part of their tables, and judge the rest.

    python benchmarks/fit_engines.py serving_kernels.csv

The tables are those of `et-sim validate`. Constants are fitted by et-sim's own model to some heads of
attention, experts on 1, 4, 16, 32 and 64 ranks, and all-reduces of 2 and 8 GPUs up to 16 MiB; errors are
stated of these rows and of those left out, with the fitted constants and with those of et-sim.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from scipy.optimize import least_squares

from et_sim.basics.kernel_names import DECODE_ATTENTION, GROUPED_BLOCKS, GROUPED_NARROW, LATENT_ATTENTION
from et_sim.compute.registry import at_full_clock, compute_model, kernel_times
from et_sim.machine.collective_library.engines import ENGINE_ALL_REDUCES, EngineAllReduce
from et_sim.machine.efficiencies import Curve, Tile
from et_sim.machine.engine_kernels import ENGINE_KERNELS
from et_sim.machine.kernel_kinds import KernelKind
from et_sim.machine.presets import preset
from et_sim.machine.readers import read_system_alone
from et_sim.trace import TraceBuilder
from et_sim.validation.predictions import machine_named
from et_sim.validation.row import Row
from et_sim.validation.rows import Errors, measured_rows

LOSS = {"loss": "soft_l1", "f_scale": 0.1, "diff_step": 1e-3}  # times are whole nanoseconds
AWAY = 0.7  # fits begin away from the constants of et-sim, by this factor
HEADS, RANKS, LARGEST = (1, 2, 8, 32, 128), (1, 4, 16, 32, 64), 16 << 20
NVLINK = 450.0  # GB/s of H200


class Part(Struct):
    """Rows that have constants of their own."""

    table: str
    kind: str
    holds: Callable[[list[str]], bool]  # of the words of a row
    is_fitted: Callable[[list[str]], bool]
    names: tuple[str, ...]


ATTENTION = ("launch_ns", "tile_ns", "doubling_ns", "memory_efficiency")
EXPERTS = ("launch_ns", "prologue")


def parts() -> list[Part]:
    """Return all parts of the tables."""
    found = []
    for table in ("h200_decode_attention_vllm", "h100_decode_attention_trt"):
        for cache, kind in (("bfloat16", DECODE_ATTENTION), ("fp8", f"{DECODE_ATTENTION} fp8")):
            found.append(Part(table, kind, partial(_has, 7, cache), lambda w: int(w[2]) in HEADS, ATTENTION))
    latent = (*ATTENTION, "efficiency")
    found.append(
        Part("h200_mla_decode_sgl", LATENT_ATTENTION, lambda _: True, lambda w: int(w[2]) in HEADS, latent)
    )
    found.append(Part("h200_mla_prefill_sgl", LATENT_ATTENTION, lambda _: True, lambda _: False, ()))
    kinds = {"bfloat16": "grouped_gemm", "fp8": "grouped_gemm fp8", "fp8_block": GROUPED_BLOCKS}
    for dtype, kind in kinds.items():
        found.append(
            Part("h200_moe_trt", kind, partial(_has, 8, dtype), lambda w: int(w[7]) in RANKS, EXPERTS)
        )
    narrow = (*EXPERTS, "memory_efficiency", "part")
    found.append(
        Part(
            "h200_moe_trt",
            GROUPED_NARROW,
            partial(_has, 8, "w4a16_mxfp4"),
            lambda w: int(w[7]) in RANKS,
            narrow,
        )
    )
    return found


def _has(place: int, word: str, words: Sequence[str]) -> bool:
    """Return whether a shape has a word at a place."""
    return words[place] == word


class Kernels:
    """The kernels of some rows on their machine, as a function of the constants of a kind."""

    def __init__(self, rows: Sequence[Row], kind: str) -> None:
        self.kind = kind
        job: Any = rows[0].job
        self.kinds = dict(ENGINE_KERNELS[job.engine])
        machine = machine_named(rows[0].hardware)
        assert machine is not None
        self.system = at_full_clock(read_system_alone(preset(machine).system))
        build, counts = TraceBuilder(), []
        for row in rows:
            job = row.job
            counts.append(len(job.parts))
            for part in job.parts:
                size = part.bytes or None
                build.compute("kernel", layer_shape=part.shape, dtype=part.datatype, tensor_bytes=size)
        self.trace, self.first = build.build(), np.cumsum([0, *counts[:-1]])

    def us(self, changes: Mapping[str, float]) -> np.ndarray:
        """Return the times of rows with changed constants."""
        entry = self.kinds[self.kind]
        kinds = {**self.kinds, self.kind: changed(entry, changes)}
        rules = []
        for rule in self.system.compute:
            settings: Any = rule.settings
            rules.append(replace(rule, settings=replace(settings, kinds={**settings.kinds, **kinds})))
        times = kernel_times(compute_model(replace(self.system, compute=tuple(rules))))
        ns: np.ndarray = np.add.reduceat(times(self.trace, np.arange(len(self.trace)), 0), self.first)
        return ns / 1000


def changed(entry: KernelKind, changes: Mapping[str, float]) -> KernelKind:
    """Return the constants of a kind with some of them changed."""
    values: dict[str, Any] = dict(changes)
    for name in ("efficiency", "memory_efficiency"):
        if name in values:
            values[name] = Curve(values[name])
    if "part" in values and entry.tiles:
        tile = entry.tiles[0]
        values["tiles"] = (Tile(tile.rows, tile.columns, tile.step, values.pop("part")),)
    return replace(entry, **values)


def constant(entry: KernelKind, name: str) -> float:
    """Return a constant of a kind."""
    if name == "part":
        return entry.tiles[0].part if entry.tiles else 1.0
    value = getattr(entry, name)
    return value.peak if isinstance(value, Curve) else float(value)


def fitted(
    predict: Callable[[np.ndarray], np.ndarray], start: Sequence[float], is_part: Sequence[bool]
) -> Any:
    """Return the constants with the least errors of logarithms; parts are at most 1."""
    most = np.where(is_part, 0.0, np.inf)
    begin = np.minimum(np.log(start) + np.log(AWAY), most - 1e-6)
    return np.exp(least_squares(lambda z: predict(np.exp(z)), begin, bounds=(-np.inf, most), **LOSS).x)


def show(label: str, ratios: np.ndarray, is_fitted: np.ndarray) -> None:
    """Print the errors of rows that were fitted to, and of the others."""
    for name, chosen in (("fitted", is_fitted), ("left out", ~is_fitted)):
        if chosen.any():
            errors = Errors.of(ratios[chosen].tolist())
            print(f"  {label}, {name}: {errors.rows} rows, E {errors.e:.1f} %, bias {errors.bias:+.1f} %")


def fit_kernels(part: Part, rows: Sequence[Row]) -> None:
    """Fit the constants of a part, and print them with their errors."""
    chosen = [row for row in rows if row.table == part.table and part.holds(row.what.split())]
    is_fitted = np.array([part.is_fitted(row.what.split()) for row in chosen])
    measured = np.array([row.measured_us for row in chosen])
    kernels, entry = Kernels(chosen, part.kind), None
    entry = kernels.kinds[part.kind]
    print(f"{part.table}, {part.kind}")
    show("constants of et-sim", kernels.us({}) / measured, is_fitted)
    if not part.names:
        return
    few = Kernels([row for row, own in zip(chosen, is_fitted, strict=True) if own], part.kind)

    def residuals(values: np.ndarray) -> np.ndarray:
        found = few.us(dict(zip(part.names, values.tolist(), strict=True)))
        logarithms: np.ndarray = np.log(found / measured[is_fitted])
        return logarithms

    start = [constant(entry, name) for name in part.names]
    found = fitted(residuals, start, ["efficiency" in name or name == "part" for name in part.names])
    constants = dict(zip(part.names, found.tolist(), strict=True))
    show("constants fitted here", kernels.us(constants) / measured, is_fitted)
    print("  " + json.dumps({name: float(f"{value:.4g}") for name, value in constants.items()}))


def fit_all_reduces(engine: str, rows: Sequence[Row]) -> None:
    """Fit the constants of an engine's all-reduce, and print them with their errors."""
    jobs: list[Any] = [(row.job, row.measured_us) for row in rows if is_all_reduce(row, engine)]
    ranks, sizes, measured = np.array([(job.gpus, job.bytes, us) for job, us in jobs]).T
    is_fitted = ranks != 4

    def us(own: EngineAllReduce) -> np.ndarray:
        return np.array([own.way(int(n), int(size), NVLINK)[1] for n, size in zip(ranks, sizes, strict=True)])

    names = ("latency", "peer", "second_shot", "share")
    known = ENGINE_ALL_REDUCES[engine]

    def with_constants(values: np.ndarray) -> EngineAllReduce:
        return replace(known, **dict(zip(names, values.tolist(), strict=True)))

    found = fitted(
        lambda values: np.log(us(with_constants(values)) / measured)[is_fitted],
        [getattr(known, name) for name in names],
        [name == "share" for name in names],
    )
    print(f"all-reduces of {engine}")
    show("constants of et-sim", us(known) / measured, is_fitted)
    show("constants fitted here", us(with_constants(found)) / measured, is_fitted)
    constants = zip(names, found.tolist(), strict=True)
    print("  " + json.dumps({name: float(f"{value:.4g}") for name, value in constants}))


def is_all_reduce(row: Row, engine: str) -> bool:
    """Return whether a row is an all-reduce of an engine in a graph, of a size that it does itself."""
    job: Any = row.job
    is_one = row.kind == "allreduce" and job is not None
    return bool(is_one and job.engine == engine and not job.eager and job.bytes <= LARGEST)


def main(path: str) -> None:
    """Fit all parts."""
    rows = measured_rows(Path(path))
    for engine in ENGINE_ALL_REDUCES:
        fit_all_reduces(engine, rows)
    for part in parts():
        fit_kernels(part, rows)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", help="a file of measured rows")
    main(parser.parse_args().file)
