"""A collective library as part of the machine: which algorithm and protocol it chooses, and the time that takes.

`model` asks the library's own cost model (`nccl`, `rccl`, over the channels of `channels`) what it would
choose, and `calibration` says what that then takes on a machine. Not here: the messages that it turns into
(`et_sim.plan.library_phases`), and reading keys (`machine.library_object`).
"""

from et_sim.machine.library.calibration import Calibration
from et_sim.machine.library.channels import Channels, Wires
from et_sim.machine.library.model import Call, Choice, Library
from et_sim.machine.library.rules import Protocol

__all__ = ["Calibration", "Call", "Channels", "Choice", "Library", "Protocol", "Wires"]
