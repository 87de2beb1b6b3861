"""A collective library as part of the machine: the algorithm and protocol that it chooses, and their time.

`choice` asks the library's own cost model (`candidates`, by the constants of `constants`) what it would
choose, and says what that then takes on a machine. `machine.collective_library_keys` reads it.

Not here: the messages of a choice (`et_sim.plan.library_phases`).
"""

from et_sim.machine.collective_library.channels import Channels, Wires
from et_sim.machine.collective_library.choice import Calibration, Call, Choice, Library
from et_sim.machine.collective_library.constants import Protocol

__all__ = ["Calibration", "Call", "Channels", "Choice", "Library", "Protocol", "Wires"]
