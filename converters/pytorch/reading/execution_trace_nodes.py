"""Nodes of an execution trace with the members that are read, in both layouts.

The flat layout (schema 1.0.1) has a member for everything; later schemas keep inputs and outputs in objects
and most else in a list of attributes. Both become the same `Fields` of a block of nodes. Other keys are
skipped while decoding.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from converters.pytorch.columns import ABSENT
from converters.pytorch.reading.kineto_events import EventArguments
from converters.pytorch.reading.values import NO_TEXT, Number

# Attributes that have a column, and some that are not used.
_COMMON = frozenset(("rf_id", "fw_parent", "seq_id", "scope", "tid", "fw_tid", "op_schema", "tensor_range"))


class NodeAttribute(msgspec.Struct):
    """An element of `attrs`."""

    name: str
    value: Any = None


class NodeValues(msgspec.Struct, gc=False, frozen=True):
    """The `inputs` or `outputs` of a node."""

    values: msgspec.Raw = NO_TEXT
    shapes: msgspec.Raw = NO_TEXT
    types: msgspec.Raw = NO_TEXT


_NO_VALUES = NodeValues()


class ExecutionTraceNode(msgspec.Struct, rename={"node_id": "id", "category": "cat"}):
    """A node of schema 1.0.2 or later; with times if a linker has added them."""

    node_id: int
    name: str
    ctrl_deps: int | list[int] | None = None
    inputs: NodeValues = _NO_VALUES
    outputs: NodeValues = _NO_VALUES
    attrs: list[NodeAttribute] = msgspec.field(default_factory=list)
    category: str | None = None
    pid: int | float | str = ABSENT
    ts: Number = None
    dur: Number = None
    inclusive_dur: Number = None
    stream: Number = None
    args: EventArguments | None = None

    @property
    def caller(self) -> int:
        """Return the id of the calling node."""
        if isinstance(self.ctrl_deps, list):
            return self.ctrl_deps[0] if self.ctrl_deps else ABSENT
        return ABSENT if self.ctrl_deps is None else self.ctrl_deps

    def attribute(self, name: str, otherwise: Any) -> Any:
        """Return the value of one of the common attributes."""
        return next((entry.value for entry in self.attrs if entry.name == name), otherwise)


class FlatNode(msgspec.Struct, rename={"node_id": "id", "category": "cat"}):
    """A node of schema 1.0.1; with times if a linker has added them ("ET+")."""

    node_id: int
    name: str
    parent: int | None = None
    rf_id: Number = ABSENT
    seq_id: Number = ABSENT
    scope: Number = 0
    tid: Number = 0
    op_schema: str = ""
    inputs: msgspec.Raw = NO_TEXT
    input_shapes: msgspec.Raw = NO_TEXT
    input_types: msgspec.Raw = NO_TEXT
    outputs: msgspec.Raw = NO_TEXT
    output_shapes: msgspec.Raw = NO_TEXT
    output_types: msgspec.Raw = NO_TEXT
    category: str | None = None
    pid: int | float | str = ABSENT
    ts: Number = None
    dur: Number = None
    inclusive_dur: Number = None
    stream: Number = None
    args: EventArguments | None = None

    @property
    def caller(self) -> int:
        """Return the id of the calling node."""
        return ABSENT if self.parent is None else self.parent

    def attribute(self, name: str, otherwise: Any) -> Any:
        """Return the value of one of the common attributes."""
        return getattr(self, name, otherwise)


class NodeLayout(msgspec.Struct):
    """The members that distinguish the layouts, and show the work of a linker."""

    attrs: msgspec.Raw = NO_TEXT
    ctrl_deps: msgspec.Raw = NO_TEXT
    shapes: msgspec.Raw = msgspec.field(default=NO_TEXT, name="input_shapes")
    ts: msgspec.Raw = NO_TEXT


class Fields(Struct, frozen=True):
    """A block of nodes, field by field."""

    parent: list[int]
    record_function: list[Number]
    sequence: list[Number]
    scope: list[Number]
    thread: list[Number]
    schema_text: list[str]
    inputs: list[msgspec.Raw]
    input_shapes: list[msgspec.Raw]
    input_types: list[msgspec.Raw]
    outputs: list[msgspec.Raw]
    output_shapes: list[msgspec.Raw]
    output_types: list[msgspec.Raw]
    more: list[dict[str, Any]]  # attributes without a column


def fields_of(nodes: list[ExecutionTraceNode]) -> Fields:
    """Return the fields of nodes of the later schemas."""
    attributes = [{attribute.name: attribute.value for attribute in node.attrs} for node in nodes]
    return Fields(
        parent=[node.caller for node in nodes],
        record_function=[values.get("rf_id", ABSENT) for values in attributes],
        sequence=[values.get("seq_id", ABSENT) for values in attributes],
        scope=[values.get("scope", 0) for values in attributes],
        thread=[values.get("tid", 0) for values in attributes],
        schema_text=[str(values.get("op_schema") or "") for values in attributes],
        inputs=[node.inputs.values for node in nodes],
        input_shapes=[node.inputs.shapes for node in nodes],
        input_types=[node.inputs.types for node in nodes],
        outputs=[node.outputs.values for node in nodes],
        output_shapes=[node.outputs.shapes for node in nodes],
        output_types=[node.outputs.types for node in nodes],
        more=[
            {name: value for name, value in values.items() if name not in _COMMON and value not in ("", None)}
            for values in attributes
        ],
    )


def fields_of_flat(nodes: list[FlatNode]) -> Fields:
    """Return the fields of nodes of schema 1.0.1."""
    return Fields(
        parent=[node.caller for node in nodes],
        record_function=[node.rf_id for node in nodes],
        sequence=[node.seq_id for node in nodes],
        scope=[node.scope for node in nodes],
        thread=[node.tid for node in nodes],
        schema_text=[node.op_schema for node in nodes],
        inputs=[node.inputs for node in nodes],
        input_shapes=[node.input_shapes for node in nodes],
        input_types=[node.input_types for node in nodes],
        outputs=[node.outputs for node in nodes],
        output_shapes=[node.output_shapes for node in nodes],
        output_types=[node.output_types for node in nodes],
        more=[{}] * len(nodes),
    )
