"""Types of numbers for which peaks are known, their sizes, and their other names."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from et_sim.documents.keys import Slot, ValueKind, nearest, show
from et_sim.documents.kinds import TEXT

ANY = ""  # in place of a datatype: all of them
# Bits of a number, by name.
BITS: Mapping[str, int] = MappingProxyType(
    {
        "fp64": 64,
        "fp32": 32,
        "tf32": 32,  # held in 32 bits, multiplied with 19 of them
        "bf16": 16,
        "fp16": 16,
        "fp8": 8,
        "fp6": 6,
        "fp4": 4,
        "int32": 32,
        "int8": 8,
        "int4": 4,
    }
)

# Other names; case and a prefix up to the last colon (`c10::BFloat16`) are ignored as well.
_ALSO: Mapping[str, str] = MappingProxyType(
    {
        "double": "fp64",
        "float64": "fp64",
        "float": "fp32",
        "float32": "fp32",
        "single": "fp32",
        "bfloat16": "bf16",
        "half": "fp16",
        "float16": "fp16",
        "float8_e4m3fn": "fp8",
        "float8_e5m2": "fp8",
        "float8_e4m3fnuz": "fp8",
        "float8_e5m2fnuz": "fp8",
        "fp8_e4m3": "fp8",
        "fp8_e5m2": "fp8",
        "mxfp8": "fp8",
        "mxfp4": "fp4",
        "nvfp4": "fp4",
        "float4_e2m1fn_x2": "fp4",
        "int": "int32",
        "signed char": "int8",
        "char": "int8",
    }
)


def datatype_named(word: str) -> str | None:
    """Return the name of a type, given any of its spellings, or None if it is unknown."""
    short = word.strip().rpartition(":")[2].lower()
    short = _ALSO.get(short, short)
    return short if short in BITS else None


def _datatype(slot: Slot, value: Any) -> str:
    known = datatype_named(TEXT.read(slot, value))
    if known is None:
        remedy = f"{nearest(value, BITS)} known: {', '.join(BITS)}".strip()
        raise slot.section.fault(f'key "{slot.key.name}" is {show(value)}', remedy)
    return known


DATATYPE = ValueKind("datatype", TEXT.allowed, _datatype)  # by any of its names
