"""Software that trains: descriptions of it, as data.

The same plan of the same model takes a different time in different software, which differs in fused
operations, casts, copies, and times of the host. A description is a JSON file in this folder, or one of the
user's own; `like` names the description that it differs from.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from et_sim.basics.lazy_names import lazy_names

if TYPE_CHECKING:
    from et_sim.workloads.software.description import Software
    from et_sim.workloads.software.reading import read_software, software_names

DEFAULT = "megatron-core"

__all__ = ["DEFAULT", "Software", "read_software", "software_names"]

__getattr__, __dir__ = lazy_names(
    __name__, __all__, {"description": ("Software",), "reading": ("read_software", "software_names")}
)
