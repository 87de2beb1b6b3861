"""Lines of docs/accuracy.md: which public measurements are one family, and whether presets are fitted to it.

Not here: predictions (`et_sim.validation`), bands (`fit_bands`), and the page (`accuracy`).
"""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path

from msgspec import Struct

from et_sim.validation.networks import machine_measured
from et_sim.validation.predictions import machine_named
from et_sim.validation.row import DEGRADED, Collective, Row, TrainingStep
from et_sim.validation.rows import measured_rows, shipped

CITED = Path(__file__).parents[2] / "tests" / "measurements"
WIDTH = (2, 8)  # GPUs whose collectives presets are fitted to
LONG = 32768  # tokens of a sequence
APART = "degraded, as the source states: "  # begins the name of a family that is listed, and not judged
KERNELS = {
    "a100_gemm_bf16": "products on A100, vLLM",
    "h100_gemm_bf16": "products on H100, TensorRT-LLM",
    "a100_attention": "attention on A100, vLLM",
    "a100_pcie_memory": "norms, softmax, element-wise on A100 PCIe",
    "b200_gemm_bf16": "products on B200, TensorRT-LLM",
    "b200_gemm_fp8": "products in fp8 on B200, TensorRT-LLM",
    "h100_gemm_fp8": "products in fp8 on H100, TensorRT-LLM",
    "h100_attention": "attention on H100, vLLM",
    "a100_attention_trt": "attention on A100, TensorRT-LLM",
    "v100_pcie_memory": "norms, softmax, element-wise on V100 PCIe",
}
FITTED = {  # tables
    *("a100_gemm_bf16", "h100_gemm_bf16", "h100_gemm_fp8", "b200_gemm_bf16", "b200_gemm_fp8"),
    *("a100_attention", "h100_attention", "a100_pcie_memory", "v100_pcie_memory"),
    "b200_training",  # the energy of an operation
    "vtrain_single",  # the time of the host for a launch of Megatron-LM of 2021
}
ITERATIONS = {
    "megatron_seqpar_table5": "training steps, Megatron-LM of 2022, 8 to 512 A100",
    "vtrain_multi": "training steps, vTrain, 64 to 512 A100",
    "vtrain_single": "training steps, vTrain, 2 to 8 A100",
    "b200_training": "training steps, Megatron-LM with Transformer Engine, 8 B200",
}
TORCHTITAN = "training steps, torchtitan"
BLACKWELL = "training steps, Megatron-Bridge, B200, GB200 and GB300"
STEPS_FITTED = (TORCHTITAN, BLACKWELL)  # one factor on kernels; the energy of an operation
GPUS = ("GB200", "GB300", "A100", "H100", "H200", "B200", "V100", "H20", "MI300X", "MI325X", "MI355X")


class Line(Struct, frozen=True):
    """A line of the table: rows that were measured alike, and whether presets are fitted to them."""

    name: str
    is_fitted: bool = False


def public_rows() -> list[Row]:
    """Return all public measurements: those that travel with et-sim, and those that tests cite."""
    return [row for path in _paths() for row in measured_rows(path)]


def _paths() -> list[Path]:
    whole = {"kernels.csv"}  # of which a part travels
    names = ("steps_today.csv", "vtrain_single.json", "several_nodes.json", "kernels.csv", "kernels_2.csv")
    return [*(path for path in shipped() if path.name not in whole), *(CITED / name for name in names)]


def lab_of(row: Row) -> str:
    """Return who measured a table of collectives: the repository or issue of its source."""
    return labs_of_tables()[row.table]


@cache
def labs_of_tables() -> dict[str, str]:
    """Return the labs of tables of collectives."""
    files = [json.loads(path.read_text(encoding="utf-8")) for path in _paths() if path.suffix == ".json"]
    tables = [table for file in files if isinstance(file, list) for table in file if "collective" in table]
    return {table["id"]: re.split("[@:]", table["source"])[0] for table in tables}


def line_of(row: Row) -> Line | None:
    """Return where a row belongs; None: it is no measurement that can be predicted."""
    if isinstance(row.job, TrainingStep):
        name = ITERATIONS.get(row.table) or _of_step(row, row.job)
        return Line(name, row.table in FITTED or name in STEPS_FITTED)
    if isinstance(row.job, Collective):
        return _of_collective(row, row.job)
    if row.job is None or row.table not in KERNELS:
        return None
    parts = {"a side < 1024": ", a side below 1,024", "tokens < 2048": ", below 2,048 tokens"}
    return Line(KERNELS[row.table] + parts.get(row.size_class, ""), row.table in FITTED)


def _of_step(row: Row, job: TrainingStep) -> str:
    if row.table == "llm_foundry_mpt":
        return f"training steps, MPT under FSDP, {'H100' if 'h100' in row.hardware else 'A100'}"
    if job.model.sequence >= LONG:
        return "training steps of 32,768 tokens and more"
    if job.model.experts is not None:
        return "training steps of models with experts"
    if job.software == "torchtitan":
        return TORCHTITAN
    if job.plan.zero == 3:
        return "training steps under FSDP and ZeRO-3"
    if job.software in ("megatron-2021", "megatron-2023"):
        return "training steps, Megatron-LM of 2021 and 2023, A100"
    if job.software == "nemo-24.12":
        return "training steps, NeMo 24.12, H100"
    return "training steps, Megatron-Bridge, H100" if "H100" in row.hardware else BLACKWELL


def _of_collective(row: Row, job: Collective) -> Line:
    gpu = next(name for name in GPUS if name in row.hardware)
    size = ", from 64 MiB on" if row.size_class.startswith(">=") else ""
    if job.nodes != 1 and row.size_class.endswith(DEGRADED):
        return Line(f"{APART}collectives between nodes, {gpu}{size}")
    if job.nodes != 1:
        network = "" if _is_stated(row, job) else ", cards or kind of network not stated"
        return Line(f"collectives between nodes, {gpu}{network}{size}", is_fitted=True)
    by, fitted = "other labs", False
    if row.table.startswith("aic_"):
        fitted = job.gpus in WIDTH
        by = "2 and 8 GPUs" if fitted else "4 GPUs"
    return Line(f"{row.kind.replace('_', '-')} on {gpu}, {by}{size}", fitted)


def _is_stated(row: Row, job: Collective) -> bool:
    """Return whether the source states cards and kind of the network between nodes or racks."""
    name = machine_named(row.hardware)
    if name is None:
        return False
    return machine_measured(name, job.gpus, job.nodes, row.hardware, row.network).is_stated
