"""The files of ASTRA-sim 1.0: JSON network, text system file, and its command-line options as keys.

They describe the same machine as the files of 2.x, with another rule for the time of a message
(`model.Level`), other names, and settings for layer files (`model.LayerSettings`). Not here: layer files.
"""

from et_sim.machine.version_1.network_file import LEVEL_KEYS, read_hierarchy
from et_sim.machine.version_1.system_file import SYSTEM_1_KEYS, read_system_1

__all__ = [
    "LEVEL_KEYS",
    "SYSTEM_1_KEYS",
    "read_hierarchy",
    "read_system_1",
]
