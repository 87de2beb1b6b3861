"""Process groups as PyTorch lists them, in both kinds of files.

Not here: which collective runs in which group.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from converters.pytorch.columns import ProcessGroup
from converters.pytorch.reading.growing import whole_number


def process_groups(listed: Any) -> Iterator[ProcessGroup]:
    """The groups of a list of descriptions; what is no description is passed over."""
    for entry in listed if isinstance(listed, list) else ():
        if isinstance(entry, dict) and "pg_name" in entry:
            ranks = entry.get("ranks")
            yield ProcessGroup(
                name=str(entry["pg_name"]),
                description=str(entry.get("pg_desc", "")),
                ranks=tuple(map(whole_number, ranks)) if isinstance(ranks, list) else (),
                size=whole_number(entry.get("pg_size", entry.get("group_size"))),
                backend=str(entry.get("backend_config", "")),
            )
