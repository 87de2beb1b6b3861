"""Rows of routed experts of one rank: `moe TOKENS HIDDEN WIDTH CHOSEN EXPERTS TP EP DTYPE LOADS KERNEL`.

TOKENS are those of all ranks that share the experts. LOADS are `balanced`, where choices use as many experts
as possible equally, or `power_law_ALPHA`: loads of experts are quantiles of a power law from one token to 0.8
of all, and the rank is the one with the busiest expert.

The kernels are two grouped products and the activation between them; their launches include sorting rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from et_sim.basics.kernel_names import BLOCK_SCALES, NARROW_WEIGHTS
from et_sim.trace import shapes
from et_sim.validation.row import KernelPart, KernelRow

HIGHEST = 0.8  # part of the tokens that choose the busiest expert
POWER_LAW, BALANCED = "power_law_", "balanced"
NARROW = 17 / 32  # bytes of a weight in mxfp4, with its part of the scale
KERNELS = {"fp8_block": BLOCK_SCALES, "w4a16_mxfp4": NARROW_WEIGHTS}
TYPES = {"bfloat16": "bf16", "fp8": "fp8", "fp8_block": "fp8", "w4a16_mxfp4": "bf16"}


def experts_row(words: list[str], engine: str) -> KernelRow:
    """Return the kernels of a row, without its first word."""
    tokens, hidden, width, chosen, experts, tensor, expert = (int(words[at]) for at in range(7))
    if min(tokens, hidden, width, chosen, experts, tensor, expert) < 1 or words[7] not in TYPES:
        raise ValueError(f"'{' '.join(words)}' has a size below 1, or numbers other than {', '.join(TYPES)}")
    rows = loads_of_rank(tokens, chosen, experts, expert, words[8])
    inner, kernel = max(width // tensor, 1), KERNELS.get(words[7], "")
    products = ((2 * inner, hidden), (hidden, inner))
    up, down = (
        KernelPart(
            shapes.grouped_gemm(outputs, inputs, rows, kernel=kernel),
            TYPES[words[7]],
            _narrow_bytes(rows, outputs, inputs) if words[7] == "w4a16_mxfp4" else 0,
        )
        for outputs, inputs in products
    )
    activation = KernelPart(shapes.elementwise(sum(rows) * inner, 2), "bf16")
    return KernelRow(up.shape, up.datatype, engine=engine, bytes=up.bytes, beside=(activation, down))


def _narrow_bytes(rows: list[int], outputs: int, inputs: int) -> int:
    return round(len(rows) * outputs * inputs * NARROW + 2 * sum(rows) * (outputs + inputs))


def loads_of_rank(tokens: int, chosen: int, experts: int, ranks: int, loads: str) -> list[int]:
    """Return the rows of each busy expert of a rank."""
    total = tokens * chosen
    if loads == BALANCED:
        local = -(-min(experts, total) // ranks)
        return [max(round(total / ranks / local), 1)] * local
    if not loads.startswith(POWER_LAW):
        raise ValueError(f"the loads are {loads!r} (allowed: {BALANCED}, or {POWER_LAW}ALPHA)")
    every = np.sort(_power_law(tokens, total, experts, float(loads.removeprefix(POWER_LAW))))[::-1]
    mine = every[::ranks]
    return [int(row) for row in mine if row] or [1]


def _power_law(tokens: int, total: int, experts: int, alpha: float) -> Any:
    """Return whole loads of all experts, which add up to all choices, each at most all tokens."""
    most = max(HIGHEST * tokens, 1.0001) ** (1 - alpha) - 1
    drawn = (most * (np.arange(experts) + 0.5) / experts + 1) ** (1 / (1 - alpha))
    wanted = np.minimum(drawn / drawn.sum() * total, tokens)
    whole = np.floor(wanted)
    left = round(total - whole.sum())
    if left > 0:
        whole[np.argsort(whole - wanted, kind="stable")[:left]] += 1
    return whole.astype(np.int64)
