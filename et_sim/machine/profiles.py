"""What a profile decides, as a value: the corrections it makes, and what only ASTRA-sim 1.0 does.

Whatever differs between profiles is a field here, with one name for the rule and no mention of the profile
where the rule is applied. Not here: what the corrections mend (`corrections`).
"""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum

from et_sim.basics.quick_dataclass import quick_dataclass
from et_sim.machine.corrections import Correction


class Profile(StrEnum):
    """Whose behaviour is simulated, unless single corrections are switched."""

    REFERENCE = "reference"
    CORRECTED = "corrected"
    ASTRA_1 = "astra-1.0"


DEFAULT = Profile.REFERENCE  # where none is named


@quick_dataclass(frozen=True)
class Behaviour:
    """The rules of a profile."""

    profile: Profile
    corrections: frozenset[Correction] = frozenset()
    must_reach_all: bool = False  # a collective of all NPUs without an algorithm for a dimension is refused
    # Rules of ASTRA-sim 1.0:
    are_chunks_alike: bool = False  # all chunks of a collective have one size
    are_queues_shared_both_ways: bool = False  # an all-reduce uses all queues on its way in and out
    wait_by_input: bool = False  # "smallest first" goes by what a phase takes in, whatever it puts out
    sees_loads_of_this_time: bool = False  # greedy orders weigh what others planned in the same nanosecond
    are_programs_in_step: bool = False  # where all ranks run one program, their chunks start together
    has_top_priority: bool = False  # a high priority in the trace goes before the scheduling policy
    has_fractions_of_ns: bool = False  # contention adds up fractions of nanoseconds

    @property
    def switched(self) -> frozenset[Correction]:
        """Corrections that are switched on or off, other than the profile has them."""
        return self.corrections ^ _BEHAVIOURS[self.profile].corrections

    def corrects(self, correction: Correction) -> bool:
        """Whether a defect of the reference is corrected."""
        return correction in self.corrections


_BEHAVIOURS = {
    Profile.REFERENCE: Behaviour(Profile.REFERENCE),
    Profile.CORRECTED: Behaviour(Profile.CORRECTED, frozenset(Correction), must_reach_all=True),
    Profile.ASTRA_1: Behaviour(
        Profile.ASTRA_1,
        # what 1.0 has right where 2.x has not
        frozenset({Correction.ISSUE_AT_ONCE, Correction.DIMENSION_SCHEDULERS}),
        are_chunks_alike=True,
        are_queues_shared_both_ways=True,
        wait_by_input=True,
        sees_loads_of_this_time=True,
        are_programs_in_step=True,
        has_top_priority=True,
        has_fractions_of_ns=True,
    ),
}


def behaviour_of(profile: Profile, switches: dict[str, bool] | None = None) -> Behaviour:
    """The profile's behaviour, with single corrections switched."""
    behaviour = _BEHAVIOURS[profile]
    switched = {Correction(name): wanted for name, wanted in (switches or {}).items()}
    chosen = behaviour.corrections | {name for name, wanted in switched.items() if wanted}
    return replace(behaviour, corrections=chosen - {name for name, wanted in switched.items() if not wanted})
