"""Passes of micro-batches, told by the names of kernels.

A kernel belongs to a pass if its name begins with a direction and the number of a micro-batch, as in
"forward 3 layer 5 mlp" or "backward-weights 12", and then perhaps "chunk 1", for ranks that hold several
parts of the model. All other kernels are other work.
"""

from __future__ import annotations

import re
from typing import NamedTuple

FORWARD, BACKWARD = "forward", "backward"
INPUTS, WEIGHTS = "backward-inputs", "backward-weights"
DIRECTIONS = (FORWARD, BACKWARD, INPUTS, WEIGHTS)
_NAME = re.compile(rf"({'|'.join(DIRECTIONS)}) (\d{{1,9}})(?: chunk (\d{{1,9}}))?(?= |$)")


class Pass(NamedTuple):
    """A micro-batch through one part of the model."""

    direction: str
    micro_batch: int
    chunk: int = 0

    @property
    def label(self) -> str:
        """Short: "3", and of a second chunk "3b"."""
        return f"{self.micro_batch}{_letter(self.chunk)}"


def named_pass(name: str | None) -> Pass | None:
    """The pass that a kernel of this name belongs to."""
    found = _NAME.match(name or "")
    return Pass(found[1], int(found[2]), int(found[3] or 0)) if found else None


def _letter(chunk: int) -> str:
    if chunk == 0:
        return ""
    return chr(ord("a") + chunk) if chunk < 26 else f".{chunk}"
