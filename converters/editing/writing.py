"""The file of an edited trace: records that stay as they are keep their bytes.

Not here: what changes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from converters.editing.inputs import Recorded
from converters.editing.remove_nodes import Rewiring
from converters.records import frame_bytes
from et_sim.trace.schema import messages

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
