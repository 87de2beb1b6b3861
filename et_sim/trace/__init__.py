"""Execution traces: the programs of ranks, from files or built in Python.

The names below load their modules on first use, so that an import of the package loads neither Numba nor
protobuf.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from et_sim.basics.lazy_names import lazy_names

if TYPE_CHECKING:
    from et_sim.trace.builder import TraceBuilder
    from et_sim.trace.columns import CollectiveKind, NodeKind, Trace
    from et_sim.trace.encode import encode_trace
    from et_sim.trace.files import read_trace, read_workload, write_trace, write_workload
    from et_sim.trace.group_rule import GroupRule
    from et_sim.trace.manifest import read_manifest, write_manifest
    from et_sim.trace.wire import decode
    from et_sim.trace.workload import Workload

__all__ = [
    "CollectiveKind",
    "GroupRule",
    "NodeKind",
    "Trace",
    "TraceBuilder",
    "Workload",
    "decode",
    "encode_trace",
    "read_manifest",
    "read_trace",
    "read_workload",
    "write_manifest",
    "write_trace",
    "write_workload",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    __all__,
    {
        "builder": ("TraceBuilder",),
        "columns": ("CollectiveKind", "NodeKind", "Trace"),
        "encode": ("encode_trace",),
        "files": ("read_trace", "read_workload", "write_trace", "write_workload"),
        "group_rule": ("GroupRule",),
        "manifest": ("read_manifest", "write_manifest"),
        "wire": ("decode",),
        "workload": ("Workload",),
    },
)
