"""What nodes are drawn as: their kind, and kernels of the backward pass, if names tell, as a kind of it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from et_sim.views.drawing.colours import BACKWARD

_TOLD = re.compile(r"(?<![a-z])(?:backward|bwd)(?![a-z])", re.IGNORECASE)


def is_backward(names: Sequence[str | None]) -> Any:
    """Which of these names are of the backward pass."""
    return np.array([_TOLD.search(name or "") is not None for name in names], np.bool_)


def drawn_kinds(kind: Any, name: Any, kinds: Sequence[str | None], backward: Any) -> Any:
    """Codes of kinds, where that of the backward pass follows all others."""
    compute = kinds.index("compute") if "compute" in kinds else -1
    return np.where((kind == compute) & backward[name], kinds.index(BACKWARD), kind)
