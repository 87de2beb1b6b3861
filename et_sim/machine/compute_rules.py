"""Which kernels a compute model is for, and with what it times them.

Not here: reading them (`compute_object`), and applying them (`et_sim.compute.rules`).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, Self


class WorkOf(StrEnum):
    """What a device does with a node."""

    KERNEL = "kernel"
    COPY = "copy"


@dataclass(frozen=True, slots=True)
class Recorded:
    """Kernels take their recorded times."""

    @property
    def figures(self) -> tuple[str, ...]:
        """None."""
        return ()

    def scaled(self, name: str, multiple: float) -> None:
        """There is nothing to multiply."""


class Settings(Protocol):
    """What a model needs to time kernels: it names its own figures."""

    @property
    def figures(self) -> tuple[str, ...]:
        """Names of what can be multiplied, as the critical path has them where it can predict them."""

    def scaled(self, name: str, multiple: float) -> tuple[Self, float] | None:
        """The same with one of them multiplied, and by what in the end; None: it has no such figure."""


@dataclass(frozen=True, slots=True)
class Where:
    """Nodes of which all that is given holds."""

    name: str | None = None  # a regular expression that the whole name matches
    kind: WorkOf | None = None
    operations: tuple[str, ...] = ()
    datatype: str | None = None
    attribute: str | None = None  # that the node carries
    value: str | int | None = None  # of the attribute
    ranks: tuple[range, ...] | None = None  # None: all


@dataclass(frozen=True, slots=True, eq=False)
class ComputeRule:
    """A model for some kernels."""

    settings: Settings
    label: str  # what the timeline calls the model
    where: Where | None = None  # None: all that are left
    place: str = ""
    files: tuple[tuple[str, str], ...] = ()  # (path, content hash) of what its settings were read from
