"""The record of what let everything happen, as the analyses share it.

Not here: how it is read (`events`).
"""

from __future__ import annotations

from functools import cached_property

from et_sim.views.critical.chain import Chain, chain
from et_sim.views.critical.condensed import Condensed, condensed
from et_sim.views.critical.events import RecordedEvents


class PathRecord(RecordedEvents):
    """The causal events of a run; what is found in them is kept."""

    @cached_property
    def chain(self) -> Chain:
        """The critical path."""
        return chain(self)

    @cached_property
    def condensed(self) -> Condensed:
        """All events that decide times."""
        _ = self.chain  # finding it shows that events follow from each other
        return condensed(self)
