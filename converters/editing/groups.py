"""Who is in a communicator group, from whatever says so: the trace itself, a rule, or a groups file.

Not here: which nodes use it (`partners`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from et_sim.basics.errors import TraceError
from et_sim.basics.group_names import group_key
from et_sim.documents.json_text import parse_json
from et_sim.trace import Trace, Workload
from et_sim.trace.disk import read_unpacked
from et_sim.trace.process_groups import ALL_RANKS, read_process_groups

_WRAPPED = 2  # characters before and behind the JSON text in a node
GroupsFile = Mapping[str, tuple[int, ...]]


class Groups:
    """Groups of a workload by rank and name."""

    def __init__(self, workload: Workload, listed: GroupsFile) -> None:
        self._workload = workload
        self._listed = listed
        self._described = [read_process_groups(trace) for trace in workload.templates]

    def instance(self, rank: int, name: str) -> tuple[Any, ...]:
        """What is equal for two ranks if and only if they mean the same group; names are `group_key`s."""
        described = self._described[int(self._workload.template_of_rank[rank])].get(name)
        if not name or described == ALL_RANKS:
            return ("all", name)
        if described is not None:
            return ("described", name, *sorted(described))
        rule = self._workload.group_rules.get(name)
        return ("rule", name, rule.index(rank)) if rule else ("listed", name)

    def members(self, rank: int, name: str) -> tuple[int, ...] | None:
        """The members in their order; None if nothing says who they are."""
        described = self._described[int(self._workload.template_of_rank[rank])].get(name)
        if not name or described == ALL_RANKS:
            return tuple(range(self._workload.ranks))
        if described is not None:
            return described
        rule = self._workload.group_rules.get(name)
        return tuple(rule.members(rank)) if rule else self._listed.get(name)


def read_groups_file(path: Path | None) -> dict[str, tuple[int, ...]]:
    """The groups of a groups file, by `group_key`."""
    if path is None:
        return {}
    try:
        content = parse_json(read_unpacked(path).decode("utf-8-sig"), str(path), TraceError)
    except UnicodeDecodeError as error:
        cause = f"byte {error.start} is not UTF-8 text"
        raise TraceError(cause, place=str(path), remedy="a groups file is JSON") from None
    form = 'give an object of lists: {"1": [0, 1, 2, 3], "2": [4, 5, 6, 7]}'
    if not isinstance(content, dict):
        raise TraceError("is not a groups file", place=str(path), remedy=form)
    for name, members in content.items():
        is_list = isinstance(members, list) and len(members) > 0
        if not is_list or any(isinstance(member, bool) or not isinstance(member, int) for member in members):
            raise TraceError(f'group "{name}" is not a list of ranks', place=str(path), remedy=form)
    return {group_key(name): tuple(members) for name, members in content.items()}


def groups_text(groups: Mapping[str, Any]) -> bytes:
    """A groups file."""
    return json.dumps({name: list(members) for name, members in groups.items()}).encode()


Rewrite = Callable[[tuple[int, ...]], tuple[int, ...] | None]  # members -> new ones, or None


def rewritten_descriptions(trace: Trace, rewrite: Rewrite) -> tuple[dict[int, str], int]:
    """(texts of METADATA rows that change, how many descriptions went); `rewrite` gives None to drop one."""
    texts: dict[int, str] = {}
    gone = 0
    if not read_process_groups(trace):  # also refuses what cannot be understood
        return texts, 0
    for row, text in trace.metadata_text.items():
        entries, is_wrapped = _entries(text)
        kept = []
        for entry in entries:
            members = rewrite(tuple(entry["ranks"]))
            gone += members is None
            if members is not None:
                size = {"group_size": len(members)} if "group_size" in entry and members else {}
                kept.append({**entry, "ranks": list(members), **size})
        if kept != entries:
            new = json.dumps(kept)
            texts[row] = f"['{new}']" if is_wrapped else new
    return texts, gone


def _entries(text: str) -> tuple[list[dict[str, Any]], bool]:
    """The descriptions in a node's text, and whether they are wrapped; none if it is about something else."""
    if "pg_name" in text:
        for candidate, is_wrapped in ((text[_WRAPPED:-_WRAPPED], True), (text, False)):
            try:
                content = json.loads(candidate)
            except ValueError:
                continue
            if isinstance(content, list):
                return content, is_wrapped
    return [], False
