"""Changes of a network while a run goes on: the loop stops before each, and Python makes it.

So compiled code needs nothing for runs without changes.
"""

from __future__ import annotations

from et_sim.engine.calendar.clock import stop_before
from et_sim.engine.pools import Reserve, grow_pools
from et_sim.engine.state.run import LATEST, Run
from et_sim.engine.transport.network_seam import NetworkModel
from et_sim.machine.model import Network


class Changes:
    """The changes of a network that are still to come in a run."""

    def __init__(self, model: NetworkModel, network: Network, run: Run) -> None:
        self._model, self._network = model, network
        self._latest = int(run.plan.settings[LATEST])
        self._states = model.link_states(network)[1:] if network.failures else []
        self._states.reverse()
        self._limit(run)

    def _limit(self, run: Run) -> None:
        if self._states:
            run.plan.settings[LATEST] = min(self._latest, self._next_ns - 1)
        else:
            run.plan.settings[LATEST] = self._latest

    @property
    def _next_ns(self) -> int:
        return int(self._states[-1].begins_ns) << self._network.fraction_bits

    @property
    def is_due(self) -> bool:
        """Return whether a run that came to its latest time has to go on after a change."""
        return bool(self._states) and self._next_ns <= self._latest

    def made(self, run: Run, reserve: Reserve) -> Run:
        """Return the run after the next change, at its time."""
        from et_sim.compiled.interpreted import interpret

        more = self._model.events_of_change(run)
        run = grow_pools(run, reserve._replace(rows=reserve.rows + more), self._model)
        interpret(stop_before, (run, self._next_ns))
        run = self._model.changed(run, self._network, self._states.pop())
        self._limit(run)
        return run
