"""Rows of kernels and exchanges of inference engines, in the words of their tables.

`decode_attention BATCH HEADS KEY_HEADS CACHED WIDTH DTYPE CACHE_DTYPE` is one new token of each sequence;
`decode_attention_window` has the window in place of DTYPE. `mla_decode BATCH HEADS CACHED DTYPE CACHE_DTYPE`
and `mla_prefill BATCH HEADS TOKENS …` read a compressed cache of 512 + 64 values.

`allreduce RANKS BYTES DTYPE graph|eager` is the engine's own, and `deepep_low_latency` and `deepep_normal`
(`dispatch|combine NODES TOKENS HIDDEN CHOSEN EXPERTS [SMS]`) exchange the tokens of each rank of nodes of 8.

`moe TOKENS HIDDEN WIDTH CHOSEN EXPERTS TP EP DTYPE LOADS KERNEL` are the routed experts of one rank. TOKENS
are those of all ranks that share the experts. LOADS are `balanced`, where choices use as many experts as
possible equally, or `power_law_ALPHA`: loads of experts are quantiles of a power law from one token to 0.8 of
all, and the rank is the one with the busiest expert. The kernels are two grouped products and the activation
between them; their launches include sorting rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from et_sim.basics.engine_names import DEEPEP, LOW_LATENCY, SGLANG, TRTLLM, VLLM
from et_sim.basics.kernel_names import BLOCK_SCALES, FP8_CACHE, NARROW_WEIGHTS
from et_sim.machine.collective_library.engines import copies
from et_sim.machine.datatypes import datatype_named
from et_sim.trace import shapes
from et_sim.validation.row import Collective, KernelPart, KernelRow

LATENT, ROTARY = 512, 64
NODE = 8
SCALE = 4 / 128  # bytes of scales for each value in fp8
WORDS = {"vllm": VLLM, "sglang": SGLANG, "tensorrt-llm": TRTLLM}
EXCHANGES: Mapping[str, str] = MappingProxyType({"deepep_low_latency": LOW_LATENCY, "deepep_normal": DEEPEP})


def engine_of(facts: Mapping[str, Any]) -> str:
    """Return the engine that a table's software names, or an empty string."""
    text = str(facts.get("software", "")).lower()
    return next((engine for word, engine in WORDS.items() if word in text), "")


def engine_job(text: str, facts: Mapping[str, Any]) -> KernelRow | Collective | None:
    """Return the job of a row in these words; None for a row in others.

    Raise ValueError for words that cannot be read.
    """
    kind, *words = text.split()
    read = READERS.get(kind)
    if read is None:
        return None
    try:
        return read(kind, words, engine_of(facts))
    except (IndexError, ZeroDivisionError) as error:
        raise ValueError(f"{text!r} lacks sizes") from error


def _decode(kind: str, words: list[str], engine: str) -> KernelRow:
    batch, heads, key_heads, cached, width = (_size(words[at]) for at in range(5))
    keys = cached + 1
    if kind.endswith("window"):
        keys = min(keys, _size(words[5]))
    kernel = FP8_CACHE if datatype_named(words[6]) == "fp8" else ""
    shape = shapes.attention(batch, heads, 1, keys, width, key_heads=key_heads, kernel=kernel)
    return KernelRow(shape, "bf16", engine=engine)


def _latent(kind: str, words: list[str], engine: str) -> KernelRow:
    batch, heads, tokens = (_size(words[at]) for at in range(3))
    queries = 1 if kind == "mla_decode" else tokens
    kernel = FP8_CACHE if datatype_named(words[4]) == "fp8" else ""
    shape = shapes.attention(
        batch,
        heads,
        queries,
        tokens,
        LATENT + ROTARY,
        key_heads=1,
        value_width=LATENT,
        causal=queries > 1,
        kernel=kernel,
    )
    return KernelRow(shape, datatype_named(words[3]) or "", engine=engine)


def _all_reduce(_: str, words: list[str], engine: str) -> Collective:
    ranks, size = (_size(words[at]) for at in range(2))
    datatype = datatype_named(words[2]) or ""
    return Collective("all_reduce", size, ranks, 1, datatype, engine=engine, eager=words[3] == "eager")


def _experts(kind: str, words: list[str], _: str) -> Collective:
    nodes, tokens, hidden, chosen = (_size(words[at]) for at in range(1, 5))
    kernels, ranks = EXCHANGES[kind], NODE * nodes
    each = 2 if words[0] == "combine" else 1 + SCALE
    size = round(tokens * copies(kernels, chosen, ranks) * hidden * each)
    limit = _size(words[6]) if len(words) > 6 else 0
    return Collective("all_to_all", size, ranks, nodes, expert_exchange=kernels, processors=limit)


def _size(word: str) -> int:
    size = int(word)
    if not 1 <= size <= 1 << 40:
        raise ValueError(f"the size is {word} (allowed: 1 to 2^40)")
    return size


READERS: Mapping[str, Callable[[str, list[str], str], KernelRow | Collective]] = MappingProxyType(
    {
        "decode_attention": _decode,
        "decode_attention_window": _decode,
        "mla_decode": _latent,
        "mla_prefill": _latent,
        "allreduce": _all_reduce,
        "moe": lambda _, words, engine: experts_row(words, engine),
        **dict.fromkeys(EXCHANGES, _experts),
    }
)


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
