"""Generate the users' page on tables, `docs/timeline.md`, from the schemas that are written.

    python tests/docs/timeline_page.py docs/timeline.md

Not here: how columns belong together, which docs/output.md explains.
"""

# ruff: noqa: E501 - the lines of the page are as long as those of the other pages

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from et_sim.timeline import tables

_OPENING = f"""\
# Every column of every table

<!-- Generated: python tests/docs/timeline_page.py docs/timeline.md -->

The tables of a run are Arrow IPC files. What is said here stands in the files, too: every field carries its meaning
(`meaning`) and its unit (`unit`: `ns`, `bytes`, or nothing) as metadata, and every table the manifest of the run
(`et-sim`) and the version of these schemas (`et-sim.tables`), which is {tables.TABLES_VERSION}. The version goes up when a column
changes its meaning or disappears. et-sim reads all earlier versions, and refuses later ones with a sentence.

[How the tables belong together](output.md), and what the words in them mean, is a page of its own;
[questions to them](cookbook.md) are asked in SQL.
"""
TABLES = (
    (
        "timeline",
        "One row for every executed node of every actor: actor by actor, by ascending node id.",
        tables.TIMELINE_FIELDS,
    ),
    ("actors", "One row for every actor, in ascending order.", tables.ACTOR_FIELDS),
    (
        "phases",
        "With `--detail phases`: one row for every chunk of every collective in every phase, in the order in which phases ended.",
        tables.PHASE_FIELDS,
    ),
    (
        "messages",
        "With `--detail messages`: one row for every message that an actor sends. On the link model they are in the order of arrival, else in the order in which they set out.",
        tables.MESSAGE_FIELDS,
    ),
    (
        "links",
        "With `--detail links`: one row for every link and slice of time in which anything happens on it, link by link. There are at most 128 slices, however long the run is: when it outlasts them, neighbours are merged.",
        tables.LINK_FIELDS,
    ),
    (
        "memory",
        "Where local memory is tracked: one row for every change, actor by actor, in order of time.",
        tables.MEMORY_FIELDS,
    ),
    (
        "path",
        "With `--detail path`: one row for every moment, each after those that it needs.",
        tables.PATH_FIELDS,
    ),
    (
        "layers",
        "Of layer files: one row for every layer. `phases.arrow` then also has the columns `layer` and `layer_phase`.",
        tables.LAYER_FIELDS,
    ),
)


def timeline_page() -> str:
    """The whole page."""
    return _OPENING + "".join(_section(*table) for table in TABLES)


def _section(name: str, about: str, fields: Any) -> str:
    head = f"\n## {name}.arrow\n\n{about}\n\n| column | type | unit | meaning |\n|---|---|---|---|\n"
    return head + "".join(_row(field) for field in fields)


def _row(field: Any) -> str:
    unit, meaning = (field.metadata[key].decode() for key in (b"unit", b"meaning"))
    kind = (
        "text" if "string" in str(field.type) else {"double": "float64"}.get(str(field.type), str(field.type))
    )
    return f"| `{field.name}` | {kind} | {unit} | {meaning} |\n"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(timeline_page(), encoding="utf-8")
