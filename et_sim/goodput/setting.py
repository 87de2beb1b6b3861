"""A long job and its step in numbers: times in seconds, rates of the whole job."""

from __future__ import annotations

import math
from enum import IntEnum

from msgspec import Struct


class Loss(IntEnum):
    """The causes of lost time; those of a restart are in the order of its phases."""

    CHECKPOINT = 0
    DETECTION = 1
    DRAIN = 2
    SCHEDULE = 3
    REPAIR = 4
    START = 5
    LOAD = 6
    WARM_UP = 7
    MAINTENANCE = 8
    STEPS = 9
    CORRUPTION = 10
    SLOWER = 11


PHASES = Loss.MAINTENANCE + 1
LOSSES: tuple[str, ...] = (
    "checkpoints",
    "detection",
    "drain and search",
    "scheduling",
    "waiting for nodes",
    "start of groups",
    "loading",
    "warm-up",
    "planned maintenance",
    "steps lost",
    "steps lost to corruption",
    "slower steps",
)


class Part(Struct, frozen=True):
    """A kind of part that fails."""

    name: str
    rate: float  # failures of all such parts together, per second
    nodes: int = 0  # that a failure takes away
    detection: float = 0.0
    repair: float = 0.0
    slow_step: float = 0.0  # length of steps until the node is replaced; 0: they stop
    corrupts: bool = False  # steps are worthless until it is detected
    is_link: bool = False  # with a second port, steps would go on


class Cycle(Struct, frozen=True):
    """The rhythm of checkpoints: some steps, a copy in memory, and after several copies one in storage."""

    steps: int  # between two copies
    copies: int = 1  # copies of a cycle; without copies in memory, 1
    memory_stall: float = 0.0
    storage_stall: float = 0.0
    lag: float = 0.0  # from the end of the stall until the checkpoint in storage is complete
    survives: int = -1  # lost nodes at a time that copies in memory survive; -1: there are none


class Recovery(Struct, frozen=True):
    """The times of a restart."""

    drain: float = 0.0
    schedule: float = 0.0
    cold: float = 0.0
    start: float = 0.0
    load: float = 0.0
    memory_load: float = 0.0
    warm_up: float = 0.0
    write: float = 0.0  # of a checkpoint before a planned interruption


class Setting(Struct, frozen=True):
    """A job whose months are drawn."""

    step: float
    parts: tuple[Part, ...]
    cycle: Cycle
    recovery: Recovery = Recovery()
    fewer: tuple[tuple[float, float], ...] = ()  # step and share of its tokens with 1, 2, … nodes less
    half_link_step: float = 0.0  # length of steps where a GPU has half of its bandwidth
    early_factor: float = 1.0
    early_decay: float = 1.0
    hot: int = 0
    cold: int = 0
    every: float = 0.0  # between planned interruptions; 0: none
    maintenance: float = 0.0  # the length of each
    nodes: int = 1

    @property
    def rate(self) -> float:
        """Return the failures of all parts per second, of a machine that is no longer young."""
        return sum(part.rate for part in self.parts)


class JobStep(Struct, frozen=True):
    """A step of the healthy machine, and of the machine with faults."""

    seconds: float
    tokens: int
    gpus: int
    gpus_of_node: int
    source: str
    bytes: int | None = None  # weights and optimizer states
    price: float | None = None  # of a GPU for an hour
    currency: str = "USD"
    replicas: int = 1
    fewer: tuple[tuple[float, float], ...] = ()  # step and share of tokens with 1, 2, … nodes less
    slow: float = 0.0  # with a slow node; 0: not needed
    half_link: float = 0.0  # where a GPU has half of its bandwidth between nodes
    has_half_link: bool = False  # it was simulated
    copy_stall: float = 0.0  # by which copies of a checkpoint into the memory of other nodes lengthen a step
    write_stall: float | None = None  # by which writing a checkpoint lengthens steps; None: not simulated
    write: float = 0.0  # time of writing it beside steps
    port: float = math.inf  # bytes per second of a GPU's port to the storage
    notes: tuple[str, ...] = ()

    @property
    def nodes(self) -> int:
        """Return the nodes of the job."""
        return -(-self.gpus // self.gpus_of_node)
