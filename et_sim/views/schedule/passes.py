"""Passes of micro-batches, recognised by the names of kernels.

A kernel belongs to a pass if its name begins with a direction and the number of a micro-batch, as in
"forward 3 layer 5 mlp" or "backward-weights 12", and then perhaps "chunk 1", for ranks that hold several
parts of the model. All other kernels are other work.

How far each actor is from the beginning of the pipeline. An actor that has received something when its first
kernel begins stands behind the one that it came from; the others are the first stage.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import numpy as np

NEVER = np.iinfo(np.int64).max
UNKNOWN = -1


class Stages:
    """What arrived first, and when the first kernel began, for each actor."""

    def __init__(self, actors: int) -> None:
        self._arrived = np.full(actors, NEVER)
        self._source = np.full(actors, UNKNOWN)
        self._began = np.full(actors, NEVER)

    def received(self, actor: Any, peer: Any, end_ns: Any) -> None:
        """Messages that came."""
        order = np.lexsort((peer, end_ns, actor))
        actor, peer, end_ns = actor[order], peer[order], end_ns[order]
        firsts = np.flatnonzero(np.diff(actor, prepend=-1))
        earlier = firsts[end_ns[firsts] < self._arrived[actor[firsts]]]
        self._arrived[actor[earlier]] = end_ns[earlier]
        self._source[actor[earlier]] = peer[earlier]

    def computed(self, actor: Any, start_ns: Any) -> None:
        """Kernels that began."""
        np.minimum.at(self._began, actor, start_ns)

    def depths(self) -> list[int]:
        """The stage of each actor; -1 where messages go round in a circle."""
        is_behind = (self._arrived <= self._began) & (self._source >= 0) & (self._arrived < NEVER)
        source = np.where(is_behind, self._source, UNKNOWN).tolist()
        depth: dict[int, int] = {}
        for actor in range(len(source)):
            way: list[int] = []
            at, seen = actor, set()
            while at != UNKNOWN and at not in depth and at not in seen:
                seen.add(at)
                way.append(at)
                at = source[at]
            is_circle = at in seen
            reached = UNKNOWN if is_circle else depth.get(at, -1)
            is_known = not is_circle and (at == UNKNOWN or reached >= 0)
            for stage in reversed(way):
                reached = reached + 1 if is_known else UNKNOWN
                depth[stage] = reached
        return [depth[actor] for actor in range(len(source))]


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
    match = _NAME.match(name or "")
    return Pass(match[1], int(match[2]), int(match[3] or 0)) if match else None


def _letter(chunk: int) -> str:
    if chunk == 0:
        return ""
    return chr(ord("a") + chunk) if chunk < 26 else f".{chunk}"
