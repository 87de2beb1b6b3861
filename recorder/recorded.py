"""The recording of one rank, and the file in which a recorded process returns it.

Nodes are in the order of issue; dependencies are indices of earlier nodes.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

import msgspec


class RecordedKind(StrEnum):
    """Kinds of nodes."""

    KERNEL = "kernel"
    COPY = "copy"
    HOST = "host"
    COLLECTIVE = "collective"
    SEND = "send"
    RECEIVE = "receive"


class StepPhase(StrEnum):
    """Parts of a training step."""

    SETUP = "setup"
    FORWARD = "forward"
    BACKWARD = "backward"
    RECOMPUTE = "recompute"
    OPTIMIZER = "optimizer"


SPREAD = "values are spread"  # beginning of the remark on a count of experts


class ExpertRouting(NamedTuple):
    """The distribution of tokens over experts, as in `et-sim make llm`."""

    skew: str = ""  # even
    seed: int = 0


class RecordedNode(msgspec.Struct, array_like=True):
    """One piece of work; -1 and empty texts stand for missing values."""

    work: RecordedKind
    operator: str
    module: str
    phase: StepPhase
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
        """Return the name of the node in traces."""
        step = "" if self.step < 0 else f"step {self.step} "
        module = f"{self.module} " if self.module else ""
        return f"{step}{self.phase.value} {module}{self.operator}"


class RecordedGroup(msgspec.Struct):
    """A process group of the rank."""

    members: list[int]
    name: str


class Remark(msgspec.Struct):
    """A fact that the readers of the results need."""

    kind: str
    text: str
    place: str
    count: int = 1


class RankRecording(msgspec.Struct):
    """The whole recording of one rank."""

    rank: int
    world: int
    nodes: list[RecordedNode] = []
    groups: list[RecordedGroup] = []
    tensors: list[tuple[str, int]] = []  # name and bytes
    remarks: list[Remark] = []
    weights: int = 0
    steps: int = 0
    peak_bytes: int = 0
    torch: str = ""
    stopped: str = ""  # the reason if the program was not recorded to its end
    needs: int = -1  # the rank whose values it waited for then


def write_recorded(recorded: RankRecording, path: Path) -> None:
    """Write the recording for the launching process."""
    path.write_bytes(msgspec.msgpack.encode(recorded))


def read_recorded(path: Path) -> RankRecording:
    """Read the recording of a process."""
    return msgspec.msgpack.decode(path.read_bytes(), type=RankRecording)
