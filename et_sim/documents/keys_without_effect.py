"""Keys of files for ASTRA-sim without effect in et-sim: they are accepted with a warning and a reason.

Names that are neither here nor among the keys of a document are refused (`keys`). A document declares its own
keys without effect (`Key.ignored`).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

_OF_MEMORY = "describes remote memory: it has an effect only in the memory file (--memory)"
_OF_LEVELS = "belongs to network files of ASTRA-sim 1.0, and has no effect in one of 2.x"
_LOGS = "selects the output of ASTRA-sim; et-sim always writes a timeline"
_EARLY = "belongs to the first versions of ASTRA-sim 1.0; later ones do not read it"
_BRANCH = "belongs to a modified version of ASTRA-sim; the public one does not read it"

UNUSED_KEYS: Mapping[str, str] = MappingProxyType(
    {
        "packet-routing": "chose how packets of an all-to-all are routed on a network that 1.0 no longer has",
        "injection-policy": _EARLY,
        "direct-collective-window": 'has no effect alone: write the window behind the name, as in "direct4"',
        "remote-mem-bw": _OF_MEMORY,
        "remote-mem-latency": _OF_MEMORY,
        "num-nodes": _OF_MEMORY,
        "num-npus-per-node": _OF_MEMORY,
        "local-mem-latency": "is in sample files, and no version of ASTRA-sim reads it",
        "local-mem-bw": "has an effect only in the system file",
        "local-mem-size": _BRANCH,
        "et-data-element-size": _BRANCH,
        "hbm-bandwidth-contention": _BRANCH,
        "hbm-kv-restore-bandwidth-sharing": _BRANCH,
        "hbm-latency": _OF_LEVELS,
        "hbm-bandwidth": _OF_LEVELS,
        "hbm-scale": _OF_LEVELS,
        "nic-latency": _OF_LEVELS,
        "router-latency": _OF_LEVELS,
        "dimension-type": _OF_LEVELS,
        "links-count": _OF_LEVELS,
        "use-fast-version": _EARLY,
        "units-scale": _EARLY,
        "packages-counts": _EARLY,
        "topology-shape-configs": _EARLY,
        "print-log": _LOGS,
        "enable_network_logger": _LOGS,
        "dump-local-mem-trace": _LOGS,
        "logging-configuration": _LOGS,
        "logging-folder": _LOGS,
        "total-stat-rows": _LOGS,
        "stat-row": _LOGS,
        "run-name": _LOGS,
        "seprate-log": _LOGS,
        "stat-path": _LOGS,
    }
)
