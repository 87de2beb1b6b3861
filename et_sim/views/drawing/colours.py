"""The colours of kinds, told apart by people who see colours differently, on paper and on dark screens.

The first eight are those of Okabe and Ito; the others were chosen by their lightness beside them. Colour is
never all that tells kinds apart: lanes have places and labels, nodes have names.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

_TOLD = re.compile(r"(?<![a-z])(?:backward|bwd)(?![a-z])", re.IGNORECASE)


def is_backward(names: Sequence[str | None]) -> Any:
    """Which of these names are of the backward pass."""
    return np.array([_TOLD.search(name or "") is not None for name in names], np.bool_)


def drawn_kinds(kind: Any, name: Any, kinds: Sequence[str | None], backward: Any) -> Any:
    """Codes of kinds, where that of the backward pass follows all others."""
    compute = kinds.index("compute") if "compute" in kinds else -1
    return np.where((kind == compute) & backward[name], kinds.index(BACKWARD), kind)


NEVER = "never completed"
BACKWARD = "backward"  # of kernels
EARLY = "#d9ecd9"  # what has nothing more to do: the palest, but no paper
OUTLINE = "#8d99a6"  # of legends
COLOURS: Mapping[str, str] = MappingProxyType(
    {
        "compute": "#0072b2",
        BACKWARD: "#43358f",
        "all_reduce": "#e69f00",
        "all_gather": "#f0e442",
        "reduce_scatter": "#d55e00",
        "all_to_all": "#cc79a7",
        "send": "#009e73",
        "receive": "#56b4e9",
        "host": "#8d99a6",
        "gap": "#d3d8de",
        "broadcast": "#882255",
        "reduce": "#aa6f3c",
        "gather": "#b5b35c",
        "scatter": "#7a4fa3",
        "barrier": "#4a4a4a",
        "memory_load": "#44aa99",
        "memory_store": "#117733",
        "communication": "#a65628",
        "storage": "#6b5b4b",
        "batch": "#9c8f7a",
        "checkpoint": "#5d7a8c",
        "copy": "#6699cc",
        NEVER: "#c00000",
    }
)
OTHER = "#7d7d7d"
IDLE = "#bfc4c9"
# Of the parts of the time of ranks. Transfer is solid and waiting pale; both are told from the rest by their
# lightness, too.
PART_COLOURS: Mapping[str, str] = MappingProxyType(
    {
        "compute_ns": "#0072b2",
        "exposed_comm_ns": "#e69f00",
        "exposed_memory_ns": "#117733",
        "waiting_ns": "#f4cfe2",
        "host_ns": "#8d99a6",
        "idle_ns": IDLE,
        "early_ns": EARLY,
    }
)
# What is too dark for a dark background.
LIGHTER: Mapping[str, str] = MappingProxyType(
    {
        "compute": "#2b8fd0",
        BACKWARD: "#8f80e0",
        "gap": "#4b555f",
        "broadcast": "#c2578c",
        "scatter": "#a77fce",
        "barrier": "#a0a0a0",
        "memory_store": "#3fae6a",
        NEVER: "#ff6b6b",
    }
)


def colour_of(kind: str) -> str:
    """The colour of a kind; kinds that have none share one."""
    return COLOURS.get(kind, OTHER)


def lighter(kind: str) -> str:
    """The same on a dark background."""
    return LIGHTER.get(kind, colour_of(kind))
