"""Collective library of a machine: the algorithm and protocol that it chooses, and their time.

`choice` evaluates the library's own cost model (`candidates`, with the constants of `constants`), takes the
library's choice, and computes its time on a machine. `machine.collective_library_keys` reads the keys.
"""

from et_sim.machine.collective_library.channels import Channels, LibraryWires
from et_sim.machine.collective_library.choice import Calibration, Call, Library, LibraryChoice
from et_sim.machine.collective_library.constants import LibraryProtocol

__all__ = ["Calibration", "Call", "Channels", "Library", "LibraryChoice", "LibraryProtocol", "LibraryWires"]
