"""A collective library as part of the machine: the algorithm and protocol that it chooses, and their time.

`model` asks the library's own cost model (`candidates`, by the constants of `rules`, over the channels of
`channels`) what it would choose, and `calibration` says what that then takes on a machine.

Not here: the messages of a choice (`et_sim.plan.library_phases`), and reading keys (`library_object`).
"""

from et_sim.machine.library.calibration import Calibration
from et_sim.machine.library.channels import Channels, Wires
from et_sim.machine.library.model import Call, Choice, Library
from et_sim.machine.library.rules import Protocol

__all__ = ["Calibration", "Call", "Channels", "Choice", "Library", "Protocol", "Wires"]
