"""What the recording of one rank consists of, and the file in which a recorded process hands it over.

Nodes stand in the order in which the program issued them; what a node comes after is told by the places of
earlier ones.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

import msgspec


class Work(StrEnum):
    """Kinds of nodes."""

    KERNEL = "kernel"
    COPY = "copy"
    HOST = "host"
    COLLECTIVE = "collective"
    SEND = "send"
    RECEIVE = "receive"


class Phase(StrEnum):
    """Parts of a training step."""

    SETUP = "setup"
    FORWARD = "forward"
    BACKWARD = "backward"
    RECOMPUTE = "recompute"
    OPTIMIZER = "optimizer"


SPREAD = "values are spread"  # how the remark on a count of experts begins


class Routing(NamedTuple):
    """How tokens are spread over experts, as `et-sim make llm` is told."""

    skew: str = ""  # even
    seed: int = 0


class Node(msgspec.Struct, array_like=True):
    """One piece of work; -1 and empty texts stand for what it has not."""

    work: Work
    operator: str
    module: str
    phase: Phase
    step: int  # -1: before the first one
    stream: int
    after: list[int]
    shape: str = ""
    dtype: str = ""
    operations: int = -1
    bytes: int = -1  # that a kernel reads and writes; that a rank puts into communication
    collective: str = ""
    group: int = -1  # index into `groups`
    root: int = -1
    peer: int = -1
    tag: int = 0
    splits: list[int] = []
    reads: list[int] = []  # indices into `tensors`
    writes: list[int] = []

    def title(self) -> str:
        """What the node is called in traces."""
        step = "" if self.step < 0 else f"step {self.step} "
        module = f"{self.module} " if self.module else ""
        return f"{step}{self.phase.value} {module}{self.operator}"


class Group(msgspec.Struct):
    """A process group that the rank is a member of."""

    members: list[int]
    name: str


class Remark(msgspec.Struct):
    """Something that whoever reads the results must know."""

    kind: str
    text: str
    place: str
    count: int = 1


class Recorded(msgspec.Struct):
    """All of one rank."""

    rank: int
    world: int
    nodes: list[Node] = []
    groups: list[Group] = []
    tensors: list[tuple[str, int]] = []  # name and bytes
    remarks: list[Remark] = []
    weights: int = 0
    steps: int = 0
    peak_bytes: int = 0
    torch: str = ""
    stopped: str = ""  # why the program was not recorded to its end


def write_recorded(recorded: Recorded, path: Path) -> None:
    """For the process that asked for it."""
    path.write_bytes(msgspec.msgpack.encode(recorded))


def read_recorded(path: Path) -> Recorded:
    """What a recorded process wrote."""
    return msgspec.msgpack.decode(path.read_bytes(), type=Recorded)
