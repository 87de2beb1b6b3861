"""Kernels that measured times include in addition to the named one, by the words of their table.

A product in 8 bits or less that a framework runs on activations in 16 bits first converts these to its
datatype. Attention of an inference engine writes keys and values of each token into its cache, rows that an
index names, as an embedding reads them. Both are kernels of their own, with a launch: a training step has
them, if any, as nodes beside the product.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from et_sim.machine.datatypes import BITS, datatype_named

QUANTISES = re.compile(r"quanti[sz]\w*\s+(?:of\s+)?(?:the\s+)?(?:activations|inputs)", re.IGNORECASE)
WRITES_CACHE = re.compile(r"writes\s+the\s+KV\s+cache", re.IGNORECASE)
WIDE = 16  # bits of activations before they are quantised


def included_kernels(facts: Mapping[str, Any], shape: str) -> tuple[str, ...]:
    """Return the shapes of the kernels that the time of a row includes, in the datatype of the row."""
    text = f"{facts.get('software', '')}; {facts.get('how', '')}"
    kind, *words = shape.split()
    if not all(word.isascii() and word.isdecimal() for word in words[:6]):
        return ()
    bits = BITS.get(datatype_named(str(facts.get("dtype", ""))) or "", WIDE)
    if kind == "gemm" and len(words) == 3 and bits < WIDE and QUANTISES.search(text):
        return (f"quantise {words[0]} {words[2]}",)
    if kind == "attention" and len(words) >= 6 and WRITES_CACHE.search(text):
        batch, _, key_heads, _, keys, width, *rest = words
        value_width = rest[0] if rest and rest[0].isdecimal() else width
        written = int(key_heads) * (int(width) + int(value_width))
        return (f"embedding {int(batch) * int(keys)} {written}",)
    return ()
