"""The file of an edited trace: records that stay as they are keep their bytes.

Not here: what changes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from converters.editing.inputs import Recorded
from converters.editing.remove_nodes import Rewiring
from converters.records import EXPECTED_MEMBER, frame_bytes
from et_sim.trace.schema import messages

_MEMBER = dict(EXPECTED_MEMBER)


def set_attributes(node: Any, values: Mapping[str, Any]) -> None:
    """Give attributes new values, in the member that holds them now, or the usual one."""
    left = dict(values)
    for attribute in node.attr:
        if attribute.name in left:
            member = attribute.WhichOneof("value") or _MEMBER[attribute.name]
            setattr(attribute, member, _as(member, left.pop(attribute.name)))
    for name, value in left.items():
        setattr(node.attr.add(name=name), _MEMBER[name], value)


def _as(member: str, value: Any) -> Any:
    """Sizes are written as floating-point numbers by some."""
    return float(value) if member in ("double_val", "float_val") else value


Change = Callable[[Any], None]  # of a node's message, in place


def edited(
    recorded: Recorded,
    keep: Any,
    bridges: Rewiring,
    changes: Mapping[int, Change] | None = None,
    added: Sequence[Any] = (),
) -> bytes:
    """The file with the rows for which `keep` holds, their new dependencies and changes; then new nodes.

    Dependencies on new nodes are numbers from `len(trace)` on.
    """
    ids = [*recorded.trace.node_id.tolist(), *(node.id for node in added)]
    stays = keep.tolist()
    changes = changes or {}
    kind = messages().Node
    records = [recorded.header]
    for row, record in zip(recorded.row.tolist(), recorded.records, strict=True):
        if not stays[row]:
            continue
        if row in bridges.data or row in changes:
            node = kind.FromString(record)
            if row in bridges.data:
                node.data_deps[:] = [ids[parent] for parent in bridges.data[row]]
                node.ctrl_deps[:] = [ids[parent] for parent in bridges.ctrl[row]]
            if row in changes:
                changes[row](node)
            record = node.SerializeToString(deterministic=True)
        records.append(record)
    records += [node.SerializeToString(deterministic=True) for node in added]
    return frame_bytes(records)
