"""What names in traces of PyTorch mean, read from `rules.toml`: collectives, kernels, datatypes, calls.

A name without a rule gives None or 0; whoever asked counts it for the report. Not here: arguments
(`communication`), and which of a trace's rows have these names.
"""

from __future__ import annotations

import functools
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from et_sim.trace.columns import CollectiveKind, NodeKind

UNNAMED = "?"  # a kernel that communicates, and does not say how


@dataclass(frozen=True, slots=True)
class Operation:
    """What a communication node is: its kind of node, and of collective (None for messages, or not known)."""

    node: NodeKind
    collective: CollectiveKind | None

    @property
    def label(self) -> str:
        """`all_reduce`, `send`: how reports call it."""
        if self == UNNAMED_OPERATION:
            return "communication"
        return self.node.name.lower() if self.collective is None else self.collective.name.lower()

    @property
    def is_message(self) -> bool:
        """Whether it is between two ranks."""
        return self.node != NodeKind.COLL


UNNAMED_OPERATION = Operation(NodeKind.COLL, None)


@dataclass(frozen=True, slots=True)
class Traffic:
    """What operators do with their tensors."""

    by_tensors: re.Pattern[str]
    others: re.Pattern[str]
    uses: Mapping[str, str]  # FILLS, REDUCES, …, by name without `aten::` and the last `_`


@dataclass(frozen=True, slots=True)
class Rules:
    """The tables of `rules.toml`."""

    operations: Mapping[str, Operation]  # by normalised name
    bookkeeping: frozenset[str]
    kernels: tuple[tuple[re.Pattern[str], str], ...]  # normalised name of an operation, or UNNAMED
    element_bytes: Mapping[str, int]
    runtime: Mapping[str, frozenset[str]]
    traffic: Traffic

    def operation(self, name: str) -> Operation | None:
        """`_allgather_base`, `nccl:all_reduce` or `c10d::allreduce_` as an operation."""
        return self.operations.get(normalised(name))

    def is_bookkeeping(self, name: str) -> bool:
        """Whether a communication record of this name transfers nothing."""
        return normalised(name) in self.bookkeeping

    def kernel(self, name: str) -> str | None:
        """Whether a kernel communicates: the name of its operation, UNNAMED, or None for other kernels."""
        operations = (operation for pattern, operation in self.kernels if pattern.search(name))
        return next(operations, None)

    def bytes_of(self, datatype: str) -> int:
        """Bytes of one element; 0 if the datatype is not known."""
        return self.element_bytes.get(datatype.lower().replace("c10::", "").strip(), 0)


def normalised(name: str) -> str:
    """The part that names the operation, without separators: `c10d::alltoall_base_` is `alltoallbase`."""
    return name.rpartition(":")[2].lower().replace("_", "").replace("-", "")


@functools.cache
def rules() -> Rules:
    """The rules, read once."""
    with Path(__file__).with_name("rules.toml").open("rb") as file:
        content = tomllib.load(file)
    return Rules(
        {name: _operation(kind) for name, kind in content["collective"].items()},
        frozenset(content["bookkeeping"]["names"]),
        tuple(
            (re.compile(rule["pattern"]), rule["collective"].replace("_", "")) for rule in content["kernel"]
        ),
        {name: int(size) for size, names in content["bytes"].items() for name in names},
        {rule: frozenset(names) for rule, names in content["runtime"].items()},
        _traffic(content["traffic"]),
    )


def _traffic(content: Mapping[str, Any]) -> Traffic:
    by_tensors, others = (re.compile("|".join(content[key])) for key in ("by_tensors", "others"))
    uses = ("fills", "reduces", "gathers", "scatters")
    return Traffic(by_tensors, others, {name: key.upper() for key in uses for name in content[key]})


def _operation(name: str) -> Operation:
    if name in ("send", "recv"):
        return Operation(NodeKind[name.upper()], None)
    return Operation(NodeKind.COLL, CollectiveKind[name.upper()])
