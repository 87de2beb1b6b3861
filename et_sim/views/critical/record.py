"""The record of what let everything happen, as the analyses share it.

Not here: how it is read (`events`), and how what was found is kept for the next call (`kept`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

from et_sim.views.critical.chain import Chain, chain
from et_sim.views.critical.condensed import Condensed, condensed
from et_sim.views.critical.events import RecordedEvents
from et_sim.views.critical.kept import Kept, keep, kept, key_of
from et_sim.views.critical.kinds import NONE
from et_sim.views.run.directory import RunDirectory


class PathRecord(RecordedEvents):
    """The causal events of a run, and what is found in them."""

    def __init__(self, run: RunDirectory) -> None:
        super().__init__(run)
        self._key = key_of(run)
        self._kept: Kept | None = kept(run, self._key) if self._key else None

    @property
    def is_long(self) -> bool:
        """Whether what is found is kept, because finding it takes long."""
        return self._key is not None

    @cached_property
    def chain(self) -> Chain:
        """The critical path."""
        return self._kept.chain if self._kept else chain(self)

    @cached_property
    def condensed(self) -> Condensed:
        """All events that decide times."""
        _ = self.chain  # finding it shows that events follow from each other
        return condensed(self)

    @cached_property
    def slack(self) -> tuple[Any, Any]:
        """Rows of `nodes`, in the order in which these complete, and their slack in ns."""
        if self._kept and self._kept.slack:
            return self._kept.slack
        events = self.condensed
        known = events.ended != NONE
        return events.ended[known], events.slack_ns(self.makespan_ns)[known]

    @property
    def sensitivities(self) -> Sequence[dict[str, Any]] | None:
        """As they were kept, if they were."""
        return self._kept.sensitivities if self._kept else None

    @property
    def changes(self) -> Sequence[dict[str, Any]] | None:
        """The first of them as they were kept, if they were."""
        return self._kept.changes if self._kept else None

    def keep(self, sensitivities: Sequence[dict[str, Any]] | None) -> None:
        """Keep what was found for the next call, if that was long."""
        predicted = sensitivities is not None
        if self._key and (not self._kept or (predicted and self.sensitivities is None)):
            keep(
                self._run, self._key, Kept(self.chain, sensitivities, self.slack if predicted else None, None)
            )

    def keep_changes(self, changes: Sequence[dict[str, Any]]) -> None:
        """Keep how the first few change the makespan, where nobody asked for more."""
        if self._key:
            keep(self._run, self._key, Kept(self.chain, None, None, changes))
