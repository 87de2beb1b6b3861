"""Types of the numbers of a plan, and the devices that compute with them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from et_sim.basics.errors import FieldError

BY_BYTES = {1: "fp8", 2: "bf16", 4: "fp32"}
CACHE_BITS = {"bf16": 16, "fp16": 16, "fp8": 8, "int8": 8, "fp4": 4}  # of cached keys and values
HALF = 2  # bytes of the types below
HALVES = BF16, FP16 = "bf16", "fp16"


def fields_of_machine(node: int, peaks: Collection[str], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a plan that a machine decides if the plan does not give them.

    `node` is the number of ranks of a node, and `peaks` are the types that its devices compute with.
    """
    decided: dict[str, Any] = {"node_ranks": node}
    if given.get("value_bytes", HALF) == HALF and FP16 in peaks and BF16 not in peaks:
        decided["value_type"] = FP16
    return decided


def check_value_type(given: str, value_bytes: int) -> None:
    """Refuse a type of values that is not known, or has other bytes."""
    if given and given not in HALVES:
        raise FieldError(f"`value_type` is {given!r}", remedy=f"known: {', '.join(HALVES)}")
    if given and value_bytes != HALF:
        raise FieldError(
            f"`value_type` is {given}, whose values have {HALF} bytes, and `value_bytes` is {value_bytes}",
            remedy="leave one of them out",
        )


def check_peaks(values: str, products: str, peaks: Collection[str], device: str) -> None:
    """Refuse types of values and products for which a device has no rate; without peaks, none is refused."""
    for of, datatype, option in (
        ("values are", values, "`value_type` or `value_bytes`"),
        ("products with weights compute in", products, "`products`"),
    ):
        if peaks and datatype and datatype not in peaks:
            raise FieldError(
                f"{of} {datatype}, for which {device} has no rate: it has {', '.join(peaks)}",
                remedy=f"change {option}, or choose another machine",
            )
