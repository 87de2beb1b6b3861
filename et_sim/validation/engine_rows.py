"""Rows of kernels and exchanges of inference engines, in the words of their tables.

`decode_attention BATCH HEADS KEY_HEADS CACHED WIDTH DTYPE CACHE_DTYPE` is one new token of each sequence;
`decode_attention_window` has the window in place of DTYPE. `mla_decode BATCH HEADS CACHED DTYPE CACHE_DTYPE`
and `mla_prefill BATCH HEADS TOKENS …` read a compressed cache of 512 + 64 values.

`allreduce RANKS BYTES DTYPE graph|eager` is the engine's own, and `deepep_low_latency` and `deepep_normal`
(`dispatch|combine NODES TOKENS HIDDEN CHOSEN EXPERTS [SMS]`) exchange the tokens of each rank of nodes of 8.
`moe` are routed experts (`engine_experts`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from et_sim.basics.engine_names import DEEPEP, LOW_LATENCY, SGLANG, TRTLLM, VLLM
from et_sim.basics.kernel_names import FP8_CACHE
from et_sim.machine.collective_library.engines import copies
from et_sim.machine.datatypes import datatype_named
from et_sim.trace import shapes
from et_sim.validation.engine_experts import experts_row
from et_sim.validation.row import Collective, KernelRow

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
