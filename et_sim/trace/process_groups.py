"""Process groups that a trace brings itself: PyTorch writes their members into METADATA nodes.

The text of such a node is a list that holds one string, `['[{"pg_name": "1", "ranks": [0, 1]}]']`, and
the string is JSON. A description holds for the whole trace, wherever its node stands, and comes before a
group of that name in the groups file. Metadata about other things is left alone.

Not here: whether ranks exist and who is a member (`et_sim.plan.groups`, `preflight`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from et_sim.basics.errors import TraceError
from et_sim.basics.group_names import group_key
from et_sim.trace.columns import NodeKind, Trace

ALL_RANKS: tuple[int, ...] = ()  # how a description spells "every rank"
_WRAPPING = 2  # characters in front of the JSON text and behind it
_FORM = 'process groups are written as [\'[{"pg_name": "1", "ranks": [0, 1]}, …]\']'


def read_process_groups(trace: Trace) -> dict[str, tuple[int, ...]]:
    """Members of every group that the trace describes, by `group_key`; ALL_RANKS: all of them."""
    groups: dict[str, tuple[int, ...]] = {}
    for row in trace.metadata_text:
        for name, members in _described(trace, row):
            key = group_key(name)
            if groups.setdefault(key, members) != members:
                raise _refusal(
                    trace,
                    row,
                    f"describes process group {name!r} again, with other members",
                    "describe every group once per trace",
                )
    return groups


def count_metadata(trace: Trace) -> tuple[int, int]:
    """(METADATA nodes that describe process groups, METADATA nodes that say something else or nothing)."""
    total = int((trace.kind == NodeKind.METADATA).sum())
    about = sum(1 for row in trace.metadata_text if _entries(trace, row) is not None)
    return about, total - about


def process_group_text(groups: Mapping[str, Sequence[int]]) -> str:
    """The text of a METADATA node that describes groups; no members means all ranks."""
    entries = [{"pg_name": name, "ranks": list(members)} for name, members in groups.items()]
    return f"['{json.dumps(entries)}']"


def _entries(trace: Trace, row: int) -> list[Any] | None:
    """The descriptions in a node's text; None if it is about something else."""
    text = trace.metadata_text[row]
    if "pg_name" not in text:
        return None
    for candidate in (text[_WRAPPING:-_WRAPPING], text):
        try:
            content = json.loads(candidate)
        except ValueError:
            continue
        if isinstance(content, list):
            return content
    raise _refusal(trace, row, "mentions pg_name, and its text is not a list of process groups", _FORM)


def _described(trace: Trace, row: int) -> list[tuple[str, tuple[int, ...]]]:
    return [_one(trace, row, entry) for entry in _entries(trace, row) or ()]


def _one(trace: Trace, row: int, entry: Any) -> tuple[str, tuple[int, ...]]:
    if not isinstance(entry, dict) or not {"pg_name", "ranks"} <= entry.keys():
        raise _refusal(trace, row, "describes a process group without pg_name or ranks", _FORM)
    name, ranks = entry["pg_name"], entry["ranks"]
    if isinstance(name, bool) or not isinstance(name, str | int):
        raise _refusal(trace, row, f"names a process group {name!r}", "its name is a text or a number")
    if not isinstance(ranks, list) or any(isinstance(r, bool) or not isinstance(r, int) for r in ranks):
        raise _refusal(
            trace, row, f"gives process group {name!r} ranks that are no list of whole numbers", _FORM
        )
    if len(set(ranks)) < len(ranks):
        raise _refusal(trace, row, f"gives process group {name!r} a rank twice", "name every rank once")
    return str(name), tuple(ranks)


def _refusal(trace: Trace, row: int, cause: str, remedy: str) -> TraceError:
    return TraceError(f"{trace.describe(row)} {cause}", place=trace.source, remedy=remedy)
