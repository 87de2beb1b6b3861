"""Rows of measured servings: a CSV whose columns are a model, a system, an engine, its ranks and its load.

A row of campaign B had a closed loop with lengths between 0.8 and 1 of `isl` and `osl`, and twice its
concurrency of requests before those that count (SemiAnalysisAI/InferenceX). One of campaign A had equal
lengths; its client is not stated, and requests queued, so that only its time per token is compared. The
campaign is in a column `campaign`, or in NAME_rows.csv beside the file, by line; without both, it follows
from the lengths.

Replicas of attention that no column names follow from the ranks of experts. Rows of campaign B whose
`tp_size` is the square of both `moe_tp_size` and `moe_ep_size` have that many ranks, and as many shares of
experts: their times are those of such rows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from et_sim.basics.errors import EtSimError, UsageError
from et_sim.documents.reading import csv_rows
from et_sim.validation.predictions import machine_named
from et_sim.validation.row import SERVING_COLUMNS, reason
from et_sim.validation.rows import check_has_rows, text_of
from et_sim.workloads import Plan
from et_sim.workloads.models.configuration import preset_names

AGGREGATED, APART = MODES = ("agg", "disagg")
OPEN_CAMPAIGN, CLOSED_CAMPAIGN = "A", "B"
CLOSED_LENGTHS = ((1024, 1024), (1024, 8192), (8192, 1024))
SHORTEST = 0.8  # of the lengths of campaign B, as a share of the longest
_SIDES = ("prefill_", "decode_")
_QWEN_BLOCKS = re.compile("Qwen/Qwen3-.*-FP8")  # published weights with scales of 128 x 128
_PRODUCTS = {
    **dict.fromkeys(("", "bf16", "bfloat16", "float16", "fp16"), "values"),
    **dict.fromkeys(("fp8", "fp8_static", "fp8_ootb"), "fp8"),
    "fp8_block": "fp8-block",
    **dict.fromkeys(("nvfp4", "fp4"), "fp4"),
    "w4a16_mxfp4": "mxfp4",
    "w4a8_mxfp4_mxfp8": "mxfp4",
    **dict.fromkeys(("int4", "int4_wo", "w4a16"), "int4"),
}


class Load(Struct, frozen=True):
    """The load of a row."""

    concurrency: int
    prompt: int
    output: int
    lengths: float  # the shortest ones, as a share of these


class ServingCase(Struct, frozen=True):
    """A serving to be simulated."""

    model: str  # a preset, or a file
    machine: str
    plan: Plan
    engine: str
    load: Load
    decode_plan: Plan | None = None  # of replicas for tokens, if they are separate
    replicas: tuple[int, int] = (0, 1)  # for prompts and for tokens


class ServedRow(Struct, frozen=True):
    """A measured serving."""

    number: int  # from 1
    campaign: str
    model: str
    system: str
    engine: str
    ttft_ms: float | None
    tpot_ms: float | None
    case: ServingCase | None  # None: not expressed; `why` is the reason
    why: str = ""

    @property
    def backend(self) -> str:
        """Return the name of the engine without its version."""
        return self.engine.partition(":")[0]


def is_serving(columns: list[str]) -> bool:
    """Check whether a CSV with these columns holds servings."""
    return {*SERVING_COLUMNS} <= {*columns}


def read_servings(path: Path) -> list[ServedRow]:
    """Return the rows of a file; one that cannot be expressed has a reason."""
    rows = list(_rows(path, _campaigns(path)))
    check_has_rows(path, rows)
    return rows


def _rows(path: Path, campaigns: Mapping[int, str]) -> Iterator[ServedRow]:
    for number, (_, line) in enumerate(csv_rows(text_of(path), str(path)), 1):
        given = {key: (value or "").strip() for key, value in line.items() if isinstance(value, str)}
        campaign = given.get("campaign") or campaigns.get(number + 1) or _likely_campaign(given)
        version = given.get("backend_version")
        engine = f"{given.get('backend')}:{version}" if version else given.get("backend", "")
        case, why = None, ""
        try:
            case = _case(given, campaign, engine, path.parent)
        except (EtSimError, KeyError, ValueError) as error:
            why = reason(error)
        named = (campaign, given.get("model_path", ""), given.get("system", ""), engine)
        yield ServedRow(number, *named, _time(given, "ttft_ms"), _time(given, "tpot_ms"), case, why)


def _campaigns(path: Path) -> dict[int, str]:
    """Return the campaign of each line that the file beside this one names."""
    beside = path.with_name(f"{path.stem}_rows.csv")
    if not beside.is_file():
        return {}
    lines = csv_rows(text_of(beside), str(beside))
    try:
        return {int(line["row"]): line["campaign"] for _, line in lines}
    except (KeyError, TypeError, ValueError):
        raise UsageError(
            f"{beside} is no list of campaigns", remedy="give the columns row,campaign"
        ) from None


def _likely_campaign(line: Mapping[str, str]) -> str:
    lengths = line.get("isl"), line.get("osl")
    is_closed = lengths in [(str(prompt), str(output)) for prompt, output in CLOSED_LENGTHS]
    return CLOSED_CAMPAIGN if is_closed else OPEN_CAMPAIGN


def _time(line: Mapping[str, str], name: str) -> float | None:
    try:
        time = float(line.get(name, ""))
    except ValueError:
        return None
    return time if 0 < time < 1e12 else None


def _count(line: Mapping[str, str], name: str, usual: int | None = None) -> int:
    word = line.get(name, "")
    if not word and usual is not None:
        return usual
    try:
        number = int(float(word))
    except (ValueError, OverflowError):
        number = -1
    if not 0 <= number <= 10**6:
        raise ValueError(f"{name} is {word!r} (allowed: an integer from 0 to 1,000,000)")
    return number


def _case(line: Mapping[str, str], campaign: str, engine: str, folder: Path) -> ServingCase:
    mode = line.get("mode") or AGGREGATED
    if mode not in MODES:
        raise ValueError(f"mode is {mode!r} (known: {', '.join(MODES)})")
    model = model_named(line["model_path"], folder)
    is_closed = campaign == CLOSED_CAMPAIGN
    under_way = _count(line, "concurrency", 0) or _count(line, "batch_size", 0)
    if not under_way:
        raise ValueError("neither concurrency nor batch_size is stated")
    lengths = SHORTEST if is_closed else 1.0
    load = Load(under_way, _count(line, "isl"), _count(line, "osl"), lengths)
    if mode == APART:
        return _apart(line, model, engine, load)
    plan = _plan(line, model, "", may_be_square=is_closed)
    return ServingCase(model, _machine(line["system"], plan.ranks), plan, engine, load)


def _apart(line: Mapping[str, str], model: str, engine: str, load: Load) -> ServingCase:
    """Return a serving with replicas of their own for prompts and for tokens."""
    lacking = [name for side in _SIDES for name in (f"{side}tp_size", f"{side}workers") if not line.get(name)]
    if lacking:
        wanted = ", ".join(f"{side}{name}" for side in _SIDES for name in ("tp_size", "workers"))
        raise ValueError(f"rows of mode {APART} need the columns {wanted} and may have more of each side")
    plans = [_plan(line, model, side, may_be_square=False) for side in _SIDES]
    prefill, decode = (_count(line, f"{side}workers") for side in _SIDES)
    first, second = (plan.ranks for plan in plans)
    ranks = -(-prefill * first // second) * second + decode * second
    whole = -(-ranks // max(first, second)) * max(first, second)
    machine = _machine(line["system"], whole)
    return ServingCase(model, machine, plans[0], engine, load, plans[1], (prefill, decode))


def _plan(line: Mapping[str, str], model: str, side: str, *, may_be_square: bool) -> Plan:
    tensor, stages = _count(line, f"{side}tp_size"), _count(line, f"{side}pp_size", 1) or 1
    of_each, spread = (_count(line, f"{side}{name}", 1) or 1 for name in ("moe_tp_size", "moe_ep_size"))
    replicas = _count(line, f"{side}attention_dp_size", 0)
    if may_be_square and of_each == spread > 1 and max(tensor, 1) * max(replicas, 1) == spread**2:
        is_parallel = tensor <= 1  # attention is data-parallel
        tensor, of_each, replicas = (1, 1, spread) if is_parallel else (spread, 1, 1)
    if not replicas:
        replicas = max(of_each * spread // tensor, 1)
    return Plan(tensor=tensor, pipeline=stages, data=replicas, expert=spread, **_numbers(line, model))


def _numbers(line: Mapping[str, str], model: str) -> dict[str, Any]:
    """Return the numbers of products and of the cache of a plan.

    Experts of gpt-oss have four bits however rows name them, and published weights of DeepSeek-V3 and Qwen3
    in fp8 have scales of blocks. Engines cache keys and values in fp8 where a checkpoint has tensors in fp8,
    but for SGLang.
    """
    mode = line.get("gemm_quant_mode") or line.get("precision") or ""
    if mode == "fp8" and _QWEN_BLOCKS.fullmatch(line.get("model_path") or ""):
        mode = "fp8_block"
    if mode not in _PRODUCTS:
        raise ValueError(f"products in {mode} cannot be expressed")
    if model.startswith("gpt-oss"):
        return {"expert_products": "mxfp4"}
    is_in_blocks = mode == "fp8_block" or (mode == "fp8" and model == "deepseek-v3")
    of_experts = "fp8_block" if is_in_blocks else line.get("moe_quant_mode") or mode
    if of_experts not in _PRODUCTS:
        raise ValueError(f"experts in {of_experts} cannot be expressed")
    is_cached = mode.startswith(("fp8", "nvfp4")) and mode != "fp8_block" and line["backend"] != "sglang"
    return {
        "products": _PRODUCTS["fp8_block" if is_in_blocks else mode],
        "expert_products": _PRODUCTS[of_experts],
        "cache_type": "fp8" if is_cached else "",
    }


def _machine(system: str, ranks: int) -> str:
    if (name := machine_named(system)) is None:
        raise ValueError(f"no preset for the system {system!r}")
    return f"{name}:{ranks}"


MODELS = "models"  # a folder beside the file of rows, with NAME.json
_LEFT_OUT = (
    *("instruct", "chat", "base", "thinking", "hf", "it", "dynamic", "block", "kv", "v2"),
    *("fp8", "fp4", "nvfp4", "mxfp4", "bf16", "int4", "awq", "w4a16", "w8a8"),
)
_RENAMED = (  # other names of the same dimensions
    (r"llama-?3\.[13]-(\d+b)", r"llama3-\1"),
    (r"llama-?3\.1-(\d+b)", r"llama3-\1"),
    (r"llama-?([23])-(\d+b)", r"llama\1-\2"),
    (r"llama-4-(scout|maverick).*", r"llama4-\1"),
    (r"deepseek-r1", "deepseek-v3"),
    (r"deepseek-v3\.1", "deepseek-v3"),
    (r"kimi-k2\.\d+", "kimi-k2"),
    (r"minimax-m2\.\d+", "minimax-m2"),
    (r"glm-4\.[67]", "glm-4.5"),
    (r"(qwen3-next-80b).*", r"\1"),
    (r"gemma-3-(\d+b)", r"gemma3-\1"),
    (r"mixtral-(8x\d+b)-v0\.1", r"mixtral-\1"),
)


def model_named(path: str, folder: Path) -> str:
    """Return the preset, or the file in the folder of models, that a path on a hub names."""
    name = path.rstrip("/").rpartition("/")[2].lower()
    words = [word for word in name.split("-") if word not in _LEFT_OUT and not re.fullmatch(r"\d{4}", word)]
    plain = "-".join(words)
    known = preset_names()
    renamed = (re.sub(f"^{old}$", new, plain) for old, new in _RENAMED)
    for form in (name, plain, *renamed):
        if form in known:
            return form
        if (file := folder / MODELS / f"{form}.json").is_file():
            return str(file)
    raise ValueError(f"there is no model for {path!r} (give {MODELS}/{plain}.json beside the file)")
