"""What names say: of files, the rank; of operators, whether the values of their arguments matter.

Not here: what a collective or an operator costs.
"""

from __future__ import annotations

import re
from pathlib import Path

from converters.pytorch.columns import ABSENT

_RANK = re.compile(r"(?:rank|worker|gpu|npu)[-_. ]?(\d{1,7})(?!\d)", re.IGNORECASE)
# A short number at the end; a long one is a process or a time.
_NUMBER = re.compile(r"(?:^|[-_.])(\d{1,4})(?:_plus)?(?:\.(?:pt|trace|json|gz))+$")
# Arguments that are no tensors decide about the cost, or tell which group and peer is meant.
_VALUES_MATTER = re.compile(r"conv|attention|attn|mha_|^c10d::|^_?c10d_functional|^_dtensor::|^symm_mem::")
C10D = re.compile(r"^(?:c10d::|_?c10d_functional|_dtensor::|symm_mem::)")
GROUPS = "process_group:init"
COMMUNICATION = "record_param_comms"


def rank_of_name(path: Path) -> int:
    """The rank that a file's name tells: "rank3", "worker3", or a short number at its end ("et_3.json")."""
    found = _RANK.search(path.name) or _NUMBER.search(path.name)
    return int(found.group(1)) if found else ABSENT


def values_matter(name: str) -> bool:
    """Whether the columns keep all input values of an operator of this name."""
    return name == COMMUNICATION or GROUPS in name or _VALUES_MATTER.search(name) is not None
