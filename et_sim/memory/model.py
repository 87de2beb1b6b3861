"""The seam of memory models: what a request to remote memory costs, and who waits for whom.

A model is one module in this folder and one line in `registry`. Requests of one server are served one after
the other, in the order in which they come; the engine does that. A model with a `pool` (`machine.memory`)
says instead which stages requests pass. Not here: local memory (`footprint`).
"""

from __future__ import annotations

from typing import Protocol, Self

from et_sim.machine.model import Machine
from et_sim.trace.columns import IntColumn, RowColumn, Trace

NO_SERVER = -1


class MemoryModel(Protocol):
    """A remote memory."""

    @classmethod
    def of(cls, machine: Machine) -> Self | None:
        """The memory of a machine; None if it has no memory of this kind."""

    def needs(self) -> tuple[str, ...]:
        """The attributes that every request must have."""

    def service_ns(self, trace: Trace, rows: IntColumn) -> IntColumn:
        """How long a server is busy with each of the requests at these rows; in a pool, how long each takes
        that is alone."""

    def server_of_ranks(self, ranks: RowColumn) -> RowColumn:
        """The server at which the requests of each rank queue; NO_SERVER: they never wait."""
