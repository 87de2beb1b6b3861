"""The step of a job in figures."""

from __future__ import annotations

import math

from msgspec import Struct


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
