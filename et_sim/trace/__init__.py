"""Execution traces: what each rank wants to do, from files or built in Python.

The names below load their modules on first use, so that importing the package costs neither
Numba nor protobuf.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

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

_HOME = {
    "builder": ("TraceBuilder",),
    "columns": ("CollectiveKind", "NodeKind", "Trace"),
    "encode": ("encode_trace",),
    "files": ("read_trace", "read_workload", "write_trace", "write_workload"),
    "group_rule": ("GroupRule",),
    "manifest": ("read_manifest", "write_manifest"),
    "wire": ("decode",),
    "workload": ("Workload",),
}


def __getattr__(name: str) -> Any:
    for module, names in _HOME.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
