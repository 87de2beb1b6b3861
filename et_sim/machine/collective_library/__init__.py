"""Collective library of a machine: the algorithm and protocol that it chooses, and their time.

`choice` evaluates the library's own cost model (`candidates`, with the constants of `constants`), takes the
library's choice, and computes its time on a machine. `machine.collective_library_keys` reads the keys.
"""

from et_sim.machine.collective_library.channels import Channels, Wires
from et_sim.machine.collective_library.choice import Calibration, Call, Choice, Library
from et_sim.machine.collective_library.constants import Protocol

__all__ = ["Calibration", "Call", "Channels", "Choice", "Library", "Protocol", "Wires"]
