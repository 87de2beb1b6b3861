"""Generate the users' page on tables, `docs/timeline.md`, from the schemas that are written.

    python tests/docs/timeline_page.py docs/timeline.md

`docs/output.md` explains how the columns belong together.
"""

# ruff: noqa: E501 - the lines of the page are as long as those of the other pages

from __future__ import annotations

import sys
from pathlib import Path

from et_sim.tables.declaration import STRING, TEXT, WORD, Column, Table
from et_sim.tables.registry import VERSION, all_tables

_OPENING = f"""\
# Every column of every table

<!-- Generated: python tests/docs/timeline_page.py docs/timeline.md -->

The tables of a run are Arrow IPC files. The files hold the descriptions below, too. Every field carries its meaning
(`meaning`), its unit (`unit`: `ns`, `bytes`, or nothing) and the table whose rows its numbers name (`refers_to`) as
metadata: of `actors`, each stands for all its ranks. Every table carries the manifest of the run (`et-sim`) and the
version of these schemas (`et-sim.tables`), which is {VERSION}. The version goes up when a column is renamed, removed or changes
its meaning. et-sim reads this version, and refuses others with a sentence.

[How the tables belong together](output.md), and what the words in them mean, is a page of its own;
[queries of them](cookbook.md) are written in SQL.
"""


def timeline_page() -> str:
    """Return the whole page."""
    return _OPENING + "".join(_section(table) for table in all_tables())


def _section(table: Table) -> str:
    about = f"{table.about[0].upper()}{table.about[1:]}."
    remark = f" A run may hold it or not: {table.how_to_get_it}." if table.is_optional else ""
    head = "| column | type | unit | refers to | meaning |\n|---|---|---|---|---|\n"
    return (
        f"\n## {table.file}\n\n{about}{remark}\n\n{head}{''.join(_row(column) for column in table.columns)}"
    )


def _row(column: Column) -> str:
    kind = "text" if column.kind in (STRING, TEXT, WORD) else column.kind
    meaning = f"{column.meaning} (only of {column.only_of})" if column.only_of else column.meaning
    return f"| `{column.name}` | {kind} | {column.unit} | {column.refers_to} | {meaning} |\n"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(timeline_page(), encoding="utf-8")
